"""Every view of a run that another process is still writing, and of what it leaves when it is killed."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from harness.log import has_table, open_for_reading
from harness.report import VIEWS, write_report
from harness.summary import training_runs
from harness.views import run_summary, skill_diff

matplotlib.use("Agg")

# Records a simulated run that goes on for ever, with a pause after each step.
WRITER = """
import asyncio, itertools, pathlib, sys
sys.path.insert(0, sys.argv[1])
from recorded_run import begin, open_log, record_epoch_end, record_step

async def main(folder):
    with open_log(folder / "harness.db", folder) as log:
        recording = await begin(log, folder, seed=3)
        for epoch in itertools.count(1):
            for step in range(2):
                await record_step(recording, epoch, step)
                await asyncio.sleep(2)
            await record_epoch_end(recording, epoch)

asyncio.run(main(pathlib.Path(sys.argv[2])))
"""


@pytest.fixture
def writer(tmp_path):
    """Another process that records a run in `tmp_path`; it has begun, and is killed in the end."""
    here = Path(__file__).parent
    command = [sys.executable, "-c", WRITER, str(here), str(tmp_path)]
    process = subprocess.Popen(command, cwd=here.parents[1])
    try:
        while not has_begun(tmp_path / "harness.db"):
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()


def has_begun(db):
    """Whether the run has its row: before that there is not even a table to read."""
    if not db.is_file():
        return False
    with open_for_reading(db) as connection:
        return has_table(connection, "_runs") and training_runs(db) == ["sim"]


def draw_all(db):
    """Draws every view; how many rows each was drawn from."""
    counts = []
    for view in VIEWS:
        frame = view.frame(db, "sim")
        view.plot(frame).figure.canvas.draw()
        counts.append(len(frame))
    plt.close("all")
    return counts


def test_every_view_works_while_another_process_writes_and_after_it_was_killed(tmp_path, writer):
    db = tmp_path / "harness.db"
    seen = [draw_all(db)]
    while seen[-1][0] < 2:  # until the first evaluation after the baseline
        seen.append(draw_all(db))
        assert writer.poll() is None, "the writer ended: a reader must never disturb it"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    seen.append(draw_all(db))
    for before, after in itertools.pairwise(seen):
        assert all(one <= other for one, other in zip(before, after, strict=True))
    assert seen[-1][1] > seen[0][1]


def test_summary_difference_and_report_work_while_another_process_writes(tmp_path, writer):
    db = tmp_path / "harness.db"
    summaries = [run_summary(db).loc["sim"]]
    while summaries[-1]["gates"] < 3:
        summaries.append(run_summary(db).loc["sim"])
        page = write_report(db, tmp_path / "report.html").read_text("utf-8")
        assert "still going on" in page
        assert writer.poll() is None, "the writer ended: a reader must never disturb it"
    for summary in summaries:
        assert summary["accepted"] + summary["rejected"] + summary["undecided"] == summary["gates"]
    assert summaries[-1]["rollouts"] > summaries[0]["rollouts"]
    assert str(skill_diff(db, "v1", "v1")) == ""
