"""A small case pack that tests of proposers and guards share."""

from core.evolution.types import CaseSample, SkillCasePack


def case(
    question_id,
    question,
    options=("A. a red tin car", "B. the mayor's hat"),
    *,
    correct=False,
    answer="A",
    trace=(),
):
    return CaseSample(
        question_id=question_id,
        video_id="film-1",
        task_type="order",
        question=question,
        options=tuple(options),
        answer=answer,
        prediction="B",
        correct=correct,
        error_type=None if correct else "search_failure",
        trace=tuple(trace),
    )


def pack(failures, successes=(), *, target_file="order.md"):
    cases = (*failures, *successes)
    return SkillCasePack(
        target_file=target_file,
        task_types=("order",),
        stats={},
        failure_cases=tuple(failures),
        success_cases=tuple(successes),
        evidence_ids=tuple(sample.question_id for sample in cases),
    )
