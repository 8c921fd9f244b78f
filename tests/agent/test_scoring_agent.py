"""The scoring agent, with a scorer that is a plain function of texts."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.agent.scoring import (
    TIE,
    ScoringAgent,
    choose_line,
    choose_option,
    line_context,
    score_options,
    softmax,
)
from core.agent.skills import SkillError, SkillLine
from core.protocols import Agent
from core.tree.words import content_words
from core.types import GeneratedQuestion

SKILL = """# Skill: order
## Where to look
- It asks what comes after. -> search_next
  - What happens after the cow is sold?
- It asks what is written. -> search_subtitle
  - What does the ribbon say?
"""


class WordScorer:
    """log P falls with the number of words of the continuation that the context does not have."""

    model = "words"

    def __init__(self):
        self.asked = []

    async def score(self, context, continuations):
        self.asked.append((context, tuple(continuations)))
        known = set(content_words(context))
        return [-float(len(set(content_words(text)) - known)) for text in continuations]


@pytest.fixture
def scorer():
    return WordScorer()


async def run(scorer, question, tools, system_prompt=SKILL, plugins=(), seed=0):
    return await ScoringAgent(scorer, seed=seed).run(question, system_prompt, "unread", tools, plugins)


def test_it_is_an_agent_and_says_what_decides_its_answers(scorer):
    agent = ScoringAgent(scorer, seed=5)
    assert isinstance(agent, Agent)
    assert agent.deterministic
    assert "words" in agent.fingerprint
    assert agent.fingerprint != ScoringAgent(scorer, seed=6).fingerprint


async def test_the_line_that_fits_decides_where_it_looks_and_that_what_it_answers(scorer, question, tools):
    result = await run(scorer, question, tools)
    assert result.stop_reason == "finished"
    assert result.result["answer"] == "B"
    assert result.result["evidence"]["node_ids"] == ["m3", "m4"]
    assert result.result["reasoning"] == "It asks what comes after. -> search_next"
    assert not result.no_evidence


async def test_another_skill_makes_it_look_elsewhere(scorer, question, tools):
    result = await run(scorer, question, tools, SKILL.replace("search_next", "first_moments"))
    assert result.result["evidence"]["node_ids"] == ["m1", "m2"]


async def test_calls_outputs_and_scores_stand_in_the_trace(scorer, question, tools):
    result = await run(scorer, question, tools)
    assert [step.tool_call["tool"] for step in result.steps] == [
        "search_similar",
        "view_node",
        "submit_answer",
    ]
    assert result.steps_used == 3
    assert result.steps[0].plan["line"] == "It asks what comes after. -> search_next"
    assert len(result.steps[0].plan["line_scores"]) == 2
    assert json.loads(result.steps[0].tool_output)["nodes"][0]["id"] == "m3"
    assert list(result.steps[-1].plan["option_scores"]) == ["A", "B", "C"]
    assert json.loads(result.steps[-1].tool_output) == result.result


async def test_the_scorer_sees_texts_in_the_agreed_form_and_no_ids(scorer, question, tools):
    await run(scorer, question, tools)
    contexts = [context for context, _ in scorer.asked]
    assert (
        contexts[0] == "It asks what comes after.\nQuestion: What happens after the cow is sold?\nQuestion:"
    )
    assert contexts[2].endswith(f"\nQuestion: {question.question}\nAnswer:")
    assert contexts[3] == f"Question: {question.question}\nAnswer:"
    assert scorer.asked[0][1] == (f" {question.question}",)
    assert scorer.asked[2][1] == (" A boy swims.", " A miller lifts it out of the wheel.", " It sinks.")
    for text in (*contexts, *(text for _, texts in scorer.asked for text in texts)):
        assert not {"q1", "tiny", "m3", "order", "e2"} & set(text.split())


async def test_letters_written_in_the_options_are_not_scored_but_submitted(scorer, tools):
    question = GeneratedQuestion(
        "q", "tiny", "order", "What happens after the boat drifts under a bridge?",
        ("B. A miller lifts it out of the wheel.", "A. It sinks."), "B",
    )  # fmt: skip
    result = await run(scorer, question, tools)
    assert result.result["answer"] == "B"
    assert scorer.asked[-1][1] == (" A miller lifts it out of the wheel.", " It sinks.")


@pytest.mark.parametrize(
    "system_prompt",
    ["", SKILL.replace("search_next", "search_subtitle").replace("- It asks what is", "- It is")],
)
async def test_without_evidence_the_answer_is_a_marked_draw(scorer, question, tools, system_prompt):
    result = await run(scorer, question, tools, system_prompt)
    assert result.no_evidence
    assert result.stop_reason == "finished"
    assert result.result["confidence"] == pytest.approx(1 / 3)
    assert result == await run(scorer, question, tools, system_prompt)


async def test_draws_without_evidence_spread_over_the_options(scorer, tools):
    answers = []
    for number in range(60):
        question = GeneratedQuestion(f"q{number}", "tiny", "t", "Zeppelin?", ("a", "b", "c"), "A")
        answers.append((await run(scorer, question, tools, "")).result["answer"])
    assert min(answers.count(letter) for letter in "ABC") >= 10
    assert not scorer.asked


async def test_a_question_without_options_is_refused(scorer, tools):
    question = GeneratedQuestion("q7", "tiny", "t", "How many?", (), "3", answer_kind="number")
    with pytest.raises(ValueError, match=r"'q7'.*number"):
        await run(scorer, question, tools)


async def test_a_skill_that_cannot_be_read_is_an_error_and_no_answer(scorer, question, tools):
    with pytest.raises(SkillError, match="unknown tactic 'guess'"):
        await run(scorer, question, tools, "## Where to look\n- Fits. -> guess")


async def test_a_single_line_is_followed_without_asking_the_model(scorer):
    only = SkillLine("Whatever it asks.", "search_1")
    assert await choose_line(scorer, [only], "What?") == (only, [])
    assert not scorer.asked


class FixedScorer:
    """Scores by what the context begins with."""

    model = "fixed"

    def __init__(self, scores):
        self.scores = scores

    async def score(self, context, continuations):
        return [next(score for start, score in self.scores.items() if context.startswith(start))] * len(
            continuations
        )


@pytest.mark.parametrize(("lead", "chosen"), [(TIE / 2, "search_1"), (TIE * 2, "search_2")])
async def test_lines_closer_than_the_tie_count_as_equal_and_the_first_is_taken(lead, chosen):
    lines = [SkillLine("first", "search_1"), SkillLine("second", "search_2")]
    line, _ = await choose_line(FixedScorer({"first": -9.0, "second": -9.0 + lead}), lines, "What?")
    assert line.tactic == chosen


def test_a_line_without_examples_is_its_rule_alone():
    assert line_context(SkillLine("A rule.", "search_1")) == "A rule.\nQuestion:"


async def test_an_option_is_scored_by_what_the_evidence_adds(scorer, question):
    scores = await score_options(scorer, question, "a miller and a wheel")
    assert scores == [0.0, 2.0, 0.0]


@given(st.lists(st.floats(-500, 500), min_size=2, max_size=6), st.text(max_size=5))
def test_the_chosen_option_is_always_within_the_tie_of_the_best(scores, seed):
    assert scores[choose_option(scores, seed=seed)] >= max(scores) - TIE


def test_options_closer_than_the_tie_are_drawn_among_by_seed():
    chosen = {choose_option([0.0, TIE / 2, -1.0], seed=str(seed)) for seed in range(30)}
    assert chosen == {0, 1}


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8))
def test_confidences_are_probabilities_in_the_order_of_the_scores(scores):
    shares = softmax(scores)
    assert math.isclose(sum(shares), 1)
    assert all(
        (share <= other) or math.isclose(share, other)
        for score, share in zip(scores, shares, strict=True)
        for other_score, other in zip(scores, shares, strict=True)
        if score <= other_score
    )
