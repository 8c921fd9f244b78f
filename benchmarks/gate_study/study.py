"""Runs the cells of the study: seeds by families by arms, in two processes, and goes on where it stopped."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.gate_study.arms import ARMS
from benchmarks.gate_study.families import FAMILIES
from benchmarks.gate_study.run import run
from benchmarks.gate_study.state import outcome
from benchmarks.gate_study.world import Setting

Row = dict
"""The figures of one run, with its `family`, `seed` and `arm`."""
Task = tuple[str, int, tuple[str, ...]]


def rows_of(task: Task) -> list[Row]:
    """Every arm of a task (family, seed, arms) in the same world."""
    family, seed, arms = task
    setting = Setting(FAMILIES[family], seed)
    return [{"family": family, "seed": seed, "arm": arm, **outcome(run(setting, ARMS[arm]))} for arm in arms]


def read_rows(path: Path) -> list[Row]:
    """The rows of earlier runs; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def tasks_left(
    rows: Iterable[Row], families: Sequence[str], arms: Sequence[str], seeds: Sequence[int]
) -> Iterator[Task]:
    """What was not run yet, seed by seed, so that a study broken off has as many runs in every cell."""
    done = defaultdict(set)
    for row in rows:
        done[row["family"], row["seed"]].add(row["arm"])
    for seed in seeds:
        for family in families:
            if left := tuple(arm for arm in arms if arm not in done[family, seed]):
                yield family, seed, left


def run_all(tasks: Sequence[Task], earlier: Iterable[Row], path: Path, processes: int) -> None:
    """Runs the tasks and adds their rows, as they come, to the earlier ones in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in earlier), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file, ProcessPoolExecutor(processes) as pool:
        for number, rows in enumerate(pool.map(rows_of, tasks, chunksize=4), start=1):
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            if number % 50 == 0:
                print(f"{number} of {len(tasks)}", flush=True)
