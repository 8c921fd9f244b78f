"""The arms: the demo's own loop, its controls, and the loop on fresh splits of the same films."""

import dataclasses
from contextlib import aclosing
from typing import Literal

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, GateVerdict
from core.executor import AsyncioExecutor
from harness.budget import BudgetExhausted

Signals = Literal["own", "none", "shuffled"]


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """One way to train.

    about: what it is, for the report. signals: what ranks the proposer's edits: the failing cases (`own`),
    other questions (`shuffled`), or nothing. gated: the gate decides, and probation. control: runs until it
    has made as many rollouts as the loop did on average, and never opens the test pool. fresh_split: each
    seed has other films in its pools.
    """

    name: str
    about: str
    signals: Signals = "own"
    gated: bool = True
    control: bool = False
    fresh_split: bool = False


LOOP = Arm("loop", "the demo as it is: catalogue ranked by the failing cases, gate and probation")
ARMS = {
    arm.name: arm
    for arm in (
        LOOP,
        Arm("random", "random proposals through the gate", signals="none", control=True),
        Arm("strict", "catalogue with strict greater and no gate", gated=False, control=True),
        Arm("shuffled", "signals shuffled between cases, through the gate", signals="shuffled", control=True),
        Arm("neither", "random proposals, strict greater", signals="none", gated=False, control=True),
        Arm("resplit", "the loop on fresh splits of the same films: re-split, not unseen", fresh_split=True),
    )
}


def strict_greater(evidence: GateEvidence, params: GateParams, *, is_last_block: bool) -> GateVerdict:
    """No gate: the whole ladder is asked, and the edit accepted if strictly more answers are right with it.

    Infrastructure that fails still aborts, as it does in the gate.
    """
    verdict = gate_decision(evidence, params, is_last_block=is_last_block)
    if verdict.reason == "infra_abort":
        return verdict
    if not is_last_block:
        return dataclasses.replace(verdict, decision="CONTINUE", reason="undecided")
    better = verdict.improved > verdict.regressed
    decision = "ACCEPT_PROVISIONAL" if better else "REJECT"
    return dataclasses.replace(verdict, decision=decision, reason="terminal")


class SealedExecutor:
    """Runs rollouts, but ends the run rather than ask a sealed question.

    A look at the test pool is beyond a control's budget, so the run ends as one whose budget is spent.
    """

    def __init__(self, sealed_ids: frozenset[str]):
        self._sealed_ids = sealed_ids

    async def run(self, fn, items, *, concurrency):
        """As `AsyncioExecutor.run`. Raises `BudgetExhausted` before anything was asked."""
        if any(question.question_id in self._sealed_ids for question in items):
            raise BudgetExhausted("a control may not look at the test pool")
        async with aclosing(AsyncioExecutor().run(fn, items, concurrency=concurrency)) as results:
            async for result in results:
                yield result
