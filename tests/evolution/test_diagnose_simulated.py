"""Diagnosis of simulated runs, where the true cause of every failure is known (point 4).

The rates that are stated here are asserted, and printed with `pytest -s`.
"""

import asyncio
import dataclasses
import json
import random
from collections import Counter

import pytest
from diagnosis_runs import PROMPTS, RUN, Log, ScriptedLLM, Texts, loop_rows

from core.adapters.simulated import SimulatedWorld
from core.evolution import run_diagnosis
from core.evolution.json_reply import UnreadableReplyError, extract_json_from_response
from harness.log import HarnessLog, RunLogImpl
from harness.tables import PREDICTIONS, QUESTION_METRICS, SPAN_EVALUATIONS, TRACES, write_rows

WORLD = SimulatedWorld(11, 12, 400, ("order", "content", "place"), accuracy=0.5, churn=0.1)
SKILLS = Texts(WORLD.initial_skills())
GARBAGE_RATE = 0.3
GARBAGE = (
    "",
    "I am not sure.",
    "{{{",
    "null",
    '[1, "two"]',
    '{"completeness": "high"',
    "error\n" * 500,
    "{}",
)


@pytest.fixture(scope="module")
def run_log():
    return asyncio.run(simulated_run())


async def simulated_run():
    predictions, traces = [], []
    for question in WORLD.questions:
        text = SKILLS.read(f"{question.task_type}.md")
        result = await WORLD.agent().run(question, text, "", WORLD.tools_for(question))
        row, steps = loop_rows(question, result)
        predictions.append(row)
        traces += steps
    return Log(predictions, traces)


async def diagnose(log, judge, questions=WORLD.questions):
    return await run_diagnosis(
        log,
        RUN,
        questions=questions,
        skills=SKILLS,
        judge=judge,
        prompts=PROMPTS,
        concurrency=8,
        max_steps=10,
    )


class GarblingJudge:
    """The simulated judge, but a share of its replies is garbage; which ones hangs on the request alone."""

    def __init__(self, judge):
        self.judge, self.model = judge, judge.model
        self.calls, self.garbled = 0, Counter()

    async def chat(self, messages, **options):
        self.calls += 1
        response = await self.judge.chat(messages, **options)
        asked = messages[0].content + messages[1].content
        draw = random.Random(asked)
        if draw.random() >= GARBAGE_RATE:
            return response
        self.garbled[messages[0].content] += 1
        return dataclasses.replace(response, content=draw.choice(GARBAGE))


def share_right(result, *, kinds=False):
    """(share of wrong answers attributed to their true cause, their number)."""
    hits = [
        (attribution.error_type, attribution.reasoning_kind if kinds else None)
        == (truth.error_type, truth.reasoning_kind if kinds else None)
        for attribution in result.error_attributions
        for truth in [WORLD.failure_of(attribution.question_id)]
    ]
    return sum(hits) / len(hits), len(hits)


async def test_with_the_judge_every_wrong_answer_is_attributed_to_its_true_cause(run_log):
    result = await diagnose(run_log, WORLD.judge_llm())
    rate, wrong = share_right(result, kinds=True)
    print(f"\nwith the judge: {rate:.1%} of {wrong} wrong answers attributed rightly, kinds of reasoning too")
    assert wrong >= 100
    assert rate == 1.0


async def test_without_a_judge_what_source_nodes_can_tell_is_right_and_the_rest_is_mixed(run_log):
    result = await diagnose(run_log, None)
    rate, wrong = share_right(result)
    truths = Counter(WORLD.failure_of(each.question_id).error_type for each in result.error_attributions)
    print(f"\nwithout a judge: {rate:.1%} of {wrong} wrong answers attributed rightly; true causes {truths}")
    assert rate == (truths["search_failure"] + truths["mixed"]) / wrong
    assert rate >= 0.5
    assert result.attribution_distribution["search_failure"] == truths["search_failure"]
    assert {pack.target_file for pack in result.skill_case_packs} == {"order.md", "content.md", "place.md"}


async def test_a_judge_that_answers_garbage_for_three_calls_in_ten_costs_only_those_metrics(run_log):
    whole = await diagnose(run_log, WORLD.judge_llm())
    judge = GarblingJudge(WORLD.judge_llm())
    garbled = await diagnose(run_log, judge)
    lost = sum(judge.garbled.values())
    rate, wrong = share_right(garbled)
    print(
        f"\n{lost} of {judge.calls} judge calls garbled ({lost / judge.calls:.0%}): "
        f"{rate:.1%} of {wrong} wrong answers attributed rightly"
    )
    assert abs(lost / judge.calls - GARBAGE_RATE) < 0.05

    spans = list(zip(whole.span_metrics, garbled.span_metrics, strict=True))
    assert sum(span.completeness is None for _, span in spans) == judge.garbled[PROMPTS.span]
    assert all(span in (intact, blank(intact)) for intact, span in spans)

    judged = ("confirmation_bias", "evidence_sufficient")
    of_calls = ("mean_completeness", "max_hallucination")
    questions = list(zip(whole.question_metrics, garbled.question_metrics, strict=True))
    unjudged = [metrics for _, metrics in questions if metrics.evidence_sufficient is None]
    assert len(unjudged) == judge.garbled[PROMPTS.question]
    for intact, metrics in questions:
        expected = (
            dict.fromkeys(judged) if metrics in unjudged else {name: getattr(intact, name) for name in judged}
        )
        kept = {name: getattr(metrics, name) for name in of_calls}
        assert metrics == dataclasses.replace(intact, **expected, **kept)

    assert rate >= 0.75
    assert len(garbled.error_attributions) == len(whole.error_attributions)
    assert garbled.filter_summary == whole.filter_summary
    assert [pack.target_file for pack in garbled.skill_case_packs] == [
        pack.target_file for pack in whole.skill_case_packs
    ]


def blank(span):
    return dataclasses.replace(
        span, completeness=None, hallucination=None, missed_tags=(), hallucinated_tags=()
    )


def test_none_of_the_garbage_holds_a_verdict():
    for reply in GARBAGE:
        try:
            value = extract_json_from_response(reply)
        except UnreadableReplyError:
            continue
        assert "evidence_sufficient" not in value
        assert value in ({}, [1, "two"])


async def test_a_garbled_call_loses_the_same_metrics_in_every_order(run_log):
    ids = {question.question_id for question in WORLD.questions[:60]}
    some = [question for question in WORLD.questions if question.question_id in ids]
    once = await diagnose(run_log, GarblingJudge(WORLD.judge_llm()), some)
    again = await diagnose(run_log, GarblingJudge(WORLD.judge_llm()), some[::-1])
    assert once == again


async def test_a_judge_without_source_nodes_is_told_nothing_it_could_not_know(run_log):
    question = dataclasses.replace(WORLD.questions[0], source_nodes=())
    judge = ScriptedLLM(lambda messages: "{}")
    await diagnose(run_log, judge, [question])
    assert {json.loads(asked[1])["nodes_with_the_answer"] == [] for asked in judge.asked} == {True}


async def test_the_rows_of_a_database_are_diagnosed_as_those_in_memory_and_the_metrics_fit_their_tables(
    run_log, tmp_path
):
    some = WORLD.questions[:40]
    ids = {question.question_id for question in some}
    in_memory = await diagnose(run_log, WORLD.judge_llm(), some)
    path = tmp_path / "run.db"
    with HarnessLog(path, RUN) as log:
        for table, rows in ((PREDICTIONS, run_log.predictions), (TRACES, run_log.traces)):
            chosen = [typed(table, row) for row in rows if row["question_id"] in ids]
            await write_rows(log, table, chosen)
        stored = await diagnose(RunLogImpl(path), WORLD.judge_llm(), some)
        await write_rows(log, QUESTION_METRICS, [dataclasses.asdict(row) for row in stored.question_metrics])
        await write_rows(log, SPAN_EVALUATIONS, [dataclasses.asdict(row) for row in stored.span_metrics])
    assert stored == in_memory


def typed(table, row):
    """A row as it is written: all columns, flags as booleans, JSON text as values."""
    whole = dict.fromkeys(table.columns) | row
    flags = [name for name, kind in table.columns.items() if kind == "flag" and whole[name] is not None]
    parsed = {name: json.loads(whole[name]) for name in ("args", "node_ids") if whole.get(name)}
    return whole | {name: bool(whole[name]) for name in flags} | parsed
