"""The values that cross module borders. All are frozen; data from outside is validated on entry.

`GeneratedQuestion` comes from files that people write, so it is a pydantic dataclass and checks itself;
the others are made inside and stay plain.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import ConfigDict, ValidationInfo, field_validator, model_validator
from pydantic.dataclasses import dataclass as validated_dataclass

AnswerKind = Literal["choice", "text", "number"]
Role = Literal["system", "user", "assistant"]
CallRole = Literal["agent", "tool", "judge", "evolver", "vlm"]
StopReason = Literal["finished", "budget_exceeded", "parse_error", "timeout", "error"]

OPTION_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTERED_OPTION = re.compile(r"\s*\(?([A-Z])[.):]\s*(.*)", re.DOTALL)


def lettered_options(options: Sequence[str]) -> dict[str, str]:
    """Letter -> text of each option: `("A. a car", "B. a cat")` gives `{"A": "a car", "B": "a cat"}`.

    Letters written in the options count only if they are the first ones of the alphabet, each once; else the
    options are lettered in order and keep their whole text, so that initials ("J. Smith") or a "C: drive"
    are not taken for letters.
    """
    written = [_LETTERED_OPTION.fullmatch(option) for option in options]
    if all(written) and {match[1] for match in written} == set(OPTION_LETTERS[: len(options)]):
        return {match[1]: match[2].strip() for match in written}
    return dict(zip(OPTION_LETTERS, map(str.strip, options), strict=False))


@validated_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GeneratedQuestion:
    """One question about one video.

    `answer_kind` decides how it is graded: `choice` has at least two options and `answer` is the letter of
    one; `text` and `number` have no options and `answer` is the reference (several are separated by a line
    break). `source_nodes` are the places of the tree where the answer stands. Questions with the same
    `group_id` must never be parted between pools; an empty one joins nothing.

    Raises `ValueError` naming the question and the field when the item breaks a rule.
    """

    question_id: str
    video_id: str
    task_type: str
    question: str
    options: tuple[str, ...]
    answer: str
    source_nodes: tuple[str, ...] = ()
    difficulty: str = "medium"
    answer_kind: AnswerKind = "choice"
    group_id: str = ""

    @field_validator("question_id", "video_id", "task_type", "question")
    @classmethod
    def _not_blank(cls, value: str, info: ValidationInfo) -> str:
        if not value.strip():
            named = info.data.get("question_id", "")
            raise ValueError(f"question {named!r}: {info.field_name} is blank")
        return value

    @model_validator(mode="after")
    def _answer_fits_its_kind(self) -> "GeneratedQuestion":
        problem = _answer_problem(self)
        if problem:
            raise ValueError(f"question {self.question_id!r}: {problem}")
        return self


def _answer_problem(question: GeneratedQuestion) -> str:
    """What is wrong with options and answer, as `field: reason`; empty when nothing is."""
    if question.answer_kind != "choice":
        if question.options:
            return f"options: a {question.answer_kind} question has none, found {len(question.options)}"
        if not question.answer.strip():
            return "answer: the reference is blank"
        return _number_problem(question.answer) if question.answer_kind == "number" else ""
    if len(question.options) < 2:
        return f"options: a choice question needs at least two, found {len(question.options)}"
    if len(question.options) > len(OPTION_LETTERS):
        return f"options: at most {len(OPTION_LETTERS)}, found {len(question.options)}"
    texts = lettered_options(question.options)
    if blank := [letter for letter, text in texts.items() if not text]:
        return f"options: {blank[0]} is blank"
    if len(set(texts.values())) < len(texts):
        return "options: two of them are the same"
    if question.answer not in texts:
        problem = f"answer: {question.answer!r} is not the letter of an option ({', '.join(texts)})"
        return problem + _meant_letter(question.answer, texts)
    return ""


def _meant_letter(answer: str, texts: Mapping[str, str]) -> str:
    """The mend for an answer that is the text of an option instead of its letter."""
    said = answer.strip().casefold()
    meant = [letter for letter, text in texts.items() if text.casefold() == said]
    return f"; that is option {meant[0]}: write {meant[0]}" if meant else ""


def _number_problem(answer: str) -> str:
    for reference in answer.splitlines():
        try:
            value = float(reference)
        except ValueError:
            return f"answer: {reference!r} is not a number"
        if value != value or value in (float("inf"), float("-inf")):
            return f"answer: {reference!r} is not a finite number"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"role: {self.role!r} is none of {', '.join(get_args(Role))}")


@dataclasses.dataclass(frozen=True, slots=True)
class LLMResponse:
    """What a provider answered. Token counts are `None` where it did not say; latency in seconds."""

    content: str
    reasoning: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str = ""
    latency_s: float = 0.0
    finish_reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One turn: what the model thought, its tool call (`{"tool": name, "args": {...}}`) and the output."""

    thought: str = ""
    reflect: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None
    tool_call: Mapping[str, Any] | None = None
    tool_output: str = ""
    raw_content: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LoopResult:
    """How a rollout ended.

    `result` holds `answer`, `confidence`, `evidence` and `reasoning` as given to `submit_answer`, or is
    `None` when the agent ended without an answer. Token counts are sums over the calls; `None` where the
    model does not count. `no_evidence` marks an answer drawn without having read anything.
    """

    result: Mapping[str, Any] | None
    steps: tuple[Step, ...]
    steps_used: int
    prompt_tokens: int | None
    completion_tokens: int | None
    stop_reason: StopReason
    no_evidence: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LLMCall:
    """What telemetry keeps of one call, attempts that failed included.

    `scope` names the rollout or decision that the call served, `request_hash` its content. `cost` is in the
    currency of the price table, `None` where the model has no price. `error` is empty on success.
    """

    role: CallRole
    scope: str
    request_hash: str
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float = 0.0
    attempts: int = 1
    error: str = ""
    cost: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """One row of the `predictions` table: how one rollout of one question ended.

    `correct` is `False` when the agent ended without an answer and `None` when the rollout was an error:
    an infrastructure failure is not a wrong answer. `score` is the grader's, in [0, 1]. Two rows stand for
    the same thing only if `skill_hash`, `prompts_hash` and `agent_fingerprint` agree; `source_run_id` says
    from which run a copied row came.
    """

    run_id: str
    question_id: str
    video_id: str
    task_type: str
    answer: str
    prediction: str | None = None
    correct: bool | None = None
    score: float | None = None
    confidence: float | None = None
    stop_reason: StopReason = "error"
    steps_used: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float | None = None
    no_evidence: bool = False
    skill_hash: str = ""
    prompts_hash: str = ""
    agent_fingerprint: str = ""
    source_run_id: str | None = None
    evidence: str | None = None
    reasoning: str | None = None
    error: str | None = None
