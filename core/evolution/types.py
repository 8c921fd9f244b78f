"""Values of diagnosis, case packs, edits and evolution; those of the gate stand in `gate_types`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from core.evolution.comparison import PairedComparison, ProbationSettlement
from core.evolution.gate_types import (
    GateEvidence,
    GateParams,
    GateVerdict,
    PairResult,
    QuadrantClassification,
)
from core.evolution.planning import HeldGate, NullAccepts

__all__ = [
    "CasePack",
    "CaseSample",
    "DiagnosePrompts",
    "DiagnosisResult",
    "Edit",
    "EditOutcome",
    "ErrorAttribution",
    "EvolutionRecord",
    "EvolutionResult",
    "EvolvePrompts",
    "GateEvidence",
    "GateParams",
    "GateVerdict",
    "HeldGate",
    "NullAccepts",
    "PairResult",
    "PairedComparison",
    "ProbationSettlement",
    "QuadrantClassification",
    "QuestionMetrics",
    "RejectedEdit",
    "SkillCasePack",
    "SkillStepAdherence",
    "SkippedEdit",
    "SpanMetrics",
    "SystemCasePack",
    "ToolCasePack",
]

EditOp = Literal["append", "insert_after", "replace", "delete"]
ErrorType = Literal["extraction_failure", "search_failure", "reasoning_failure", "mixed"]
ReasoningKind = Literal["evidence_misread", "evidence_ignored", "wrong_weighing", "faulty_logic"]
Calibration = Literal["high_conf_wrong", "low_conf_right", "fitting"]
TargetType = Literal["skill", "system", "tool"]
EvolutionStatus = Literal["evolved", "unchanged", "failed"]


# Edits


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """One bounded change of a text.

    op: `append` (at the end, no target), `insert_after` (on lines of its own after the line in which the
    target ends), `replace`, `delete`. target: the anchor, which must occur exactly once. content: the new
    text. reason: why, for people. related_cases: question ids it was made from; never shown to a model.
    """

    op: EditOp
    target: str = ""
    content: str = ""
    reason: str = ""
    related_cases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedEdit:
    """An edit that was refused. reason: a short code such as `anchor_missing`; detail: how to mend it."""

    edit: Edit
    reason: str
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class EditOutcome:
    """The text after `apply_edits`, the edits that made it, and those that were refused, each in order."""

    text: str
    applied: tuple[Edit, ...] = ()
    skipped: tuple[SkippedEdit, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RejectedEdit:
    """An edit that the gate rejected or probation took back; it is not proposed again.

    target_file: the file it changed. reason: the gate's or the settlement's. epoch, step: when. improved,
    regressed: what it did to the questions. evidence_ids: questions it was made from.
    """

    target_file: str
    edit: Edit
    reason: str
    epoch: int
    step: int
    improved: int
    regressed: int
    evidence_ids: tuple[str, ...] = ()


# Diagnosis


@dataclasses.dataclass(frozen=True, slots=True)
class SpanMetrics:
    """One judged tool call: step `step` of the rollout of `question_id`.

    completeness: share of what the question needs that the call extracted; hallucination: share of the
    extract that the source does not hold; both in [0, 1], `None` where not judged. missed_tags,
    hallucinated_tags: what was left out or made up.
    """

    question_id: str
    step: int
    tool_name: str
    completeness: float | None = None
    hallucination: float | None = None
    missed_tags: tuple[str, ...] = ()
    hallucinated_tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionMetrics:
    """What one rollout did well and badly: rule metrics always, judged ones `None` where not judged.

    correct, confidence, stop_reason: from the prediction. format_compliance: share of steps whose action
    could be read. budget_usage: steps / greatest number of steps. calibration: `high_conf_wrong` (confidence
    >= 0.7 and wrong), `low_conf_right` (under 0.5 and right), else `fitting`; `None` without confidence.
    repeat_visit_rate: 1 - distinct / all node visits. keyword_repetition: highest character-trigram Jaccard
    of consecutive searches. level_jumps: the pattern of levels opened, such as `1>2>3`. tool_usage: calls by
    tool. mean_completeness, max_hallucination: over judged tool calls. missed_nodes: ids of nodes that hold
    the answer and were never opened. skill_adherence: step of the skill -> followed. confirmation_bias: the
    search was for confirming one option. evidence_sufficient: what was read was enough to answer.
    """

    question_id: str
    task_type: str
    correct: bool | None
    stop_reason: str
    confidence: float | None = None
    format_compliance: float | None = None
    budget_usage: float | None = None
    calibration: Calibration | None = None
    repeat_visit_rate: float | None = None
    keyword_repetition: float | None = None
    level_jumps: str = ""
    tool_usage: Mapping[str, int] = dataclasses.field(default_factory=dict)
    mean_completeness: float | None = None
    max_hallucination: float | None = None
    missed_nodes: tuple[str, ...] | None = None
    skill_adherence: Mapping[str, bool] | None = None
    confirmation_bias: bool | None = None
    evidence_sufficient: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorAttribution:
    """Why one answer was wrong.

    error_type: of the first rule that matched. reasoning_kind: only for `reasoning_failure`, and only where
    judged. severity: greater is worse, in [0, 1]; it orders the cases of a pack. detail: the ground in
    words.
    """

    question_id: str
    task_type: str
    error_type: ErrorType
    reasoning_kind: ReasoningKind | None = None
    severity: float = 0.0
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SkillStepAdherence:
    """One step of the skill `target_file`: how often it was followed, and what that did to accuracy.

    followed, not_followed: rollouts; accuracy_followed, accuracy_not_followed: their accuracies. These are
    `None` where there was no such rollout; `gain` is their difference.
    """

    target_file: str
    step: str
    followed: int
    not_followed: int
    accuracy_followed: float | None = None
    accuracy_not_followed: float | None = None

    @property
    def gain(self) -> float | None:
        """Accuracy when followed minus accuracy when not, `None` where either is unknown."""
        if self.accuracy_followed is None or self.accuracy_not_followed is None:
            return None
        return self.accuracy_followed - self.accuracy_not_followed


@dataclasses.dataclass(frozen=True, slots=True)
class CaseSample:
    """One rollout as it is shown to a proposer.

    question to answer: as in the benchmark; prediction: what was answered, `None` for nothing; correct:
    whether it was right. error_type: `None` for a right answer. selection_reason: why this case is in the
    pack. metrics: the fields of `QuestionMetrics` that are known, plain values. trace: one mapping for each
    step, as in the `traces` table.
    """

    question_id: str
    video_id: str
    task_type: str
    question: str
    options: tuple[str, ...]
    answer: str
    prediction: str | None
    correct: bool
    error_type: ErrorType | None = None
    selection_reason: str = ""
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SkillCasePack:
    """What a proposer is given to mend one skill file.

    target_file: the skill file; task_types: those it serves. stats: aggregates over the batch's questions
    of these types. failure_cases, success_cases: examples of wrong and right answers. evidence_ids: every
    batch question of these types, since the statistics come from all of them; none of them is evidence for
    an edit made from this pack.
    """

    target_file: str
    task_types: tuple[str, ...]
    stats: Mapping[str, Any]
    failure_cases: tuple[CaseSample, ...]
    success_cases: tuple[CaseSample, ...]
    evidence_ids: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SystemCasePack:
    """What a proposer is given to mend the system prompt: patterns seen across task types, and cases."""

    stats: Mapping[str, Any]
    failure_cases: tuple[CaseSample, ...]
    success_cases: tuple[CaseSample, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCasePack:
    """What a proposer is given to mend the prompts of one tool.

    target_files: the tool's prompt files. Spans are mappings with the fields of `SpanMetrics`, and the
    call's arguments and output.
    """

    tool_name: str
    target_files: tuple[str, ...]
    stats: Mapping[str, Any]
    failure_spans: tuple[Mapping[str, Any], ...]
    success_spans: tuple[Mapping[str, Any], ...]


CasePack = SkillCasePack | SystemCasePack | ToolCasePack


@dataclasses.dataclass(frozen=True, slots=True)
class DiagnosisResult:
    """What a run did wrong and what to do about it.

    filter_summary: rollouts in all, left out as errors, right, wrong. error_attributions: one for each wrong
    answer. attribution_distribution, reasoning_failure_types: counts. tool_quality: aggregates by tool.
    search_effectiveness: by task type, right against wrong answers. skill_compliance: by step of a skill.
    decision_patterns: counts such as early submits. skill_case_packs, system_case_pack, tool_case_packs: what
    proposers are given, empty or `None` where nothing failed.
    question_metrics, span_metrics: the rows that the aggregates were made from, for the tables.
    """

    run_id: str
    filter_summary: Mapping[str, int]
    error_attributions: tuple[ErrorAttribution, ...]
    attribution_distribution: Mapping[str, int]
    reasoning_failure_types: Mapping[str, int]
    tool_quality: Mapping[str, Mapping[str, Any]]
    search_effectiveness: Mapping[str, Mapping[str, Any]]
    skill_compliance: tuple[SkillStepAdherence, ...]
    decision_patterns: Mapping[str, int]
    skill_case_packs: tuple[SkillCasePack, ...]
    system_case_pack: SystemCasePack | None
    tool_case_packs: tuple[ToolCasePack, ...]
    question_metrics: tuple[QuestionMetrics, ...] = ()
    span_metrics: tuple[SpanMetrics, ...] = ()


# Evolution


@dataclasses.dataclass(frozen=True, slots=True)
class EvolutionRecord:
    """One proposal for one file, from the text it began with (original_content) to the one it made.

    target_file, target_type: what was changed. applied, skipped: the edits, in order. status: `evolved`
    (the text changed), `unchanged` (nothing could be applied) or `failed` (the proposer gave nothing that
    could be read); reason says why in words. attempts: how often the proposer was asked. source_version,
    result_version: store versions, `None` until known. evidence_ids: see `SkillCasePack`.
    """

    target_file: str
    target_type: TargetType
    original_content: str
    evolved_content: str
    applied: tuple[Edit, ...]
    skipped: tuple[SkippedEdit, ...]
    status: EvolutionStatus
    reason: str = ""
    attempts: int = 1
    source_version: str | None = None
    result_version: str | None = None
    evidence_ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class EvolutionResult:
    """The records of one round of proposals, in order."""

    records: tuple[EvolutionRecord, ...]

    @property
    def evolved(self) -> tuple[EvolutionRecord, ...]:
        """The records whose text changed."""
        return tuple(record for record in self.records if record.status == "evolved")


@dataclasses.dataclass(frozen=True, slots=True)
class DiagnosePrompts:
    """Prompt templates of the judge: for a tool call, a whole rollout, and the kind of a faulty reasoning."""

    span: str
    question: str
    reasoning: str


@dataclasses.dataclass(frozen=True, slots=True)
class EvolvePrompts:
    """Prompt templates of the evolving model, one for each kind of target."""

    skill: str
    system: str
    tool: str
