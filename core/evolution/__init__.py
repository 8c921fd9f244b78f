"""Evolution: diagnosis of failures, bounded edits of the text, and the gate that lets them through."""

from core.evolution.comparison import compare_pairs, settle_probation
from core.evolution.diagnose import run_diagnosis
from core.evolution.evolve import evolve_skill, evolve_system, evolve_tool
from core.evolution.gate import classify_quadrants, gate_decision, pair_block
from core.evolution.json_reply import extract_json_from_response
from core.evolution.planning import detectable_gain, expected_null_accepts
from core.evolution.protocols import PromptStore, RunLog, SkillStore
from core.evolution.types import (
    CaseSample,
    DiagnosePrompts,
    DiagnosisResult,
    ErrorAttribution,
    EvolutionRecord,
    EvolutionResult,
    EvolvePrompts,
    GateParams,
    GateVerdict,
    PairResult,
    QuadrantClassification,
    QuestionMetrics,
    RejectedEdit,
    SkillCasePack,
    SkillStepAdherence,
    SpanMetrics,
    SystemCasePack,
    ToolCasePack,
)

__all__ = [
    "CaseSample",
    "DiagnosePrompts",
    "DiagnosisResult",
    "ErrorAttribution",
    "EvolutionRecord",
    "EvolutionResult",
    "EvolvePrompts",
    "GateParams",
    "GateVerdict",
    "PairResult",
    "PromptStore",
    "QuadrantClassification",
    "QuestionMetrics",
    "RejectedEdit",
    "RunLog",
    "SkillCasePack",
    "SkillStepAdherence",
    "SkillStore",
    "SpanMetrics",
    "SystemCasePack",
    "ToolCasePack",
    "classify_quadrants",
    "compare_pairs",
    "detectable_gain",
    "evolve_skill",
    "evolve_system",
    "evolve_tool",
    "expected_null_accepts",
    "extract_json_from_response",
    "gate_decision",
    "pair_block",
    "run_diagnosis",
    "settle_probation",
]
