"""What becomes of each file of a step: skipped, accepted, rejected, aborted; probation and rollback."""

import dataclasses

import pytest
from slow_runs import begin
from step_runs import BATCH, RIGHT, WRONG, ScriptedProposer, at_step, mends, spoils, step_lab

from core.evolution.comparison import ProbationSettlement
from core.evolution.gate_types import GateVerdict
from core.evolution.types import Edit
from harness import gating
from harness.gating import observed_since, roll_back
from harness.step import run_step
from harness.store import list_versions, read_meta
from harness.workspace import VersionPair, load_manifest

ORDER = ["order.md"]
ROLLED_BACK = ProbationSettlement("rolled_back", "1 improved, 4 regressed", 10, 1, 4, 5, 0.1, 0, 0.5)


def gates_held(lab):
    return len({scope.partition("/")[0] for scope in lab.script.answers("_cand_")})


def batch(*task_types):
    return [name for task_type in task_types for name in BATCH[task_type]]


async def one_step(lab, *task_types, **changes):
    """The states before and after a first step over a batch of these types."""
    state = dataclasses.replace(at_step(await begin(lab), batch(*task_types)), **changes)
    return state, await run_step(lab.parts, state, 3)


# Skipped


async def test_gate_cooldown_skip(tmp_path):
    proposer = ScriptedProposer({"order.md": [mends("order")]})
    lab = await step_lab(tmp_path, {}, proposer=proposer)
    with lab.log:
        state, after = await one_step(lab, "order", gate_cooldown={"order.md": 2})
        assert proposer.asked == []
        assert lab.events("proposal_skipped")["order.md"]["reason"] == "cooldown"
        assert after.gate_cooldown == {"order.md": 1}
        assert after.current == state.current


async def test_gate_no_change_skip(tmp_path):
    cancelling = [Edit("append", content="Wait."), Edit("delete", target="\nWait.\n")]
    lab = await step_lab(tmp_path, {"order.md": [cancelling], "content.md": []})
    with lab.log:
        state, after = await one_step(lab, "order", "content")
        assert gates_held(lab) == 0
        assert after.rejected_buffer == ()
        assert after.gate_cooldown == {}
        assert after.current == state.current
        assert lab.events("proposal_skipped")["content.md"]["reason"] == "no edit was proposed"


async def test_a_reply_that_nobody_can_read_is_refused_and_the_loop_goes_on(tmp_path):
    lab = await step_lab(tmp_path, {"content.md": [None], "order.md": [mends("order")]})
    with lab.log:
        _, after = await one_step(lab, "content", "order")
        assert "nothing readable" in lab.events("proposal_refused")["content.md"]["reason"]
        assert after.current_skills_version == "v2"


async def test_a_ladder_that_is_too_short_is_insufficient_evidence(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]}, gate_min_pairs=19)
    with lab.log:
        state, after = await one_step(lab, "order")
        assert gates_held(lab) == 0
        assert lab.events("proposal_skipped")["order.md"]["reason"] == "insufficient_evidence"
        assert after.current == state.current
        assert after.gate_cooldown == {}


async def test_questions_that_the_proposer_saw_are_not_evidence(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        await one_step(lab, "order")
        asked = {row["question_id"] for row in lab.log.query("SELECT question_id FROM quadrant_pairs")}
        assert asked
        assert not asked & set(BATCH["order"])
        assert asked <= {*WRONG["order"], *RIGHT["order"]}


async def test_near_duplicates_of_what_the_proposer_saw_are_not_evidence_either(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]}, alike=True)
    with lab.log:
        await one_step(lab, "order")
        asked = {row["question_id"] for row in lab.log.query("SELECT question_id FROM quadrant_pairs")}
        alike = {other for name in BATCH["order"] for other in lab.parts.alike[name]}
        assert alike
        assert not asked & alike


async def test_with_gate_exclude_video_no_question_of_a_video_that_the_proposer_saw_is_evidence(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]}, gate_exclude="video")
    with lab.log:
        await one_step(lab, "order")
        asked = {row["question_id"] for row in lab.log.query("SELECT question_id FROM quadrant_pairs")}
        videos = {lab.parts.questions[name].video_id for name in BATCH["order"]}
        assert asked
        assert not {lab.parts.questions[name].video_id for name in asked} & videos


async def test_a_step_holds_at_most_so_many_gates_and_the_worst_files_first(tmp_path):
    lines = {"order.md": [mends("order")], "content.md": [mends("content")]}
    lab = await step_lab(tmp_path, lines, gate_max_per_step=1)
    with lab.log:
        state = at_step(await begin(lab), [*WRONG["order"][:2], WRONG["content"][0]])
        after = await run_step(lab.parts, state, 3)
        assert gates_held(lab) == 1
        assert list(lab.events("accepted")) == ["order.md"]
        assert lab.events("proposal_skipped")["content.md"]["reason"] == "gate_max_per_step"
        assert after.current_skills_version == "v2"


async def test_skills_that_are_not_to_evolve_are_left_alone(tmp_path):
    proposer = ScriptedProposer({"order.md": [mends("order")]})
    lab = await step_lab(tmp_path, {}, proposer=proposer, evolve_targets="system+tools")
    with lab.log:
        state, after = await one_step(lab, "order")
        assert proposer.asked == []
        assert after.current == state.current


# Accepted


async def test_gate_accept_confirmed(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        _, after = await one_step(lab, "order")
        told = lab.events("accepted")["order.md"]
        assert told["decision"] == "ACCEPT_CONFIRMED"
        assert (told["source_version"], told["result_version"]) == ("v1", "v2")
        assert after.current == VersionPair("v2", "v1")
        assert load_manifest(lab.parts.paths.workspace_dir).current == VersionPair("v2", "v1")
        assert read_meta(lab.parts.paths.store_dir, "skills", "v2").source == "accept"
        assert lab.file("v2", "order.md").endswith(f"{mends('order')}\n")
        assert lab.file("v2", "content.md") == lab.file("v1", "content.md")
        assert after.changed_task_types_this_epoch == {"order"}
        assert list(after.probations) == ORDER


async def test_gate_accept_provisional_open_probation(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order", 3)]})
    with lab.log:
        _, after = await one_step(lab, "order")
        assert lab.events("accepted")["order.md"]["decision"] == "ACCEPT_PROVISIONAL"
        probation = after.probations["order.md"]
        assert (probation.base_version, probation.accepted_versions) == ("v1", ("v2",))
        assert (probation.epoch, probation.step) == (1, 0)
        assert [edit.edit.content for edit in probation.pending_edits] == [mends("order", 3)]
        asked = [f"v-order-{number:02d}" for number in range(20)]
        assert sorted(probation.validation) == asked
        for name in asked:
            row = probation.validation[name]
            assert (row.run_id, row.correct) == ("run_baseline", int(name[-2:]) % 2 == 0)


async def test_the_snapshot_is_what_was_known_before_anything_was_merged(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        state, after = await one_step(lab, "order")
        overwritten = after.probations["order.md"].diagnosis
        asked = {row["question_id"] for row in lab.log.query("SELECT question_id FROM quadrant_pairs")}
        assert set(overwritten) == asked
        assert {name: state.correctness[name] for name in asked} == overwritten
        changed = [name for name in asked if after.correctness[name] != state.correctness[name]]
        assert set(changed) <= set(WRONG["order"][2:])
        assert changed


async def test_correctness_is_merged_from_both_tracks_and_the_candidate_wins(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        state = at_step(await begin(lab), [*BATCH["order"], "d-order-02"])
        lab.script.overrides[("run_e1_s0", "d-order-02")] = False
        after = await run_step(lab.parts, state, 3)
        assert after.correctness["d-order-02"] is False  # the batch's own observation
        asked = {row["question_id"] for row in lab.log.query("SELECT question_id FROM quadrant_pairs")}
        mended = [name for name in WRONG["order"][2:] if name in asked]
        assert all(after.correctness[name] for name in mended)


async def test_an_accept_clears_the_files_rejected_edits_and_no_others(tmp_path):
    lines = {"order.md": [spoils("order"), mends("order")], "content.md": [spoils("content")]}
    lab = await step_lab(tmp_path, lines, cooldown=0)
    with lab.log:
        state = at_step(await begin(lab), batch("order", "content"), batch("order"))
        middle = await run_step(lab.parts, state, 3)
        assert {entry.target_file for entry in middle.rejected_buffer} == {"order.md", "content.md"}
        after = await run_step(lab.parts, middle, 3)
        assert [entry.target_file for entry in after.rejected_buffer] == ["content.md"]


async def test_a_later_accept_joins_the_probation_and_keeps_the_first_snapshot(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order", 4), f"mends {' '.join(WRONG['order'][6:])}"]})
    with lab.log:
        state = at_step(await begin(lab), batch("order"), batch("order"))
        first = await run_step(lab.parts, state, 3)
        second = await run_step(lab.parts, first, 3)
        before, joined = first.probations["order.md"], second.probations["order.md"]
        assert joined.base_version == "v1"
        assert joined.accepted_versions == ("v2", "v3")
        assert (joined.epoch, joined.step) == (before.epoch, before.step)
        assert joined.validation == before.validation
        known = {name: joined.diagnosis[name] for name in before.diagnosis if name in joined.diagnosis}
        assert known == {name: before.diagnosis[name] for name in known}
        assert len(joined.pending_edits) == 2


async def test_gate_default_strategy_no_probation(tmp_path):
    lab = await step_lab(tmp_path, {"default-strategy.md": [mends("other", 3)]})
    with lab.log:
        _, after = await one_step(lab, "other")
        told = lab.events("accepted")["default-strategy.md"]
        assert told["tau"] == 0.75
        assert after.current_skills_version == "v2"
        assert after.probations == {}


async def test_without_probation_no_file_goes_on_it_and_more_is_asked_of_an_edit(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order", 3)]}, probation=False)
    with lab.log:
        _, after = await one_step(lab, "order")
        assert lab.events("accepted")["order.md"]["tau"] == 0.75
        assert after.probations == {}


async def test_the_second_file_meets_the_workspace_that_the_first_one_left(tmp_path):
    lab = await step_lab(tmp_path, {"content.md": [mends("content")], "order.md": [mends("order")]})
    with lab.log:
        _, after = await one_step(lab, "order", "content")
        assert list(lab.events("accepted")) == ["content.md", "order.md"]
        assert after.current_skills_version == "v3"
        assert lab.file("v3", "content.md") == lab.file("v2", "content.md")
        assert read_meta(lab.parts.paths.store_dir, "skills", "v3").parent == "v2"


async def test_an_accept_is_on_disk_as_version_copy_and_manifest_in_this_order(tmp_path, monkeypatch):
    happened = []
    for name in ("change_version", "put_in_force"):
        real = getattr(gating, name)

        def noted(*arguments, real=real, name=name, **options):
            manifest = load_manifest(lab.parts.paths.workspace_dir).current.skills
            happened.append((name, len(list_versions(lab.parts.paths.store_dir, "skills")), manifest))
            return real(*arguments, **options)

        monkeypatch.setattr(gating, name, noted)
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        await one_step(lab, "order")
    assert happened == [("change_version", 1, "v1"), ("put_in_force", 2, "v1")]


# Rejected and aborted


async def test_gate_reject_blacklist(tmp_path):
    proposer = ScriptedProposer({"order.md": [spoils("order"), mends("order")]})
    lab = await step_lab(tmp_path, {}, proposer=proposer)
    with lab.log:
        state = at_step(await begin(lab), batch("order"), batch("order"), batch("order"))
        after = await run_step(lab.parts, state, 3)
        assert after.current == state.current
        (entry,) = after.rejected_buffer
        assert (entry.target_file, entry.edit.content) == ("order.md", spoils("order"))
        assert (entry.epoch, entry.step, entry.evidence_ids) == (1, 0, tuple(BATCH["order"]))
        assert entry.regressed > entry.improved == 0
        assert after.gate_cooldown == {"order.md": 1}
        rested = await run_step(lab.parts, after, 3)
        assert len(proposer.asked) == 1
        assert rested.gate_cooldown == {}
        await run_step(lab.parts, rested, 3)
        assert [shown.edit.content for shown in proposer.asked[-1]["rejected"]] == [spoils("order")]


async def test_rejected_summary_only_applied(tmp_path):
    refused = Edit("replace", target="no such text", content="x")
    lab = await step_lab(tmp_path, {"order.md": [[refused, Edit("append", content=spoils("order"))]]})
    with lab.log:
        _, after = await one_step(lab, "order")
        assert [entry.edit.content for entry in after.rejected_buffer] == [spoils("order")]
        assert lab.events("rejected")["order.md"]["refused"][0]["reason"] == "anchor_missing"


async def test_a_gate_aborted_by_infrastructure_blames_nobody(tmp_path):
    def aborts(evidence, params, *, is_last_block):
        return GateVerdict("REJECT", "infra_abort", 18, 10, 4, 0, 0, 0, 0, 0, 0.6, 0.05)

    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    lab = dataclasses.replace(lab, parts=dataclasses.replace(lab.parts, gate=aborts))
    with lab.log:
        state, after = await one_step(lab, "order")
        assert list(lab.events("gate_aborted")) == ORDER
        assert after.rejected_buffer == ()
        assert after.gate_cooldown == {}
        assert after.current == state.current


# Rolled back


async def test_rollback_probation_file_level(tmp_path):
    lines = {"order.md": [mends("order")], "content.md": [mends("content")]}
    lab = await step_lab(tmp_path, lines)
    with lab.log:
        state, after = await one_step(lab, "order", "content")
        back = await roll_back(lab.parts, after, after.probations["order.md"], ROLLED_BACK)
        newest = back.current_skills_version
        assert newest == "v4"
        assert lab.file(newest, "order.md") == lab.file("v1", "order.md")
        assert lab.file(newest, "content.md") == lab.file(after.current_skills_version, "content.md")
        assert load_manifest(lab.parts.paths.workspace_dir).current.skills == newest
        assert list(back.probations) == ["content.md"]
        (entry,) = [entry for entry in back.rejected_buffer if entry.target_file == "order.md"]
        assert (entry.edit.content, entry.reason) == (mends("order"), ROLLED_BACK.reason)
        for name in (*WRONG["order"], *RIGHT["order"]):
            assert back.correctness[name] == state.correctness[name]


async def test_a_rollback_leaves_what_later_steps_observed(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        _, after = await one_step(lab, "order")
        seen, other = [name for name in WRONG["order"][2:] if after.correctness[name]][:2]
        later = dataclasses.replace(
            after, probations=observed_since(after.probations, {seen: True}), correctness=after.correctness
        )
        back = await roll_back(lab.parts, later, later.probations["order.md"], ROLLED_BACK)
        assert back.correctness[seen] is True
        assert back.correctness[other] is False


async def test_what_nobody_knew_before_nobody_knows_after_a_rollback(tmp_path):
    lab = await step_lab(tmp_path, {"order.md": [mends("order")]})
    with lab.log:
        state = at_step(await begin(lab), batch("order"))
        unknown = WRONG["order"][3]
        known = {name: right for name, right in state.correctness.items() if name != unknown}
        after = await run_step(lab.parts, dataclasses.replace(state, correctness=known), 3)
        probation = after.probations["order.md"]
        if unknown not in probation.diagnosis:
            pytest.fail(f"{unknown} was not asked; the gate stopped before it")
        assert probation.diagnosis[unknown] is None
        back = await roll_back(lab.parts, after, probation, ROLLED_BACK)
        assert unknown not in back.correctness
