"""A bad configuration is refused before anything is paid; how a run ended, and why, is in its rows and its result."""

import dataclasses
import json

import pytest
from training_runs import make_config, make_runner, make_world, query, quick_disk, watched

from core.adapters.simulated_edits import MIXED
from core.evolution.comparison import PairedComparison
from harness.baseline import first_state
from harness.config import ConfigError
from harness.ending import delivery_lines, prompt_lines
from harness.final_test import few_videos_remark, kept_by_chance, prompt_trials
from harness.log import HarnessLog
from harness.training import end_before_its_time
from harness.workspace import VersionPair

WORLD = make_world()


@pytest.mark.parametrize(
    "change",
    [
        {"max_steps": 0},
        {"epochs": 0},
        {"max_rollouts": -1},
        {"evolve_targets": "x"},
        {"edit_schedule": "q"},
        {"infra_max_rate": 5.0},
        {"gate_ladder": "x"},
        {"run_id": "a_b"},
    ],
)
def test_a_configuration_made_in_python_is_checked_before_anything_is_asked(tmp_path, change):
    asked = []
    config = make_config(tmp_path / "run", WORLD, **change)
    with pytest.raises(ConfigError, match=next(iter(change))):
        make_runner(config, WORLD, agent=watched(WORLD, asked.append))
    assert asked == []


def events(folder, event_type):
    rows = query(folder, "SELECT payload FROM _events WHERE event_type = ?", event_type)
    return [json.loads(row["payload"]) for row in rows]


@pytest.mark.parametrize(("seed", "changes", "event_type"), [
    (4, {}, "best_delivered"),
    (6, {"epochs": 4, "early_stop_patience": 4}, "stopped_early"),
])  # fmt: skip
def test_why_a_run_ended_is_an_event_and_the_reason_of_its_result(tmp_path, seed, changes, event_type):
    folder, world = tmp_path / "run", make_world(seed)
    config = make_config(folder, world, seed=seed, **changes)
    with quick_disk():
        result = make_runner(config, world, evolve_llm=world.evolver_llm(MIXED)).run()
    (told,) = events(folder, event_type)
    assert told["reason"] in result.reason
    assert result.reason in result.explain()
    if event_type == "best_delivered":
        assert (
            told["best"]["skills"]
            == result.best.skills
            == result.current.skills
            != told["replaced"]["skills"]
        )


def test_the_last_epoch_is_no_early_stop():
    saved = late_state(batches=(("q1",),))
    assert end_before_its_time(saved, epochs=2, patience=6) is None
    assert end_before_its_time(saved, epochs=3, patience=7) is None
    assert end_before_its_time(saved, epochs=3, patience=6)[0] == "stopped_early"
    assert end_before_its_time(late_state(batches=()), epochs=3, patience=0)[0] == "nothing_to_learn"


def late_state(**changes):
    """After the second epoch, six steps without a new best."""
    state = first_state(VersionPair("v1", "v1"))
    return dataclasses.replace(state, epoch=2, phase="epoch_done", steps_since_best_improved=6, **changes)


def test_a_run_that_its_budget_stopped_is_not_called_completed(tmp_path):
    folder = tmp_path / "run"
    config = make_config(folder, WORLD, epochs=1, max_rollouts=60)
    sql = "SELECT status FROM _runs WHERE run_id = 'sim'"
    with quick_disk():
        assert make_runner(config, WORLD).run().status == "budget_exhausted"
        assert query(folder, sql) == [{"status": "budget_exhausted"}]
        larger = dataclasses.replace(config, max_rollouts=0)
        assert make_runner(larger, WORLD).run(resume=True).status == "completed"
    assert query(folder, sql) == [{"status": "completed"}]


def test_an_end_that_was_told_does_not_hide_an_error(tmp_path):
    def fail_in(log):
        with log:
            log.end_as("budget_exhausted")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in(HarnessLog(tmp_path / "harness.db", "pilot"))
    with HarnessLog(tmp_path / "harness.db", "other") as log:
        assert log.query("SELECT status FROM _runs WHERE run_id = 'pilot'") == [{"status": "failed"}]


@pytest.mark.parametrize(("groups", "remarked"), [(2, True), (9, True), (10, False)])
def test_an_interval_over_fewer_than_ten_videos_is_called_too_narrow(groups, remarked):
    compared = PairedComparison(40, 6, 3, 9, 0.8, 0.075, -0.05, 0.2, groups, 0)
    assert ("too narrow" in few_videos_remark(compared)) == remarked
    assert few_videos_remark(dataclasses.replace(compared, low=None, high=None)) == ""


@pytest.mark.parametrize("discordant", range(1, 30))
def test_chance_keeps_fewer_updates_under_a_stricter_rule_and_none_without_a_changed_answer(discordant):
    lax, strict = (kept_by_chance(discordant, tau) for tau in (0.5, 0.9))
    assert 0 <= strict <= lax <= 1
    assert kept_by_chance(0, 0.6) == 0


def test_updates_of_prompts_are_counted_beside_what_chance_keeps():
    made = [("kept", 9), ("reverted", 4), ("kept", 1)]
    decisions = [{"decision": end, "slow_tau": 0.6, "comparison": {"D": number}} for end, number in made]
    trials = prompt_trials(decisions)
    assert (trials.tried, trials.kept) == (3, 2)
    assert trials.by_chance == pytest.approx(sum(kept_by_chance(number, 0.6) for _, number in made))
    assert "2 of 3 kept" in trials.explain()
    assert "2 of 3" in prompt_lines(trials)[0]
    assert (prompt_trials([]).explain(), prompt_lines(prompt_trials([])), delivery_lines([])) == ("", [], [])
