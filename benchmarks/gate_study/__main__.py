"""Runs the study, goes on where it was broken off, and prints and writes its results.

    python -m benchmarks.gate_study run --half tuning [--runs 60] [--family ...] [--arm ...]
    python -m benchmarks.gate_study luck [--runs 20]
    python -m benchmarks.gate_study report

The rows of single runs are kept in `build/`; the results that are committed hold means and standard errors.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.gate_study.arms import DECIDING, DEFAULT, RULES, SLOW, VARIANTS
from benchmarks.gate_study.families import FAMILIES, FIRST_PASS, SEEDS
from benchmarks.gate_study.luck import luck_of
from benchmarks.gate_study.report import report
from benchmarks.gate_study.study import read_rows, run_all, tasks_left

ARMS_OF_HALF = {
    "tuning": [arm.name for arm in [DEFAULT, *VARIANTS, *SLOW]],
    "reporting": [arm.name for arm in RULES],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "luck", "report"])
    parser.add_argument("--half", choices=list(SEEDS), default="tuning")
    parser.add_argument("--runs", type=int, default=FIRST_PASS, help="seeds of the half, from its first")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="default: all")
    parser.add_argument("--arm", action="append", help="default: those that the half is for")
    parser.add_argument("--deciding", action="store_true", help="the arms that decide; with --runs 300")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, default=Path("build/gate_study"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "gate_study.json")
    arguments = parser.parse_args()

    families = arguments.family or list(FAMILIES)
    seeds = SEEDS[arguments.half][: arguments.runs]
    began = time.monotonic()
    if arguments.command == "run":
        path = arguments.rows / f"{arguments.half}.jsonl"
        arms = DECIDING if arguments.deciding else arguments.arm or ARMS_OF_HALF[arguments.half]
        earlier = read_rows(path)
        run_all(list(tasks_left(earlier, families, arms, seeds)), earlier, path, arguments.processes)
    elif arguments.command == "luck":
        arms = arguments.arm or [DEFAULT.name]
        tasks = [(arm, family, seed) for seed in seeds for family in families for arm in arms]
        with ProcessPoolExecutor(arguments.processes) as pool:
            rows = list(pool.map(luck_of, tasks))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (arguments.rows / "luck.jsonl").write_text(lines, encoding="utf-8")
    else:
        report(arguments.rows, arguments.out)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
