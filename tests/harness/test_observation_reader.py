"""A reader while a writer in another process goes on: whole blocks, never an error, never a step back."""

import os
import signal
import subprocess
import sys

from harness.log import open_for_reading
from harness.observation import read_quadrant_pairs

BLOCK = 7
READS = 25

# Writes blocks of seven pairs for ever, each block as one unit.
WRITER = f"""
import asyncio, os, sys
from core.evolution.gate_types import PairResult
from harness.log import HarnessLog
from harness.observation import GatePlace, write_quadrant_pairs

async def main(db):
    with HarnessLog(db, "pilot") as log:
        step = 0
        while True:
            names = [f"q{{i}}" for i in range({BLOCK})]
            await write_quadrant_pairs(
                log,
                GatePlace(1, step, "order.md", "0a1b2c3d"),
                block=0,
                pairs=[PairResult(name, True, None if i % 2 else False) for i, name in enumerate(names)],
                task_types=dict.fromkeys(names, "order"),
                p_hats=dict.fromkeys(names, 0.5),
                base_run_ids=dict.fromkeys(names, "base"),
                cand_run_id="cand",
            )
            if step == 0:
                os.write(1, b"ready\\n")
            step += 1

asyncio.run(main(sys.argv[1]))
"""


def test_frames_hold_whole_blocks_while_another_process_writes(tmp_path):
    db = tmp_path / "harness.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(db)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"ready\n"
        lengths = []
        while len(lengths) < READS or lengths[-1] == lengths[0]:
            frame = read_quadrant_pairs(db)
            assert set(frame.groupby("step").size()) == {BLOCK}
            assert frame["cand_correct"].isna().sum() == len(frame) // BLOCK * (BLOCK // 2)
            lengths.append(len(frame))
            assert writer.poll() is None, "the writer ended: a reader must never disturb it"
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0]
    # After the kill nothing acknowledged is gone, and readers still work on the log that it left behind.
    assert len(read_quadrant_pairs(db)) >= lengths[-1]
    with open_for_reading(db) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
