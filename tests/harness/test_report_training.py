"""Summary and report of runs really trained, on a simulated world: they say what the run itself said."""

import asyncio
import html

import matplotlib
import pytest
from training_runs import make_config, make_runner, make_world, quick_disk

from core.adapters.simulated_edits import EditKind, RulePlan
from harness.report import VIEWS, write_report
from harness.views import run_summary, skill_diff

matplotlib.use("Agg")

HELPFUL = (EditKind("helpful", 1.0, (RulePlan(0.2),)),)
WORTHLESS = (EditKind("harmful", 1.0, (RulePlan(-0.3),)),)


def train(folder, family):
    """A run's result and its database."""
    world = make_world()
    config = make_config(folder, world)
    with quick_disk():
        result = asyncio.run(make_runner(config, world, family=family).train())
    return result, folder / "experiment" / "harness.db"


@pytest.fixture(scope="module", params=[HELPFUL, WORTHLESS], ids=["helpful", "harmful"])
def trained(request, tmp_path_factory):
    return train(tmp_path_factory.mktemp("trained") / "run", request.param)


def test_the_summary_is_what_the_run_said_of_itself(trained):
    result, db = trained
    summary = run_summary(db).loc["sim"]
    said = result.final.comparison
    assert summary["measured_on"] == "test"
    assert (summary["gain"], summary["gain_low"], summary["gain_high"]) == (
        said.difference,
        said.low,
        said.high,
    )
    assert summary["accuracy_after"] == result.final.best_score.accuracy
    assert summary["accepted"] == result.luck.accepted
    assert summary["accepted"] - summary["rolled_back"] == result.luck.kept
    assert summary["kept_by_luck"] == result.luck.by_chance.kept
    assert summary["undecided"] == 0


def test_the_report_tells_the_same_luck_and_the_same_gain(trained, tmp_path):
    result, db = trained
    page = html.unescape(write_report(db, tmp_path / "report.html").read_text("utf-8"))
    page = " ".join(page.split())
    assert result.luck.explain() in page
    if result.final.first == result.final.best:
        assert "The version that training began with is still the best" in page
    else:
        assert f"{100 * result.final.comparison.difference:+.1f} points" in page
        assert f"{100 * result.final.per_1000:+.1f} points per 1,000 rollouts of training" in page


def test_every_view_has_something_to_show(trained):
    result, db = trained
    for view in VIEWS:
        frame = view.frame(db, "sim")
        assert not frame.empty
        view.plot(frame).figure.canvas.draw()
    best = VIEWS[0].frame(db, "sim").query("best")
    assert best["skills_version"].tolist() == [result.final.best.skills]
    changed = skill_diff(db, result.final.first.skills, result.final.best.skills)
    assert bool(str(changed)) == (result.final.first.skills != result.final.best.skills)
