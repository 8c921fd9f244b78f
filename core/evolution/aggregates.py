"""What the rollouts of a run have in common: by tool, task type, skill step and pattern of behaviour."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.evolution.attribution import Diagnosed, fails
from core.evolution.metrics import mean
from core.evolution.skill_files import ServingFiles
from core.evolution.types import SkillStepAdherence

EARLY_BUDGET_USAGE = 0.3


def _submits_early(case: Diagnosed) -> bool:
    usage = case.metrics.budget_usage
    return not case.rollout.correct and usage is not None and usage < EARLY_BUDGET_USAGE


def _at_least(name: str, bound: float) -> Callable[[Diagnosed], bool]:
    def reached(case: Diagnosed) -> bool:
        value = getattr(case.metrics, name)
        return value is not None and value >= bound

    return reached


PATTERNS: Mapping[str, Callable[[Diagnosed], bool]] = {
    "early_submit": _submits_early,
    "high_conf_wrong": lambda case: case.metrics.calibration == "high_conf_wrong",
    "low_conf_right": lambda case: case.metrics.calibration == "low_conf_right",
    "budget_exceeded": lambda case: case.rollout.stop_reason == "budget_exceeded",
    "timeout": lambda case: case.rollout.stop_reason == "timeout",
    "unreadable_replies": lambda case: case.rollout.stop_reason == "parse_error",
    "repeated_search": _at_least("keyword_repetition", 0.8),
    # One half is ordinary: each node found by a search and then opened.
    "repeated_visits": _at_least("repeat_visit_rate", 0.6),
    "no_evidence": lambda case: case.rollout.no_evidence,
    "confirmation_bias": lambda case: case.metrics.confirmation_bias is True,
}
"""Ways of deciding and searching that a system prompt could mend, and how each is recognised."""


def pattern_counts(cases: Iterable[Diagnosed]) -> dict[str, int]:
    """How often each pattern was seen, those never seen included."""
    cases = list(cases)
    return {name: sum(map(seen, cases)) for name, seen in PATTERNS.items()}


def tool_quality(cases: Sequence[Diagnosed]) -> dict[str, dict[str, Any]]:
    """By tool: calls, judged calls, calls that failed, mean completeness and hallucination."""
    calls: dict[str, int] = defaultdict(int)
    for case in cases:
        for tool, count in case.metrics.tool_usage.items():
            calls[tool] += count
    spans = [span for case in cases for span in case.spans]
    return {
        tool: {
            "calls": calls[tool],
            "judged": sum(span.completeness is not None or span.hallucination is not None for span in own),
            "failed": sum(map(fails, own)),
            "mean_completeness": mean(span.completeness for span in own),
            "mean_hallucination": mean(span.hallucination for span in own),
        }
        for tool in sorted(calls)
        for own in [[span for span in spans if span.tool_name == tool]]
    }


def search_effectiveness(cases: Sequence[Diagnosed]) -> dict[str, dict[str, Any]]:
    """By task type: how right and how wrong answers were searched for."""
    types = sorted({case.task_type for case in cases})
    return {
        task_type: {
            "right": _search([case for case in own if case.rollout.correct]),
            "wrong": _search([case for case in own if not case.rollout.correct]),
        }
        for task_type in types
        for own in [[case for case in cases if case.task_type == task_type]]
    }


def _search(cases: Sequence[Diagnosed]) -> dict[str, Any]:
    """Means over rollouts; `None` where nothing is known."""
    metrics = [case.metrics for case in cases]
    missed = [each.missed_nodes for each in metrics if each.missed_nodes is not None]
    return {
        "answers": len(cases),
        "steps": mean(case.rollout.steps_used for case in cases),
        "nodes_opened": mean(len(case.rollout.opened) for case in cases),
        "repeat_visit_rate": mean(each.repeat_visit_rate for each in metrics),
        "keyword_repetition": mean(each.keyword_repetition for each in metrics),
        "budget_usage": mean(each.budget_usage for each in metrics),
        "missed_a_node": mean(float(bool(nodes)) for nodes in missed),
    }


def skill_compliance(cases: Sequence[Diagnosed], files: ServingFiles) -> tuple[SkillStepAdherence, ...]:
    """Every judged step of every file, ordered by file and by the step's place in it."""
    outcomes: dict[tuple[str, str], dict[bool, list[bool]]] = {}
    for case in cases:
        file = files.of(case.task_type)
        for step, followed in (case.metrics.skill_adherence or {}).items():
            by_step = outcomes.setdefault((file.name, step), {True: [], False: []})
            by_step[followed].append(case.rollout.correct)
    places = {
        (file.name, step): (file.name, place)
        for file in (*files.by_type.values(), files.default)
        if file is not None
        for place, step in enumerate(file.steps)
    }
    return tuple(
        SkillStepAdherence(
            target_file=name,
            step=step,
            followed=len(by_step[True]),
            not_followed=len(by_step[False]),
            accuracy_followed=mean(map(float, by_step[True])),
            accuracy_not_followed=mean(map(float, by_step[False])),
        )
        for (name, step), by_step in sorted(outcomes.items(), key=lambda entry: places[entry[0]])
    )
