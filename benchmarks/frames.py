"""1,000,000 prediction rows into a frame: `harness.frames.read_frame` beside `pandas.read_sql_query`.

`python -m benchmarks.frames [--rows N] [--repeats N] [--save]`. Both read the scalar columns of
the same database, each in a process of its own, so that the peak memory is its own. CPU seconds are those of
the reading alone, imports left out; the peak counts the whole process, libraries included. With `--save` the
figures go to `benchmarks/results/frames.json`.
"""

import argparse
import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.frames import frame_columns, read_frame
from harness.log import HarnessLog
from harness.tables import PREDICTIONS

RESULTS = Path(__file__).parent / "results" / "frames.json"
QUESTIONS = 1_000
READERS = ("harness", "pandas")


def rows(n_rows: int) -> Iterator[tuple]:
    """Rows as a long training run leaves them: many runs of the same questions, a few hashes, some errors."""
    generator = random.Random(0)
    hashes = [f"{generator.getrandbits(256):064x}" for _ in range(60)]
    moment = "2026-01-01T00:00:00.000+00:00"
    for number in range(n_rows):
        run, question = divmod(number, QUESTIONS)
        failed = question % 97 == 0
        correct = None if failed else int(generator.random() < 0.6)
        yield (
            f"pilot_e{run // 20}_s{run % 20}",
            moment,
            f"film-{question // 25:02d}/q{question:04d}",
            f"film-{question // 25:02d}",
            f"type {question % 11}",
            None if failed else "ABCD"[generator.randrange(4)],
            "ABCD"[question % 4],
            correct,
            correct,
            None if failed else generator.random(),
            "error" if failed else "finished",
            question % 15,
            1_000 + generator.randrange(4_000),
            generator.randrange(400),
            generator.random() * 9,
            int(question % 50 == 0),
            hashes[(question % 11) + (run // 100) % 40],
            hashes[50],
            hashes[51],
            None,
            "evidence " * 20,
            "reasoning " * 25,
            None,
        )


def fill(db: Path, n_rows: int) -> None:
    """Makes the table by the log, then fills it past the log: durability is not what is measured here."""
    with HarnessLog(db, "pilot") as log:
        log.create_table(PREDICTIONS.name, PREDICTIONS.sql_types(), PREDICTIONS.primary_key)
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA synchronous = OFF")
    marks = ", ".join("?" * (2 + len(PREDICTIONS.columns)))
    with connection:
        connection.executemany(f"INSERT INTO {PREDICTIONS.name} VALUES ({marks})", rows(n_rows))
    connection.close()


def read_once(reader: str, db: str) -> dict[str, float]:
    """CPU seconds of reading and peak MB of this process. To be run in a process that did nothing else."""
    import pandas as pd

    started = time.process_time()
    if reader == "harness":
        frame = read_frame(db, PREDICTIONS)
    else:
        query = f"SELECT {', '.join(frame_columns(PREDICTIONS))} FROM {PREDICTIONS.name}"
        frame = pd.read_sql_query(query, sqlite3.connect(db))
    cpu = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": len(frame), "columns": frame.shape[1], "cpu_s": round(cpu, 2), "peak_mb": round(peak)}


def in_own_process(reader: str, db: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--read", reader, str(db)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def measure(n_rows: int, repeats: int) -> dict[str, dict[str, float]]:
    """The run with the least CPU of each reader; they take turns, so that a busy machine is busy for both."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "harness.db"
        fill(db, n_rows)
        runs = {reader: [] for reader in READERS}
        for _ in range(repeats):
            for reader in READERS:
                runs[reader].append(in_own_process(reader, db))
    return {reader: min(measured, key=lambda run: run["cpu_s"]) for reader, measured in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--read", nargs=2, metavar=("READER", "DATABASE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read_once(*arguments.read)))
        return
    best = measure(arguments.rows, arguments.repeats)
    for reader in READERS:
        figures = best[reader]
        print(
            f"{reader:8} {figures['rows']:,} rows: {figures['cpu_s']} s CPU, {figures['peak_mb']} MB at most"
        )
    ratios = {name: round(best["harness"][name] / best["pandas"][name], 2) for name in ("cpu_s", "peak_mb")}
    print(f"harness / pandas: {ratios['cpu_s']} of the CPU, {ratios['peak_mb']} of the memory")
    if arguments.save:
        RESULTS.write_text(json.dumps({**best, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
