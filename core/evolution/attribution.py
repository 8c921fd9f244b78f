"""Why an answer was wrong: the first rule that matches."""

from dataclasses import dataclass

from core.evolution.rollouts import Rollout
from core.evolution.types import ErrorAttribution, ErrorType, QuestionMetrics, SpanMetrics

LEAST_COMPLETENESS, MOST_HALLUCINATION = 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """One rollout with all that is known about it; `attribution` is there for wrong answers."""

    rollout: Rollout
    metrics: QuestionMetrics
    spans: tuple[SpanMetrics, ...] = ()
    attribution: ErrorAttribution | None = None

    @property
    def question_id(self) -> str:
        return self.metrics.question_id

    @property
    def task_type(self) -> str:
        return self.metrics.task_type


def attribute(rollout: Rollout, metrics: QuestionMetrics) -> ErrorAttribution:
    """The attribution of a wrong answer, its `reasoning_kind` still open.

    `severity` is the mean of how badly the step failed that failed and how sure the agent was of its answer
    (1/2 where it did not say): (size + confidence) / 2. The size is the share that was not extracted or was
    made up, the share of source nodes never opened, 1 for a reasoning failure, and 1/2 for `mixed`.
    """
    error_type, size, detail = _cause(rollout, metrics)
    confidence = 0.5 if metrics.confidence is None else metrics.confidence
    return ErrorAttribution(
        question_id=metrics.question_id,
        task_type=metrics.task_type,
        error_type=error_type,
        severity=(size + confidence) / 2,
        detail=detail,
    )


def fails(span: SpanMetrics) -> bool:
    """True for a call that brought too little, or made something up."""
    return _too_little(span.completeness) or _made_up(span.hallucination)


def _cause(rollout: Rollout, metrics: QuestionMetrics) -> tuple[ErrorType, float, str]:
    """(type, size, ground in words)."""
    completeness, hallucination, missed = (
        metrics.mean_completeness,
        metrics.max_hallucination,
        metrics.missed_nodes,
    )
    if _too_little(completeness):
        return "extraction_failure", 1 - completeness, f"calls gave {completeness:.0%} of what was needed"
    if _made_up(hallucination):
        return "extraction_failure", hallucination, f"{hallucination:.0%} of what a call gave was made up"
    if missed:
        sources = rollout.question.source_nodes
        size = len(missed) / len(sources) if sources else 1.0
        return "search_failure", size, f"never opened {', '.join(missed)}"
    if metrics.evidence_sufficient:
        return "reasoning_failure", 1.0, "what was read was enough to answer"
    if metrics.evidence_sufficient is None:
        return "mixed", 0.5, "nothing was found missing, and whether it was enough was not judged"
    return "mixed", 0.5, "nothing was found missing, but what was read was not enough"


def _too_little(completeness: float | None) -> bool:
    return completeness is not None and completeness < LEAST_COMPLETENESS


def _made_up(hallucination: float | None) -> bool:
    return hallucination is not None and hallucination > MOST_HALLUCINATION
