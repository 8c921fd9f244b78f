"""Guidance, system prompt and tool prompts: what they are made from, and that they change once an epoch."""

import dataclasses

import pytest
from slow_runs import V1, accept, begin, ignore, make_lab, system_pack

from core.evolution.types import ToolCasePack
from harness.log import RunLogImpl
from harness.momentum import read_guidance
from harness.prompt_update import momentum_sample, pair_before, update_momentum, update_prompts
from harness.slow_update import evaluate_r, slow_update_cycle
from harness.store import list_versions, read_meta
from harness.workspace import VersionPair, load_manifest

GUIDANCE = "Keep looking twice."


@pytest.fixture
async def lab(tmp_path):
    made = await make_lab(tmp_path)
    with made.log:
        yield made


async def started(lab, *packs):
    """A state with an edit of each file in force and R measured."""
    state = await begin(lab)
    for name in ("content", "order", "default-strategy"):
        state = await accept(lab, state, name, f"Look at {name} again.")
    state = dataclasses.replace(state, system_packs=tuple(packs))
    return await evaluate_r(lab.parts, state)


async def test_momentum_samples_from_diagnosis_pool(lab):
    lab = lab.with_evolver(guidance=GUIDANCE)
    await update_momentum(lab.parts, await started(lab))
    for which in ("mom_old", "mom_new"):
        rows = await RunLogImpl(lab.log.db_path).get_predictions(f"run_e1_{which}")
        ids = {row["question_id"] for row in rows}
        assert ids <= {question.question_id for question in lab.parts.pools.diagnosis}
        assert sorted(row["task_type"] for row in rows) == ["content"] * 4 + ["order"] * 4


async def test_momentum_compares_the_epochs_first_skills_with_the_current_ones(lab):
    lab = lab.with_evolver(guidance=GUIDANCE)
    state = await started(lab)
    await update_momentum(lab.parts, state)
    sql = "SELECT run_id, skills_version FROM _runs WHERE run_id GLOB '*_mom_*'"
    noted = {row["run_id"]: row["skills_version"] for row in lab.log.query(sql)}
    assert noted == {"run_e1_mom_old": "v1", "run_e1_mom_new": state.current_skills_version}


async def test_slow_update_momentum_immutable_version(lab):
    lab = lab.with_evolver(guidance=GUIDANCE)
    state = await started(lab)
    before = state.current_skills_version
    texts = {name: lab.file(before, name) for name in ("content.md", "order.md", "default-strategy.md")}
    state = await update_momentum(lab.parts, state)
    after, store = state.current_skills_version, lab.parts.paths.store_dir
    assert (after, read_meta(store, "skills", after).parent) == ("v5", before)
    assert load_manifest(lab.parts.paths.workspace_dir).current == VersionPair("v5", "v1")
    assert {name: lab.file(before, name) for name in texts} == texts
    assert read_guidance(lab.file(after, "order.md")) == GUIDANCE
    assert lab.file(after, "order.md").startswith(texts["order.md"])
    assert lab.file(after, "default-strategy.md") == texts["default-strategy.md"]  # shared: no guidance


async def test_a_file_that_the_epoch_did_not_change_gets_no_guidance(lab):
    lab = lab.with_evolver(guidance=GUIDANCE)
    state = await accept(lab, await begin(lab), "order", "Look again.")
    state = await update_momentum(lab.parts, await evaluate_r(lab.parts, state))
    assert lab.file(state.current_skills_version, "content.md") == lab.file("v1", "content.md")
    assert len(lab.script.answers("mom_new")) == 8
    assert {scope[-11:-3] for scope in lab.script.answers("mom_new")} == {"/d-order"}


async def test_the_previous_guidance_is_read_from_the_file_and_shown(lab):
    first = lab.with_evolver(guidance=GUIDANCE)
    state = await update_momentum(first.parts, await started(first))
    state = dataclasses.replace(state, epoch=2, epoch_start_skills=state.current_skills_version)
    state = await accept(lab, state, "order", "mends d-order-03", step=1)
    second = lab.with_evolver(guidance="Now read slowly.")
    state = await update_momentum(second.parts, await evaluate_r(second.parts, state))
    calls = [what for kind, what in lab.script.happened if kind == "call"]
    assert GUIDANCE in calls[-1]
    assert read_guidance(lab.file(state.current_skills_version, "order.md")) == "Now read slowly."
    assert read_guidance(lab.file(state.current_skills_version, "content.md")) == GUIDANCE


async def test_guidance_that_says_nothing_new_makes_no_version(lab):
    lab = lab.with_evolver(guidance="")
    state = await started(lab)
    assert await update_momentum(lab.parts, state) == state


async def test_without_a_model_guidance_and_prompts_are_skipped_and_the_reason_is_noted(lab):
    state = await started(lab, system_pack("d-order-01"))
    assert await update_momentum(lab.parts, state) == state
    assert await update_prompts(lab.parts, state) == state
    assert lab.script.answers("mom_") == []
    sql = "SELECT phase, payload FROM _events WHERE event_type = 'proposal_skipped'"
    noted = {row["phase"]: row["payload"] for row in lab.log.query(sql)}
    assert noted == {"momentum": '{"reason": "no_llm"}', "prompts": '{"reason": "no_llm"}'}


async def test_nothing_is_noted_of_prompts_that_are_not_to_be_trained(lab):
    lab = lab.with_config(evolve_targets="skills")
    state = await started(lab, system_pack("d-order-01"))
    assert await update_prompts(lab.parts, state) == state
    assert lab.log.query("SELECT phase FROM _events WHERE event_type = 'proposal_skipped'") == []


async def test_momentum_can_be_switched_off(lab):
    lab = lab.with_evolver(guidance=GUIDANCE).with_config(momentum=False)
    state = await started(lab)
    assert await update_momentum(lab.parts, state) == state


def test_the_sample_is_split_evenly_and_what_one_type_lacks_the_others_give(tmp_path):
    questions = []
    for task_type, count in (("a", 3), ("b", 20), ("c", 20)):
        questions += [Asked(f"{task_type}{number}", task_type) for number in range(count)]
    sample = momentum_sample(questions, ["a", "b", "c"], 20, seed=3)
    counts = {name: sum(one.startswith(name) for one in sample) for name in "abc"}
    assert counts["a"] == 3
    assert sorted((counts["b"], counts["c"])) == [8, 9]
    assert sample == momentum_sample(questions[::-1], ["c", "b", "a"], 20, seed=3)
    assert sample != momentum_sample(questions, ["a", "b", "c"], 20, seed=4)


@dataclasses.dataclass
class Asked:
    question_id: str
    task_type: str


# Prompts


async def test_prompts_may_change_by_the_last_edit_budget_of_the_run(lab):
    lines = tuple(f"Rule {number}: look elsewhere." for number in range(4))
    lab = lab.with_evolver(edits=lines).with_config(edit_budget_start=4, edit_budget_end=2)
    state = await update_prompts(lab.parts, await started(lab, system_pack("d-order-01")))
    text = lab.file(state.current_prompts_version, "system.md", "prompts")
    assert [line in text for line in lines] == [True, True, False, False]


async def test_prompts_become_a_new_version_and_the_old_one_stays(lab):
    lab = lab.with_evolver(edits=("Look twice.",))
    old = lab.file("v1", "system.md", "prompts")
    state = await update_prompts(lab.parts, await started(lab, system_pack("d-order-01")))
    assert state.current_prompts_version == "v2"
    assert lab.file("v1", "system.md", "prompts") == old
    assert lab.file("v2", "system.md", "prompts") != old
    assert load_manifest(lab.parts.paths.workspace_dir).current == state.current
    assert pair_before(lab.parts, state) == state.r_versions


@pytest.mark.parametrize(
    ("targets", "changed"),
    [
        ("skills", set()),
        ("skills+system", {"system.md"}),
        ("tools", {"view_node_extract.md"}),
        ("skills+system+tools", {"system.md", "view_node_extract.md"}),
    ],
)
async def test_only_the_targets_of_the_configuration_evolve(lab, targets, changed):
    lab = lab.with_evolver(edits=("Look twice.",)).with_config(evolve_targets=targets)
    span = {"question_id": "d-order-01", "step": 1, "args": {}, "output": "nothing"}
    files = ("view_node_extract.md", "view_node_verify.md")
    pack = ToolCasePack("view_node", files, {"calls": 1, "failed": 1}, (span,), ())
    state = dataclasses.replace(await started(lab, system_pack("d-order-01")), tool_packs=(pack,))
    state = await update_prompts(lab.parts, state)
    prompts = lab.parts.prompts(state.current_prompts_version)
    first = lab.parts.prompts("v1")
    assert {name for name in prompts.list() if prompts.read(name) != first.read(name)} == changed


async def test_a_tool_without_prompt_files_is_left_alone(lab):
    lab = lab.with_evolver(edits=("Look twice.",))
    pack = ToolCasePack("no_such_tool", ("no_such_tool_extract.md",), {"calls": 1, "failed": 1}, (), ())
    state = dataclasses.replace(await started(lab), tool_packs=(pack,))
    assert await update_prompts(lab.parts, state) == state


async def test_an_edit_that_r2_did_not_keep_is_not_tried_a_second_time(lab):
    lab = lab.with_evolver(edits=("Take your time.",)).with_config(momentum=False)
    state = dataclasses.replace(await begin(lab), system_packs=(system_pack("d-order-01"),))
    state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    assert [entry.target_file for entry in state.rejected_buffer] == ["system.md"]
    state = dataclasses.replace(state, epoch=2, phase="steps", system_packs=(system_pack("d-order-03"),))
    state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
    assert (state.current, list_versions(lab.parts.paths.store_dir, "prompts")) == (V1, ["v1", "v2"])
    assert lab.events("proposal_refused")["system.md"]["refused"][0]["reason"] == "already_rejected"
