"""The slow update: the rules of its ten phases, each by what happens when it is kept."""

import dataclasses
import json
import sqlite3

import pytest
from slow_runs import V1, ScriptedLLM, accept, begin, ignore, make_lab, system_pack

from harness.checkpoint import PHASES
from harness.evaluation import Evaluation, compare, measured_side, read_evaluation, validation_ids
from harness.gate_ladder import read_gate_pools
from harness.parts import gate_pools_path, roll_out
from harness.probation import settle
from harness.slow_update import (
    SLOW_UPDATE,
    choose_best,
    evaluate_r,
    ladder_sources,
    observe,
    refresh_ladder,
    score_soft,
    settle_open,
    slow_update_cycle,
)
from harness.store import list_versions, read_version
from harness.workspace import VersionPair, load_manifest, update_manifest

WRONG_ORDER = "v-order-01 v-order-03 v-order-05"
RIGHT_ORDER = "v-order-00 v-order-02 v-order-04"
WRONG_CONTENT = "v-content-01 v-content-03 v-content-05"
RIGHT_CONTENT = "v-content-00 v-content-02 v-content-04"


@pytest.fixture
async def lab(tmp_path):
    made = await make_lab(tmp_path)
    with made.log:
        yield made


async def up_to(lab, state, phase):
    """The state after the slow update up to and with a phase."""
    for name, work in SLOW_UPDATE.items():
        state = dataclasses.replace(await work(lab.parts, state), phase=name)
        if name == phase:
            return state
    raise KeyError(phase)


# Phase 1


async def test_slow_update_r_before_prompts(lab):
    lab = lab.with_evolver(edits=(f"mends {WRONG_ORDER}",))
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    happened = lab.script.happened
    first_call = next(place for place, (kind, _) in enumerate(happened) if kind == "call")
    r_answers = [place for place, (_, what) in enumerate(happened) if what.startswith("run_e1_R/")]
    assert len(r_answers) == 30
    assert max(r_answers) < first_call
    assert lab.metric("R")[0]["prompts_version"] == "v1"
    assert state.current == VersionPair("v1", "v2")


async def test_the_pair_is_captured_before_r_starts(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    measured_pair, workspace = state.current, lab.parts.paths.workspace_dir
    lab.script.on_answer = lambda scope: update_manifest(workspace, current=V1)
    state = await evaluate_r(lab.parts, state)
    assert state.r_versions == measured_pair
    found = await read_evaluation(lab.parts, "run_e1_R", state.r_versions)
    assert found.correctness["v-order-00"] is False
    noted = lab.log.query("SELECT skills_version FROM _runs WHERE run_id = 'run_e1_R'")
    assert noted == [{"skills_version": measured_pair.skills}]


async def test_r_is_written_back_even_when_it_is_worse_and_an_error_leaves_what_was_known(lab):
    state = await accept(lab, await begin(lab), "default-strategy", "spoils v-other-00 v-other-02")
    lab.script.overrides = {("run_e1_R", "v-other-04"): None}
    state = await evaluate_r(lab.parts, state)
    known = [state.correctness[name] for name in ("v-other-00", "v-other-02", "v-other-04")]
    assert known == [False, False, True]


# Phases 2 and 3


async def test_soft_score_missing_table_raises(lab):
    lab = lab.with_config(soft_metric=True)
    lab = dataclasses.replace(lab, parts=dataclasses.replace(lab.parts, judge=ScriptedLLM(lab.script)))
    state = await evaluate_r(lab.parts, await begin(lab))
    await score_soft(lab.parts, state)
    with sqlite3.connect(lab.log.db_path) as connection:
        connection.execute("DROP TABLE span_evaluations")
    with pytest.raises(RuntimeError, match="span_evaluations"):
        await score_soft(lab.parts, state)


async def test_a_judged_r_has_its_soft_and_mixed_score_in_dual_metric(lab):
    lab = lab.with_config(soft_metric=True, mixed_weight=0.25)
    judge = ScriptedLLM(lab.script, completeness=0.8)
    lab = dataclasses.replace(lab, parts=dataclasses.replace(lab.parts, judge=judge))
    await up_to(lab, await begin(lab), "dual_metric")
    (row,) = lab.metric("R")
    assert (row["hard"], row["soft"], row["n"]) == (0.5, pytest.approx(0.8), 30)
    assert row["mixed"] == pytest.approx(0.75 * row["hard"] + 0.25 * row["soft"])


async def test_without_soft_scores_soft_and_mixed_are_null_and_never_zero(lab):
    await up_to(lab, await begin(lab), "dual_metric")
    (row,) = lab.metric("R")
    assert (row["soft"], row["mixed"], row["skills_version"]) == (None, None, "v1")


# Phase 4


async def test_slow_update_probation_settle(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    state = await up_to(lab, state, "probations")
    assert state.probations == {}
    outcome = lab.events("probation_settled")
    assert {name: told["decision"] for name, told in outcome.items()} == {
        "content.md": "kept",
        "order.md": "rolled_back",
    }
    order = outcome["order.md"]
    assert (order["W"], order["L"], order["D"], order["n"], order["P"]) == (0, 3, 3, 10, 1 / 16)


async def test_a_rollback_reverts_the_file_alone_in_a_new_version(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    before = {version: read_version(lab.parts.paths.store_dir, "skills", version) for version in ("v2", "v3")}
    state = await up_to(lab, state, "probations")
    assert state.current_skills_version == "v4"
    assert lab.file("v4", "order.md") == lab.file("v1", "order.md")
    assert lab.file("v4", "content.md") == lab.file("v3", "content.md") != lab.file("v1", "content.md")
    assert load_manifest(lab.parts.paths.workspace_dir).current == VersionPair("v4", "v1")
    for version, files in before.items():
        assert read_version(lab.parts.paths.store_dir, "skills", version) == files


async def test_after_a_rollback_correctness_is_the_snapshots_over_rs(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    after_r = await up_to(lab, state, "R")
    assert after_r.correctness["v-order-00"] is False
    state = await settle_open(lab.parts, after_r)
    assert state.correctness["v-order-00"] is True
    assert state.correctness["d-order-01"] is False


async def test_what_nobody_knew_before_a_rollback_nobody_knows_after_it(lab):
    state = await begin(lab)
    known = {name: right for name, right in state.correctness.items() if name != "d-order-01"}
    state = await accept(lab, dataclasses.replace(state, correctness=known), "order", f"spoils {RIGHT_ORDER}")
    state = await up_to(lab, state, "probations")
    assert "d-order-01" not in state.correctness


async def test_what_became_known_after_the_first_accept_is_no_part_of_its_snapshot_nor_outlives_it(lab):
    state = await begin(lab)
    unknown = {name: right for name, right in state.correctness.items() if name != "v-order-08"}
    state = await accept(
        lab, dataclasses.replace(state, correctness=unknown), "order", f"spoils {RIGHT_ORDER}"
    )
    state = dataclasses.replace(state, correctness={**state.correctness, "v-order-08": True})
    state = await accept(lab, state, "order", "spoils v-order-06", step=1)
    assert "v-order-08" not in state.probations["order.md"].validation
    state = await up_to(lab, state, "R")
    assert state.correctness["v-order-08"] is True
    state = await settle_open(lab.parts, state)
    assert lab.events("probation_settled")["order.md"]["n"] == 9
    assert "v-order-08" not in state.correctness
    assert state.correctness["v-order-06"] is True


async def test_all_pending_edits_of_a_rollback_are_rejected(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}", step=0)
    state = await accept(lab, state, "order", "spoils v-order-06", step=1)
    assert list(state.probations) == ["order.md"]
    state = await up_to(lab, state, "probations")
    contents = [entry.edit.content for entry in state.rejected_buffer]
    assert contents == [f"spoils {RIGHT_ORDER}", "spoils v-order-06"]
    assert {(entry.improved, entry.regressed) for entry in state.rejected_buffer} == {(0, 4)}
    assert lab.file(state.current_skills_version, "order.md") == lab.file("v1", "order.md")


async def test_a_probation_that_ties_is_kept(lab):
    state = await accept(lab, await begin(lab), "order", "Look again.")
    state = await up_to(lab, state, "probations")
    assert (state.probations, state.current_skills_version) == ({}, "v2")


async def test_probation_settle_missing_prediction_raises(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await evaluate_r(lab.parts, state)
    measured = await read_evaluation(lab.parts, "run_e1_R", state.r_versions)
    rows = {name: row for name, row in measured.rows.items() if name != "v-order-07"}
    incomplete = Evaluation(measured.pair, measured.run_id, rows)
    with pytest.raises(RuntimeError, match="v-order-07"):
        await settle(lab.parts, state.probations["order.md"], incomplete, epoch=1)
    with sqlite3.connect(lab.log.db_path) as connection:
        connection.execute("DELETE FROM predictions WHERE run_id = 'run_e1_R' AND question_id = 'v-order-07'")
    with pytest.raises(RuntimeError, match="v-order-07"):
        await settle_open(lab.parts, state)


async def test_snapshot_rows_that_fit_cost_nothing(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    await up_to(lab, state, "probations")
    assert lab.script.answers("_base_") == []


async def test_a_base_row_of_other_prompts_is_not_taken_but_rolled_out(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    probation = state.probations["order.md"]
    foreign = {
        name: dataclasses.replace(row, correct=False, prompts_hash="of another prompt")
        for name, row in probation.validation.items()
    }
    with sqlite3.connect(lab.log.db_path) as connection:
        connection.execute("UPDATE predictions SET prompts_hash = 'of another prompt'")
    probation = dataclasses.replace(probation, validation=foreign)
    state = dataclasses.replace(state, probations={"order.md": probation})
    await up_to(lab, state, "probations")
    assert len(lab.script.answers("run_e1_base_")) == 10
    assert lab.events("probation_settled")["order.md"]["L"] == 3


async def test_with_too_many_errors_in_r_a_probation_stays_open_until_the_next_r(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    lab.script.overrides = {("run_e1_R", f"v-order-0{number}"): None for number in (7, 9)}
    state = await up_to(lab, state, "probations")
    assert lab.events("probation_settled")["order.md"]["decision"] == "open"
    assert (list(state.probations), state.current_skills_version) == (["order.md"], "v2")
    state = await up_to(lab, dataclasses.replace(state, epoch=2, phase="steps"), "probations")
    assert lab.events("probation_settled")["order.md"]["decision"] == "rolled_back"
    assert (state.probations, state.current_skills_version) == ({}, "v3")


async def test_with_few_errors_in_r_they_are_left_out(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    lab.script.overrides = {("run_e1_R", "v-order-00"): None}
    await up_to(lab, state, "probations")
    told = lab.events("probation_settled")["order.md"]
    assert (told["decision"], told["n"], told["L"], told["missing"]) == ("rolled_back", 9, 2, 1)


# Phase 5


async def test_intervals_are_over_groups_where_the_data_name_them(lab):
    await begin(lab)
    grouped = {
        name: dataclasses.replace(question, group_id=f"group-{int(name[-2:]) % 3}")
        for name, question in lab.parts.infer.questions.items()
    }
    for questions, groups in ((lab.parts.infer.questions, 5), (grouped, 3)):
        parts = dataclasses.replace(
            lab.parts, infer=dataclasses.replace(lab.parts.infer, questions=questions)
        )
        side = measured_side(parts, await read_evaluation(parts, "run_baseline", V1))
        found = await compare(parts, validation_ids(parts), base=side, cand=side, epoch=1)
        assert found.comparison.groups == groups


async def test_slow_update_best_strict_greater(lab):
    state = await up_to(lab, await begin(lab), "best")
    assert state.best.run_id == "run_baseline"
    state = await accept(lab, dataclasses.replace(state, epoch=2), "content", "mends v-content-01")
    state = await up_to(lab, state, "best")
    assert (state.best.skills, state.best.prompts, state.best.run_id) == ("v2", "v1", "run_e2_R")
    assert state.best.acc == pytest.approx(16 / 30)
    assert load_manifest(lab.parts.paths.workspace_dir).best == VersionPair("v2", "v1")
    assert lab.events("best_changed")[""]["run_id"] == "run_e2_R"


async def test_a_better_pair_that_is_not_strictly_more_accurate_is_no_new_best(lab):
    state = await accept(lab, await begin(lab), "content", "mends v-content-01")
    lab.script.overrides = {("run_e1_R", name): None for name in ("v-other-00", "v-other-02")}
    state = await up_to(lab, state, "best")
    measured = await read_evaluation(lab.parts, "run_e1_R", state.r_versions)
    assert measured.score.accuracy == state.best.acc == 0.5  # 14 of 28, 15 of 30; 1 improved, 0 regressed
    assert state.best.run_id == "run_baseline"


async def test_greater_accuracy_alone_does_not_make_a_best(lab):
    state = await accept(lab, await begin(lab), "content", "mends v-content-01 v-content-03")
    state = await up_to(lab.with_config(gate_slow_tau=0.9), state, "best")
    assert state.best.run_id == "run_baseline"  # 2 improved, 0 regressed: P = 0.875
    assert (await choose_best(lab.parts, state)).best.run_id == "run_e1_R"


async def test_a_lucky_evaluation_of_the_best_text_is_no_new_best(lab):
    state = await begin(lab)
    lab.script.overrides = {("run_e1_R", name): True for name in WRONG_ORDER.split()}
    state = await up_to(lab, state, "best")
    assert state.best.run_id == "run_baseline"


async def test_rs_pair_is_not_asked_for_best_when_something_was_rolled_back(lab):
    state = await accept(lab, await begin(lab), "order", "spoils v-order-00")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    state = await up_to(lab, state, "best")
    assert state.best.run_id == "run_baseline"
    assert load_manifest(lab.parts.paths.workspace_dir).best == V1


# Phase 8


async def test_without_a_change_of_the_pair_there_is_no_r2(lab):
    state = await up_to(lab, await begin(lab), "R2")
    assert (state.r2_versions, lab.script.answers("run_e1_R2"), lab.metric("R2")) == (None, [], [])


async def test_slow_update_r2_keep(lab):
    lab = lab.with_evolver(edits=(f"mends {WRONG_ORDER}",))
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert state.current == state.r2_versions == VersionPair("v1", "v2")
    assert lab.events("prompts_decided")[""]["decision"] == "kept"
    assert all(state.correctness[name] for name in WRONG_ORDER.split())
    assert state.best.run_id == "run_e1_R2"
    assert state.rejected_buffer == ()


async def test_slow_update_r2_revert(lab):
    lab = lab.with_evolver(edits=(f"spoils {RIGHT_ORDER}",))
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert (state.current, state.r2_versions) == (V1, VersionPair("v1", "v2"))
    assert load_manifest(lab.parts.paths.workspace_dir).current == V1
    told = lab.events("prompts_decided")[""]
    assert (told["decision"], told["comparison"]["L"]) == ("reverted", 3)
    assert all(state.correctness[name] for name in RIGHT_ORDER.split())
    assert [entry.edit.content for entry in state.rejected_buffer] == [f"spoils {RIGHT_ORDER}"]


async def test_a_tie_reverts(lab):
    lab = lab.with_evolver(edits=("Take your time.",))
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert (state.current, lab.events("prompts_decided")[""]["comparison"]["D"]) == (V1, 0)


async def test_slow_update_r2_version_binding(lab):
    lab = lab.with_evolver(guidance=f"mends {WRONG_CONTENT}", edits=("mends v-order-01",))
    state = await accept(lab, await begin(lab), "content", "mends v-content-07")
    state = dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert (state.r_versions, state.r2_versions) == (VersionPair("v2", "v1"), VersionPair("v3", "v2"))
    sql = "SELECT run_id, skills_version, prompts_version FROM _runs WHERE run_id GLOB 'run_e1_R*'"
    noted = {row["run_id"]: (row["skills_version"], row["prompts_version"]) for row in lab.log.query(sql)}
    assert noted == {"run_e1_R": ("v2", "v1"), "run_e1_R2": ("v3", "v2")}
    (row,) = lab.metric("R2")
    assert (row["skills_version"], row["prompts_version"]) == ("v3", "v2")
    assert (state.best.skills, state.best.prompts) == ("v3", "v2")
    r2 = await read_evaluation(lab.parts, "run_e1_R2", state.r2_versions)
    assert r2.correctness["v-content-01"] is True  # what only the guidance of v3 says


@pytest.mark.parametrize(
    ("guidance", "decision"),
    [(f"mends {WRONG_CONTENT}", "kept"), (f"spoils {RIGHT_CONTENT}", "reverted"), ("Look.", "reverted")],
)
async def test_guidance_alone_is_kept_or_taken_back(lab, guidance, decision):
    lab = lab.with_evolver(guidance=guidance)
    state = await accept(lab, await begin(lab), "content", "mends v-content-07")
    state = await up_to(lab, state, "R2")
    assert state.r2_versions == VersionPair("v3", "v1")
    assert state.current_skills_version == ("v3" if decision == "kept" else "v2")
    assert lab.events("prompts_decided")[""]["decision"] == decision


async def test_guidance_is_taken_back_and_the_rollback_before_it_stays(lab):
    lab = lab.with_evolver(guidance=f"spoils {RIGHT_CONTENT}")
    state = await accept(lab, await begin(lab), "content", "mends v-content-07")
    state = await accept(lab, state, "order", f"spoils {RIGHT_ORDER}")
    state = await up_to(lab, state, "R2")
    assert (state.current_skills_version, state.r2_versions.skills) == ("v4", "v5")
    assert lab.file("v4", "order.md") == lab.file("v1", "order.md")
    assert "momentum" not in lab.file("v4", "content.md")


async def test_a_rollback_alone_is_measured_and_never_undone(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    lab.script.overrides = {("run_e1_R2", name): False for name in RIGHT_CONTENT.split()}
    state = await up_to(lab, state, "R2")
    assert state.current == state.r2_versions == VersionPair("v3", "v1")
    assert lab.events("prompts_decided") == {}
    assert len(lab.script.answers("run_e1_R2")) == 30
    assert state.correctness["v-content-00"] is False  # R2 is kept: it measured what is in force


async def test_a_lucky_r2_after_a_rollback_to_the_best_text_is_no_new_best(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    lab.script.overrides = {("run_e1_R2", name): True for name in WRONG_CONTENT.split()}
    state = await up_to(lab, state, "R2")
    assert state.best.run_id == "run_baseline"


async def test_only_what_6_and_7_changed_is_taken_back_and_the_rollback_stays(lab):
    lab = lab.with_evolver(edits=(f"spoils {RIGHT_CONTENT}",))
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert (state.current, state.r2_versions) == (VersionPair("v3", "v1"), VersionPair("v3", "v2"))
    assert lab.file("v3", "order.md") == lab.file("v1", "order.md")
    told = lab.events("prompts_decided")[""]
    assert told["before"] == {"skills": "v3", "prompts": "v1"}
    # R2 against the restored text, not against R: R's order answers were those of the harmful edit.
    assert (told["comparison"]["W"], told["comparison"]["L"]) == (0, 3)


async def test_after_a_rollback_the_restored_texts_rows_count_again(lab):
    lab = lab.with_evolver(edits=("mends v-content-01",))
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    told = lab.events("prompts_decided")[""]
    assert (told["decision"], told["comparison"]["W"], told["comparison"]["L"]) == ("kept", 1, 0)
    assert lab.script.answers("_base_") == []


async def test_the_pair_in_force_is_asked_for_best_after_a_rollback_and_a_revert(lab):
    lab = lab.with_evolver(edits=(f"spoils {RIGHT_CONTENT}",))
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    state = dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))
    state = await up_to(lab, state, "R2")
    assert state.current == VersionPair("v4", "v1")
    assert (state.best.skills, state.best.prompts) == ("v4", "v1")
    assert state.best.acc == pytest.approx(18 / 30)
    state = await observe(lab.parts, state)
    assert (state.eval_prev_acc, state.eval_prev_run_id) == (state.best.acc, state.best.run_id)


# Phase 9


async def with_step_rows(lab, state):
    """This epoch's steps and a gate are rolled out."""
    await roll_out(lab.parts, "run_e1_s0", ["d-order-00", "d-content-01"], state.current)
    await roll_out(lab.parts, "run_e1_s1", ["d-order-01"], state.current)
    lab.script.overrides |= {("run_e1_s0_gate_order_cand_0a", "d-order-02"): False}
    await roll_out(lab.parts, "run_e1_s0_gate_order_cand_0a", ["d-order-02"], state.current)
    await roll_out(lab.parts, "run_e10_s0", ["d-order-04"], state.current)


async def test_slow_update_gate_refresh_sources(tmp_path):
    lab = await make_lab(tmp_path, gate_source="diagnosis+validation")
    with lab.log:
        lab = lab.with_evolver(edits=(f"mends {WRONG_ORDER}",))
        state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
        await with_step_rows(lab, state)
        state = await up_to(lab, state, "R2")
        sources = await ladder_sources(lab.parts, state)
        assert list(sources) == ["steps", "R", "R2"]
        assert sources["steps"] == {"d-order-00": True, "d-content-01": False, "d-order-01": False}
        assert (sources["R"]["v-order-01"], sources["R2"]["v-order-01"]) == (False, True)
        state = await refresh_ladder(lab.parts, state)
        cold, warm = (read_gate_pools(gate_pools_path(lab.parts, epoch)) for epoch in (0, 1))
        before, after = (
            {one.question_id: one for group in pools.entries.values() for one in group}
            for pools in (cold, warm)
        )
        seen = {name: after[name].n_obs - before[name].n_obs for name in after}
        assert seen["d-order-00"] == 1
        assert seen["d-order-02"] == 0  # only a gate saw it
        assert seen["d-order-04"] == 0  # a step of another epoch
        assert seen["v-order-01"] == 2
        gamma = lab.parts.config.gate_gamma
        expected = gamma * (gamma * before["v-order-01"].p_hat) + (1 - gamma)
        assert after["v-order-01"].p_hat == pytest.approx(expected)


async def test_slow_update_reverted_r2_not_absorbed(tmp_path):
    lab = await make_lab(tmp_path, gate_source="diagnosis+validation")
    with lab.log:
        lab = lab.with_evolver(edits=(f"spoils {RIGHT_ORDER}",))
        state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
        state = await up_to(lab, state, "R2")
        assert len(lab.script.answers("run_e1_R2")) == 30
        assert list(await ladder_sources(lab.parts, state)) == ["steps", "R"]
        await refresh_ladder(lab.parts, state)
        warm = read_gate_pools(gate_pools_path(lab.parts, 1))
        entries = {one.question_id: one for group in warm.entries.values() for one in group}
        assert entries["v-order-00"].n_obs == 2  # baseline and R
        assert all(state.correctness[name] for name in RIGHT_ORDER.split())


async def test_a_refresh_that_is_begun_again_absorbs_nothing_twice(lab):
    state = dataclasses.replace(await begin(lab), gate_epoch_observed={"d-order-00": True})
    await with_step_rows(lab, state)
    state = await up_to(lab, state, "R2")
    first = await refresh_ladder(lab.parts, state)
    once = gate_pools_path(lab.parts, 1).read_bytes()
    second = await refresh_ladder(lab.parts, state)
    assert gate_pools_path(lab.parts, 1).read_bytes() == once
    assert (first, first.gate_epoch_observed) == (second, {})


async def test_a_rollout_that_broke_off_is_no_observation(lab):
    state = await begin(lab)
    lab.script.overrides = {("run_e1_s0", "d-content-01"): None}
    await with_step_rows(lab, state)
    state = await up_to(lab, state, "R2")
    steps = (await ladder_sources(lab.parts, state))["steps"]
    assert steps == {"d-order-00": True, "d-order-01": False}


# Phase 10


async def test_holdout_numbers_are_stored_and_decide_nothing(tmp_path):
    ends = []
    for name, every in (("sealed", 0), ("looked", 1)):
        lab = await make_lab(tmp_path / name, holdout_every=every)
        with lab.log:
            state = await accept(lab, await begin(lab), "order", "mends t-order-01 v-order-01")
            ends.append(await slow_update_cycle(lab.parts, state, checkpoint=ignore))
            rows = lab.log.query("SELECT * FROM predictions WHERE question_id GLOB 't-*'")
            assert len(rows) == (6 if every else 0)
            if every:
                (row,) = lab.log.query("SELECT * FROM holdout_eval")
                assert (row["n"], row["correct"], row["skills_version"]) == (6, 4, "v2")
    assert ends[0] == ends[1]


async def test_holdout_every_second_epoch_leaves_the_first_alone(tmp_path):
    lab = await make_lab(tmp_path, holdout_every=2)
    with lab.log:
        state = await slow_update_cycle(lab.parts, await begin(lab), checkpoint=ignore)
        assert lab.script.answers("holdout") == []
        await slow_update_cycle(
            lab.parts, dataclasses.replace(state, epoch=2, phase="steps"), checkpoint=ignore
        )
        assert len(lab.script.answers("run_e2_holdout")) == 6


def report_of(lab, epoch=1):
    path = lab.parts.paths.runs_dir / "run" / "reports" / f"epoch_e{epoch}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("edits", "actions"),
    [
        ((), ("none", "none")),
        ((f"mends {WRONG_ORDER}",), ("updated", "none")),
        ((f"spoils {RIGHT_ORDER}",), ("reverted", "none")),
    ],
)
async def test_the_report_says_what_became_of_the_prompts(lab, edits, actions):
    lab = lab.with_evolver(edits=edits)
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    report = report_of(lab)
    assert (report["system_action"], report["tool_action"]) == actions
    assert (report["r2_hard"] is None) == (not edits)


async def test_the_report_names_what_was_kept_and_rolled_back(lab):
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    report = report_of(lab)
    assert (report["kept"], report["rolled_back"]) == (["content.md"], ["order.md"])
    assert report["hard"] == pytest.approx(15 / 30)  # 3 spoiled, 3 mended
    assert (report["r2_hard"], report["best_changed"]) == (pytest.approx(18 / 30), True)


async def test_steps_without_a_new_best_are_counted_in_steps(lab):
    state = await slow_update_cycle(lab.parts, await begin(lab), checkpoint=ignore)
    assert state.steps_since_best_improved == 2
    state = dataclasses.replace(state, epoch=2, phase="steps")
    state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    assert state.steps_since_best_improved == 4
    state = await accept(
        lab, dataclasses.replace(state, epoch=3, phase="steps"), "content", f"mends {WRONG_CONTENT}"
    )
    state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    assert state.steps_since_best_improved == 0


async def test_the_last_evaluation_is_that_of_the_pair_in_force(lab):
    kept = lab.with_evolver(edits=(f"mends {WRONG_ORDER}",))
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await slow_update_cycle(kept.parts, state, checkpoint=ignore)
    assert (state.eval_prev_run_id, state.eval_prev_acc) == ("run_e1_R2", pytest.approx(18 / 30))
    reverted = lab.with_evolver(edits=(f"spoils {RIGHT_CONTENT}",))
    state = dataclasses.replace(state, epoch=2, phase="steps")
    state = await slow_update_cycle(reverted.parts, state, checkpoint=ignore)
    assert (state.eval_prev_run_id, state.eval_prev_acc) == ("run_e2_R", pytest.approx(18 / 30))


# The order


async def test_every_phase_is_followed_by_a_checkpoint_of_its_own(lab):
    seen = []
    await slow_update_cycle(lab.parts, await begin(lab), checkpoint=lambda state: seen.append(state.phase))
    assert tuple(seen) == PHASES[1:-1]


async def test_a_version_that_was_made_never_changes(lab):
    lab = lab.with_evolver(guidance="mends v-content-09", edits=("mends v-order-01",))
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", "mends v-content-01")
    state = dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))
    store = lab.parts.paths.store_dir

    def versions():
        return {
            (kind, name): read_version(store, kind, name)
            for kind in ("skills", "prompts")
            for name in list_versions(store, kind)
        }

    seen = versions()
    for name, work in SLOW_UPDATE.items():
        state = dataclasses.replace(await work(lab.parts, state), phase=name)
        now = versions()
        assert {place: now[place] for place in seen} == seen
        seen = now
