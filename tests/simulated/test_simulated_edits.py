"""The proposer's edits: in the shares asked for, worth what they were meant to be, and like any others."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_worlds import RULES, make_world

from core.adapters.simulated_edits import (
    EASY_BREAKING,
    MIXED,
    NULL_HEAVY,
    TARGETED,
    EditKind,
    RulePlan,
    SimulatedProposer,
)
from core.adapters.simulated_rules import read_rules, render_rule
from core.evolution.edits import apply_edits, edit_key
from core.evolution.leak_guard import LeakGuard
from core.evolution.protocols import ProposalError, Proposer
from core.evolution.types import CaseSample, RejectedEdit, SkillCasePack, SystemCasePack, ToolCasePack

FAMILIES = {
    "null-heavy": NULL_HEAVY, "mixed": MIXED, "targeted": TARGETED, "easy-breaking": EASY_BREAKING,
}  # fmt: skip
WORLD = make_world(n_questions=120)
SKILL = WORLD.initial_skills()["order.md"]
ORDER = WORLD.rows_of(q.question_id for q in WORLD.questions if q.task_type == "order")


def pack_of(questions, file="order.md", task_types=("order",)):
    cases = tuple(
        CaseSample(q.question_id, q.video_id, q.task_type, q.question, q.options, q.answer, "A", False)
        for q in questions
    )
    return SkillCasePack(file, task_types, {}, cases, (), tuple(q.question_id for q in questions))


FAILED = [question for question in WORLD.questions if question.task_type == "order"][:5]
PACK = pack_of(FAILED)


async def proposals(family, *, text=SKILL, pack=PACK, rejected=(), edit_budget=1, seeds=range(1)):
    proposer = WORLD.proposer(family)
    return [
        edit
        for seed in seeds
        for edit in await proposer.propose(
            pack, text=text, rejected=rejected, edit_budget=edit_budget, seed=seed
        )
    ]


def kind_of(edit, family):
    return next(kind for kind in family if edit.reason == f"simulated {kind.name} edit")


def population(text, rows=ORDER):
    return WORLD.population_accuracy(lambda _: text, rows)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
async def test_every_edit_is_worth_what_its_kind_says_also_on_top_of_other_rules(family):
    text = SKILL + "\n".join(map(render_rule, RULES)) + "\n"
    for edit in await proposals(family, text=text, seeds=range(40)):
        after = apply_edits(text, [edit], budget=1).text
        planned = sum(rule.gain for rule in kind_of(edit, family).rules)
        assert population(after) - population(text) == pytest.approx(planned, abs=2e-4)


async def test_the_edits_of_one_proposal_are_worth_together_what_they_are_worth_alone():
    for seed in range(20):
        edits = await proposals(MIXED, edit_budget=3, seeds=[seed])
        after = apply_edits(SKILL, edits, budget=3).text
        planned = sum(rule.gain for edit in edits for rule in kind_of(edit, MIXED).rules)
        assert population(after) - population(SKILL) == pytest.approx(planned, abs=5e-4)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
async def test_kinds_come_in_the_shares_of_the_family(family):
    edits = await proposals(family, seeds=range(800))
    counts = Counter(kind_of(edit, family).name for edit in edits)
    for kind in family:
        error = math.sqrt(kind.share * (1 - kind.share) / len(edits))
        assert abs(counts[kind.name] / len(edits) - kind.share) <= 4 * error


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
async def test_every_edit_is_applied_and_gives_no_training_data_away(family):
    guard = LeakGuard.for_pack(PACK, known=SKILL)
    for text in (SKILL, SKILL.replace("## Rules\n", "")):
        for edit in await proposals(family, text=text, seeds=range(100)):
            outcome = apply_edits(text, [edit], budget=1)
            assert outcome.applied == (edit,)
            assert guard.judge([edit])[0] == (edit,)
            assert set(read_rules(edit.content)) == set(read_rules(outcome.text))


async def test_a_targeted_edit_moves_one_failing_cluster_and_nothing_else():
    failing = {WORLD.clusters[question.question_id] for question in FAILED}
    everything = WORLD.responses.rows
    for edit in await proposals(TARGETED, seeds=range(60)):
        after = apply_edits(SKILL, [edit], budget=1).text
        moved = WORLD.responses.standing(after).chances != WORLD.responses.standing(SKILL).chances
        touched = {WORLD.places[row].cluster for row in everything[moved]}
        assert touched <= failing
        assert len(touched) == (kind_of(edit, TARGETED).name != "null")


async def test_an_easy_breaking_edit_helps_middling_questions_and_breaks_easy_ones():
    edits = await proposals(EASY_BREAKING, seeds=range(60))
    breaking = [edit for edit in edits if kind_of(edit, EASY_BREAKING).name == "easy-breaking"]
    assert breaking
    for edit in breaking:
        after = apply_edits(SKILL, [edit], budget=1).text
        gain = WORLD.responses.standing(after).chances - WORLD.responses.standing(SKILL).chances
        signs = {name: set(np.sign(gain[ORDER][difficulties(ORDER) == name])) for name in ("easy", "medium")}
        assert signs == {"easy": {-1.0}, "medium": {1.0}}


def difficulties(rows):
    return WORLD.responses.difficulties[rows]


@settings(max_examples=30)
@given(seed=st.integers(0, 10**9), budget=st.integers(0, 4), family=st.sampled_from(list(FAMILIES.values())))
async def test_the_same_arguments_give_the_same_edits_and_a_smaller_budget_the_first_of_them(
    seed, budget, family
):
    first = await proposals(family, edit_budget=budget, seeds=[seed])
    again = await proposals(family, edit_budget=4, seeds=[seed])
    assert again[:budget] == first
    assert len({edit_key(edit) for edit in again}) == 4


async def test_the_same_step_brings_the_same_kind_of_edit_in_every_arm():
    other = SKILL + render_rule(RULES[0]) + "\n"
    one = await proposals(MIXED, seeds=range(50))
    two = await proposals(MIXED, text=other, seeds=range(50))
    assert [edit.reason for edit in one] == [edit.reason for edit in two]


async def test_what_was_rejected_does_not_come_again():
    (edit,) = await proposals(NULL_HEAVY)
    rejected = [RejectedEdit("order.md", edit, "terminal", 1, 1, 0, 0)]
    (other,) = await proposals(NULL_HEAVY, rejected=rejected)
    assert edit_key(other) != edit_key(edit)


async def test_a_gain_that_is_out_of_reach_is_kept_within_bounds():
    family = (EditKind("too good", 1.0, (RulePlan(0.9),)),)
    (edit,) = await proposals(family)
    after = apply_edits(SKILL, [edit], budget=1).text
    assert population(SKILL) < population(after) < 1


async def test_a_shared_file_is_edited_for_all_its_types():
    pack = pack_of(WORLD.questions[:5], "default-strategy.md", ("order", "content"))
    text = WORLD.initial_skills()["default-strategy.md"]
    for edit in await proposals(NULL_HEAVY, text=text, pack=pack, seeds=range(40)):
        assert {rule.name for rule in read_rules(edit.content)} == {"order", "content"}
        after = apply_edits(text, [edit], budget=1).text
        gain = population(after, WORLD.responses.rows) - population(text, WORLD.responses.rows)
        assert gain == pytest.approx(kind_of(edit, NULL_HEAVY).rules[0].gain, abs=2e-4)


async def test_the_system_prompt_is_edited_for_every_question_and_tool_prompts_not_at_all():
    cases = pack_of(WORLD.questions[:5]).failure_cases
    edits = await proposals(MIXED, text="You answer.\n", pack=SystemCasePack({}, cases, ()), seeds=range(20))
    assert {rule.name for edit in edits for rule in read_rules(edit.content)} == {"every"}
    with pytest.raises(ProposalError):
        await proposals(MIXED, pack=ToolCasePack("view_node", ("view_node_extract.md",), {}, (), ()))


def test_the_proposer_says_that_it_is_simulated_and_satisfies_the_protocol():
    proposer = WORLD.proposer(NULL_HEAVY)
    assert isinstance(proposer, Proposer)
    assert isinstance(proposer, SimulatedProposer)
    assert "simulated" in proposer.name


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.5, -0.5)])
def test_shares_must_add_up(shares):
    family = tuple(EditKind(f"kind {share}", share, (RulePlan(0.0),)) for share in shares)
    with pytest.raises(ValueError, match="shares"):
        WORLD.proposer(family)
