"""The demo from beginning to end, on recorded scores: the whole loop through `Runner`, in CI."""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.adapters.recorded_scores import RecordedScorer
from core.protocols import ProviderError
from harness.log import open_for_reading
from tools import demo, record_demo

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("replayed_demo.py")
AGAIN = "the loop, its data or configs/demo.yaml changed: look at the difference, then `python -m tools.record_demo`"


def make_demo(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *arguments],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def decided(folder: Path) -> dict:
    config = record_demo.demo_config(folder)
    return json.loads(json.dumps(record_demo.decisions_of(config)))


def rows(workspace: Path, run_ids: str) -> list[dict]:
    with open_for_reading(workspace / "harness.db") as connection:
        sql = "SELECT run_id, question_id, timestamp FROM predictions WHERE run_id GLOB ?"
        return [dict(row) for row in connection.execute(sql, (run_ids,))]


def recorded() -> dict:
    return json.loads(record_demo.DECISIONS.read_text(encoding="utf-8"))


def end_screen(told: str) -> str:
    """What stands after the diff, without how long it took."""
    return told[told.index("Run demo") : told.index("The whole run on one page")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A demo that ran to its end: its folder and what it told."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    done = make_demo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


def test_replayed_run_decides_what_the_recorded_one_did(finished):
    assert decided(finished[0]) == recorded(), AGAIN


def test_every_gate_is_told_in_a_line_with_its_verdict(finished):
    gates = [event for event in recorded()["events"] if "attempts" in event]
    lines = [line for line in finished[1].splitlines() if re.search(r"[+-]\d+ +[+-]\d+ of +\d+  \S", line)]
    assert len(lines) == len(gates)
    for event, line in zip(gates, lines, strict=True):
        assert event["target"] in line
        assert re.search(rf"\+{event['improved']} +[+-]{event['regressed']} of +{event['attempts']} ", line)


def test_end_screen_tells_the_counts_and_the_accuracies_of_the_run(finished):
    screen, events = end_screen(finished[1]), recorded()["events"]
    accepted = sum(event["event_type"] == "accepted" for event in events)
    assert re.search(rf"  accepted +{accepted}\b", screen)
    right, n = recorded()["final test"], int(re.search(r"Test, (\d+) questions", screen)[1])
    assert re.search(rf"  before +{100 * right['baseline'] / n:.1f} %", screen)
    assert re.search(rf"  after +{100 * right['best'] / n:.1f} %", screen)
    # Its one tactic is that of the untrained skills.
    assert re.search(rf"  control, one line a type +{100 * right['baseline'] / n:.1f} %", screen)


def test_a_finished_demo_shows_its_last_screen_again_and_says_how_to_begin_anew(finished):
    again = make_demo(finished[0])
    assert again.returncode == 0
    assert end_screen(again.stdout) == end_screen(finished[1])
    assert "make demo FRESH=1" in again.stdout


def test_test_questions_are_answered_after_training_and_the_control_apart_from_it(finished):
    workspace, control = finished[0] / "workspace", finished[0] / "control" / "workspace"
    test = {one["question_id"] for one in rows(workspace, "demo_final_best")}
    trained = rows(workspace, "*")
    opened = min(one["timestamp"] for one in trained if one["question_id"] in test)
    before = [one["timestamp"] for one in trained if "_final_" not in one["run_id"]]
    controls = rows(control, "*")
    assert {one["run_id"].partition("_")[0] for one in controls} == {"control"}
    assert max(before) <= opened
    assert max(one["timestamp"] for one in trained) <= min(one["timestamp"] for one in controls)


def test_harness_report_tells_the_demos_last_screen(finished):
    harness = [sys.executable, "-c", "import sys; from harness.cli import main; sys.exit(main())"]
    report = [*harness, "report", "--config", str(finished[0] / "harness.yaml")]
    told = subprocess.run(report, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert end_screen(told.stdout) == end_screen(finished[1])


def test_the_readmes_figure_is_drawn_alike_again(finished):
    config = record_demo.demo_config(finished[0])
    drawn = record_demo.figure_of(config)
    assert drawn.startswith(b"<?xml")
    assert record_demo.figure_of(config) == drawn


def test_report_says_who_played_and_stands_where_the_last_line_says(finished):
    page = Path(re.search(r"The whole run on one page, with figures: (\S+)", finished[1])[1])
    text = page.read_text(encoding="utf-8")
    assert "no model wrote them" in text
    assert re.search(
        r"control: one line a type</th><td class=\"number\">\d+\.\d %</td>\s*<td>after minus control", text
    )
    assert "the embedded model" in text


def test_fresh_keeps_the_old_run_under_another_name(tmp_path):
    folder = tmp_path / "demo"
    demo.move_aside(folder)  # the first time there is nothing to keep
    (folder / "workspace").mkdir(parents=True)
    (folder / "workspace" / "harness.db").write_text("rows", encoding="utf-8")
    (folder / "harness.yaml").write_text(f"workspace_dir: {folder}/workspace\n", encoding="utf-8")
    demo.move_aside(folder)
    assert not folder.exists()
    assert [path.read_text(encoding="utf-8") for path in tmp_path.glob("demo-*/workspace/harness.db")] == [
        "rows"
    ]
    (kept,) = tmp_path.glob("demo-*")
    assert (kept / "harness.yaml").read_text(encoding="utf-8") == f"workspace_dir: {kept}/workspace\n"


def test_what_was_foreseen_is_told_in_one_line(tmp_path, capsys):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "harness.yaml").write_text("batch_size: many\n", encoding="utf-8")
    assert demo.main(folder) != 0
    told = capsys.readouterr().err
    assert "batch_size" in told
    assert "Traceback" not in told


def test_what_was_not_recorded_ends_the_run_with_the_question_in_words(tmp_path):
    config = record_demo.demo_config(tmp_path)
    model = RecordedScorer.read(record_demo.SCORES).model
    runner = record_demo.runner_with(config, RecordedScorer(model, {}, source="empty"))
    with pytest.raises(ProviderError, match=r"empty has no score of .*Question: .*record it again"):
        asyncio.run(runner.train())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_demo_killed_five_times_ends_like_one_that_was_not(tmp_path, finished, seed):
    folder, draw = tmp_path / "demo", random.Random(seed)
    killed = 0
    for _ in range(5):
        killed += make_demo(folder, str(draw.randrange(50, 1500))).returncode == -signal.SIGKILL
    done = make_demo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert killed >= 3
    assert decided(folder) == decided(finished[0])
    assert end_screen(done.stdout) == end_screen(finished[1])
