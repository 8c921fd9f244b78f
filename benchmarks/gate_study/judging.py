"""How an arm decides about a proposal: which questions it asks, in which order, and when it stops.

Baseline rows are rolled out by gates alone and kept for later gates of the same text; a candidate's rows are
never kept as a baseline's. The project's own functions decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gate_study.arms import Arm, Questions
from benchmarks.gate_study.world import Answers, Proposal, Setting
from core.adapters.simulated_chance import key_of
from core.evolution.gate import gate_decision, pair_block
from core.evolution.gate_types import GateEvidence, GateParams, PairResult
from core.evolution.shadow import MINIBATCH, SHADOW_GATES
from harness.gate_ladder import GatePools, LadderEntry

CACHE_MAX_AGE = 2

Ask = Callable[[Sequence[LadderEntry]], list[PairResult]]
"""Rolls out both sides of one block and pairs them."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a proposal. planned: length of the ladder. pairs: all that were asked, in order."""

    accepted: bool
    confirmed: bool
    planned: int
    pairs: tuple[PairResult, ...]

    @property
    def candidate_answers(self) -> Answers:
        return {pair.question_id: bool(pair.cand) for pair in self.pairs}


class BaselineRows:
    """Answers of baselines by text and question, each with the epoch in which a gate rolled it out."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[bool, int]] = {}

    def get(self, text: str, question_ids: Sequence[str], epoch: int) -> Answers:
        """The known answers that are not too old."""
        found = {name: self._rows.get((text, name)) for name in question_ids}
        return {name: row[0] for name, row in found.items() if row and epoch - row[1] <= CACHE_MAX_AGE}

    def put(self, text: str, answers: Answers, epoch: int) -> None:
        self._rows.update({(text, name): (answer, epoch) for name, answer in answers.items()})


def ladder_of(
    arm: Arm, kind: Questions, setting: Setting, pools: GatePools, proposal: Proposal, step: int
) -> list[LadderEntry]:
    """The questions of one gate in their order, without the evidence of its proposal. step: counted through
    all epochs."""
    params = arm.params
    one_draw = kind == "fixed" or not arm.redrawn
    return pools.ladder_for(
        [proposal.file],
        proposal.evidence_ids,
        ladder="fresh" if kind == "fixed" else kind,
        max_questions=params.max_questions,
        p_low=params.p_low,
        p_high=params.p_high,
        seed=setting.seed if one_draw else key_of(setting.seed, "ladder", proposal.file, step),
    )


def judge(arm: Arm, ladder: Sequence[LadderEntry], fresh: Sequence[LadderEntry], ask: Ask) -> Judgement:
    """Asks until the arm's rule has decided. fresh: the first questions of the minibatch rule."""
    params = arm.params_in_force
    if arm.rule == "gate":
        return _by_gate(params, ladder, ask)
    if arm.rule == "minibatch3_then_fixed":
        return _by_minibatch(params, ladder, fresh, ask)
    return _by_shadow(arm.rule, params, ladder, ask)


def _by_gate(params: GateParams, ladder: Sequence[LadderEntry], ask: Ask) -> Judgement:
    weights = [entry.weight for entry in ladder]
    blocks: list[list[PairResult]] = []
    for start in range(0, len(ladder), params.block):
        blocks.append(ask(ladder[start : start + params.block]))
        evidence = GateEvidence.from_blocks(len(ladder), blocks, weights)
        verdict = gate_decision(evidence, params, is_last_block=start + params.block >= len(ladder))
        if verdict.decision != "CONTINUE":
            confirmed = verdict.decision == "ACCEPT_CONFIRMED"
            return Judgement(verdict.accepted, confirmed, len(ladder), evidence.pairs)
    raise ValueError("an empty ladder decides nothing")


def _by_shadow(rule: str, params: GateParams, ladder: Sequence[LadderEntry], ask: Ask) -> Judgement:
    """The whole ladder; the e-process, which is valid at every look, stops as soon as it accepts."""
    blocks: list[list[PairResult]] = []
    for start in range(0, len(ladder), params.block):
        blocks.append(ask(ladder[start : start + params.block]))
        evidence = GateEvidence.from_blocks(len(ladder), blocks)
        verdict = SHADOW_GATES[rule](evidence)
        if rule == "e_process" and verdict.accept:
            break
    return Judgement(verdict.accept, False, len(ladder), evidence.pairs)


def _by_minibatch(
    params: GateParams, ladder: Sequence[LadderEntry], fresh: Sequence[LadderEntry], ask: Ask
) -> Judgement:
    """Three fresh questions first; only what gains there goes on to the fixed ones."""
    first = GateEvidence.from_blocks(MINIBATCH, [ask(fresh[:MINIBATCH])])
    if not SHADOW_GATES["minibatch3"](first).accept:
        return Judgement(False, False, MINIBATCH, first.pairs)
    return _by_shadow("strict_greater", params, ladder, ask)


def asker(
    base_text: str,
    cand_text: str,
    *,
    epoch: int,
    gate_id: str,
    rows: BaselineRows,
    roll_out: Callable[[int, str, Sequence[str], str], Answers],
) -> Ask:
    """Rolls out blocks of one gate. `roll_out(epoch, text, ids, draw)` counts what it rolls out."""

    def ask(entries: Sequence[LadderEntry]) -> list[PairResult]:
        names = [entry.question_id for entry in entries]
        known = rows.get(base_text, names, epoch)
        missing = [name for name in names if name not in known]
        rolled_out = roll_out(epoch, base_text, missing, f"{gate_id} base")
        rows.put(base_text, rolled_out, epoch)
        candidate = roll_out(epoch, cand_text, names, f"{gate_id} cand")
        base = {name: (answer, None) for name, answer in {**known, **rolled_out}.items()}
        return pair_block(base, {name: (answer, None) for name, answer in candidate.items()}, entries)

    return ask
