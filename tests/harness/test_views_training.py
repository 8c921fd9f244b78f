"""Every view, the summary and the report of a real training run that another process is still at."""

import itertools

import matplotlib
import matplotlib.pyplot as plt
import pytest
from cli_runs import DELAY, data_flags, make_world, run, running, wait_for_rows, write_data

from harness.report import VIEWS, write_report
from harness.views import run_summary

matplotlib.use("Agg")

SMALL = [
    *("--epochs", "20", "--run-id", "sim", "--batch-size", "20", "--val-size", "24", "--test-size", "16"),
    *("--gate-max-questions", "10", "--holdout-every", "1"),
]


@pytest.fixture
def folder(tmp_path):
    folder = write_data(tmp_path, make_world())
    made = run(["init", ".", *data_flags(folder), "--skills", "skills", *SMALL], cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


def drawn(db):
    """Draws every view; how many rows each was drawn from."""
    counts = {}
    for view in VIEWS:
        frame = view.frame(db, "sim")
        view.plot(frame).figure.canvas.draw()
        counts[view.plot.__name__] = len(frame)
    plt.close("all")
    return counts


def test_every_view_has_rows_and_is_drawn_before_the_run_is_done(folder):
    db, train = folder / "workspace" / "harness.db", ["train", "--config", "harness.yaml"]
    seen, pages = [], []
    with running(train, cwd=folder, **{DELAY: "0.05"}) as process:
        wait_for_rows(process, db, 1)
        while not seen or not all(seen[-1].values()):
            seen.append(drawn(db))
            pages.append(write_report(db, folder / "report.html").read_text("utf-8"))
            summary = run_summary(db).loc["sim"]
            assert process.poll() is None, process.communicate()
    assert all("still going on" in page for page in pages)
    assert summary["measured_on"] == "validation"
    assert seen[0] != seen[-1]
    for before, after in itertools.pairwise(seen):
        assert all(before[name] <= after[name] for name in before)
    after_the_kill = drawn(db)
    assert all(after_the_kill[name] >= seen[-1][name] > 0 for name in seen[-1])
