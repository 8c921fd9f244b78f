"""A proposer over a chat model: what it shows, and what it reads out of any reply (point 6)."""

import dataclasses
import json

import pytest
from case_packs import case, pack
from diagnosis_runs import ScriptedLLM, replies, skill_text

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED
from core.evolution import SystemCasePack, ToolCasePack, evolve_skill, evolve_tool
from core.evolution.llm_proposer import LLMProposer
from core.evolution.prompt_files import load_diagnose_prompts, load_evolve_prompts
from core.evolution.protocols import ProposalError, Proposer
from core.evolution.types import Edit, RejectedEdit
from core.protocols import ProviderError

PROMPTS = load_evolve_prompts()
TEXT = skill_text("order")
PACK = pack(
    [case("case-17", "Who carries the silver kettle?"), case("case-18", "Who comes before the doctor?")],
    [case("case-19", "Who opens the gate?", correct=True)],
)
CONTENT = 'Compare {both} neighbours ("before" and "after").'
EDIT = {"op": "append", "content": CONTENT, "reason": "neighbours", "cases": ["F2", "F1", "S9", 3]}
REPLY = json.dumps({"edits": [EDIT]})
BUSY = Edit("append", content="Look at every moment.", reason="because of case-99 and its blue parrot",
            related_cases=("case-99",))  # fmt: skip
REJECTED = RejectedEdit("order.md", BUSY, "futility", 0, 1, 2, 3, ("case-98", "case-99"))


async def propose(llm, *, cases=PACK, text=TEXT, rejected=(), budget=2, seed=5, problems=()):
    return await LLMProposer(llm, PROMPTS).propose(
        cases, text=text, rejected=rejected, edit_budget=budget, seed=seed, problems=problems
    )


async def evolve(llm, *, rejected=(), budget=2, text=TEXT):
    return await evolve_skill(
        LLMProposer(llm, PROMPTS), PACK, skill_text=text, rejected=rejected, edit_budget=budget, seed=5
    )


def shown(llm, turn=-1):
    return json.loads(llm.asked[turn][1])


def test_it_is_a_proposer_that_names_its_model():
    proposer = LLMProposer(replies(), PROMPTS)
    assert isinstance(proposer, Proposer)
    assert proposer.name == "llm (scripted)"


# Scripted replies


@pytest.mark.parametrize(
    "reply",
    [
        REPLY,
        f"```json\n{REPLY}\n```",
        f"The cases {{F1, F2}} show the same [see F1]:\n\n{REPLY}\n\nI hope this helps {{you}}.",
        json.dumps([EDIT]),
        f"{json.dumps([EDIT])}\n\nAlternatively:\n\n{json.dumps([{**EDIT, 'content': 'Else.'}])}",
        json.dumps(EDIT),
        json.dumps({"edits": EDIT}),
        f'<think>{{"edits": []}} would do nothing.</think>{REPLY}',
        REPLY[:-2] + ",]}",
        REPLY[:-2] + ', {"op": "append", "content": "Half a sent',
    ],
    ids=[
        "plain", "fenced", "prose", "bare array", "two arrays", "bare edit", "one edit", "thought aloud",
        "trailing comma", "truncated in the second edit",
    ],
)  # fmt: skip
async def test_the_first_edit_comes_through_whatever_stands_around_it(reply):
    first, *_ = await propose(replies(reply))
    assert first == Edit("append", "", CONTENT, "neighbours", ("case-18", "case-17"))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("", "empty"),
        ("I would change nothing.", "no JSON"),
        ('{"advice": "look"}', 'no "edits"'),
        ("[1, 2]", 'no "edits"'),
        ('{"edits": "none"}', 'no "edits"'),
        (json.dumps({"edits": [{**EDIT, "content": "word " * 60_000}]}), "characters"),
        ('{"edits": [{"op": "app', 'no "edits"'),
    ],
    ids=["empty", "prose", "no edits", "numbers", "a word", "endless", "truncated"],
)
async def test_a_reply_without_edits_is_an_error_that_can_be_told_to_the_model(reply, told):
    with pytest.raises(ProposalError, match=told):
        await propose(replies(reply))


async def test_an_empty_list_of_edits_is_an_answer():
    assert await propose(replies('{"edits": []}')) == []
    record = await evolve(replies('{"edits": []}'))
    assert (record.status, record.attempts) == ("unchanged", 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"op": None}, "unknown_op"),
        ({"op": "rewrite"}, "unknown_op"),
        ({"content": None}, "content_blank"),
        ({"content": {"text": "x"}}, "content_blank"),
        ({"op": "replace", "target": 7}, "anchor_blank"),
        ({"content": "word " * 2000}, "too_long"),
    ],
)
async def test_an_edit_with_a_bad_part_is_refused_with_a_reason_and_the_others_stand(fields, reason):
    reply = json.dumps({"edits": [{**EDIT, **fields}, EDIT]})
    record = await evolve(replies(reply))
    assert record.status == "evolved"
    assert [skip.reason for skip in record.skipped] == [reason]


async def test_lines_in_an_array_and_capital_ops_are_understood():
    (edit,) = await propose(replies('{"edits": [{"op": " Append ", "content": ["- One.", "- Two."]}]}'))
    assert (edit.op, edit.content) == ("append", "- One.\n- Two.")


async def test_a_truncated_edit_is_not_applied_half():
    cut = '{"edits": [{"op": "append", "content": "Compare both neigh'
    llm = replies(cut, REPLY)
    record = await evolve(llm)
    assert record.evolved_content == f"{TEXT}\n{CONTENT}\n"
    assert record.attempts == 2


async def test_a_text_ten_times_too_long_is_quoted_back_in_short_and_asked_for_again():
    long = json.dumps({"edits": [{**EDIT, "content": "word " * 2000}]})
    llm = replies(long, REPLY)
    record = await evolve(llm)
    assert (record.status, record.attempts) == ("evolved", 2)
    (problem,) = shown(llm)["problems_with_your_last_reply"]
    assert "too_long" in problem
    assert len(problem) < 1000


async def test_there_is_one_retry_and_it_quotes_the_error():
    llm = replies("no edits from me", "none again", REPLY)
    record = await evolve(llm)
    assert (record.status, record.attempts, len(llm.asked)) == ("failed", 2, 2)
    assert "problems_with_your_last_reply" not in shown(llm, 0)
    assert "no JSON" in shown(llm, 1)["problems_with_your_last_reply"][0]


async def test_a_reply_cut_at_the_length_limit_is_told_to_be_shorter():
    with pytest.raises(ProposalError, match="cut off at the length limit"):
        await propose(ScriptedLLM(lambda messages: '{"edits": [{"op', finish_reason="length"))


async def test_two_hundred_edits_are_held_to_the_budget():
    many = [{**EDIT, "content": f"Advice {number}."} for number in range(200)]
    record = await evolve(replies(json.dumps({"edits": many})))
    assert len(record.applied) == 2
    assert {skip.reason for skip in record.skipped} == {"over_budget"}


# What is shown


async def test_the_model_is_shown_text_cases_statistics_and_budget():
    llm = replies(REPLY)
    cases = dataclasses.replace(PACK, stats={"wrong": 2})
    await propose(llm, cases=cases)
    material = shown(llm)
    assert llm.asked[0][0] == PROMPTS.skill
    assert (material["text"], material["edit_budget"], material["statistics"]) == (TEXT, 2, {"wrong": 2})
    assert list(material["failing"]) == ["F1", "F2"]
    assert material["failing"]["F1"]["question"] == "Who carries the silver kettle?"
    assert material["succeeding"]["S1"]["correct_answer"] == "A"


async def test_question_ids_are_never_shown():
    llm = replies(REPLY)
    await propose(llm, rejected=[REJECTED])
    assert not any("case-" in text for text in llm.asked[0])


async def test_a_rejected_edit_is_shown_as_rejected_without_the_questions_it_was_made_from():
    llm = replies(REPLY)
    await propose(llm, rejected=[REJECTED])
    (told,) = shown(llm)["rejected_edits"]
    assert told == {
        "op": "append",
        "target": "",
        "content": "Look at every moment.",
        "verdict": "futility",
        "answers_improved": 2,
        "answers_made_worse": 3,
    }
    assert "parrot" not in llm.asked[0][1]


async def test_a_rejected_edit_that_comes_back_is_not_applied_and_the_model_is_told():
    again = json.dumps({"edits": [{"op": "append", "content": "look at EVERY moment."}]})
    llm = replies(again, REPLY)
    record = await evolve(llm, rejected=[REJECTED])
    assert [skip.reason for skip in record.skipped] == ["already_rejected"]
    assert [edit.content for edit in record.applied] == [CONTENT]
    assert "already_rejected" in shown(llm)["problems_with_your_last_reply"][0]


async def test_places_are_told_to_who_edits_a_skill_with_lines():
    llm = replies(REPLY, REPLY)
    await propose(llm)
    assert "places" not in shown(llm)
    await propose(llm, text=TEXT + "\n## Where to look\n\n- The question asks what follows. -> search_next\n")
    assert "search_next" in shown(llm)["places"]


async def test_system_and_tool_packs_have_prompts_of_their_own():
    llm = replies(REPLY, REPLY)
    await propose(llm, cases=SystemCasePack({}, PACK.failure_cases, ()))
    assert llm.asked[-1][0] == PROMPTS.system
    span = {"question_id": "case-9", "step": 2, "completeness": 0.1, "output": "A gate."}
    calls = ToolCasePack("view_node", ("view_node_extract.md",), {}, (span,), ())
    record = await evolve_tool(
        LLMProposer(llm, PROMPTS), calls, skill_text="Extract.\n", rejected=[], edit_budget=1, seed=1
    )
    assert llm.asked[-1][0] == PROMPTS.tool
    assert shown(llm)["failing"] == {"F1": {"step": 2, "completeness": 0.1, "output": "A gate."}}
    assert record.applied[0].related_cases == ("case-9",)


async def test_the_seed_reaches_the_model():
    seeds = []

    class Seeded(ScriptedLLM):
        async def chat(self, messages, *, seed=None, **options):
            seeds.append(seed)
            return await super().chat(messages)

    await propose(Seeded(lambda messages: REPLY), seed=0)
    assert seeds == [0]


async def test_a_provider_that_gave_up_is_not_taken_for_a_bad_proposal():
    def give_up(messages):
        raise ProviderError("no such model")

    with pytest.raises(ProviderError, match="no such model"):
        await evolve(ScriptedLLM(give_up))


async def test_the_simulated_evolver_is_understood():
    world = SimulatedWorld(3, 4, 40, ("order",))
    question = world.questions[0]
    cases = pack([case(question.question_id, question.question, question.options, answer=question.answer)])
    record = await evolve_skill(
        LLMProposer(world.evolver_llm(MIXED), PROMPTS),
        cases,
        skill_text=world.initial_skills()["order.md"],
        rejected=[],
        edit_budget=2,
        seed=1,
    )
    assert (record.status, len(record.applied), record.attempts) == ("evolved", 2, 1)


# Prompts


def test_the_prompts_show_a_reply_that_is_read_as_it_is_meant():
    judge, evolve_prompts = load_diagnose_prompts(), PROMPTS
    for prompt in (*dataclasses.astuple(judge), *dataclasses.astuple(evolve_prompts)):
        assert isinstance(json.loads(prompt.rstrip().splitlines()[-1]), dict)


def test_a_prompt_that_is_missing_is_named(tmp_path):
    (tmp_path / "evolve_skill.md").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"no prompt evolve_system\.md"):
        load_evolve_prompts(tmp_path)
