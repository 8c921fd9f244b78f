"""What a judging language model says of a rollout: call by call, as a whole, and why its reasoning failed.

Whatever cannot be read in a reply is not judged, field by field: `None`, and everything else stands.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from loguru import logger
from pydantic import BaseModel, Field, ValidationError, WrapValidator

from core.evolution.json_reply import UnreadableReplyError, extract_json_from_response
from core.evolution.metrics import with_spans
from core.evolution.rollouts import Rollout, TraceStep, told_step
from core.evolution.skill_files import SkillFile
from core.evolution.types import DiagnosePrompts, QuestionMetrics, ReasoningKind, SpanMetrics
from core.protocols import LLMProvider, ProviderError
from core.types import Message, lettered_options

MOST_FAILING_ROLLOUTS = 3
SPAN_CHARACTERS, TRACE_CHARACTERS = 12_000, 3_000
"""Longest text that is shown of the call to judge, and of each of a whole rollout's texts."""


def _none_if_invalid(value: Any, validate: Any) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


_OrNone = WrapValidator(_none_if_invalid)
_Share = Annotated[Annotated[float, Field(ge=0, le=1)] | None, _OrNone]
_Flag = Annotated[bool | None, _OrNone]
_Texts = Annotated[tuple[str, ...] | None, _OrNone]


class SpanVerdict(BaseModel):
    """What is asked about one tool call."""

    completeness: _Share = None
    hallucination: _Share = None
    missed_tags: _Texts = None
    hallucinated_tags: _Texts = None


class QuestionVerdict(BaseModel):
    """What is asked about a whole rollout. `skill_adherence`: number of the step -> followed."""

    missed_nodes: _Texts = None
    skill_adherence: Annotated[dict[str, _Flag] | None, _OrNone] = None
    confirmation_bias: _Flag = None
    evidence_sufficient: _Flag = None


class ReasoningVerdict(BaseModel):
    """What is asked about a wrong conclusion from sufficient evidence."""

    reasoning_kind: Annotated[ReasoningKind | None, _OrNone] = None


Verdict = TypeVar("Verdict", bound=BaseModel)


class Judge:
    """Judges rollouts with a chat model.

    A call that the provider gives up on costs what it was for, as an unreadable reply does; but when nothing
    was ever answered, or calls for `MOST_FAILING_ROLLOUTS` different rollouts were given up without an answer
    in between, its `ProviderError` is raised: one rollout may be too long to be shown, call after call.
    `answered` counts replies, `unreadable` those among them without a verdict.
    """

    def __init__(self, llm: LLMProvider, prompts: DiagnosePrompts) -> None:
        self._llm = llm
        self._prompts = prompts
        self.answered = 0
        self.unreadable = 0
        self._failing_rollouts: set[str] = set()
        self._unusable: ProviderError | None = None

    async def spans(self, rollout: Rollout) -> tuple[SpanMetrics, ...]:
        """A verdict on every tool call that brought material, in the order of steps."""
        return tuple([await self._span(rollout, step) for step in rollout.steps if step.brings_material])

    async def metrics(
        self,
        rollout: Rollout,
        metrics: QuestionMetrics,
        spans: tuple[SpanMetrics, ...],
        skill: SkillFile | None,
    ) -> QuestionMetrics:
        """The metrics with the judged ones filled in. Source nodes that the question names say more about
        what was missed than a judge can, so where they are known they stand."""
        steps = {f"s{number}": step for number, step in enumerate(skill.steps if skill else (), start=1)}
        verdict = await self._ask(
            rollout,
            self._prompts.question,
            {**_told_rollout(rollout), "skill_steps": steps},
            QuestionVerdict,
        )
        missed = metrics.missed_nodes
        return dataclasses.replace(
            with_spans(metrics, spans),
            missed_nodes=verdict.missed_nodes if missed is None else missed,
            skill_adherence=_adherence(verdict.skill_adherence, steps),
            confirmation_bias=verdict.confirmation_bias,
            evidence_sufficient=verdict.evidence_sufficient,
        )

    async def reasoning_kind(self, rollout: Rollout) -> ReasoningKind | None:
        """In which way sufficient evidence was turned into a wrong answer."""
        verdict = await self._ask(rollout, self._prompts.reasoning, _told_rollout(rollout), ReasoningVerdict)
        return verdict.reasoning_kind

    async def _span(self, rollout: Rollout, step: TraceStep) -> SpanMetrics:
        material = {**_told_question(rollout), "call": told_step(step, SPAN_CHARACTERS)}
        verdict = await self._ask(rollout, self._prompts.span, material, SpanVerdict)
        return SpanMetrics(
            question_id=rollout.question.question_id,
            step=step.number,
            tool_name=step.tool,
            completeness=verdict.completeness,
            hallucination=verdict.hallucination,
            missed_tags=verdict.missed_tags or (),
            hallucinated_tags=verdict.hallucinated_tags or (),
        )

    async def _ask(
        self, rollout: Rollout, prompt: str, material: Mapping[str, Any], kind: type[Verdict]
    ) -> Verdict:
        if self._unusable is not None:  # rollouts that run at once must not go on asking
            raise self._unusable
        shown = json.dumps(material, ensure_ascii=False, indent=1)
        try:
            response = await self._llm.chat([Message("system", prompt), Message("user", shown)])
        except ProviderError as error:
            self._failing_rollouts.add(rollout.question.question_id)
            if not self.answered or len(self._failing_rollouts) >= MOST_FAILING_ROLLOUTS:
                self._unusable = error
                raise
            logger.warning("judge: a call was given up ({}); what it was for is not judged", error)
            return kind()
        self.answered += 1
        self._failing_rollouts.clear()
        verdict = _read(response.content, kind)
        self.unreadable += verdict is None
        return kind() if verdict is None else verdict


def _read(reply: str, kind: type[Verdict]) -> Verdict | None:
    """The verdict of a reply, `None` when there is none in it."""
    try:
        value = extract_json_from_response(reply, keys=tuple(kind.model_fields))
    except UnreadableReplyError:
        return None
    if isinstance(value, list):
        value = value[0] if value else None
    return kind.model_validate(value) if isinstance(value, dict) else None


def _adherence(verdict: Mapping[str, bool | None] | None, steps: Mapping[str, str]) -> dict[str, bool] | None:
    """Step of the skill -> followed, for the steps that were judged; `None` when none was."""
    judged = {
        steps[number]: followed
        for number, followed in (verdict or {}).items()
        if number in steps and followed is not None
    }
    return judged or None


def _told_question(rollout: Rollout) -> dict[str, Any]:
    question = rollout.question
    return {
        "question": question.question,
        "options": lettered_options(question.options),
        "correct_answer": question.answer,
        "nodes_with_the_answer": question.source_nodes,
    }


def _told_rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        **_told_question(rollout),
        "answer_given": rollout.prediction,
        "answered_correctly": rollout.correct,
        "confidence": rollout.confidence,
        "reasoning_given": rollout.reasoning,
        "how_it_ended": rollout.stop_reason,
        "steps": [told_step(step, TRACE_CHARACTERS) for step in rollout.steps],
    }
