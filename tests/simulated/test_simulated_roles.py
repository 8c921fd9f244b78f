"""Judge and evolver: what they say follows from what they are shown, and the judge tells the truth."""

import dataclasses
import json

import pytest
from simulated_worlds import answers, is_right, make_world

from core.adapters.simulated_edits import MIXED, NULL_HEAVY
from core.adapters.simulated_rules import read_rules
from core.evolution.edits import apply_edits
from core.evolution.types import Edit, ErrorAttribution, QuestionMetrics, SpanMetrics
from core.protocols import LLMProvider
from core.types import Message

WORLD = make_world(n_questions=200)
SKILL = WORLD.initial_skills()["order.md"]


async def asked(llm, *shown):
    response = await llm.chat(
        [Message("system", "You judge rollouts."), *(Message("user", s) for s in shown)]
    )
    return json.loads(response.content)


async def attributed(judge, question, result):
    """The attribution rules of a diagnosis, first match wins, on the judge's verdicts and the trace alone."""
    spans = [await asked(judge, json.dumps([step.tool_call, step.tool_output])) for step in result.steps[:-1]]
    trace = json.dumps([dataclasses.asdict(step) for step in result.steps])
    verdict = await asked(judge, question.question, trace)
    mean_completeness = sum(span["completeness"] for span in spans) / len(spans)
    if mean_completeness < 0.5 or max(span["hallucination"] for span in spans) > 0.5:
        return "extraction_failure", None
    if verdict["missed_nodes"]:
        assert verdict["missed_nodes"] == list(question.source_nodes)
        return "search_failure", None
    if verdict["evidence_sufficient"]:
        return "reasoning_failure", verdict["reasoning_kind"]
    return "mixed", None


async def test_with_the_judge_every_failure_is_attributed_to_its_true_cause():
    results = await answers(lambda _: WORLD.agent(), WORLD.questions, "", tools_for=WORLD.tools_for)
    judge = WORLD.judge_llm()
    pairs = zip(WORLD.questions, results, strict=True)
    failed = [(question, result) for question, result in pairs if not is_right(question, result)]
    assert failed
    for question, result in failed:
        truth = WORLD.failure_of(question.question_id)
        assert await attributed(judge, question, result) == (truth.error_type, truth.reasoning_kind)


async def test_a_rollout_without_a_failure_is_judged_well():
    verdict = await asked(WORLD.judge_llm(), WORLD.questions[0].question, "[simulated success]")
    assert (verdict["completeness"], verdict["hallucination"]) == (1.0, 0.0)
    assert verdict["evidence_sufficient"]
    assert verdict["missed_nodes"] == []


async def test_verdicts_have_the_names_of_the_metrics_they_are_for():
    verdict = await asked(WORLD.judge_llm(), "anything")
    metrics = (SpanMetrics, QuestionMetrics, ErrorAttribution)
    known = {field.name for metric in metrics for field in dataclasses.fields(metric)}
    assert set(verdict) <= known


async def test_the_evolver_edits_what_the_conversation_is_about():
    evolver = WORLD.evolver_llm(MIXED)
    failing = [question.question for question in WORLD.questions if question.task_type == "order"][:6]
    reply = await asked(evolver, SKILL, *failing)
    edits = [Edit(**fields) for fields in reply["edits"]]
    outcome = apply_edits(SKILL, edits, budget=len(edits))
    assert outcome.applied == tuple(edits)
    names = {rule.name for rule in (*read_rules(outcome.text), *read_rules(reply["guidance"]))}
    assert names == {"order"}


async def test_the_evolver_speaks_of_every_question_when_it_is_shown_none():
    reply = await asked(WORLD.evolver_llm(NULL_HEAVY), "You answer questions.")
    assert {rule.name for edit in reply["edits"] for rule in read_rules(edit["content"])} == {"every"}


async def test_the_same_conversation_brings_the_same_reply_and_another_another():
    evolver = WORLD.evolver_llm(MIXED)
    first = await asked(evolver, SKILL)
    await asked(evolver, "something else")
    assert await asked(evolver, SKILL) == first
    assert await asked(evolver, SKILL, "Your edits could not be applied.") != first


@pytest.mark.parametrize("role", ["judge", "evolver"])
def test_the_roles_are_providers_that_say_they_are_simulated(role):
    llm = WORLD.judge_llm() if role == "judge" else WORLD.evolver_llm(MIXED)
    assert isinstance(llm, LLMProvider)
    assert llm.model.startswith("simulated-")


async def test_tokens_are_counted():
    response = await WORLD.judge_llm().chat([Message("user", "x" * 400)])
    assert response.prompt_tokens == 100
    assert response.completion_tokens == len(response.content) // 4
