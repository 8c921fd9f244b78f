"""What `core.evolution` exports is there, frozen and documented."""

import dataclasses
import inspect

import pytest

import core.evolution
from core.evolution import protocols, types
from core.evolution.types import Edit, EditOutcome, EvolutionRecord, EvolutionResult, SkillStepAdherence

PROTOCOLS = {"RunLog", "SkillStore", "PromptStore"}
CONTRACT = {
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
    "QuadrantClassification",
    "QuestionMetrics",
    "RejectedEdit",
    "SkillCasePack",
    "SkillStepAdherence",
    "SpanMetrics",
    "SystemCasePack",
    "ToolCasePack",
}


def test_the_package_exports_all_types_and_protocols_of_the_contract():
    assert set(core.evolution.__all__) >= CONTRACT | PROTOCOLS
    for name in core.evolution.__all__:
        assert inspect.getdoc(getattr(core.evolution, name)), name


@pytest.mark.parametrize("name", sorted(set(types.__all__) - {"CasePack"}))
def test_every_type_is_a_frozen_dataclass(name):
    kind = getattr(types, name)
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen


@pytest.mark.parametrize("name", ["RunLog", "SkillStore", "PromptStore", "Proposer"])
def test_protocols_can_be_checked_at_run_time(name):
    assert not isinstance(object(), getattr(protocols, name))


def test_gain_of_a_step_is_unknown_where_one_side_is():
    assert SkillStepAdherence("order.md", "look twice", 3, 0, 0.5, None).gain is None
    assert SkillStepAdherence("order.md", "look twice", 3, 2, 0.75, 0.5).gain == 0.25


def test_result_tells_which_records_changed_their_text():
    changed = EvolutionRecord("a.md", "skill", "x", "y", (Edit("append", content="y"),), (), "evolved")
    same = EvolutionRecord("b.md", "skill", "x", "x", (), (), "unchanged")
    assert EvolutionResult((changed, same)).evolved == (changed,)


def test_values_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EditOutcome("text").text = "other"
