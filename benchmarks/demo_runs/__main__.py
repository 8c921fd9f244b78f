"""Trains the demo with several seeds, beside its controls, and tells what gate and proposer are worth.

    python -m benchmarks.demo_runs run --arm loop [--seeds 5] [--processes 2]
    python -m benchmarks.demo_runs run --arm random --arm strict --arm shuffled --arm neither
    python -m benchmarks.demo_runs run --arm resplit
    python -m benchmarks.demo_runs report

Run it in the project's folder. A run that is done is not repeated; one that was broken off begins anew, with
the model's scores kept on disk. The runs' folders are kept in `runs/`, the rows in the committed results.
"""

import argparse
import sys
from pathlib import Path

from loguru import logger

from benchmarks.demo_runs.arms import ARMS
from benchmarks.demo_runs.report import report
from benchmarks.demo_runs.study import NotYet, is_done, read_rows, run_all, tasks_of
from harness.config import build_config, read_yaml

RESULTS = Path(__file__).parents[1] / "results" / "demo_runs.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--arm", action="append", choices=list(ARMS), help="needed by run; may be repeated")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"))
    parser.add_argument("--folder", type=Path, default=Path("runs/demo_runs"), help="of the runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.command == "report":
        print(report(read_rows(arguments.results)))
        return 0
    if not arguments.arm:
        parser.error("run: give --arm")

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    demo = build_config(read_yaml(arguments.config))
    failed: list[str] = []
    for arm in dict.fromkeys(arguments.arm):
        rows = read_rows(arguments.results)
        try:
            tasks = tasks_of(demo, ARMS[arm], range(arguments.seeds), rows, arguments.folder)
        except NotYet as error:
            parser.error(str(error))
        left = [task for task in tasks if not is_done(demo, task, rows, arguments.folder)]
        print(f"{arm}: {len(left)} of {len(tasks)} runs are left", flush=True)
        failed += run_all(demo, left, arguments.results, arguments.folder, arguments.processes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
