"""What rows alone tell of a rollout, without a language model."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from core.evolution.rollouts import Rollout, TraceStep, decoded
from core.evolution.types import Calibration, QuestionMetrics, SpanMetrics

HIGH_CONFIDENCE, LOW_CONFIDENCE = 0.7, 0.5


def rule_metrics(rollout: Rollout, max_steps: int | None) -> QuestionMetrics:
    """The metrics that need no judge; the judged ones are `None`, but for missed nodes where the question
    names its source nodes.

    `budget_usage` is `None` without `max_steps`; a rate over nothing is `None` too.
    """
    steps, visits = rollout.steps, [node_id for step in rollout.steps for node_id in step.node_ids]
    used = rollout.steps_used
    return QuestionMetrics(
        question_id=rollout.question.question_id,
        task_type=rollout.question.task_type,
        correct=rollout.correct,
        stop_reason=rollout.stop_reason,
        confidence=rollout.confidence,
        format_compliance=mean([float(bool(step.tool)) for step in steps]),
        budget_usage=None if max_steps is None or used is None else used / max_steps,
        calibration=_calibration(rollout.confidence, rollout.correct),
        repeat_visit_rate=1 - len(set(visits)) / len(visits) if visits else None,
        keyword_repetition=_keyword_repetition(steps),
        level_jumps=">".join(str(level) for step in steps if (level := _level_opened(step)) is not None),
        tool_usage=dict(sorted(Counter(step.tool for step in steps if step.tool).items())),
        missed_nodes=missed_sources(rollout),
    )


def missed_sources(rollout: Rollout) -> tuple[str, ...] | None:
    """The source nodes that were never opened; `None` when the question names none."""
    sources = rollout.question.source_nodes
    return tuple(node for node in sources if node not in rollout.opened) if sources else None


def with_spans(metrics: QuestionMetrics, spans: Iterable[SpanMetrics]) -> QuestionMetrics:
    """The metrics with what the judged calls say together."""
    spans = list(spans)
    return dataclasses.replace(
        metrics,
        mean_completeness=mean([span.completeness for span in spans]),
        max_hallucination=max(known([span.hallucination for span in spans]), default=None),
    )


def soft_score(spans: Iterable[SpanMetrics]) -> float | None:
    """Mean over the judged tool calls of a question of completeness x (1 - hallucination), in [0, 1].

    `None` when no call has both.
    """
    return mean(
        [
            span.completeness * (1 - span.hallucination)
            for span in spans
            if span.completeness is not None and span.hallucination is not None
        ]
    )


def known(values: Iterable[float | None]) -> list[float]:
    """The values that are there."""
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there, `None` when there are none."""
    present = known(values)
    return sum(present) / len(present) if present else None


def _calibration(confidence: float | None, correct: bool) -> Calibration | None:
    if confidence is None:
        return None
    if not correct and confidence >= HIGH_CONFIDENCE:
        return "high_conf_wrong"
    return "low_conf_right" if correct and confidence < LOW_CONFIDENCE else "fitting"


def _keyword_repetition(steps: Sequence[TraceStep]) -> float | None:
    queries = [query for step in steps if isinstance(query := step.args.get("query"), str)]
    return max((_similarity(*pair) for pair in pairwise(queries)), default=None)


def _similarity(first: str, second: str) -> float:
    """Jaccard similarity of the character trigrams, letter case and outer blanks aside."""
    one, other = _trigrams(first), _trigrams(second)
    return len(one & other) / len(one | other)


def _trigrams(text: str) -> set[str]:
    folded = " ".join(text.casefold().split())
    return {folded[start : start + 3] for start in range(max(1, len(folded) - 2))}


def _level_opened(step: TraceStep) -> int | None:
    """The level of the first node that a call opened: the node asked for, or the best hit."""
    answer = decoded(step.output) if step.node_ids else None
    nodes = answer.get("nodes") if isinstance(answer, dict) else None
    first = nodes[0] if isinstance(nodes, list) and nodes else None
    return first.get("level") if isinstance(first, dict) else None
