"""How long the gate thinks: milliseconds for each decision in gates of 40 questions.

    python -m benchmarks.gate_speed [--gates 100]

CPU time. Cold: every memo of the exact mathematics is emptied before each decision. Warm: the same decision
again. The goal is under 5 ms a block.
"""

import argparse
import statistics
import time

import numpy as np

from core.evolution import exact
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, PairResult

LENGTH = 40
GOAL_MS = 5.0
KINDS = {
    "hard": (GateParams(), (1,)),
    "hard, weights 1 to 8": (GateParams(), (1, 2, 5, 8)),
    "soft, 20 levels": (GateParams(metric="soft"), (1,)),
    "mixed, 20 levels, weights 1 to 8": (GateParams(metric="mixed"), (1, 2, 5, 8)),
}


def forget() -> None:
    """Empties all memos of the exact mathematics."""
    for function in vars(exact).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def random_evidence(weights: tuple[int, ...], random: np.random.Generator) -> list[GateEvidence]:
    """The evidence of one gate as it stands after each of its blocks."""
    planned = [int(weight) for weight in random.choice(weights, LENGTH)]
    pairs = [
        PairResult(str(number), *(bool(x) for x in random.random(2) < 0.5), *random.random(2), weight)
        for number, weight in enumerate(planned)
    ]
    size = GateParams().block
    return [
        GateEvidence.from_blocks(
            LENGTH, [pairs[start : start + size] for start in range(0, asked, size)], planned
        )
        for asked in range(size, LENGTH + 1, size)
    ]


def milliseconds(evidence: GateEvidence, params: GateParams) -> float:
    started = time.process_time()
    gate_decision(evidence, params, is_last_block=evidence.attempts == LENGTH)
    return 1000 * (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gates", type=int, default=100, help="gates of each kind")
    arguments = parser.parse_args()
    print(f"{'CPU ms a block, 40 questions':<36}{'cold median':>12}{'cold 99 %':>11}{'warm median':>12}")
    for number, (name, (params, weights)) in enumerate(KINDS.items()):
        random = np.random.default_rng(number)
        cold, warm = [], []
        for _ in range(arguments.gates):
            for evidence in random_evidence(weights, random):
                forget()
                cold.append(milliseconds(evidence, params))
                warm.append(milliseconds(evidence, params))
        slow = float(np.percentile(cold, 99))
        print(f"{name:<36}{statistics.median(cold):>12.2f}{slow:>11.2f}{statistics.median(warm):>12.2f}")
    print(f"goal: under {GOAL_MS:g} ms")


if __name__ == "__main__":
    main()
