"""How often the gate accepts what is worth nothing, and what it sees of what is worth something.

    python -m benchmarks.gate_null [--gates 20000] [--power-gates 2000] [--out FILE]

Null gates: edits that change answers by fair coins, at several discordance rates and ladder lengths, and A/A
pairs (two runs of the same text) of agents whose ability differs from question to question. Power: true gains
of 3, 5 and 10 points, beside the shadow gates, each on the whole ladder. Fails when CONFIRMED exceeds alpha
by more than three standard errors. Seeded; the results are committed.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, GateVerdict, PairResult
from core.evolution.shadow import SHADOW_GATES, shadow_verdicts

SEED = 20
PARAMS = GateParams()
LENGTHS = (20, 40, 80)
DISCORDANCE = (0.05, 0.15, 0.30, 0.60)
ABILITIES = {"abilities alike": (8.0, 8.0), "abilities unlike": (1.0, 1.0), "mostly sure": (0.3, 0.3)}
GAINS = (0.0, 0.03, 0.05, 0.10)
REGRESSION_RATE = 0.03
"""Share of questions that the deterministic agent's edit breaks while it mends others."""

Pairs = list[PairResult]
Scenario = tuple[str, int, Callable[[np.random.Generator], Pairs]]


def pairs_of(base: np.ndarray, cand: np.ndarray, weights: np.ndarray | None = None) -> Pairs:
    planned = np.ones(len(base), dtype=int) if weights is None else weights
    return [
        PairResult(str(number), bool(b), bool(c), weight=int(w))
        for number, (b, c, w) in enumerate(zip(base, cand, planned, strict=True))
    ]


def play(pairs: Pairs) -> GateVerdict:
    """The gate as a run plays it: block by block until it decides."""
    weights = [pair.weight for pair in pairs]
    blocks: list[Pairs] = []
    for start in range(0, len(pairs), PARAMS.block):
        blocks.append(pairs[start : start + PARAMS.block])
        is_last = start + PARAMS.block >= len(pairs)
        evidence = GateEvidence.from_blocks(len(pairs), blocks, weights)
        verdict = gate_decision(evidence, PARAMS, is_last_block=is_last)
        if verdict.decision != "CONTINUE":
            return verdict
    raise AssertionError("the last block always decides")


def coins(length: int, rate: float, random: np.random.Generator) -> Pairs:
    """A worthless edit: each question changes with `rate`, up or down by a fair coin."""
    base = random.random(length) < 0.5
    changed = random.random(length) < rate
    return pairs_of(base, base ^ changed)


def noisy(
    length: int,
    shape: tuple[float, float],
    gain: float,
    random: np.random.Generator,
    *,
    weighted: bool = False,
) -> Pairs:
    """Two independent runs of an agent whose ability is drawn anew for each question.

    The second run's ability is raised by 2 `gain` (1 - ability), which is `gain` on average.
    """
    ability = random.beta(*shape, length)
    base = random.random(length) < ability
    cand = random.random(length) < ability + 2 * gain * (1 - ability)
    return pairs_of(base, cand, random.choice([1, 2, 8], length) if weighted else None)


def steady(length: int, gain: float, random: np.random.Generator) -> Pairs:
    """A deterministic agent: the edit mends `gain` + 3 % of the questions and breaks 3 %."""
    broken, mended = REGRESSION_RATE, gain + REGRESSION_RATE
    change = random.choice([-1, 0, 1], length, p=[broken, 1 - broken - mended, mended])
    base = np.where(change == 0, random.random(length) < 0.5, change < 0)
    return pairs_of(base, np.where(change == 0, base, change > 0))


def rates_of(draw: Callable[[np.random.Generator], Pairs], gates: int, seed: list[int]) -> dict:
    """Shares of verdicts over `gates` gates; `asked` is the mean number of questions a gate needed."""
    random = np.random.default_rng(seed)
    decisions, asked, changed = {"ACCEPT_CONFIRMED": 0, "ACCEPT_PROVISIONAL": 0, "REJECT": 0}, 0, 0.0
    shadows = dict.fromkeys(SHADOW_GATES, 0)
    for _ in range(gates):
        pairs = draw(random)
        verdict = play(pairs)
        decisions[verdict.decision] += 1
        asked += verdict.attempts
        changed += sum(pair.base != pair.cand for pair in pairs) / len(pairs)
        blocks = [pairs[start : start + PARAMS.block] for start in range(0, len(pairs), PARAMS.block)]
        whole = GateEvidence.from_blocks(len(pairs), blocks, [pair.weight for pair in pairs])
        for shadow in shadow_verdicts(whole):
            shadows[shadow.gate] += shadow.accept
    return {
        "gates": gates,
        "discordance": round(changed / gates, 4),
        "confirmed": round(decisions["ACCEPT_CONFIRMED"] / gates, 5),
        "accepted": round(1 - decisions["REJECT"] / gates, 5),
        "asked": round(asked / gates, 2),
        "shadows": {name: round(count / gates, 5) for name, count in shadows.items()},
    }


def null_families() -> dict[str, list[Scenario]]:
    """Scenarios (name, ladder length, how to draw a gate) of coins and of A/A pairs."""
    by_coins = [
        (f"coins, discordance {rate:.2f}", length, lambda random, n=length, r=rate: coins(n, r, random))
        for length in LENGTHS
        for rate in DISCORDANCE
    ]
    same_text = [
        (f"A/A, {name}", length, lambda random, n=length, s=shape: noisy(n, s, 0.0, random))
        for name, shape in ABILITIES.items()
        for length in LENGTHS
    ]
    unlike = ABILITIES["abilities unlike"]
    same_text.append(
        ("A/A, weights 1, 2, 8", 40, lambda random: noisy(40, unlike, 0.0, random, weighted=True))
    )
    return {"coins": by_coins, "A/A": same_text}


def power_scenarios() -> list[tuple[str, float, Callable[[np.random.Generator], Pairs]]]:
    """(name, true gain, how to draw a gate of 40 questions)."""
    scenarios = []
    for gain in GAINS:
        scenarios.append(("deterministic", gain, lambda random, g=gain: steady(40, g, random)))
        for name, shape in ABILITIES.items():
            scenarios.append(
                (f"noisy, {name}", gain, lambda random, g=gain, s=shape: noisy(40, s, g, random))
            )
    return sorted(scenarios, key=lambda scenario: scenario[0])


def null_rows(scenarios: list[Scenario], gates: int, seed: int) -> list[dict]:
    """One row for each scenario; `gates` in all."""
    each = math.ceil(gates / len(scenarios))
    return [
        {"name": name, "length": length, **rates_of(draw, each, [SEED, seed, number])}
        for number, (name, length, draw) in enumerate(scenarios)
    ]


def pooled(rows: list[dict]) -> dict:
    """CONFIRMED over all rows, and whether every row and the whole stay within alpha + 3 standard errors."""
    gates = sum(row["gates"] for row in rows)
    confirmed = sum(row["confirmed"] * row["gates"] for row in rows) / gates
    checks = [(confirmed, gates), *((row["confirmed"], row["gates"]) for row in rows)]
    bounds = [PARAMS.alpha + 3 * math.sqrt(PARAMS.alpha * (1 - PARAMS.alpha) / count) for _, count in checks]
    within = all(rate <= bound for (rate, _), bound in zip(checks, bounds, strict=True))
    return {"gates": gates, "confirmed": round(confirmed, 5), "within_alpha": within}


def table(title: str, label: str, rows: list[dict]) -> None:
    print(f"\n{title}")
    shadow_heads = "".join(f"{name:>15}" for name in SHADOW_GATES)
    print(
        f"{label:<34}{'length':>7}{'changed':>9}{'confirmed':>11}{'accepted':>10}{'asked':>7}{shadow_heads}"
    )
    for row in rows:
        shadows = "".join(f"{row['shadows'][name]:>15.3f}" for name in SHADOW_GATES)
        print(
            f"{row['name']:<34}{row['length']:>7}{row['discordance']:>9.3f}{row['confirmed']:>11.4f}"
            f"{row['accepted']:>10.3f}{row['asked']:>7.1f}{shadows}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gates", type=int, default=20_000, help="null gates of each family")
    parser.add_argument("--power-gates", type=int, default=2_000, help="gates of each row of the power table")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gate_null.json")
    arguments = parser.parse_args()

    results: dict = {"seed": SEED, "alpha": PARAMS.alpha, "tau": PARAMS.tau_in_force, "null": {}}
    for number, (family, scenarios) in enumerate(null_families().items()):
        rows = null_rows(scenarios, arguments.gates, number)
        summary = pooled(rows)
        results["null"][family] = {**summary, "rows": rows}
        table(f"Worthless edits, alpha = {PARAMS.alpha}", family, rows)
        print(
            f"all {summary['gates']} gates: {summary['confirmed']:.4f} confirmed, "
            f"{'within' if summary['within_alpha'] else 'OVER'} alpha + 3 standard errors"
        )
    results["power"] = [
        {
            "name": f"{name}, +{100 * gain:.0f} points",
            "gain": gain,
            "length": 40,
            **rates_of(draw, arguments.power_gates, [SEED, 1000 + number]),
        }
        for number, (name, gain, draw) in enumerate(power_scenarios())
    ]
    table(
        f"Real gains, {arguments.power_gates} gates a row, shadow gates on the whole ladder",
        "agent and gain",
        results["power"],
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0 if all(family["within_alpha"] for family in results["null"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
