"""One step: its sequence, its guards, and what it leaves of what was known."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_runs import V1, begin, make_lab
from step_runs import BATCH, WRONG, ScriptedProposer, at_step, mends, step_lab

from core.types import Prediction
from harness.baseline import init_gate_pools
from harness.inference import aggregate_results
from harness.observation import StepReport
from harness.step import (
    InfraError,
    apply_batch_correctness,
    batch_from_ids,
    compute_total_steps,
    cooled_down,
    edit_budget_at,
    guard_infra_failures,
    resume_plan,
    run_step,
    should_early_stop,
    snapshot_current_skills,
    with_observations,
)


def result_of(answers):
    rows = [
        Prediction("run_e1_s0", f"q{number}", "film", "order", "A", correct=correct, stop_reason="finished")
        for number, correct in enumerate(answers)
    ]
    return aggregate_results("run_e1_s0", rows)


# The infra guard


@given(right=st.integers(0, 40), errors=st.integers(0, 40), rate=st.sampled_from([0.05, 0.1, 0.25]))
def test_guard_infra_failures(right, errors, rate):
    result = result_of([True] * right + [None] * errors)
    if right + errors and errors / (right + errors) > rate:
        with pytest.raises(InfraError, match=f"{errors} of {right + errors}"):
            guard_infra_failures(result, rate)
    else:
        guard_infra_failures(result, rate)


async def test_a_step_that_is_given_up_leaves_its_answers_and_the_state_before_it_valid(tmp_path):
    lab = await step_lab(tmp_path, {})
    with lab.log:
        state = at_step(await begin(lab), ["d-order-01", "d-order-03", "d-content-01"])
        lab.script.overrides[("run_e1_s0", "d-order-03")] = None
        with pytest.raises(InfraError, match="1 of 3"):
            await run_step(lab.parts, state, 3)
        lab.script.overrides.clear()
        before = len(lab.script.answers("run_e1_s0"))
        after = await run_step(lab.parts, state, 3)
        assert len(lab.script.answers("run_e1_s0")) == before + 1
        assert after.step == 1


# Correctness


def test_apply_batch_correctness_complete():
    with pytest.raises(RuntimeError, match="q2"):
        apply_batch_correctness({"q1": True}, ["q1", "q2"], {"q1": False})


def test_apply_batch_correctness_incremental():
    known = {"q1": True, "q2": False, "q3": False}
    after = apply_batch_correctness(known, ["q2", "q3", "q4"], {"q2": True, "q3": None, "q4": False})
    assert after == {"q1": True, "q2": True, "q3": False, "q4": False}
    assert known == {"q1": True, "q2": False, "q3": False}


async def test_init_gate_pools_empty_baseline_raises(tmp_path):
    lab = await make_lab(tmp_path)
    with lab.log:
        with pytest.raises(RuntimeError, match="run_baseline"):
            init_gate_pools(lab.parts, [])
        assert not lab.parts.paths.gate_pools_path.exists()


async def test_what_a_step_observes_waits_for_the_ladder_and_an_error_does_not(tmp_path):
    lab = await make_lab(tmp_path)
    with lab.log:
        state = await begin(lab)
        after = with_observations(
            state, ["d-order-01", "d-order-02"], {"d-order-01": True, "d-order-02": None}
        )
        assert after.gate_epoch_observed == {"d-order-01": True}
        assert after.correctness["d-order-02"] is True


# Small decisions


@given(
    start=st.integers(1, 9),
    end=st.integers(1, 9),
    total=st.integers(1, 40),
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
)
def test_the_edit_budget_begins_at_its_start_never_rises_and_ends_at_its_end(start, end, total, schedule):
    start, end = max(start, end), min(start, end)
    budgets = [
        edit_budget_at(step, total_steps=total, start=start, end=end, schedule=schedule)
        for step in range(total + 3)
    ]
    assert budgets[0] == start
    assert budgets == sorted(budgets, reverse=True)
    if schedule != "constant" and total > 1:
        assert budgets[total - 1 :] == [end] * 4
    else:
        assert set(budgets) == {start}


def test_compute_total_steps():
    assert compute_total_steps(3, 4) == 12
    assert compute_total_steps(3, 0) == 0


def test_cooldown_decrement():
    assert cooled_down({"a.md": 2, "b.md": 1}, {"a.md": 2, "b.md": 1, "new.md": 1}) == {
        "a.md": 1,
        "new.md": 1,
    }


def test_batch_from_ids_keeps_the_order_and_names_what_is_gone():
    assert batch_from_ids(["b", "a"], {"a": 1, "b": 2}) == [2, 1]
    with pytest.raises(RuntimeError, match="gone"):
        batch_from_ids(["a", "gone"], {"a": 1})


@pytest.mark.parametrize(
    ("epoch", "phase", "waited", "left"),
    [
        (0, "epoch_done", 0, [1, 2, 3]),
        (1, "steps", 0, [1, 2, 3]),
        (2, "R", 0, [2, 3]),
        (2, "epoch_done", 4, [3]),
        (2, "epoch_done", 5, []),
        (2, "steps", 5, [2, 3]),
        (3, "epoch_done", 0, []),
    ],
)
async def test_resume_plan(tmp_path, epoch, phase, waited, left):
    lab = await make_lab(tmp_path)
    with lab.log:
        state = dataclasses.replace(
            await begin(lab), epoch=epoch, phase=phase, steps_since_best_improved=waited
        )
        assert list(resume_plan(state, epochs=3, patience=5)) == left
        assert snapshot_current_skills(state) == "v1"


def test_should_early_stop_only_with_a_patience():
    assert not should_early_stop(1_000, 0)
    assert should_early_stop(3, 3)
    assert not should_early_stop(2, 3)


# The sequence


async def test_run_step_sequence(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        state = at_step(await begin(lab), [*BATCH["order"], "d-order-02", *BATCH["content"]])
        after = await run_step(lab.parts, state, 3)
        runs = [scope.partition("/")[0] for scope in lab.script.answers("run_e1_s0")]
        kinds = ["gate" if "_gate_" in run else "rollout" for run in runs]
        assert kinds[:5] == ["rollout"] * 5
        assert set(kinds[5:]) == {"gate"}
        metrics = lab.log.query("SELECT question_id FROM question_metrics WHERE run_id = 'run_e1_s0'")
        assert len(metrics) == 5
        assert (after.step, after.global_step) == (state.step + 1, state.global_step + 1)
        assert after.current_skills_version == "v2"
        report = json.loads(
            (lab.parts.paths.runs_dir / "run" / "reports" / "step_e1_s0.json").read_text("utf-8")
        )
        outcomes = {file["target_file"]: file["outcome"] for file in report["files"]}
        assert outcomes == {"content.md": "skipped", "order.md": "accepted"}
        skipped = next(file for file in report["files"] if file["outcome"] == "skipped")
        assert {value for name, value in skipped.items() if name.startswith("gate_")} == {None}
        assert set(dataclasses.asdict(StepReport("r", 1, 0, 0, 1, 0, 0, 0, ()))) <= set(report)


async def test_a_step_that_is_begun_again_asks_nobody_and_ends_the_same(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")] * 2})
    with lab.log:
        state = at_step(await begin(lab), [*BATCH["order"], *BATCH["content"]])
        first = await run_step(lab.parts, state, 3)
        asked = len(lab.script.answers())
        again = await run_step(lab.parts, state, 3)
        assert again == first
        assert len(lab.script.answers()) == asked


async def test_the_proposer_gets_another_seed_in_every_step_and_the_same_in_the_same(tmp_path):
    proposer = ScriptedProposer({})
    lab = await step_lab(tmp_path, {}, proposer=proposer)
    with lab.log:
        state = at_step(await begin(lab), BATCH["order"])
        for step in (0, 0, 1):
            await run_step(
                lab.parts, dataclasses.replace(state, batches=(state.batches[0],) * 2, step=step), 3
            )
        seeds = [asked["seed"] for asked in proposer.asked]
        assert seeds[0] == seeds[1] != seeds[2]


async def test_the_baseline_of_the_lab_is_what_its_questions_say(tmp_path):
    lab = await step_lab(tmp_path, {})
    with lab.log:
        state = await begin(lab)
        assert state.current == V1
        assert all(state.correctness[name] is False for name in WRONG["order"])
