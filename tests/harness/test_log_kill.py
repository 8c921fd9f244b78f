"""A process that is killed in the middle of its inserts loses nothing that was acknowledged to it."""

import os
import random
import signal
import subprocess
import sys
import time

from harness.log import open_for_reading

KILLS = 40
SEED = 20261129

# Inserts rows from several tasks for ever, and tells a row's number on standard output once acknowledged.
CHILD = """
import asyncio, os, sys
from harness.log import HarnessLog

async def work(log, worker, start):
    number = start
    while True:
        await log.write_async({
            "scores": [{"question_id": f"{worker}-{number}", "score": number}],
            "traces": [{"question_id": f"{worker}-{number}", "step": step} for step in range(3)],
        })
        os.write(1, f"{worker}-{number}\\n".encode())
        number += 1

async def main(db, start):
    with HarnessLog(db, "pilot") as log:
        columns = {"question_id": "TEXT NOT NULL", "score": "REAL"}
        log.create_table("scores", columns, ["run_id", "question_id"])
        log.create_table("traces", {"question_id": "TEXT", "step": "INTEGER"})
        os.write(1, b"ready\\n")
        await asyncio.gather(*[work(log, worker, start) for worker in range(16)])

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def acknowledged_before_kill(db, start: int, delay: float) -> set[str]:
    """Starts the child, kills it `delay` seconds after it is ready, and returns what it was acknowledged."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(db), str(start)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    time.sleep(delay)
    os.kill(child.pid, signal.SIGKILL)
    told = child.stdout.read().decode()
    child.wait()
    # The last line may have been cut by the kill: only whole lines count.
    return set(told[: told.rfind("\n") + 1].split())


def test_kill_9_during_inserts_loses_no_acknowledged_row_and_doubles_none(tmp_path):
    db = tmp_path / "harness.db"
    moments = random.Random(SEED)
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        delay = moments.uniform(0.0, 0.06)
        acknowledged |= acknowledged_before_kill(db, kill * 1_000_000, delay)
        with open_for_reading(db) as connection:
            rows = [row[0] for row in connection.execute("SELECT question_id FROM scores")]
            steps = dict(
                connection.execute("SELECT question_id, count(*) FROM traces GROUP BY question_id").fetchall()
            )
            intact = connection.execute("PRAGMA integrity_check").fetchone()[0]
        context = f"kill {kill} of seed {SEED}, after {delay:.4f} s"
        assert intact == "ok", context
        assert acknowledged <= set(rows), f"{context}: acknowledged rows are missing"
        assert len(rows) == len(set(rows)), f"{context}: a row stands twice"
        # A row and its three traces are one transaction: never one without the others.
        assert steps == dict.fromkeys(rows, 3), f"{context}: a row without its traces"
    assert len(acknowledged) > 10 * KILLS, "the children were killed before they had written anything"
