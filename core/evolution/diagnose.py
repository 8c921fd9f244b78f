"""Diagnosis of a run: what each rollout did well and badly, why answers were wrong, and the case packs."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

from loguru import logger

from core.evolution.aggregates import pattern_counts, search_effectiveness, skill_compliance, tool_quality
from core.evolution.attribution import Diagnosed, attribute
from core.evolution.json_reply import UnreadableReplyError, extract_json_from_response
from core.evolution.judge import Judge
from core.evolution.metrics import rule_metrics, soft_score
from core.evolution.packs import skill_packs, system_pack, tool_packs
from core.evolution.protocols import RunLog, SkillStore
from core.evolution.rollouts import Rollout, Row, is_answered, read_rollouts
from core.evolution.skill_files import ServingFiles, serving_files
from core.evolution.types import DiagnosePrompts, DiagnosisResult, ErrorAttribution
from core.executor import AsyncioExecutor
from core.protocols import LLMProvider
from core.types import GeneratedQuestion

__all__ = ["UnreadableReplyError", "extract_json_from_response", "run_diagnosis", "soft_score"]


async def run_diagnosis(
    run_log: RunLog,
    run_id: str,
    *,
    questions: Sequence[GeneratedQuestion],
    skills: SkillStore,
    judge: LLMProvider | None,
    prompts: DiagnosePrompts,
    concurrency: int,
    max_steps: int | None = None,
) -> DiagnosisResult:
    """Diagnoses the rollouts that a run has of `questions`.

    Without a `judge` the rule metrics stand, and the source nodes that a question names and that were never
    opened count as missed. Rollouts that were errors are left out. `concurrency`: rollouts judged at once.
    `max_steps`: the step budget that the agent had; without it `budget_usage` and early submits are unknown.
    The result hangs on the rows and the judge's replies, not on their order.

    Raises `SkillError` naming a skill file that cannot be read, and the judge's `ProviderError` when it
    cannot be used at all (see `Judge`).
    """
    ids = [question.question_id for question in questions]
    predictions = await run_log.get_predictions(run_id, question_ids=ids)
    traces = await run_log.get_traces(run_id, question_ids=ids)
    files = serving_files(skills)
    rollouts = read_rollouts(predictions, traces, questions)
    if judge is None:
        cases = [_diagnosed_by_rule(rollout, max_steps) for rollout in rollouts]
    else:
        cases = await _judged(rollouts, max_steps, Judge(judge, prompts), files, concurrency)
    return _result(run_id, predictions, questions, cases, files)


def _diagnosed_by_rule(rollout: Rollout, max_steps: int | None) -> Diagnosed:
    metrics = rule_metrics(rollout, max_steps)
    return Diagnosed(rollout, metrics, attribution=None if rollout.correct else attribute(rollout, metrics))


async def _judged(
    rollouts: Sequence[Rollout], max_steps: int | None, judge: Judge, files: ServingFiles, concurrency: int
) -> list[Diagnosed]:
    async def diagnosed(rollout: Rollout) -> Diagnosed:
        spans = await judge.spans(rollout)
        skill = files.of(rollout.question.task_type)
        metrics = await judge.metrics(rollout, rule_metrics(rollout, max_steps), spans, skill)
        if rollout.correct:
            return Diagnosed(rollout, metrics, spans)
        attribution = attribute(rollout, metrics)
        if attribution.error_type == "reasoning_failure":
            kind = await judge.reasoning_kind(rollout)
            attribution = dataclasses.replace(attribution, reasoning_kind=kind)
        return Diagnosed(rollout, metrics, spans, attribution)

    # The first alone: a judge that cannot be used at all is found out by one call, not by many at once.
    cases = [await diagnosed(rollout) for rollout in rollouts[:1]]
    cases += [None] * (len(rollouts) - len(cases))
    others = AsyncioExecutor().run(diagnosed, rollouts[1:], concurrency=concurrency)
    async with aclosing(others):
        async for index, result in others:
            if isinstance(result, Exception):
                raise result
            cases[index + 1] = result
    if judge.unreadable:
        logger.warning("judge: {} of {} replies could not be read", judge.unreadable, judge.answered)
    return cases


def _result(
    run_id: str,
    predictions: Sequence[Row],
    questions: Sequence[GeneratedQuestion],
    cases: Sequence[Diagnosed],
    files: ServingFiles,
) -> DiagnosisResult:
    wrong = [case.attribution for case in cases if case.attribution]
    rolled_out = {row["question_id"] for row in predictions}
    compliance = skill_compliance(cases, files)
    return DiagnosisResult(
        run_id=run_id,
        filter_summary={
            "rollouts": len(predictions),
            "errors": sum(not is_answered(row) for row in predictions),
            "right": sum(case.rollout.correct for case in cases),
            "wrong": len(wrong),
        },
        error_attributions=tuple(wrong),
        attribution_distribution=_counted(wrong, "error_type"),
        reasoning_failure_types=_counted(wrong, "reasoning_kind"),
        tool_quality=tool_quality(cases),
        search_effectiveness=search_effectiveness(cases),
        skill_compliance=compliance,
        decision_patterns=pattern_counts(cases),
        skill_case_packs=skill_packs(
            cases,
            [question for question in questions if question.question_id in rolled_out],
            files,
            compliance,
        ),
        system_case_pack=system_pack(cases),
        tool_case_packs=tool_packs(cases),
        question_metrics=tuple(case.metrics for case in cases),
        span_metrics=tuple(span for case in cases for span in case.spans),
    )


def _counted(attributions: Sequence[ErrorAttribution], name: str) -> dict[str, int]:
    counts = Counter(getattr(attribution, name) for attribution in attributions)
    return {value: counts[value] for value in sorted(filter(None, counts))}
