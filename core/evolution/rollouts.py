"""Rollouts as diagnosis reads them: a question, how it ended and what was done, made from table rows."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.agent.submission import SUBMIT
from core.types import GeneratedQuestion

Row = Mapping[str, Any]

_NO_MATERIAL = (SUBMIT, "read_skill")


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One row of `traces`. `tool` is empty where the reply was no action; `args` is then empty too."""

    number: int
    tool: str
    args: Mapping[str, Any]
    node_ids: tuple[str, ...]
    output: str
    thought: str
    reflect: Any
    plan: Any
    raw: str

    @property
    def brings_material(self) -> bool:
        """True for a tool call whose output tells something of the question's world."""
        return bool(self.tool) and self.tool not in _NO_MATERIAL


@dataclass(frozen=True, slots=True)
class Rollout:
    """One question's rollout that ended right or wrong, with its steps in order."""

    question: GeneratedQuestion
    correct: bool
    prediction: str | None
    confidence: float | None
    stop_reason: str
    steps_used: int | None
    no_evidence: bool
    reasoning: str
    steps: tuple[TraceStep, ...]

    @property
    def opened(self) -> frozenset[str]:
        """The ids of all nodes whose text was read."""
        return frozenset(node_id for step in self.steps for node_id in step.node_ids)


def is_answered(prediction: Row) -> bool:
    """False for rollouts that ended for a reason that is not the agent's: they say nothing about it."""
    return prediction["stop_reason"] != "error" and prediction["correct"] is not None


def read_rollouts(
    predictions: Iterable[Row], traces: Iterable[Row], questions: Sequence[GeneratedQuestion]
) -> list[Rollout]:
    """The rollouts of `questions` that were answered, in the order of question ids.

    Rows are those of the tables `predictions` and `traces`; columns that hold lists or mappings may be JSON
    text, flags may be 0 and 1.
    """
    by_id = {question.question_id: question for question in questions}
    steps: dict[str, list[TraceStep]] = defaultdict(list)
    for row in traces:
        steps[row["question_id"]].append(_read_step(row))
    return [
        _read_rollout(row, by_id[row["question_id"]], steps[row["question_id"]])
        for row in sorted(predictions, key=lambda row: row["question_id"])
        if row["question_id"] in by_id and is_answered(row)
    ]


def _read_rollout(row: Row, question: GeneratedQuestion, steps: list[TraceStep]) -> Rollout:
    return Rollout(
        question=question,
        correct=bool(row["correct"]),
        prediction=row["prediction"],
        confidence=row["confidence"],
        stop_reason=row["stop_reason"],
        steps_used=row["steps_used"],
        no_evidence=bool(row["no_evidence"]),
        reasoning=row["reasoning"] or "",
        steps=tuple(sorted(steps, key=lambda step: step.number)),
    )


def _read_step(row: Row) -> TraceStep:
    args, node_ids = decoded(row["args"]), decoded(row["node_ids"])
    return TraceStep(
        number=row["step"],
        tool=row["tool"] or "",
        args=args if isinstance(args, Mapping) else {},
        node_ids=tuple(node_ids) if isinstance(node_ids, list | tuple) else (),
        output=row["output"] or "",
        thought=row["thought"] or "",
        reflect=decoded(row["reflect"]),
        plan=decoded(row["plan"]),
        raw=row["raw"] or "",
    )


def decoded(value: Any) -> Any:
    """What JSON text says; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def shortened(value: Any, limit: int) -> Any:
    """The same value with every text in it cut to about `limit` characters, out of its middle."""
    if isinstance(value, str):
        if len(value) <= limit:
            return value
        return f"{value[: limit * 2 // 3]} [... cut ...] {value[-limit // 3 :]}"
    if isinstance(value, Mapping):
        return {key: shortened(item, limit) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item, limit) for item in value]
    return value


def told_step(step: TraceStep, limit: int) -> dict[str, Any]:
    """A step as judges and proposers are shown it, named as in the `traces` table; what is empty is left out.

    What the model wrote (`raw`) repeats the rest, unless it was no action.
    """
    fields = {
        "tool": step.tool,
        "args": step.args,
        "node_ids": step.node_ids,
        "thought": step.thought,
        "reflect": step.reflect,
        "plan": step.plan,
        "raw": "" if step.tool else step.raw,
        "output": step.output,
    }
    return {
        "step": step.number,
        **{name: shortened(value, limit) for name, value in fields.items() if value},
    }
