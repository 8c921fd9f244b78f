"""Rows a second and latency of awaited inserts: the group-commit log against a commit per row.

Both write the same rows with `synchronous=FULL` into a database of their own on the same disk, in turn,
several rounds. Prints medians and the ratio. `python -m benchmarks.log [FOLDER]`
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from harness.log import HarnessLog

ROWS, CONCURRENCY, ROUNDS = 4000, 256, 5
TEXT = "the answer stands in one place " * 10


async def grouped(db_path: Path) -> tuple[float, list[float], float]:
    """Rows a second, latency of each awaited insert, longest standstill of the event loop (seconds)."""
    latencies: list[float] = []
    numbers = iter(range(ROWS))
    stall = 0.0

    async def insert(log: HarnessLog) -> None:
        for number in numbers:
            started = time.perf_counter()
            await log.insert_async("rows", {"question_id": f"q{number}", "reasoning": TEXT})
            latencies.append(time.perf_counter() - started)

    async def watch() -> None:
        nonlocal stall
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.001)
            stall = max(stall, time.perf_counter() - started - 0.001)

    with HarnessLog(db_path, "bench") as log:
        log.create_table(
            "rows", {"question_id": "TEXT NOT NULL", "reasoning": "TEXT"}, ["run_id", "question_id"]
        )
        watcher = asyncio.create_task(watch())
        started = time.perf_counter()
        await asyncio.gather(*[insert(log) for _ in range(CONCURRENCY)])
        seconds = time.perf_counter() - started
        watcher.cancel()
    return ROWS / seconds, latencies, stall


def one_by_one(db_path: Path, rows: int) -> tuple[float, list[float]]:
    """The same, with one commit for each row."""
    connection = sqlite3.connect(db_path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE rows (run_id TEXT, timestamp TEXT, question_id TEXT PRIMARY KEY, reasoning TEXT)"
    )
    latencies = []
    started = time.perf_counter()
    for number in range(rows):
        before = time.perf_counter()
        connection.execute("INSERT INTO rows VALUES ('bench', '', ?, ?)", (f"q{number}", TEXT))
        latencies.append(time.perf_counter() - before)
    seconds = time.perf_counter() - started
    connection.close()
    return rows / seconds, latencies


def describe(name: str, speeds: list[float], latencies: list[float]) -> None:
    cuts = statistics.quantiles(latencies, n=100)
    print(
        f"{name:<18}{statistics.median(speeds):>10.0f} rows/s   "
        f"latency median {cuts[49] * 1e3:8.2f} ms, 99 % {cuts[98] * 1e3:8.2f} ms"
    )


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    group_speeds, group_latencies, stalls, row_speeds, row_latencies = [], [], [], [], []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for turn in range(ROUNDS):
            speed, latencies, stall = asyncio.run(grouped(Path(place) / f"grouped{turn}.db"))
            group_speeds.append(speed)
            group_latencies += latencies
            stalls.append(stall)
            speed, latencies = one_by_one(Path(place) / f"single{turn}.db", ROWS // 4)
            row_speeds.append(speed)
            row_latencies += latencies
    describe("group commit", group_speeds, group_latencies)
    describe("commit per row", row_speeds, row_latencies)
    ratios = sorted(a / b for a, b in zip(group_speeds, row_speeds, strict=True))
    print(
        f"ratio of rows/s: {statistics.median(ratios):.1f} "
        f"(from {ratios[0]:.1f} to {ratios[-1]:.1f} in {ROUNDS} rounds)"
    )
    print(f"{CONCURRENCY} writers at once; longest standstill of the event loop: {max(stalls) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
