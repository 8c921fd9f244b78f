"""Diagnosis of a run: with and without a judge, what is left out, what stands in the packs."""

import asyncio
import dataclasses
import json
import random

import pytest
from diagnosis_runs import (
    PROMPTS,
    RUN,
    SKILLS,
    Log,
    ScriptedLLM,
    Texts,
    make_question,
    prediction_row,
    skill_text,
    trace_row,
)

from core.agent.skills import SkillError
from core.evolution import ErrorAttribution, run_diagnosis
from core.evolution.protocols import RunLog, SkillStore
from core.protocols import ProviderError


def make_run(outcomes, nodes=(("m1", 3),), task_type="order", **columns):
    """(questions, log): one rollout of a call and an answer for each outcome."""
    questions = [make_question(f"q{number:02d}", task_type) for number in range(len(outcomes))]
    predictions = [
        prediction_row(question, outcome, **columns)
        for question, outcome in zip(questions, outcomes, strict=True)
    ]
    traces = [
        row
        for question in questions
        for row in (
            trace_row(question, 1, "view_node", {"node_id": "m1"}, nodes),
            trace_row(question, 2, "submit_answer", {"answer": "B"}, output="{}"),
        )
    ]
    return questions, Log(predictions, traces)


async def diagnose(questions, log, judge=None, *, skills=SKILLS, concurrency=4, max_steps=10):
    return await run_diagnosis(
        log,
        RUN,
        questions=questions,
        skills=skills,
        judge=judge,
        prompts=PROMPTS,
        concurrency=concurrency,
        max_steps=max_steps,
    )


def judge_saying(span=None, question=None, reasoning=None):
    """A judge that gives the same verdict of each kind every time."""
    verdicts = {PROMPTS.span: span, PROMPTS.question: question, PROMPTS.reasoning: reasoning}
    return ScriptedLLM(lambda messages: json.dumps(verdicts[messages[0].content] or {}))


def test_the_stand_ins_of_these_tests_are_what_they_stand_for():
    assert isinstance(Log([]), RunLog)
    assert isinstance(SKILLS, SkillStore)


async def test_without_a_judge_source_nodes_never_opened_give_attributions_and_packs():
    questions, log = make_run([False, True, False, None])
    result = await diagnose(questions, log)
    assert result.filter_summary == {"rollouts": 4, "errors": 1, "right": 1, "wrong": 2}
    assert result.attribution_distribution == {"search_failure": 2}
    assert {metrics.missed_nodes for metrics in result.question_metrics} == {("m3",)}
    (pack,) = result.skill_case_packs
    assert pack.target_file == "order.md"
    assert [case.question_id for case in pack.failure_cases] == ["q00", "q02"]
    assert [case.question_id for case in pack.success_cases] == ["q01"]
    assert result.span_metrics == result.tool_case_packs == ()


async def test_without_a_judge_a_wrong_answer_that_read_its_source_is_mixed():
    questions, log = make_run([False], nodes=[("m3", 3)])
    (attribution,) = (await diagnose(questions, log)).error_attributions
    assert attribution.error_type == "mixed"
    assert "not judged" in attribution.detail


async def test_errors_are_left_out_of_everything_but_the_evidence():
    questions, log = make_run([False, None, None])
    result = await diagnose(questions, log)
    assert [metrics.question_id for metrics in result.question_metrics] == ["q00"]
    assert result.skill_case_packs[0].evidence_ids == ("q00", "q01", "q02")


async def test_the_evidence_of_a_pack_is_every_question_of_its_types_in_the_run():
    questions, log = make_run([False] * 12 + [True] * 12)
    others = [make_question("never rolled out"), make_question("w1", "weather"), make_question("v1", "views")]
    log.predictions += [prediction_row(others[1], False), prediction_row(others[2], True)]
    result = await diagnose([*questions, *others], log)
    order, default = result.skill_case_packs
    assert (order.target_file, order.task_types) == ("order.md", ("order",))
    assert order.evidence_ids == tuple(question.question_id for question in questions)
    assert len(order.failure_cases) < 12
    assert (default.target_file, default.task_types) == ("default-strategy.md", ("views", "weather"))
    assert default.evidence_ids == ("v1", "w1")


async def test_a_run_in_which_nothing_failed_has_no_packs():
    questions, log = make_run([True, True])
    result = await diagnose(questions, log)
    assert result.skill_case_packs == ()
    assert result.system_case_pack is None
    assert result.error_attributions == ()


async def test_a_run_without_rows_is_an_empty_diagnosis():
    result = await diagnose([make_question("q1")], Log([]))
    assert result.filter_summary == {"rollouts": 0, "errors": 0, "right": 0, "wrong": 0}
    assert result.skill_case_packs == ()
    assert (await diagnose([], Log([]), judge_saying())).question_metrics == ()


@pytest.mark.parametrize(("right", "shown"), [(1, 1), (2, 2), (30, 2)])
async def test_a_pack_holds_the_worst_two_of_each_error_type_and_some_right_answers(right, shown):
    questions, log = make_run([False] * 5 + [True] * right)
    for row, confidence in zip(log.predictions, [0.1, 0.9, 0.3, 0.8, 0.2], strict=False):
        row["confidence"] = confidence
    (pack,) = (await diagnose(questions, log)).skill_case_packs
    assert [case.question_id for case in pack.failure_cases] == ["q01", "q03"]
    assert {case.error_type for case in pack.failure_cases} == {"search_failure"}
    assert len(pack.success_cases) == shown
    assert all(case.selection_reason for case in (*pack.failure_cases, *pack.success_cases))


async def test_packs_are_plain_bounded_values():
    questions, log = make_run([False, True])
    for row in log.traces:
        row["output"] = "long " * 50_000
    (pack,) = (await diagnose(questions, log)).skill_case_packs
    kept = json.dumps(dataclasses.asdict(pack))
    assert len(kept) < 10_000
    case = pack.failure_cases[0]
    assert json.loads(json.dumps([case.metrics, *case.trace, pack.stats])) == [
        case.metrics,
        *case.trace,
        pack.stats,
    ]


async def test_always_skills_get_no_pack_and_a_type_without_a_file_none_either():
    always = skill_text("order").replace("---\n\n", "always: true\n---\n\n")
    questions, log = make_run([False])
    result = await diagnose(questions, log, skills=Texts({"always.md": always}))
    assert result.skill_case_packs == ()
    assert result.attribution_distribution == {"search_failure": 1}


async def test_a_skill_file_that_cannot_be_read_is_named():
    questions, log = make_run([False])
    with pytest.raises(SkillError, match=r"broken\.md"):
        await diagnose(questions, log, skills=Texts({"broken.md": "no front matter"}))


async def test_the_order_of_rows_and_questions_changes_nothing():
    questions, log = make_run([False, True, False, False, True, None])
    once = await diagnose(questions, log)
    for rows in (questions, log.predictions, log.traces):
        random.Random(3).shuffle(rows)
    assert await diagnose(questions, log) == once


# System packs


async def test_a_system_pack_holds_patterns_seen_at_least_three_times():
    questions, log = make_run([False] * 3 + [True] * 3, confidence=0.9, steps_used=2)
    result = await diagnose(questions, log)
    assert result.decision_patterns["early_submit"] == 3
    assert result.decision_patterns["budget_exceeded"] == 0
    pack = result.system_case_pack
    assert pack.stats["patterns"] == {"early_submit": 3, "high_conf_wrong": 3}
    assert [case.question_id for case in pack.failure_cases] == ["q00", "q01"]
    assert len(pack.success_cases) == 2
    questions, log = make_run([False] * 2, confidence=0.9, steps_used=2)
    assert (await diagnose(questions, log)).system_case_pack is None


async def test_early_submits_are_unknown_without_the_step_budget():
    questions, log = make_run([False] * 3, steps_used=1)
    result = await diagnose(questions, log, max_steps=None)
    assert result.decision_patterns["early_submit"] == 0
    assert {metrics.budget_usage for metrics in result.question_metrics} == {None}


# With a judge

GOOD_SPAN = {"completeness": 1.0, "hallucination": 0.0, "missed_tags": [], "hallucinated_tags": []}


async def test_every_call_that_brings_material_is_judged_and_every_rollout_once():
    questions, log = make_run([False, True], nodes=[("m3", 3)])
    judge = judge_saying(GOOD_SPAN, {"evidence_sufficient": True}, {"reasoning_kind": "faulty_logic"})
    result = await diagnose(questions, log, judge)
    assert [prompt for prompt, _ in judge.asked].count(PROMPTS.span) == 2
    assert [prompt for prompt, _ in judge.asked].count(PROMPTS.question) == 2
    assert [prompt for prompt, _ in judge.asked].count(PROMPTS.reasoning) == 1
    assert [(span.question_id, span.step, span.completeness) for span in result.span_metrics] == [
        ("q00", 1, 1.0),
        ("q01", 1, 1.0),
    ]
    assert result.error_attributions == (
        ErrorAttribution(
            "q00", "order", "reasoning_failure", "faulty_logic", 0.8, "what was read was enough to answer"
        ),
    )
    assert result.reasoning_failure_types == {"faulty_logic": 1}
    assert result.tool_quality["view_node"]["mean_completeness"] == 1.0
    assert result.tool_quality["submit_answer"]["mean_completeness"] is None


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot say.",
        "null",
        "[1, 2]",
        '{"completeness": "high"}',
        '{"completeness": 7, "x": NaN}',
        "{" * 99,
    ],
)
async def test_an_unreadable_judge_costs_the_judged_metrics_alone(reply):
    questions, log = make_run([False, True])
    result = await diagnose(questions, log, ScriptedLLM(lambda messages: reply))
    without = await diagnose(questions, log)
    assert result.question_metrics == without.question_metrics
    assert result.error_attributions == without.error_attributions
    assert {(span.completeness, span.hallucination) for span in result.span_metrics} == {(None, None)}


async def test_a_field_that_cannot_be_read_costs_itself_alone():
    questions, log = make_run([True])
    judge = judge_saying(
        {"completeness": 0.25, "hallucination": -3, "missed_tags": "a hat"},
        {"evidence_sufficient": "perhaps", "confirmation_bias": True, "skill_adherence": [1]},
    )
    result = await diagnose(questions, log, judge)
    (span,), (metrics,) = result.span_metrics, result.question_metrics
    assert (span.completeness, span.hallucination, span.missed_tags) == (0.25, None, ())
    assert (metrics.evidence_sufficient, metrics.confirmation_bias, metrics.skill_adherence) == (
        None,
        True,
        None,
    )
    assert (metrics.mean_completeness, metrics.max_hallucination) == (0.25, None)


async def test_known_source_nodes_outweigh_the_judge_and_without_them_it_is_asked():
    judge = judge_saying(GOOD_SPAN, {"missed_nodes": ["m9"]})
    questions, log = make_run([False])
    (metrics,) = (await diagnose(questions, log, judge)).question_metrics
    assert metrics.missed_nodes == ("m3",)
    blind = [dataclasses.replace(question, source_nodes=()) for question in questions]
    (metrics,) = (await diagnose(blind, log, judge)).question_metrics
    assert metrics.missed_nodes == ("m9",)


async def test_skill_steps_are_told_by_number_and_compared_by_accuracy():
    questions, log = make_run([False, True, True])

    def answer(messages):
        if messages[0].content != PROMPTS.question:
            return json.dumps(GOOD_SPAN)
        right = json.loads(messages[1].content)["answered_correctly"]
        return json.dumps({"skill_adherence": {"s2": right, "s1": True, "s9": True, "other": False}})

    result = await diagnose(questions, log, ScriptedLLM(answer))
    first, second = result.skill_compliance
    assert (first.step, first.followed, first.not_followed, first.gain) == (
        "Search for the name.",
        3,
        0,
        None,
    )
    assert (second.step, second.accuracy_followed, second.accuracy_not_followed, second.gain) == (
        "Read what comes next.", 1.0, 0.0, 1.0,
    )  # fmt: skip
    assert {entry.target_file for entry in result.skill_compliance} == {"order.md"}
    assert result.skill_case_packs[0].stats["skill_steps"][1]["gain"] == 1.0


@pytest.mark.parametrize(
    ("verdict", "first"),
    [
        ({"completeness": 0.1, "hallucination": 0.0}, "view_node_extract.md"),
        ({"completeness": 0.9, "hallucination": 0.9}, "view_node_verify.md"),
    ],
)
async def test_a_tool_pack_shows_the_worst_calls_and_the_prompt_they_speak_against(verdict, first):
    questions, log = make_run([False] * 6 + [True])

    def answer(messages):
        right = '"q06"' in messages[1].content or "of q06" in messages[1].content
        return json.dumps(GOOD_SPAN if right else verdict)

    (pack,) = (await diagnose(questions, log, ScriptedLLM(answer))).tool_case_packs
    assert pack.tool_name == "view_node"
    assert pack.target_files[0] == first
    assert len(pack.target_files) == 2
    assert len(pack.failure_spans) == 4
    assert [span["question_id"] for span in pack.success_spans] == ["q06"]
    assert pack.failure_spans[0]["args"] == {"node_id": "m1"}
    assert pack.stats["failed"] == 6


async def test_question_ids_stay_out_of_what_the_judge_is_shown():
    questions, log = make_run([False])
    judge = judge_saying(GOOD_SPAN, {"evidence_sufficient": True})
    await diagnose([dataclasses.replace(questions[0], question="Which hat?")], log, judge)
    assert judge.asked
    assert not any("q00" in text for asked in judge.asked for text in asked)


async def test_no_more_rollouts_than_allowed_are_judged_at_once():
    questions, log = make_run([True] * 12)
    running = most = 0

    class Slow(ScriptedLLM):
        async def chat(self, messages, **options):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await super().chat(messages)

    await diagnose(questions, log, Slow(lambda messages: "{}"), concurrency=3)
    assert most == 3


class Failing(ScriptedLLM):
    """Gives up on the calls whose numbers `fails` names."""

    def __init__(self, fails):
        super().__init__(lambda messages: json.dumps(GOOD_SPAN | {"evidence_sufficient": False}))
        self.fails, self.calls = fails, 0

    async def chat(self, messages, **options):
        self.calls += 1
        if self.fails(self.calls):
            raise ProviderError("the key is wrong")
        return await super().chat(messages)


async def test_a_judge_that_cannot_be_used_ends_the_diagnosis_after_one_call():
    questions, log = make_run([False] * 8)
    judge = Failing(lambda call: True)
    with pytest.raises(ProviderError, match="the key is wrong"):
        await diagnose(questions, log, judge)
    assert judge.calls == 1


async def test_a_judge_that_dies_ends_the_diagnosis_within_three_rollouts():
    questions, log = make_run([False] * 8)
    answered = Failing(lambda call: False)
    await diagnose(questions[:2], log, answered, concurrency=1)
    judge = Failing(lambda call: call > answered.calls)
    with pytest.raises(ProviderError):
        await diagnose(questions, log, judge, concurrency=1)
    assert judge.calls <= answered.calls + 2 * 2 + 1


async def test_a_rollout_too_long_for_the_judge_leaves_the_others_judged():
    questions, log = make_run([False] * 8)
    too_long = range(5, 15)
    log.traces += [
        trace_row(questions[1], step, "view_node", {"node_id": "m1"}, (("m1", 3),)) for step in too_long
    ]
    first, calls = 3, 1 + len(too_long) + 1  # its tool calls, then the rollout as a whole
    judge = Failing(lambda call: first <= call < first + calls)
    result = await diagnose(questions, log, judge, concurrency=1)
    unjudged = {span.question_id for span in result.span_metrics if span.completeness is None}
    assert unjudged == {questions[1].question_id}
    assert len(result.question_metrics) == len(questions)


async def test_a_call_that_was_given_up_costs_what_it_was_for():
    questions, log = make_run([False] * 8)
    result = await diagnose(questions, log, Failing(lambda call: call == 5), concurrency=1)
    assert [span.completeness for span in result.span_metrics].count(None) == 1
    assert len(result.question_metrics) == 8
