"""What a rollout costs besides the model: CPU, overhead over ideal, memory; each beside a floor.

The model is a mock: it answers at once (CPU) or after 50 ms (overhead). Rollouts are durable and traced, as
in training. The *floor* of the same round does the same calls of the same mock model with bare `asyncio` and
keeps nothing, so that a slow or crowded machine shows on both sides.

`python benchmarks/rollouts.py [FOLDER]` runs each measurement in a process of its own and prints a table;
FOLDER is where the databases go. `--json PATH` keeps the figures.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.types import GeneratedQuestion, LLMResponse, Message
from harness.inference import run_inference
from harness.log import HarnessLog
from harness.workspace import VersionedPromptStore

ROUNDS = 5
CPU_ROLLOUTS, MANY_ROLLOUTS = 2_000, 10_000
DELAY_S, CONCURRENCY = 0.05, 256
SKILL = '---\nname: "default-strategy"\ndescription: How to look.\n---\nLook, then answer.\n'
NODES = [
    {"id": f"L3_{number}", "level": 3, "time_range": [number, number + 1], "card": "a red car passes " * 6}
    for number in range(5)
]


class MockModel:
    """Looks `turns - 1` times, then hands in an answer; each reply after `delay_s` seconds."""

    model = "mock"

    def __init__(self, turns: int, delay_s: float) -> None:
        self._turns, self._delay_s = turns, delay_s
        look = {"tool": "search_similar", "args": {"query": "red car", "question": "Which colour?"}}
        submit = {
            "tool": "submit_answer",
            "args": {"answer": "A", "confidence": 0.8, "evidence": ["L3_1"], "reasoning": "it is red"},
        }
        self._look, self._submit = (
            json.dumps({"reflect": {"known": "little"}, "plan": {"next": "look"}, "action": action})
            for action in (look, submit)
        )

    async def chat(self, messages, **options) -> LLMResponse:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        last = len(messages) >= 2 * self._turns
        return LLMResponse(self._submit if last else self._look, prompt_tokens=900, completion_tokens=60)


class Tools:
    """Answers every call with the same five nodes."""

    output = json.dumps({"nodes": NODES})

    def describe(self) -> str:
        return "- `search_similar(query, question)`: finds nodes."

    async def __call__(self, name, args) -> str:
        return self.output


class Skills:
    def list(self):
        return ["default-strategy.md"]

    def read(self, name):
        return SKILL


def make_questions(count: int) -> list[GeneratedQuestion]:
    return [
        GeneratedQuestion(
            f"q{number}", f"v{number % 50}", f"type-{number % 10}", "Which colour?", ("red", "blue"), "A"
        )
        for number in range(count)
    ]


async def with_harness(questions, turns, delay_s, concurrency, folder) -> None:
    with HarnessLog(Path(folder) / "harness.db", "bench") as log:
        result = await run_inference(
            questions,
            llm=MockModel(turns, delay_s),
            tool_dispatch_fn=lambda question: Tools(),
            log=log,
            run_id="bench_infer",
            concurrency=concurrency,
            max_steps=15,
            skill_mode="auto",
            skills=Skills(),
            prompts=VersionedPromptStore(DEFAULT_PROMPTS_DIR),
        )
        rows, traces = (
            log.query(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in ("predictions", "traces")
        )
    assert (result.correct, rows, traces) == (len(questions), len(questions), turns * len(questions))


async def bare(questions, turns, delay_s, concurrency, folder) -> None:
    """The floor: the same conversations, nothing parsed twice, nothing kept."""
    model, tools, waiting, right = MockModel(turns, delay_s), Tools(), iter(questions), 0

    async def work() -> None:
        nonlocal right
        for question in waiting:
            messages = [Message("system", SKILL), Message("user", question.question)]
            while True:
                action = json.loads((await model.chat(messages)).content)["action"]
                if action["tool"] == "submit_answer":
                    right += action["args"]["answer"] == question.answer
                    break
                output = await tools(action["tool"], action["args"])
                messages += [Message("assistant", "looked"), Message("user", output)]

    await asyncio.gather(*[work() for _ in range(concurrency)])
    assert right == len(questions)


MEASUREMENTS = {
    "cpu_1_turn": (CPU_ROLLOUTS, 1, 0.0, 8),
    "cpu_5_turns": (CPU_ROLLOUTS, 5, 0.0, 8),
    "overhead": (MANY_ROLLOUTS, 1, DELAY_S, CONCURRENCY),
}
PLAYERS = {"harness": with_harness, "floor": bare}


def measure(player: str, measurement: str, folder: str) -> dict[str, float]:
    """Wall and CPU seconds, and the peak memory of this process in MB."""
    count, turns, delay_s, concurrency = MEASUREMENTS[measurement]
    questions = make_questions(count)
    asyncio.run(PLAYERS[player](questions[:50], turns, 0.0, concurrency, Path(folder) / "warm"))
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(PLAYERS[player](questions, turns, delay_s, concurrency, folder))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024**2 if sys.platform == "darwin" else 1024
    )
    return {"wall_s": wall, "cpu_s": cpu, "peak_mb": peak}


def measure_apart(player: str, measurement: str, folder: Path) -> dict[str, float]:
    """The same in a process of its own, so that memory and caches are its own."""
    command = [sys.executable, __file__, "--measure", player, measurement, str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def figures_of(rounds: dict[tuple[str, str], list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians in the units of the table: ms of CPU for a rollout, s over ideal, MB."""
    ideal_s = MANY_ROLLOUTS * DELAY_S / CONCURRENCY

    def median(player: str, measurement: str, name: str) -> float:
        return statistics.median(one[name] for one in rounds[player, measurement])

    return {
        player: {
            "ms CPU, one turn": median(player, "cpu_1_turn", "cpu_s") / CPU_ROLLOUTS * 1e3,
            "ms CPU, five turns": median(player, "cpu_5_turns", "cpu_s") / CPU_ROLLOUTS * 1e3,
            "s over ideal, 10,000 of 50 ms": median(player, "overhead", "wall_s") - ideal_s,
            "peak MB at 10,000": median(player, "overhead", "peak_mb"),
        }
        for player in PLAYERS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="where the databases go (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument(
        "--measure", nargs=3, metavar=("PLAYER", "MEASUREMENT", "FOLDER"), help="one measurement"
    )
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    rounds = {(player, name): [] for player in PLAYERS for name in MEASUREMENTS}
    for _ in range(ROUNDS):
        for player, name in rounds:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                rounds[player, name].append(measure_apart(player, name, Path(folder)))
    figures = figures_of(rounds)
    print(f"{'median of ' + str(ROUNDS) + ' rounds':<32}{'harness':>10}{'floor':>10}{'ratio':>8}")
    for name, ours in figures["harness"].items():
        floor = figures["floor"][name]
        print(f"{name:<32}{ours:>10.3f}{floor:>10.3f}{ours / floor:>8.1f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
