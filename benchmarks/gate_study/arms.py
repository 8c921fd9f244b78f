"""The arms of the study: this gate, other rules, and this gate with one thing changed at a time."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from core.evolution.gate_types import GateParams

Rule = Literal["gate", "strict_greater", "minibatch3_then_fixed", "paired_k_se", "e_process", "mcnemar_exact"]
Questions = Literal["plan", "stratified", "fresh", "fixed"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of deciding about edits.

    rule: `gate`, or one of the shadow gates. questions: this project's ladders, `fresh` (drawn anew for each
    proposal) or `fixed` (always the first of one drawn order); evidence of the edit is left out of all.
    params: of the gate; other rules take length of the ladder and `settle_tau` from them. probation: whether
    accepted edits may be taken back. pooled: the pairs of the gate count in the settlement too. joining:
    whether a file on probation may be edited. confirmed_on_probation: whether CONFIRMED edits go there.
    redrawn: whether each gate draws its ladder with a seed of its own, as far as the ladder's rule leaves
    something to draw. keeps_rows: whether rows of the baseline serve later gates of the same text too.
    slow_edits: whether the end of an epoch brings an edit of the system prompt, judged by `slow_tau`.
    """

    name: str
    rule: Rule = "gate"
    questions: Questions = "plan"
    params: GateParams = dataclasses.field(default_factory=GateParams)
    probation: bool = True
    pooled: bool = False
    joining: bool = True
    confirmed_on_probation: bool = True
    redrawn: bool = False
    keeps_rows: bool = True
    slow_edits: bool = False

    @property
    def params_in_force(self) -> GateParams:
        return self.params.for_file(probation=self.probation, shared=False)


def _both_ways(arm: Arm) -> list[Arm]:
    without = dataclasses.replace(arm, name=f"{arm.name}, no probation", probation=False)
    return [dataclasses.replace(arm, name=f"{arm.name}, probation"), without]


def _gate(name: str, **params: float) -> Arm:
    return Arm(name, params=GateParams(**params))


DEFAULT = Arm("gate on plan, probation")
"""What the variants change one thing of, and what every arm is compared with."""

RULES: list[Arm] = [
    arm
    for both in [
        Arm("gate on plan"),
        Arm("gate on stratified", questions="stratified"),
        Arm("gate on fresh", questions="fresh"),
        Arm("strict greater on fixed", "strict_greater", "fixed"),
        Arm("strict greater on fresh", "strict_greater", "fresh"),
        Arm("minibatch of 3, then fixed", "minibatch3_then_fixed", "fixed"),
        Arm("paired k SE on fresh", "paired_k_se", "fresh"),
        Arm("e-process on fresh", "e_process", "fresh"),
        Arm("exact McNemar on fresh", "mcnemar_exact", "fresh"),
    ]
    for arm in _both_ways(both)
]
"""Fresh questions under this gate are a control: they tell the ladder's share from the rule's."""

VARIANTS: list[Arm] = [
    _gate("tau 0.5", tau=0.5),
    _gate("tau 0.75", tau=0.75),
    _gate("settle_tau 0.6", settle_tau=0.6),
    Arm("gate evidence pooled in", pooled=True),
    Arm("gate evidence pooled in, settle_tau 0.6", params=GateParams(settle_tau=0.6), pooled=True),
    Arm("frozen while on probation", joining=False),
    Arm("confirmed not on probation", confirmed_on_probation=False),
    _gate("block 5", block=5),
    _gate("block 20", block=20),
    _gate("max_questions 20", max_questions=20),
    _gate("max_questions 80", max_questions=80),
    _gate("no futility", futility=0.0),
    Arm("plan, drawn for each gate", redrawn=True),
    Arm("no rows of the baseline kept", keeps_rows=False),
]

DRAWN = Arm("stratified, drawn for each gate", questions="stratified", redrawn=True)
"""Added after the first look at the tuning half, where this gate did better on fresh questions."""

DRAWN_RULES: list[Arm] = [
    DRAWN,
    dataclasses.replace(DRAWN, name=f"{DRAWN.name}, no probation", probation=False),
]


def _around(base: Arm, prefix: str, name: str, **changes: float | bool) -> Arm:
    """`base` with one thing changed: an option of the arm, or else a parameter of the gate."""
    options = {field.name for field in dataclasses.fields(Arm)} & changes.keys()
    params = {key: value for key, value in changes.items() if key not in options}
    return dataclasses.replace(
        base,
        name=f"{prefix}: {name}",
        params=dataclasses.replace(base.params, **params),
        **{key: changes[key] for key in options},
    )


DRAWN_VARIANTS: list[Arm] = [
    _around(DRAWN, "drawn", "tau 0.5", tau=0.5),
    _around(DRAWN, "drawn", "tau 0.75", tau=0.75),
    _around(DRAWN, "drawn", "settle_tau 0.6", settle_tau=0.6),
    _around(DRAWN, "drawn", "gate evidence pooled in", pooled=True),
    _around(DRAWN, "drawn", "frozen while on probation", joining=False),
    _around(DRAWN, "drawn", "confirmed not on probation", confirmed_on_probation=False),
    _around(DRAWN, "drawn", "block 5", block=5),
    _around(DRAWN, "drawn", "block 20", block=20),
    _around(DRAWN, "drawn", "max_questions 30", max_questions=30),
    _around(DRAWN, "drawn", "max_questions 60", max_questions=60),
]

FRESH = next(arm for arm in RULES if arm.name == "gate on fresh, probation")

FRESH_VARIANTS: list[Arm] = [
    _around(FRESH, "fresh", "tau 0.5", tau=0.5),
    _around(FRESH, "fresh", "tau 0.75", tau=0.75),
    _around(FRESH, "fresh", "settle_tau 0.6", settle_tau=0.6),
    _around(FRESH, "fresh", "gate evidence pooled in", pooled=True),
    _around(FRESH, "fresh", "frozen while on probation", joining=False),
]
"""Added when the reporting half had borne out fresh questions and not what was built on `DRAWN`."""

SLOW: list[Arm] = [
    Arm(f"slow_tau {bar:g}", params=GateParams(slow_tau=bar), slow_edits=True) for bar in (0.5, 0.6, 0.75)
]
"""With an edit of the system prompt at the end of every epoch."""

ARMS: dict[str, Arm] = {
    arm.name: arm for arm in [*RULES, *VARIANTS, *DRAWN_RULES, *DRAWN_VARIANTS, *FRESH_VARIANTS, *SLOW]
}
