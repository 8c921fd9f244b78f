"""Which runs are to be made, and their rows in the file of results."""

import json
import multiprocessing
import subprocess
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean

from benchmarks.demo_runs.arms import ARMS, LOOP, Arm
from benchmarks.demo_runs.training import Row, Task, config_of, fresh_split_seeds, run_task, settings_of
from core.files import write_text_atomic
from harness.config import RunConfig

ORDER = list(ARMS)


class NotYet(RuntimeError):
    """A control that can not begin: says which runs of the loop are missing."""


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of results; none without a file."""
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes the rows in a fixed order, one a line."""
    in_order = sorted(rows, key=lambda row: (ORDER.index(row["arm"]), row["seed"]))
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in in_order)
    write_text_atomic(path, f'{{"runs": [\n{lines}\n]}}\n')


def with_row(rows: Iterable[Row], new: Row) -> list[Row]:
    """The rows with a new one in the place of an earlier one of the same run."""
    place = (new["arm"], new["seed"])
    return [*(row for row in rows if (row["arm"], row["seed"]) != place), new]


def is_done(demo: RunConfig, task: Task, rows: Iterable[Row], folder: Path) -> bool:
    """Whether there is a row of the task, made with the settings that it would have now."""
    wanted = (task.arm.name, task.seed, settings_of(config_of(demo, task, folder)))
    return wanted in {(row["arm"], row["seed"], row["settings"]) for row in rows}


def rollouts_of_the_loop(demo: RunConfig, seeds: Sequence[int], rows: Sequence[Row], folder: Path) -> int:
    """The mean of the loop's training rollouts, rounded. Raises `NotYet` when a run is missing."""
    tasks = [Task(LOOP, seed, demo.split_seed) for seed in seeds]
    if missing := [task.name for task in tasks if not is_done(demo, task, rows, folder)]:
        raise NotYet(
            f"controls make as many rollouts as the loop: run --arm {LOOP.name} first ({', '.join(missing)})"
        )
    made = {row["seed"]: row["rollouts"] for row in rows if row["arm"] == LOOP.name}
    return round(fmean(made[seed] for seed in seeds))


def tasks_of(
    demo: RunConfig, arm: Arm, seeds: Sequence[int], rows: Sequence[Row], folder: Path
) -> list[Task]:
    """All runs of an arm. Raises `NotYet`."""
    splits = fresh_split_seeds(demo, len(seeds)) if arm.fresh_split else [demo.split_seed] * len(seeds)
    most = rollouts_of_the_loop(demo, seeds, rows, folder) if arm.control else 0
    return [Task(arm, seed, split, most) for seed, split in zip(seeds, splits, strict=True)]


def code_version() -> str:
    """The commit of the code, and whether something was changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def in_words(task: Task, row: Row) -> str:
    """A run in one line."""
    accuracy = f"{row['before']:.1%} -> {row['in_force']:.1%} (best {row['best']:.1%})"
    kept = f"{row['kept']} of {row['gates']} edits kept"
    return f"{task.name}: {row['rollouts']} rollouts in {row['seconds']} s, validation {accuracy}, {kept}"


def run_all(
    demo: RunConfig,
    tasks: Sequence[Task],
    path: Path,
    folder: Path,
    processes: int,
    told: Callable[[str], None] = print,
) -> list[str]:
    """Makes the runs, each in a process of its own, and keeps each one's row; the names of those that failed.

    A run that fails stops no other; the program begun again makes it anew.
    """
    facts, failed = {"code": code_version()}, []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        running = {pool.submit(run_task, demo, task, folder, facts): task for task in tasks}
        for future in as_completed(running):
            task = running[future]
            if error := future.exception():
                failed.append(task.name)
                told(f"{task.name} failed\n{''.join(traceback.format_exception(error))}")
                continue
            row = future.result()
            write_rows(path, with_row(read_rows(path), row))
            told(in_words(task, row))
    return failed
