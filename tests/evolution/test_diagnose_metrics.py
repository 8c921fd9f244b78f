"""What is measured without a judge, the causes of wrong answers, and the steps of a skill."""

import dataclasses

import pytest
from diagnosis_runs import make_question, prediction_row, skill_text, trace_row
from hypothesis import given
from hypothesis import strategies as st

from core.evolution.attribution import attribute
from core.evolution.metrics import rule_metrics, soft_score, with_spans
from core.evolution.rollouts import read_rollouts
from core.evolution.skill_files import skill_steps
from core.evolution.types import QuestionMetrics, SpanMetrics

QUESTION = make_question("q1", source_nodes=("m3", "m4"))


def rollout(correct=False, traces=(), question=QUESTION, **columns):
    (read,) = read_rollouts([prediction_row(question, correct, **columns)], traces, [question])
    return read


TRACES = [
    trace_row(QUESTION, 3, "search_similar", {"query": "Blue Hat"}, [("m3", 3), ("m1", 3)]),
    trace_row(QUESTION, 1, "view_node", {"node_id": "s1"}, [("s1", 1), ("e1", 2)]),
    trace_row(QUESTION, 2, "search_similar", {"query": "blue  hat"}, [("m1", 3)]),
    trace_row(QUESTION, 4, None, raw="{no action"),
    trace_row(QUESTION, 5, "submit_answer", {"answer": "B"}, output="{}", node_ids="[]"),
]


def test_rule_metrics_of_a_rollout():
    metrics = rule_metrics(rollout(traces=TRACES, confidence=0.7, steps_used=4), max_steps=16)
    assert metrics == QuestionMetrics(
        question_id="q1",
        task_type="order",
        correct=False,
        stop_reason="finished",
        confidence=0.7,
        format_compliance=4 / 5,
        budget_usage=4 / 16,
        calibration="high_conf_wrong",
        repeat_visit_rate=1 - 4 / 5,
        keyword_repetition=1.0,
        level_jumps="1>3>3",
        tool_usage={"search_similar": 2, "submit_answer": 1, "view_node": 1},
        missed_nodes=("m4",),
    )


def test_what_cannot_be_measured_is_none_and_not_zero():
    question = make_question("q2", source_nodes=())
    metrics = rule_metrics(rollout(question=question, confidence=None, steps_used=0), max_steps=None)
    unknown = {field.name for field in dataclasses.fields(metrics) if getattr(metrics, field.name) is None}
    assert {
        "format_compliance", "budget_usage", "calibration", "repeat_visit_rate", "keyword_repetition",
        "missed_nodes", "mean_completeness", "evidence_sufficient",
    } <= unknown  # fmt: skip
    assert rule_metrics(rollout(steps_used=0), max_steps=5).budget_usage == 0


@pytest.mark.parametrize(
    ("correct", "confidence", "calibration"),
    [
        (False, 0.7, "high_conf_wrong"),
        (False, 0.69, "fitting"),
        (True, 0.49, "low_conf_right"),
        (True, 0.5, "fitting"),
        (True, 0.0, "low_conf_right"),
        (False, None, None),
    ],
)
def test_calibration(correct, confidence, calibration):
    assert rule_metrics(rollout(correct, confidence=confidence), None).calibration == calibration


@pytest.mark.parametrize(
    ("queries", "repetition"),
    [
        (["a"], None),
        (["hat", "hat"], 1.0),
        (["hat", "cow"], 0.0),
        (["hat", "cow", "cow", "hat"], 1.0),
        (["", ""], 1.0),
    ],
)
def test_keyword_repetition_is_that_of_the_most_alike_neighbours(queries, repetition):
    traces = [trace_row(QUESTION, n, "search_similar", {"query": query}) for n, query in enumerate(queries)]
    assert rule_metrics(rollout(traces=traces), None).keyword_repetition == repetition


def test_rows_are_read_whether_columns_are_json_text_or_values():
    values = [{**row, "args": {"query": "x"}, "node_ids": ["m1"]} for row in TRACES[:1]]
    texts = [{**row, "args": '{"query": "x"}', "node_ids": '["m1"]'} for row in TRACES[:1]]
    assert rollout(traces=values) == rollout(traces=texts)
    assert rollout(correct=1) == rollout(correct=True)


@pytest.mark.parametrize("damage", ["not json", "5", None, "[1"])
def test_a_damaged_column_costs_itself_alone(damage):
    step = rollout(traces=[{**TRACES[0], "args": damage, "output": damage}]).steps[0]
    assert (step.tool, dict(step.args), step.node_ids) == ("search_similar", {}, ("m3", "m1"))


def span(completeness=None, hallucination=None):
    return SpanMetrics("q1", 1, "view_node", completeness, hallucination)


def test_soft_score_is_the_mean_over_judged_calls():
    assert soft_score([span(1.0, 0.5), span(0.5, 0.0), span(None, 0.0), span(1.0, None)]) == 0.5
    assert soft_score([span(0.0, 1.0)]) == 0.0
    assert soft_score([span(0.5, None)]) is None
    assert soft_score([]) is None


# Attribution: the first rule that matches


def cause(missed=None, sufficient=None, spans=(), **columns):
    wrong = rollout(**columns)
    metrics = dataclasses.replace(
        rule_metrics(wrong, None), missed_nodes=missed, evidence_sufficient=sufficient
    )
    return attribute(wrong, with_spans(metrics, spans))


@pytest.mark.parametrize(
    ("spans", "missed", "sufficient", "error_type"),
    [
        ([span(0.4, 0.0)], ("m3",), True, "extraction_failure"),
        ([span(1.0, 0.0), span(1.0, 0.6)], ("m3",), True, "extraction_failure"),
        ([span(0.5, 0.5)], ("m3",), True, "search_failure"),
        ([span(0.0, 0.0), span(1.0, 0.0)], ("m3",), True, "search_failure"),
        ([span(None, None)], ("m3",), None, "search_failure"),
        ([span(1.0, 0.0)], (), True, "reasoning_failure"),
        ([], None, True, "reasoning_failure"),
        ([], (), False, "mixed"),
        ([], None, None, "mixed"),
    ],
)
def test_the_first_rule_that_matches_names_the_cause(spans, missed, sufficient, error_type):
    attribution = cause(missed, sufficient, spans)
    assert attribution.error_type == error_type
    assert attribution.detail


shares = st.none() | st.floats(0, 1)


@given(
    st.lists(st.builds(span, shares, shares), max_size=3),
    st.sampled_from([None, (), ("m3",), ("m3", "m4")]),
    st.sampled_from([None, True, False]),
    shares,
)
def test_severity_lies_between_0_and_1_and_grows_with_confidence(spans, missed, sufficient, confidence):
    attribution = cause(missed, sufficient, spans, confidence=confidence)
    assert 0 <= attribution.severity <= 1
    assert attribution.severity <= cause(missed, sufficient, spans, confidence=1.0).severity


# Steps of a skill


def test_the_steps_of_a_skill_are_its_top_level_items():
    text = skill_text("order", ["First.", "Then.", "Then."]) + "\n".join(
        [
            "1. Numbered.",
            "   - below another",
            "* Starred.",
            "```",
            "- code",
            "```",
            "<!-- momentum:start -->",
            "- guidance",
            "<!-- momentum:end -->",
        ]
    )
    assert skill_steps(text) == ("First.", "Then.", "Numbered.", "Starred.")
    assert skill_steps(text.replace("\n", "\r\n")) == skill_steps(text)
