"""The summary of a run says what its rows say, and nothing that nobody knows."""

import asyncio
import json
import sqlite3

import pandas as pd
import pytest
from recorded_run import begin, open_log, record_run, record_step

from harness.log import HarnessLog, LogError
from harness.summary import (
    compare_runs,
    ended_probations,
    fate_of,
    gates_frame,
    luck,
    measured_gain,
    rollouts_frame,
    training_runs,
)
from harness.views import run_summary


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The database of a whole simulated run."""
    return asyncio.run(record_run(tmp_path_factory.mktemp("recorded")))


def one(db, sql, *parameters):
    with sqlite3.connect(db) as connection:
        return connection.execute(sql, parameters).fetchone()[0]


def test_counts_are_those_of_the_rows(recorded):
    summary = run_summary(recorded).loc["sim"]
    assert summary["rollouts"] == one(recorded, "SELECT count(*) FROM predictions")
    events = {
        name: one(recorded, "SELECT count(*) FROM _events WHERE event_type = ?", name)
        for name in ("accepted", "rejected")
    }
    assert {name: summary[name] for name in events} == events
    assert summary["accepted"] == summary["kept"] + summary["rolled_back"] + summary["on_probation"]
    tokens = one(recorded, "SELECT sum(prompt_tokens) FROM predictions")
    assert summary["prompt_tokens"] == tokens + one(recorded, "SELECT sum(prompt_tokens) FROM llm_calls")
    assert summary["cost"] == pytest.approx(one(recorded, "SELECT sum(cost) FROM llm_calls"))


def test_every_rollout_has_one_purpose(recorded):
    frame = rollouts_frame(recorded, "sim")
    assert frame["rollouts"].sum() == one(recorded, "SELECT count(*) FROM predictions")
    assert "other" not in set(frame["purpose"])


def test_before_and_after_are_the_final_test(recorded):
    summary = run_summary(recorded).loc["sim"]
    sql = "SELECT accuracy FROM holdout_eval WHERE skills_version {} 'v1'"
    assert summary["measured_on"] == "test"
    assert summary["accuracy_before"] == pytest.approx(one(recorded, sql.format("=")))
    assert summary["accuracy_after"] == pytest.approx(one(recorded, sql.format("!=")))
    assert summary["gain"] == pytest.approx(summary["accuracy_after"] - summary["accuracy_before"])
    assert summary["gain_low"] < summary["gain"] < summary["gain_high"]


def test_luck_replays_the_gates_that_were_held(recorded):
    by_luck = luck(recorded, "sim")
    assert by_luck == luck(recorded, "sim")
    assert by_luck.gates == len(gates_frame(recorded, "sim"))
    assert run_summary(recorded).loc["sim", "kept_by_luck"] == by_luck.kept


def test_columns_are_typed_the_same_for_a_run_just_begun(recorded, tmp_path):
    with HarnessLog(tmp_path / "harness.db", "new"):
        begun = run_summary(tmp_path / "harness.db")
    assert begun.dtypes.to_dict() == run_summary(recorded).dtypes.to_dict()
    unknown = begun.columns[begun.isna().loc["new"]]
    assert {"finished_at", "cost", "accepted_by_luck", "measured_on", "gain"} <= set(unknown)
    assert begun.loc["new", ["status", "rollouts", "accepted"]].tolist() == ["running", 0, 0]


def test_a_database_without_rows_has_an_empty_summary(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "infer_only_not_a_training_run"):
        pass
    assert training_runs(tmp_path / "harness.db") == []
    assert run_summary(tmp_path / "harness.db").empty


def test_what_does_not_exist_is_named(recorded, tmp_path):
    with pytest.raises(LogError, match=r"none\.db"):
        run_summary(tmp_path / "none.db")
    with pytest.raises(ValueError, match="no training run 'other'; it has sim"):
        run_summary(recorded, "other")


async def test_before_the_final_test_the_latest_evaluation_stands_against_the_baseline(tmp_path):
    db = tmp_path / "harness.db"
    with open_log(db, tmp_path) as log:
        recording = await begin(log, tmp_path, seed=3)
        assert measured_gain(db, "sim") is None
        await record_step(recording, 1, 0)
        assert measured_gain(db, "sim") is None  # a gate's accuracy is nobody's
        assert run_summary(db).loc["sim", "on_probation"] == run_summary(db).loc["sim", "accepted"]


@pytest.mark.parametrize(
    ("source", "label"),
    [("diagnosis", "validation"), ("diagnosis+validation", "validation (optimistic)")],
)
async def test_validation_that_gates_selected_on_is_called_optimistic(tmp_path, source, label):
    db = await record_run(tmp_path, epochs=1, steps=1)
    with sqlite3.connect(db) as connection:
        connection.execute("DELETE FROM predictions WHERE run_id GLOB 'sim_final_*'")
        config = json.loads(connection.execute("SELECT config FROM _runs WHERE run_id = 'sim'").fetchone()[0])
        connection.execute(
            "UPDATE _runs SET config = ? WHERE run_id = 'sim'",
            (json.dumps({**config, "gate_source": source}),),
        )
    summary = run_summary(db).loc["sim"]
    assert summary["measured_on"] == label
    assert summary["questions"] == one(db, "SELECT count(*) FROM predictions WHERE run_id = 'sim_e1_R'")


async def test_an_error_on_either_side_is_missing_and_not_wrong(tmp_path):
    db = await record_run(tmp_path, epochs=1, steps=1)
    whole = compare_runs(db, "sim_final_baseline", "sim_final_best", "test").comparison
    with sqlite3.connect(db) as connection:
        connection.execute(
            "UPDATE predictions SET correct = NULL"
            " WHERE question_id = 'sim-0000' AND run_id = 'sim_final_best'"
        )
    partial = compare_runs(db, "sim_final_baseline", "sim_final_best", "test")
    assert (partial.comparison.n, partial.comparison.missing) == (whole.n - 1, 1)
    right = one(
        db,
        "SELECT sum(correct) FROM predictions WHERE run_id = 'sim_final_best' AND question_id != 'sim-0000'",
    )
    assert partial.after == pytest.approx(right / partial.comparison.n)


async def test_when_all_answers_are_missing_nothing_is_claimed(tmp_path):
    db = await record_run(tmp_path, epochs=1, steps=1)
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE predictions SET correct = NULL")
    summary = run_summary(db).loc["sim"]
    assert summary[["accuracy_before", "accuracy_after", "gain", "gain_low"]].isna().all()
    assert summary["errors"] == summary["rollouts"]


async def test_without_a_configuration_luck_is_unknown(tmp_path):
    db = await record_run(tmp_path, epochs=1, steps=1)
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE _runs SET config = NULL")
    assert pd.isna(run_summary(db).loc["sim", "kept_by_luck"])


def settled(decision, epoch):
    return {"epoch": epoch, "target": "order.md", "payload": {"decision": decision}}


GATE = {"epoch": 2, "target_file": "order.md", "verdict": "ACCEPT_PROVISIONAL"}


@pytest.mark.parametrize(
    ("gate", "ended", "on_probation", "fate"),
    [
        (GATE, [], True, "on probation"),
        (GATE, [settled("kept", 2)], True, "kept"),
        (GATE, [settled("rolled_back", 2)], True, "rolled back"),
        (GATE, [settled("rolled_back", 1)], True, "on probation"),  # of an earlier edit
        (GATE, [settled("kept", 2), settled("rolled_back", 3)], True, "kept"),
        (GATE, [settled("rolled_back", 2)], False, "kept"),
        ({**GATE, "verdict": "REJECT"}, [], True, "rejected"),
        ({**GATE, "verdict": "CONTINUE"}, [], True, "undecided"),
        ({**GATE, "verdict": "aborted"}, [], True, "aborted"),
    ],
)
def test_the_fate_of_an_edit_is_the_next_settlement_of_its_file(gate, ended, on_probation, fate):
    assert fate_of(gate, ended, on_probation=on_probation) == fate


def test_a_probation_that_stays_open_has_ended_nothing(tmp_path):
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new") as log:
        for epoch, decision in [(1, "open"), (2, "kept")]:
            log.log_event("probation_settled", {"decision": decision}, epoch=epoch, target="order.md")
    assert [event["epoch"] for event in ended_probations(db, "new")] == [2]
