"""The arms of the study: this gate, other rules, and this gate with one thing changed at a time."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from core.evolution.gate_types import GateParams

Rule = Literal["gate", "strict_greater", "minibatch3_then_fixed", "paired_k_se", "e_process", "mcnemar_exact"]
Questions = Literal["fresh", "plan", "stratified", "fixed"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of deciding about edits.

    rule: `gate`, or one of the shadow gates. questions: this project's ladders (`fresh` is drawn anew for each
    proposal), or `fixed`: always the first of one drawn order. The evidence of the edit is left out of all.
    params: of the gate; other rules take length of the ladder and `settle_tau` from them. probation: whether
    accepted edits may be taken back. pooled: the pairs of the gate count in the settlement too. joining:
    whether a file on probation may be edited. confirmed_on_probation: whether CONFIRMED edits go there.
    redrawn: whether each gate cuts its ladder with a seed of its own, as runs do. keeps_rows: whether rows of
    the baseline serve later gates of the same text too. slow_edits: whether the end of an epoch brings an edit
    of the system prompt, judged by `slow_tau`.
    """

    name: str
    rule: Rule = "gate"
    questions: Questions = "fresh"
    params: GateParams = dataclasses.field(default_factory=GateParams)
    probation: bool = True
    pooled: bool = False
    joining: bool = True
    confirmed_on_probation: bool = True
    redrawn: bool = True
    keeps_rows: bool = True
    slow_edits: bool = False

    @property
    def params_in_force(self) -> GateParams:
        return self.params.for_file(probation=self.probation, shared=False)


def _both_ways(arm: Arm) -> list[Arm]:
    without = dataclasses.replace(arm, name=f"{arm.name}, no probation", probation=False)
    return [dataclasses.replace(arm, name=f"{arm.name}, probation"), without]


RULES: list[Arm] = [
    arm
    for both in [
        Arm("gate on fresh"),
        Arm("gate on plan", questions="plan"),
        Arm("gate on stratified", questions="stratified"),
        Arm("gate on stratified, one draw", questions="stratified", redrawn=False),
        Arm("strict greater on fixed", "strict_greater", "fixed"),
        Arm("strict greater on fresh", "strict_greater"),
        Arm("minibatch of 3, then fixed", "minibatch3_then_fixed", "fixed"),
        Arm("paired k SE on fresh", "paired_k_se"),
        Arm("e-process on fresh", "e_process"),
        Arm("exact McNemar on fresh", "mcnemar_exact"),
    ]
    for arm in _both_ways(both)
]

DEFAULT = RULES[0]
"""What the variants change one thing of, and what every arm is compared with: this project's defaults."""

DECIDING = [
    DEFAULT.name,
    "gate on plan, probation",
    "gate on stratified, probation",
    "strict greater on fixed, no probation",
    "strict greater on fresh, no probation",
]
"""The arms that decide about ladder and rule: run for all seeds of the reporting half."""


def _variant(name: str, **changes: float | bool) -> Arm:
    """The default with one thing changed: an option of the arm, or else a parameter of the gate."""
    options = {field.name for field in dataclasses.fields(Arm)} & changes.keys()
    params = {key: value for key, value in changes.items() if key not in options}
    return dataclasses.replace(
        DEFAULT,
        name=name,
        params=dataclasses.replace(DEFAULT.params, **params),
        **{key: changes[key] for key in options},
    )


VARIANTS: list[Arm] = [
    _variant("tau 0.5", tau=0.5),
    _variant("tau 0.75", tau=0.75),
    _variant("settle_tau 0.6", settle_tau=0.6),
    _variant("gate evidence pooled in", pooled=True),
    _variant("gate evidence pooled in, settle_tau 0.6", pooled=True, settle_tau=0.6),
    _variant("frozen while on probation", joining=False),
    _variant("confirmed not on probation", confirmed_on_probation=False),
    _variant("block 5", block=5),
    _variant("block 20", block=20),
    _variant("max_questions 20", max_questions=20),
    _variant("max_questions 60", max_questions=60),
    _variant("max_questions 80", max_questions=80),
    _variant("no futility", futility=0.0),
    _variant("no rows of the baseline kept", keeps_rows=False),
]

SLOW: list[Arm] = [_variant(f"slow_tau {bar:g}", slow_tau=bar, slow_edits=True) for bar in (0.5, 0.6, 0.75)]
"""With an edit of the system prompt at the end of every epoch."""

ARMS: dict[str, Arm] = {arm.name: arm for arm in [*RULES, *VARIANTS, *SLOW]}
