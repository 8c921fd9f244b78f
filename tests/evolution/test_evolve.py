"""Evolve functions: whatever a proposer says, what comes out is a checked text and a record that says why."""

import dataclasses

import pytest
from case_packs import case, pack
from diagnosis_runs import skill_text
from hypothesis import given
from hypothesis import strategies as st

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED
from core.evolution import SystemCasePack, ToolCasePack, evolve_skill, evolve_system, evolve_tool
from core.evolution.edits import edit_key
from core.evolution.protocols import ProposalError, Proposer
from core.evolution.types import Edit, RejectedEdit

TEXT = skill_text("order", ["Search for the name.", "Read what comes next."])
PACK = pack([case("case-17", "Who carries the silver kettle across the frozen bridge?")])
GOOD = Edit("append", content="- Open the neighbour before answering.")
BETTER = Edit("replace", "Read what comes next.", "Read the moment after it too.")
LEAK = Edit("append", content="- If somebody carries the silver kettle across the bridge, choose A.")
LOST = Edit("replace", "no such words", "anything")


class Scripted:
    """Proposes these in turn: edits, or an error to raise. Keeps what it was told."""

    name = "scripted"

    def __init__(self, *rounds, attempts=2):
        self.rounds, self.attempts, self.told = list(rounds), attempts, []

    async def propose(self, pack, *, text, rejected, edit_budget, seed, problems=()):
        self.told.append(list(problems))
        answer = self.rounds[len(self.told) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def rejected(edit, **fields):
    return RejectedEdit("order.md", edit, "futility", 0, 1, 2, 3, **fields)


async def evolve(proposer, *, text=TEXT, before=(), budget=1, cases=PACK, frozen=()):
    return await evolve_skill(
        proposer, cases, skill_text=text, rejected=before, edit_budget=budget, seed=5, frozen=frozen
    )


def reasons(record):
    return [skip.reason for skip in record.skipped]


def test_the_stand_in_is_a_proposer():
    assert isinstance(Scripted(), Proposer)


async def test_a_good_edit_makes_an_evolved_record_with_the_packs_evidence():
    record = await evolve(Scripted([GOOD]))
    assert (record.status, record.attempts, record.target_type) == ("evolved", 1, "skill")
    assert record.target_file == "order.md"
    assert record.original_content == TEXT
    assert record.evolved_content == f"{TEXT}\n{GOOD.content}\n"
    assert (record.applied, record.skipped) == ((GOOD,), ())
    assert record.evidence_ids == PACK.evidence_ids == ("case-17",)
    assert record.reason


async def test_at_most_the_budget_is_applied_and_the_first_come_first():
    record = await evolve(Scripted([GOOD, BETTER]))
    assert record.applied == (GOOD,)
    assert reasons(record) == ["over_budget"]
    assert (await evolve(Scripted([GOOD, BETTER]), budget=2)).applied == (GOOD, BETTER)


async def test_a_rejected_edit_is_never_applied_again_and_does_not_use_up_the_budget():
    reworded = dataclasses.replace(GOOD, content=GOOD.content.upper(), reason="new words")
    proposer = Scripted([reworded, BETTER])
    record = await evolve(proposer, before=[rejected(GOOD)])
    assert record.applied == (BETTER,)
    assert reasons(record) == ["already_rejected"]
    elsewhere = dataclasses.replace(GOOD, op="insert_after", target="Search for the name.")
    record = await evolve(Scripted([elsewhere], [elsewhere]), before=[rejected(GOOD)])
    assert (record.status, reasons(record)) == ("unchanged", ["already_rejected"] * 2)


async def test_an_edit_that_copies_from_the_cases_is_refused():
    proposer = Scripted([LEAK, dataclasses.replace(GOOD, content="- Do as in case-17.")], [GOOD])
    record = await evolve(proposer)
    assert record.applied == (GOOD,)
    assert reasons(record) == ["copies_training_data"] * 2
    assert record.attempts == 2


@pytest.mark.parametrize(
    "edits",
    [
        [Edit("append", content="Often a red"), Edit("insert_after", "Often a red", "tin car.")],
        [Edit("append", content="See case-"), Edit("replace", "See case-", "See case-17")],
        [
            Edit("append", content="Often the silver"),
            Edit("replace", "the silver", "the mayor's"),
            Edit("insert_after", "Often the mayor's", "hat"),
        ],
    ],
)
async def test_nothing_is_copied_piece_by_piece(edits):
    record = await evolve(Scripted(edits, attempts=1), budget=len(edits))
    assert record.applied == tuple(edits[:-1])
    assert reasons(record) == ["copies_training_data"]


async def test_nothing_is_copied_by_adding_to_what_the_file_said():
    text = TEXT + "\nFind a red\n"
    record = await evolve(Scripted([Edit("insert_after", "Find a red", "tin car")], attempts=1), text=text)
    assert (record.status, reasons(record)) == ("unchanged", ["copies_training_data"])


async def test_what_the_file_said_before_blocks_no_edit():
    text = TEXT + "\nAs in case-17, find a red tin car.\n"
    assert (await evolve(Scripted([GOOD]), text=text)).applied == (GOOD,)


async def test_the_same_edit_twice_in_a_proposal_counts_once():
    record = await evolve(Scripted([GOOD, dataclasses.replace(GOOD, reason="again")]), budget=5)
    assert (record.applied, reasons(record)) == ((GOOD,), ["proposed_twice"])


async def test_refusals_stand_in_the_order_of_the_proposal():
    record = await evolve(Scripted([LOST, LEAK, GOOD, BETTER, GOOD]), before=[rejected(BETTER)])
    assert reasons(record) == [
        "anchor_missing",
        "copies_training_data",
        "already_rejected",
        "proposed_twice",
    ]


async def test_a_proposer_whose_edits_are_all_refused_is_told_why_and_asked_once_more():
    proposer = Scripted([LOST, LEAK], [GOOD])
    record = await evolve(proposer)
    assert record.status == "evolved"
    assert proposer.told[0] == []
    first, second = proposer.told[1]
    assert "anchor_missing" in first
    assert "anything" in first
    assert "copies_training_data" in second


async def test_a_reply_that_cannot_be_read_is_quoted_once_and_then_fails():
    proposer = Scripted(ProposalError("the reply is empty"), ProposalError("no JSON"))
    record = await evolve(proposer)
    assert (record.status, record.reason, record.attempts) == ("failed", "no JSON", 2)
    assert record.evolved_content == TEXT
    assert proposer.told == [[], ["the reply is empty"]]
    assert (await evolve(Scripted(ProposalError("empty"), [GOOD]))).status == "evolved"


async def test_a_proposer_that_would_repeat_itself_is_asked_once():
    record = await evolve(Scripted([LOST], attempts=1))
    assert (record.status, record.attempts) == ("unchanged", 1)
    assert record.reason == "every edit was refused: 1 anchor_missing"


async def test_no_edits_at_all_are_an_answer_and_not_asked_again():
    record = await evolve(Scripted([]))
    assert (record.status, record.reason, record.attempts) == ("unchanged", "no edit was proposed", 1)


async def test_what_went_wrong_first_stays_on_record():
    record = await evolve(Scripted([LOST], ProposalError("no JSON")))
    assert (record.status, reasons(record)) == ("failed", ["anchor_missing"])


async def test_edits_that_cancel_each_other_out_leave_the_text_unchanged():
    there = Edit("replace", "comes next", "comes then")
    back = Edit("replace", "comes then", "comes next")
    record = await evolve(Scripted([there, back]), budget=2)
    assert (record.status, record.reason) == ("unchanged", "the edits cancel each other out")


async def test_an_edit_that_breaks_a_skill_line_is_refused_and_others_are_not():
    text = TEXT + "\n## Where to look\n\n- The question asks what follows. -> search_next\n"
    bad = Edit("append", content="- Look everywhere.")
    good = Edit("append", content="- The question asks how it begins. -> first_moments")
    record = await evolve(Scripted([bad, good]), text=text)
    assert (record.applied, reasons(record)) == ((good,), ["lines_unreadable"])


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit("replace", "name: order", "name: other"), "touches_front_matter"),
        (Edit("replace", "Keep this.", "Drop it."), "touches_frozen_section"),
        (Edit("replace", "Guidance.", "None."), "touches_momentum_block"),
        (Edit("append", content="x " * 5000), "too_long"),
        (Edit("rewrite", content="x"), "unknown_op"),
    ],
)
async def test_what_is_protected_stays(edit, reason):
    text = (
        f"{TEXT}\n## Fixed\n\nKeep this.\n\n## More\n\n"
        "<!-- momentum:start -->\nGuidance.\n<!-- momentum:end -->\n"
    )
    record = await evolve(Scripted([edit], [edit]), text=text, frozen=["Fixed"])
    assert (record.status, reasons(record)) == ("unchanged", [reason] * 2)
    assert record.evolved_content == text


async def test_system_and_tool_prompts_evolve_with_the_questions_of_their_cases_as_evidence():
    cases = SystemCasePack({}, PACK.failure_cases, (case("case-3", "What is it?", correct=True),))
    keywords = {"skill_text": "Answer.\n", "rejected": [], "edit_budget": 1, "seed": 1}
    record = await evolve_system(Scripted([GOOD]), cases, **keywords)
    assert (record.target_file, record.target_type, record.status) == ("system.md", "system", "evolved")
    assert record.evidence_ids == ("case-17", "case-3")

    span = {"question_id": "case-9", "output": "A tin soldier guards the narrow bridge."}
    calls = ToolCasePack("view_node", ("view_node_verify.md", "view_node_extract.md"), {}, (span,), ())
    leak = Edit("append", content="Mention how a tin soldier guards the narrow gate.")
    record = await evolve_tool(Scripted([leak], [GOOD]), calls, **keywords)
    assert (record.target_file, record.target_type) == ("view_node_verify.md", "tool")
    assert (record.applied, reasons(record)) == ((GOOD,), ["copies_training_data"])
    assert record.evidence_ids == ("case-9",)


async def test_an_error_that_is_no_proposal_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        await evolve(Scripted(ZeroDivisionError()))


contents = st.sampled_from(["- A.", "- B.", "- Read it twice.", LEAK.content, "", "```"])
targets = st.sampled_from(["", "Search for the name.", "Read", "name: order", "absent"])
edits = st.builds(
    Edit, st.sampled_from(["append", "insert_after", "replace", "delete", "x"]), targets, contents
)


@given(st.lists(edits, max_size=5), st.lists(edits, max_size=3), st.integers(1, 3))
async def test_whatever_is_proposed_the_record_holds(proposed, tried, budget):
    before = [rejected(edit) for edit in tried]
    record = await evolve(Scripted(proposed, proposed), before=before, budget=budget)
    assert len(record.applied) <= budget
    assert not {edit_key(edit) for edit in record.applied} & {edit_key(edit) for edit in tried}
    assert LEAK.content not in record.evolved_content
    assert record.evolved_content.startswith(TEXT.partition("\n- ")[0])
    assert (record.status == "evolved") == (record.evolved_content != TEXT)
    assert len(record.applied) + len(record.skipped) == len(proposed) * record.attempts
    again = await evolve(Scripted(proposed, proposed), before=before, budget=budget)
    assert again == record


async def test_a_simulated_proposer_evolves_a_simulated_skill():
    world = SimulatedWorld(3, 4, 40, ("order",))
    question = world.questions[0]
    failing = case(question.question_id, question.question, question.options, answer=question.answer)
    record = await evolve(
        world.proposer(MIXED), text=world.initial_skills()["order.md"], cases=pack([failing]), budget=2
    )
    assert (record.status, len(record.applied)) == ("evolved", 2)
