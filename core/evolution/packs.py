"""Case packs: the examples and statistics from which proposers make edits.

Everything in a pack is a plain value and bounded in length, so that packs can be kept and shown.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.evolution.aggregates import PATTERNS, pattern_counts, search_effectiveness
from core.evolution.attribution import MOST_HALLUCINATION, Diagnosed, fails
from core.evolution.metrics import mean
from core.evolution.rollouts import shortened, told_step
from core.evolution.skill_files import ServingFiles
from core.evolution.types import (
    CaseSample,
    SkillCasePack,
    SkillStepAdherence,
    SpanMetrics,
    SystemCasePack,
    ToolCasePack,
)
from core.types import GeneratedQuestion

FAILURES_PER_ERROR_TYPE = 2
FAILURES_PER_PATTERN = 2
FEWEST_SUCCESSES = 2
LEAST_PATTERN_COUNT = 3
MOST_FAILING_SPANS, MOST_GOOD_SPANS = 4, 2
TRACE_CHARACTERS, SPAN_CHARACTERS = 700, 3_000
"""Longest text of a case's trace and of a tool call in a pack."""

_SHOWN_APART = ("question_id", "task_type", "correct")


def skill_packs(
    cases: Sequence[Diagnosed],
    asked: Iterable[GeneratedQuestion],
    files: ServingFiles,
    compliance: Sequence[SkillStepAdherence],
) -> tuple[SkillCasePack, ...]:
    """A pack for each file whose task types have a wrong answer, in the order of its first type.

    asked: all questions of the run, those without an answer included.
    """
    types_of: dict[str, list[str]] = defaultdict(list)
    ids_of: dict[str, list[str]] = defaultdict(list)
    for question in asked:
        ids_of[question.task_type].append(question.question_id)
    for task_type in sorted(ids_of):
        if file := files.of(task_type):
            types_of[file.name].append(task_type)
    packs = (
        _skill_pack(
            name,
            tuple(task_types),
            [case for case in cases if case.task_type in task_types],
            evidence_ids=sorted(question_id for task_type in task_types for question_id in ids_of[task_type]),
            compliance=[entry for entry in compliance if entry.target_file == name],
        )
        for name, task_types in types_of.items()
    )
    return tuple(pack for pack in packs if pack.failure_cases)


def system_pack(cases: Sequence[Diagnosed]) -> SystemCasePack | None:
    """A pack of the patterns seen at least `LEAST_PATTERN_COUNT` times, `None` when there is no such one."""
    frequent = {name: count for name, count in pattern_counts(cases).items() if count >= LEAST_PATTERN_COUNT}
    if not frequent:
        return None
    chosen: dict[str, CaseSample] = {}
    for name in frequent:
        wrong = [case for case in cases if case.attribution and PATTERNS[name](case)]
        for case in sorted(wrong, key=_gravity)[:FAILURES_PER_PATTERN]:
            chosen.setdefault(case.question_id, _sample(case, f"shows {name}"))
    failures = tuple(chosen.values())
    return SystemCasePack(
        stats={**_counts(cases), "patterns": frequent, "search": search_effectiveness(cases)},
        failure_cases=failures,
        success_cases=_successes(cases, len(failures)),
    )


def tool_packs(cases: Sequence[Diagnosed]) -> tuple[ToolCasePack, ...]:
    """A pack for each tool that has a failing call, by name."""
    spans: dict[str, list[tuple[Diagnosed, SpanMetrics]]] = defaultdict(list)
    for case in cases:
        for span in case.spans:
            spans[span.tool_name].append((case, span))
    packs = (_tool_pack(tool, spans[tool]) for tool in sorted(spans))
    return tuple(pack for pack in packs if pack.failure_spans)


def _skill_pack(
    name: str,
    task_types: tuple[str, ...],
    cases: Sequence[Diagnosed],
    *,
    evidence_ids: Sequence[str],
    compliance: Sequence[SkillStepAdherence],
) -> SkillCasePack:
    failures, successes = [], []
    for task_type in task_types:
        own = [case for case in cases if case.task_type == task_type]
        worst = _worst_by_error_type(own)
        failures += worst
        successes += _successes(own, len(worst))
    stats = {
        **_counts(cases),
        "patterns": {pattern: count for pattern, count in pattern_counts(cases).items() if count},
        "search": search_effectiveness(cases),
        "skill_steps": [
            {
                "step": entry.step,
                "followed": entry.followed,
                "not_followed": entry.not_followed,
                "gain": entry.gain,
            }
            for entry in compliance
        ],
    }
    return SkillCasePack(name, task_types, stats, tuple(failures), tuple(successes), tuple(evidence_ids))


def _counts(cases: Sequence[Diagnosed]) -> dict[str, Any]:
    right = sum(case.rollout.correct for case in cases)
    types = Counter(case.attribution.error_type for case in cases if case.attribution)
    return {"right": right, "wrong": len(cases) - right, "error_types": dict(sorted(types.items()))}


def _worst_by_error_type(cases: Sequence[Diagnosed]) -> list[CaseSample]:
    by_type: dict[str, list[Diagnosed]] = defaultdict(list)
    for case in sorted(cases, key=_gravity):
        if case.attribution:
            by_type[case.attribution.error_type].append(case)
    return [
        _sample(case, f"among the worst of {error_type}: {case.attribution.detail}")
        for error_type in sorted(by_type)
        for case in by_type[error_type][:FAILURES_PER_ERROR_TYPE]
    ]


def _gravity(case: Diagnosed) -> tuple[float, str]:
    """Sorts the worst first, equals by id."""
    return (-case.attribution.severity if case.attribution else 0.0), case.question_id


def _successes(cases: Sequence[Diagnosed], failures: int) -> tuple[CaseSample, ...]:
    """The right answers given with most confidence, equals by id."""

    def order(case: Diagnosed) -> tuple[float, str]:
        confidence = case.metrics.confidence
        return (0.0 if confidence is None else -confidence), case.question_id

    right = sorted((case for case in cases if case.rollout.correct), key=order)
    wanted = max(FEWEST_SUCCESSES, failures // 2)
    return tuple(_sample(case, "right, for comparison") for case in right[:wanted])


def _sample(case: Diagnosed, selection_reason: str) -> CaseSample:
    question = case.rollout.question
    return CaseSample(
        question_id=question.question_id,
        video_id=question.video_id,
        task_type=question.task_type,
        question=question.question,
        options=question.options,
        answer=question.answer,
        prediction=case.rollout.prediction,
        correct=case.rollout.correct,
        error_type=case.attribution.error_type if case.attribution else None,
        selection_reason=selection_reason,
        metrics=_plain(case),
        trace=tuple(_plain_value(told_step(step, TRACE_CHARACTERS)) for step in case.rollout.steps),
    )


def _plain(case: Diagnosed) -> dict[str, Any]:
    """The metrics that are known, and the kind of a faulty reasoning."""
    metrics = {
        name: _plain_value(value)
        for name, value in dataclasses.asdict(case.metrics).items()
        if value is not None and name not in _SHOWN_APART
    }
    kind = case.attribution.reasoning_kind if case.attribution else None
    return {**metrics, "reasoning_kind": kind} if kind else metrics


def _plain_value(value: Any) -> Any:
    """The value as JSON would give it back."""
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _tool_pack(tool: str, spans: Sequence[tuple[Diagnosed, SpanMetrics]]) -> ToolCasePack:
    failing = sorted((pair for pair in spans if fails(pair[1])), key=_span_gravity)
    good = sorted((pair for pair in spans if _is_good(pair[1])), key=_span_gravity)
    judged = [span for _, span in spans]
    return ToolCasePack(
        tool_name=tool,
        target_files=_prompt_files(tool, [span for _, span in failing]),
        stats={
            "calls": len(spans),
            "failed": len(failing),
            "mean_completeness": mean(span.completeness for span in judged),
            "mean_hallucination": mean(span.hallucination for span in judged),
        },
        failure_spans=tuple(_told_span(*pair) for pair in failing[:MOST_FAILING_SPANS]),
        success_spans=tuple(_told_span(*pair) for pair in good[:MOST_GOOD_SPANS]),
    )


def _prompt_files(tool: str, failing: Sequence[SpanMetrics]) -> tuple[str, ...]:
    """The tool's prompt files, first the one that most failing calls speak against: that which extracts for
    what is left out, that which checks the extract for what is made up."""
    made_up = sum((span.hallucination or 0.0) > MOST_HALLUCINATION for span in failing)
    files = (f"{tool}_extract.md", f"{tool}_verify.md")
    return files[::-1] if 2 * made_up > len(failing) else files


def _span_gravity(pair: tuple[Diagnosed, SpanMetrics]) -> tuple[float, str, int]:
    """Sorts the worst first, equals by question and step."""
    span = pair[1]
    left_out = 0.0 if span.completeness is None else 1 - span.completeness
    made_up = 0.0 if span.hallucination is None else span.hallucination
    return -max(left_out, made_up), span.question_id, span.step


def _is_good(span: SpanMetrics) -> bool:
    """True for a call that was judged in both ways and fails in neither."""
    return span.completeness is not None and span.hallucination is not None and not fails(span)


def _told_span(case: Diagnosed, span: SpanMetrics) -> dict[str, Any]:
    step = next(step for step in case.rollout.steps if step.number == span.step)
    told = {**dataclasses.asdict(span), "args": step.args, "output": step.output}
    return _plain_value(shortened(told, SPAN_CHARACTERS))
