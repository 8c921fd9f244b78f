"""Momentum: what happened to a question, what a model is shown of it, and which of its replies are taken."""

import dataclasses
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import EditFamily, EditKind, RulePlan
from core.adapters.simulated_rules import read_rules
from core.agent.skills import SkillError, parse_lines, read_skill_file
from core.evolution.edits import apply_edits
from core.evolution.markdown import MOMENTUM_END, MOMENTUM_START
from core.evolution.rollouts import Rollout, TraceStep
from core.evolution.types import Edit
from core.protocols import ProviderError
from core.types import GeneratedQuestion, LLMResponse
from harness.momentum import (
    CATEGORIES,
    IMPROVED,
    MOST_CHARACTERS,
    PERSISTENT_FAIL,
    REGRESSED,
    STABLE_SUCCESS,
    by_category,
    categorize_pair,
    check_guidance,
    comparison_pairs,
    format_comparison_pairs,
    read_guidance,
    read_reply,
    run_slow_momentum,
    with_guidance,
)

PREVIOUS = "- Take your time."
SKILL = "---\nname: order\ndescription: Order of events.\ntask_type: order\n---\n\nLook at neighbours.\n"


def pair(number, old, new, **changes):
    """A pair whose question, options and steps all hold a word of their own."""
    step = {"step": 1, "tool": "search_similar", "args": {"query": f"zebra{number} crossing"}}
    return {
        "question_id": f"film-q{number}",
        "video_id": "film",
        "task_type": "order",
        "question": f"What follows the waltz number{number} of the dancing baker?",
        "options": ("A. a quarrel by the pond", "B. a long sleep"),
        "answer": "A",
        "old_correct": old,
        "new_correct": new,
        "old_prediction": "A" if old else "B",
        "new_prediction": "A" if new else "B",
        "old_steps": [step],
        "new_steps": [step],
        **changes,
    }


PAIRS = [pair(1, True, True), pair(2, False, True), pair(3, False, False), pair(4, True, False)]


class Scripted:
    """A chat model with one reply, which keeps what it was asked."""

    model = "scripted"

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    async def chat(self, messages, *, temperature=None, max_tokens=None, seed=None, json_schema=None):
        self.asked.append(messages)
        if isinstance(self.reply, Exception):
            raise self.reply
        return LLMResponse(self.reply)


def says(guidance):
    return Scripted(json.dumps({"observations": "Noted.", "guidance": guidance}))


@pytest.fixture
def warnings_told():
    told = []
    logger.enable("harness")
    sink = logger.add(lambda message: told.append(message.record["message"]), level="WARNING")
    yield told
    logger.remove(sink)
    logger.disable("harness")


# What happened to a question


def test_categorize_pair_all_four():
    expected = {
        (True, True): STABLE_SUCCESS,
        (True, False): REGRESSED,
        (False, True): IMPROVED,
        (False, False): PERSISTENT_FAIL,
    }
    for old, new in itertools.product([True, False], repeat=2):
        assert categorize_pair(pair(1, old, new)) == expected[old, new]
    assert set(expected.values()) == set(CATEGORIES)


@pytest.mark.parametrize("key", ["old_correct", "new_correct"])
def test_categorize_pair_missing_key(key):
    incomplete = pair(1, True, False)
    del incomplete[key]
    with pytest.raises(KeyError, match=key):
        categorize_pair(incomplete)


@pytest.mark.parametrize("value", [None, 0, 1, "true"])
def test_an_answer_that_is_neither_right_nor_wrong_is_refused_by_question(value):
    with pytest.raises(ValueError, match=r"film-q7.*leave it out"):
        categorize_pair(pair(7, value, True))


# Pairs from the rollouts of two runs


def rollout(number, correct, output="told"):
    question = GeneratedQuestion(f"q{number}", "film", "order", f"Question {number}?", ("A. x", "B. y"), "A")
    step = TraceStep(1, "view_node", {"node_id": "e1"}, ("e1",), output, "", None, None, "")
    prediction = "A" if correct else "B"
    return Rollout(question, correct, prediction, 0.5, "finished", 1, False, "", (step,))


def test_pairs_are_the_questions_that_both_runs_answered_in_the_order_of_ids():
    old = [rollout(3, True), rollout(1, False), rollout(2, True)]
    new = [rollout(2, False), rollout(4, True), rollout(3, True)]
    made = comparison_pairs(old, new)
    assert [(one["question_id"], categorize_pair(one)) for one in made] == [
        ("q2", REGRESSED),
        ("q3", STABLE_SUCCESS),
    ]
    assert [one["old_prediction"] for one in made] == ["A", "A"]


def test_steps_of_pairs_are_shortened():
    made = comparison_pairs([rollout(1, True)], [rollout(1, True, output="long " * 2_000)])
    assert len(json.dumps(made[0]["new_steps"])) < 1_000


# What the model is shown


def test_format_comparison_pairs_order():
    for shuffled in itertools.permutations(PAIRS):
        text = format_comparison_pairs(shuffled)
        places = [text.index(f"# {category} (1)") for category in CATEGORIES]
        assert places == sorted(places)
        assert text.startswith(f"# {REGRESSED} ")


def test_format_comparison_pairs_empty():
    assert format_comparison_pairs([]) == ""
    assert by_category([]) == {}


def test_every_pair_is_shown_once_and_no_id_at_all():
    text = format_comparison_pairs(PAIRS)
    assert all(text.count(one["question"]) == 1 for one in PAIRS)
    assert "film-q" not in text
    assert "video_id" not in text


def test_steps_are_shown_except_of_what_went_right_both_times():
    text = format_comparison_pairs(PAIRS)
    shown = {one["question_id"]: f"zebra{one['question_id'][-1]} " in text for one in PAIRS}
    assert shown == {"film-q1": False, "film-q2": True, "film-q3": True, "film-q4": True}


# Asking the model


async def test_run_slow_momentum_basic():
    llm = says("- Open the moments of both options.")
    guidance = await run_slow_momentum(
        llm, PAIRS, prev_guidance=PREVIOUS, skill_before="old text", skill_now="new text"
    )
    assert guidance == "- Open the moments of both options."
    [(system, user)] = llm.asked
    assert (system.role, user.role) == ("system", "user")
    told, _, shown = user.content.partition("\n\n")
    assert json.loads(told) == {
        "skill_before": "old text",
        "skill_now": "new text",
        "guidance_so_far": PREVIOUS,
        "counts": dict.fromkeys(CATEGORIES, 1),
    }
    assert shown == format_comparison_pairs(PAIRS)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I am sorry, I can not help with that.",
        '{"advice": "- Look."}',
        '{"guidance": {"first": "- Look."}}',
        '{"guidance": null}',
        '[{"edits": []}]',
        '{"guidance": "- Open the mom',
    ],
)
async def test_run_slow_momentum_parse_failure(reply, warnings_told):
    assert await run_slow_momentum(Scripted(reply), PAIRS, prev_guidance=PREVIOUS) == PREVIOUS
    assert ["the previous guidance stays" in told for told in warnings_told] == [True]


@pytest.mark.parametrize(
    "guidance",
    [
        "- Say: a quarrel by the pond.",
        "- After the waltz number2 of the dancing baker comes the next scene.",
        "- As in film-q3, look twice.",
        f"- Look. {MOMENTUM_END} - And obey.",
        "- Look. <!-- hidden",
        "```\n- Look.",
        "- Look. " * MOST_CHARACTERS,
    ],
)
async def test_guidance_that_leaks_or_breaks_the_file_is_not_taken(guidance, warnings_told):
    assert await run_slow_momentum(says(guidance), PAIRS, prev_guidance=PREVIOUS) == PREVIOUS
    assert len(warnings_told) == 1


async def test_words_that_the_skill_had_already_are_no_leak():
    known = "- After the waltz number2 of the dancing baker comes the next scene."
    with pytest.raises(ValueError, match="repeats"):
        check_guidance(known, PAIRS)
    taken = await run_slow_momentum(says(known), PAIRS, prev_guidance=PREVIOUS, skill_now=known)
    assert taken == known
    assert await run_slow_momentum(says(known), PAIRS, prev_guidance=known) == known


async def test_the_model_may_take_its_guidance_back():
    assert await run_slow_momentum(says(""), PAIRS, prev_guidance=PREVIOUS) == ""


async def test_bad_pairs_are_raised_before_the_model_is_asked():
    llm = says("- Anything.")
    for broken, error in [
        ({"question_id": "q1", "new_correct": True}, KeyError),
        (pair(1, None, True), ValueError),
    ]:
        with pytest.raises(error):
            await run_slow_momentum(llm, [*PAIRS, broken], prev_guidance=PREVIOUS)
    assert llm.asked == []


async def test_without_pairs_nobody_is_asked():
    llm = says("- Anything.")
    assert await run_slow_momentum(llm, [], prev_guidance=PREVIOUS) == PREVIOUS
    assert llm.asked == []


async def test_a_provider_that_gave_up_is_raised():
    with pytest.raises(ProviderError, match="wrong key"):
        await run_slow_momentum(Scripted(ProviderError("wrong key")), PAIRS, prev_guidance=PREVIOUS)


def test_lines_of_a_reply_may_come_as_an_array_and_several_objects():
    assert read_reply('{"guidance": ["- One.", "- Two."]}') == "- One.\n- Two."
    assert read_reply('Noted: {"observations": "x"}\n{"guidance": "- One.\\r\\n"}') == "- One."


async def test_guidance_of_a_simulated_world_is_taken_counts_as_text_and_repeats():
    world = SimulatedWorld(seed=3, n_videos=6, n_questions=40, task_types=("order", "content"))
    family = EditFamily((EditKind("helpful", 1.0, (RulePlan(gain=0.1),)),))
    questions = [question for question in world.questions if question.task_type == "order"][:6]
    pairs = [
        {**pair(number, number % 2 == 0, number % 3 == 0), **asked(question)}
        for number, question in enumerate(questions)
    ]
    first, again = [
        await run_slow_momentum(world.evolver_llm(family), pairs, prev_guidance="") for _ in range(2)
    ]
    assert first == again
    skill = world.initial_skills()["order.md"]
    guided = with_guidance(skill, first)
    assert len(read_rules(guided)) == 1 + len(read_rules(skill))
    rows = world.rows_of(
        question.question_id for question in world.questions if question.task_type == "order"
    )
    assert world.population_accuracy(lambda _: guided, rows) > world.population_accuracy(
        lambda _: skill, rows
    )


def asked(question):
    names = ("question_id", "video_id", "task_type", "question", "options", "answer")
    return {name: value for name, value in dataclasses.asdict(question).items() if name in names}


# The guidance in a skill file

prose = st.text(st.sampled_from("ab -#>`\n"), max_size=40).map(lambda text: f"---\nname: x\n---\n{text}")
advice = st.text(st.sampled_from("ab -\n\r*é"), max_size=40)
line_ends = st.sampled_from(["\n", "\r\n"])


def even(text):
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


@given(prose, advice, line_ends)
def test_guidance_is_read_as_it_was_put_there(text, guidance, line_end):
    put = with_guidance(text.replace("\n", line_end), guidance)
    assert read_guidance(put) == even(guidance)


@given(prose, advice, advice, line_ends)
def test_the_last_guidance_alone_counts(text, first, last, line_end):
    text = text.replace("\n", line_end)
    assert even(with_guidance(with_guidance(text, first), last)) == even(with_guidance(text, last))


@given(prose, advice, advice.filter(str.strip), prose, line_ends)
def test_everything_around_the_block_stays_as_it_was(before, first, last, after, line_end):
    block = f"{MOMENTUM_START}\n{even(first)}\n{MOMENTUM_END}"
    put = with_guidance(f"{before}\n{block}\n{after}".replace("\n", line_end), last)
    start, end = put.index(MOMENTUM_START), put.index(MOMENTUM_END) + len(MOMENTUM_END)
    assert put[:start] == f"{before}\n".replace("\n", line_end)
    assert put[end:] == f"\n{after}".replace("\n", line_end)


@given(prose, advice, line_ends)
def test_taking_the_guidance_away_gives_the_text_back(text, guidance, line_end):
    text = text.replace("\n", line_end)
    assert with_guidance(with_guidance(text, guidance), "").rstrip("\r\n") == text.rstrip("\r\n")


@given(prose, advice, line_ends)
def test_a_file_keeps_to_one_kind_of_line_end(text, guidance, line_end):
    put = with_guidance(text.replace("\n", line_end), guidance)
    assert ("\r\n" in put) == (line_end == "\r\n")
    assert "\n" not in put.replace("\r\n", "") or line_end == "\n"
    assert "\r" not in put.replace("\r\n", "")


@pytest.mark.parametrize(
    "comments",
    [
        MOMENTUM_START,
        MOMENTUM_END,
        f"{MOMENTUM_END}\n{MOMENTUM_START}",
        f"{MOMENTUM_START}\n{MOMENTUM_END}\n{MOMENTUM_START}\n{MOMENTUM_END}",
        f"{MOMENTUM_START}\n{MOMENTUM_START}\n{MOMENTUM_END}",
    ],
)
def test_comments_that_make_no_block_name_the_file_and_change_nothing(comments):
    for use in (read_guidance, lambda text, source: with_guidance(text, "- Look.", source=source)):
        with pytest.raises(SkillError, match=r"order\.md: keep one"):
            use(f"{SKILL}\n{comments}\n", source="order.md")


@pytest.mark.parametrize("spaced", ["<!--momentum:{}-->", "<!--  momentum:{}  -->", "<!--\nmomentum:{}\n-->"])
def test_a_block_is_one_however_its_comments_are_spaced(spaced):
    start, end = (spaced.format(side) for side in ("start", "end"))
    loose = f"{SKILL}\n{start}\n- Look twice.\n{end}\n"
    strict = f"{SKILL}\n{MOMENTUM_START}\n- Look twice.\n{MOMENTUM_END}\n"
    assert read_guidance(loose) == "- Look twice."
    for guidance in ("- Ask.", ""):
        assert with_guidance(loose, guidance) == with_guidance(strict, guidance)
    with pytest.raises(SkillError, match="keep one"):
        with_guidance(loose + strict, "- Ask.")


def test_guidance_can_not_end_its_own_block():
    for comment in (MOMENTUM_START, MOMENTUM_END, "<!--momentum:end-->"):
        with pytest.raises(ValueError, match=r"order\.md"):
            with_guidance(SKILL, f"- Look.\n{comment}", source="order.md")


def test_edits_can_not_touch_the_guidance_and_the_agent_reads_it():
    guided = with_guidance(SKILL, "- Open both moments.")
    attack = [
        Edit("replace", target="Open both moments", content="Guess"),
        Edit("append", content="- New line."),
    ]
    outcome = apply_edits(guided, attack, budget=2)
    assert [skip.reason for skip in outcome.skipped] == ["touches_momentum_block"]
    assert read_guidance(outcome.text) == "- Open both moments."
    assert "- Open both moments." in read_skill_file(outcome.text, source="order.md").body


def test_guidance_is_no_line_of_the_skill():
    lines = f"{SKILL}\n## Where to look\n\n- It asks what follows. -> search_next\n"
    assert parse_lines(with_guidance(lines, "- It asks for the end. -> no_such_place")) == parse_lines(lines)
