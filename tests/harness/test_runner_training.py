"""Whole runs: how loops nest, what is never seen early, concurrency, early stop, delivery, final test."""

import dataclasses
import itertools
import json
from collections import Counter

import pytest
from slow_runs import V1, accept, begin, ignore, make_lab, system_pack
from training_runs import (
    canonical_state,
    differences,
    make_config,
    make_runner,
    make_world,
    query,
    quick_disk,
)

from core.adapters.simulated_edits import MIXED, EditKind, RulePlan
from core.evolution.gate import gate_decision
from core.evolution.shadow import strict_greater
from harness.checkpoint import PHASES, Best
from harness.config import RunConfig
from harness.final_test import deliver_best, run_final_test
from harness.slow_update import slow_update_cycle
from harness.store import read_version
from harness.training import Keeper
from harness.workspace import VersionPair, load_manifest

WORTHLESS = (EditKind("null", 1.0, (RulePlan(0.0),)),)
VERY_HELPFUL = (EditKind("very helpful", 1.0, (RulePlan(0.2),)),)
SMALL = {"val_size": 24, "test_size": 16}


@pytest.fixture(autouse=True)
def _quick():
    with quick_disk():
        yield


def train(folder, *, seed=4, n_questions=120, family=MIXED, evolver=False, parts=None, **changes):
    """A run in a new folder; its result."""
    world = make_world(seed, n_questions=n_questions)
    config = make_config(folder, world, **{**SMALL, "seed": seed, **changes})
    given = {"evolve_llm": world.evolver_llm(MIXED)} if evolver else {}
    return make_runner(config, world, family=family, **given, **(parts or {})).run()


def saved_states(monkeypatch, look=lambda keeper, state: None):
    """The states that are saved from now on; `look` is called with each."""
    states, real = [], Keeper.save

    def save(keeper, state):
        state = real(keeper, state)
        look(keeper, state)
        states.append(state)
        return state

    monkeypatch.setattr(Keeper, "save", save)
    return states


# The loops


def test_train_epoch_step_nesting(tmp_path, monkeypatch):
    states = saved_states(monkeypatch)
    result = train(tmp_path / "run", epochs=2)
    places = [(state.epoch, state.phase, state.step) for state in states]
    assert places[:2] == [(0, "epoch_done", 0)] * 2
    expected, global_step = [], 0
    for epoch in (1, 2):
        n = len(next(state for state in states if state.epoch == epoch).batches)
        assert n > 1
        expected += [(epoch, "steps", step) for step in range(1, n + 1)]
        expected += [(epoch, phase, n) for phase in PHASES[1:]]
        global_step += n
    assert places[2 : 2 + len(expected)] == expected
    assert result.steps == global_step == states[-1].global_step
    for before, after in itertools.pairwise(states):
        assert after.global_step - before.global_step in (0, 1)


def test_a_new_epoch_begins_without_the_accumulators_of_the_last(tmp_path, monkeypatch):
    states = saved_states(monkeypatch)
    train(tmp_path / "run", epochs=2)
    last_step = [state for state in states if state.phase == "steps" and state.epoch == 1][-1]
    assert last_step.gate_epoch_observed
    assert set(last_step.gate_epoch_observed) == {name for batch in last_step.batches for name in batch}
    done = next(state for state in states if state.phase == "epoch_done" and state.epoch == 1)
    assert (done.system_packs, done.tool_packs, done.gate_epoch_observed) == ((), (), {})
    first = next(state for state in states if state.epoch == 2)
    assert set(first.gate_epoch_observed) == set(first.batches[0])
    assert first.epoch_start_skills == done.current_skills_version
    assert first.r_versions is None


def test_no_row_of_a_test_question_exists_before_the_final_test(tmp_path, monkeypatch):
    def look(keeper, state):
        test_ids = [question.question_id for question in keeper.parts.pools.test]
        sql = (
            "SELECT DISTINCT run_id FROM predictions"
            " WHERE question_id IN (SELECT value FROM json_each(?)) AND run_id NOT LIKE '%_final_%'"
        )
        has = "SELECT count(*) AS n FROM sqlite_master WHERE name = 'predictions'"
        if keeper.parts.log.query(has)[0]["n"]:
            assert keeper.parts.log.query(sql, (json.dumps(test_ids),)) == []

    states = saved_states(monkeypatch, look)
    result = train(tmp_path / "run", epochs=1, evolver=True)
    assert len(states) > 10
    finals = query(tmp_path / "run", "SELECT DISTINCT run_id FROM predictions WHERE run_id LIKE '%_final_%'")
    assert {row["run_id"] for row in finals} <= {"sim_final_best", "sim_final_baseline"}
    assert result.final is not None


def test_concurrency_changes_no_decision_no_skill_and_no_row(tmp_path):
    states = {}
    for concurrency in (1, 7, 64):
        train(tmp_path / f"c{concurrency}", concurrency=concurrency, epochs=2, evolver=True)
        states[concurrency] = canonical_state(tmp_path / f"c{concurrency}")
    assert differences(states[1], states[7]) == []
    assert differences(states[1], states[64]) == []


def test_another_seed_makes_other_choices_and_the_same_seed_the_same(tmp_path):
    for name, changes in {"one": {}, "same": {}, "other": {"seed": 5, "split_seed": 0}}.items():
        world = make_world(4, n_questions=120)
        config = make_config(tmp_path / name, world, **{**SMALL, "epochs": 1, **changes})
        make_runner(config, world).run()
    one, same, other = (canonical_state(tmp_path / name) for name in ("one", "same", "other"))
    assert differences(one, same) == []
    assert one["tables"]["predictions"] != other["tables"]["predictions"]
    pools = [json.loads(state["files"]["experiment/pools.json"]) for state in (one, other)]
    assert pools[0] == pools[1]


# What a run can go through


def told(folder, event_type):
    rows = query(folder, "SELECT payload FROM _events WHERE event_type = ? ORDER BY id", event_type)
    return [json.loads(row["payload"]) for row in rows]


def test_seeded_runs_go_through_everything_and_the_database_tells(tmp_path):
    seen = set()
    for seed in (2, 4, 6):
        folder = tmp_path / f"seed{seed}"
        result = train(folder, seed=seed, n_questions=150, evolver=True, val_size=32, test_size=24)
        seen |= {event["decision"] for event in told(folder, "accepted")}
        settlements = told(folder, "probation_settled")
        seen |= {settled["decision"] for settled in settlements}
        seen |= {"joined" for settled in settlements if len(settled["accepted_versions"]) > 1}
        seen |= {f"prompts {event['decision']}" for event in told(folder, "prompts_decided")}
        seen |= {"best" for _ in told(folder, "best_changed")}
        report = json.loads(
            (folder / "experiment" / "runs" / "sim" / "reports" / "epoch_e2.json").read_text("utf-8")
        )
        if report["skills_version"] != result.current.skills:
            seen.add("delivered another pair than the last")
        assert result.luck.accepted == len(told(folder, "accepted"))
        assert f"{result.luck.accepted} accepted" in result.explain()
    assert {
        "ACCEPT_PROVISIONAL",
        "kept",
        "rolled_back",
        "joined",
        "prompts kept",
        "prompts reverted",
        "best",
        "delivered another pair than the last",
    } <= seen


def test_an_edit_that_helps_much_is_confirmed_kept_and_delivered(tmp_path):
    folder = tmp_path / "run"
    result = train(folder, family=VERY_HELPFUL, n_questions=240, epochs=1, val_size=60, test_size=60)
    decisions = Counter(event["decision"] for event in told(folder, "accepted"))
    assert decisions["ACCEPT_CONFIRMED"] >= 1
    assert result.current != result.final.first
    manifest = load_manifest(folder / "experiment")
    assert manifest.best == manifest.current == result.current
    assert result.final.comparison.difference > 0


def test_the_gate_is_a_seam_for_controls(tmp_path):
    def strict(evidence, params, *, is_last_block):
        verdict = gate_decision(evidence, params, is_last_block=is_last_block)
        if not is_last_block:
            return dataclasses.replace(verdict, decision="CONTINUE", reason="undecided")
        accepted = strict_greater(evidence).accept
        return dataclasses.replace(
            verdict, decision="ACCEPT_PROVISIONAL" if accepted else "REJECT", reason="terminal"
        )

    folder = tmp_path / "run"
    train(folder, family=WORTHLESS, epochs=1, parts={"gate": strict})
    for event in (*told(folder, "accepted"), *told(folder, "rejected")):
        assert (event["improved"] > event["regressed"]) == event["decision"].startswith("ACCEPT")
        assert event["attempts"] == event["planned"]


# Early stop


def test_early_stop_step_granularity(tmp_path):
    def never(evidence, params, *, is_last_block):
        verdict = gate_decision(evidence, params, is_last_block=is_last_block)
        return dataclasses.replace(verdict, decision="REJECT", reason="terminal")

    whole = train(tmp_path / "whole", family=WORTHLESS, epochs=4, parts={"gate": never})
    assert whole.epochs == 4
    rows = query(tmp_path / "whole", "SELECT DISTINCT epoch, step FROM _events WHERE step IS NOT NULL")
    steps = Counter(row["epoch"] for row in rows)
    patience = steps[1] + 1
    stopped = train(
        tmp_path / "stopped", family=WORTHLESS, epochs=4, early_stop_patience=patience, parts={"gate": never}
    )
    assert stopped.epochs == 2
    assert stopped.steps == steps[1] + steps[2]
    resumed = make_runner_again(tmp_path / "stopped", patience, never).run(resume=True)
    assert (resumed.epochs, resumed.steps, resumed.spent) == (2, stopped.steps, stopped.spent)


def make_runner_again(folder, patience, gate):
    world = make_world(4, n_questions=120)
    content = query(folder, "SELECT config FROM _runs WHERE run_id = 'sim'")[0]["config"]
    config = RunConfig(**json.loads(content))
    assert config.early_stop_patience == patience
    return make_runner(config, world, family=WORTHLESS, gate=gate)


# Delivery and the final test


async def test_deliver_best_rollback(tmp_path):
    lab = await make_lab(tmp_path)
    with lab.log:
        state = await accept(lab, await begin(lab), "order", "spoils v-order-00")
        assert load_manifest(lab.parts.paths.workspace_dir).current.skills == "v2"
        delivered = await deliver_best(lab.parts, state)
        assert delivered.current == V1
        assert (delivered.eval_prev_acc, delivered.eval_prev_run_id) == (state.best.acc, "run_baseline")
        manifest = load_manifest(lab.parts.paths.workspace_dir)
        assert (manifest.current, manifest.best) == (V1, V1)
        assert await deliver_best(lab.parts, delivered) == delivered
        assert read_version(lab.parts.paths.store_dir, "skills", "v2")


async def test_final_test_eval(tmp_path):
    lab = await make_lab(tmp_path)
    with lab.log:
        state = await accept(lab, await begin(lab), "order", "mends t-order-01")
        state = dataclasses.replace(state, best=Best("v2", "v1", "run_e1_R", 0.6))
        paid = len(lab.script.answers())
        final = await run_final_test(lab.parts, state)
        assert (final.first, final.best) == (V1, VersionPair("v2", "v1"))
        found = final.comparison
        assert (found.n, found.W, found.L, found.groups) == (6, 1, 0, 2)
        assert found.difference == pytest.approx(1 / 6)
        assert found.low <= found.difference <= found.high
        assert final.per_1000 == pytest.approx(1000 / 6 / paid)
        assert len(lab.script.answers("run_final_baseline")) == len(lab.script.answers("run_final_best")) == 6
        rows = lab.log.query("SELECT * FROM holdout_eval ORDER BY skills_version")
        assert [(row["skills_version"], row["n"], row["correct"]) for row in rows] == [
            ("v1", 6, 3),
            ("v2", 6, 4),
        ]
        (metric,) = lab.metric("final")
        assert (metric["skills_version"], metric["hard"]) == ("v2", pytest.approx(4 / 6))
        versions = lab.log.query("SELECT run_id, skills_version FROM _runs WHERE run_id GLOB '*_final_*'")
        assert {row["run_id"]: row["skills_version"] for row in versions} == {
            "run_final_baseline": "v1",
            "run_final_best": "v2",
        }
        assert await run_final_test(lab.parts, state) == final
        assert len(lab.script.answers("_final_")) == 12


async def test_a_pair_that_did_not_change_is_asked_once(tmp_path):
    lab = await make_lab(tmp_path)
    with lab.log:
        final = await run_final_test(lab.parts, await begin(lab))
        assert final.comparison.difference == 0
        assert "the pair that training began with" in final.explain()
        assert {scope.partition("/")[0] for scope in lab.script.answers("_final_")} == {"run_final_best"}


# What is only observed


@pytest.mark.parametrize(
    ("edits", "action"),
    [
        (("mends v-order-01 v-order-03 v-order-05",), "updated"),
        (("spoils v-order-00 v-order-02",), "reverted"),
        ((), "none"),
    ],
)
async def test_epoch_report_system_tool_action_tristate(tmp_path, edits, action):
    lab = (await make_lab(tmp_path)).with_evolver(edits=edits)
    with lab.log:
        state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
        await slow_update_cycle(lab.parts, state, checkpoint=ignore)
        path = lab.parts.paths.runs_dir / "run" / "reports" / "epoch_e1.json"
        report = json.loads(path.read_text("utf-8"))
        assert (report["system_action"], report["tool_action"]) == (action, "none")


def test_holdout_no_decision_side_effect(tmp_path):
    for name, every in {"sealed": 0, "looked": 1}.items():
        train(tmp_path / name, epochs=2, evolver=True, holdout_every=every)
    sealed, looked = (canonical_state(tmp_path / name) for name in ("sealed", "looked"))
    seen = query(tmp_path / "looked", "SELECT epoch FROM holdout_eval WHERE pool = 'test' ORDER BY epoch")
    assert [row["epoch"] for row in seen][:2] == [1, 2]
    allowed = {"files experiment/checkpoint.json"} | {
        f"tables {table}" for table in ("_runs", "holdout_eval", "predictions", "traces")
    }
    assert set(differences(sealed, looked)) <= allowed
    states = [
        {**json.loads(one["files"]["experiment/checkpoint.json"])["state"], "spent": None}
        for one in (sealed, looked)
    ]
    assert states[0] == states[1]
