"""Ctrl-C, SIGTERM, a second process."""

import json
import signal

import pytest
from cli_runs import DELAY, STUBBORN, data_flags, make_world, query, run, running, wait_for_rows, write_data

TRAIN = ["train", "--config", "harness.yaml"]
ROWS = "SELECT run_id, question_id, timestamp FROM predictions ORDER BY 1, 2"

needs_posix = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")


@pytest.fixture
def folder(tmp_path):
    folder = write_data(tmp_path, make_world())
    small = ["--epochs", "1", "--run-id", "sim", "--batch-size", "20", "--concurrency", "4"]
    made = run(["init", ".", *data_flags(folder), "--skills", "skills", *small], cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


@needs_posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_ends_with_130_and_goes_on_without_losing_a_row(folder, number):
    db_path = folder / "workspace" / "harness.db"
    with running(TRAIN, cwd=folder, **{DELAY: "0.05"}) as process:
        wait_for_rows(process, db_path, 12)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "--resume" in told
    assert "Traceback" not in told
    assert (folder / "workspace" / "checkpoint.json").exists()
    kept = query(db_path, ROWS)
    assert query(db_path, "SELECT status FROM _runs WHERE run_id = 'sim'") == [("interrupted",)]

    resumed = run([*TRAIN, "--resume", "--json"], cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["status"] == "completed"
    assert set(kept) <= set(query(db_path, ROWS))


@needs_posix
def test_a_second_interruption_ends_the_process_at_once(folder):
    with running(TRAIN, cwd=folder, **{DELAY: "0.1", STUBBORN: "yes"}) as process:
        wait_for_rows(process, folder / "workspace" / "harness.db", 1)
        process.send_signal(signal.SIGINT)
        assert any("once more: at once" in line for line in process.stderr)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130


def test_a_second_process_on_the_workspace_is_refused_and_told_who_holds_it(folder):
    with running(TRAIN, cwd=folder, **{DELAY: "0.5"}) as process:
        wait_for_rows(process, folder / "workspace" / "harness.db", 1)
        refused = run([*TRAIN, "--resume"], cwd=folder)
    assert refused.returncode == 1
    assert f"process {process.pid} works here" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (
        run(["eval", "--config", "harness.yaml"], cwd=folder).returncode == 0
    )  # free once the holder is gone
