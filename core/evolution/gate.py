"""The gate: may the edited text replace the one in force? Pure functions of evidence and parameters.

Baseline and candidate answer the same questions in blocks; after each block `gate_decision` says go on,
accept or reject. CONFIRMED is a test at level alpha with exact alpha spending over the looks, PROVISIONAL a
cheap grant that probation may take back. All comparisons with a bound are made in exact fractions.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from core.evolution.exact import (
    Magnitudes,
    SpendingLook,
    e_value,
    exact,
    mid_probability,
    one_sided_p,
    predictive_power,
    spending_look,
)
from core.evolution.gate_types import (
    Decision,
    GateEvidence,
    GateParams,
    GateVerdict,
    PairResult,
    QuadrantClassification,
    Reason,
)

Outcome = tuple[bool | None, float | None]


class PlannedQuestion(Protocol):
    """What a ladder entry must say about itself."""

    @property
    def question_id(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def is_probe(self) -> bool: ...


def pair_block(
    baseline: Mapping[str, Outcome], candidate: Mapping[str, Outcome], entries: Iterable[PlannedQuestion]
) -> list[PairResult]:
    """The pairs of one block, in the order of `entries`.

    `baseline` and `candidate` map a question id to (right or wrong, soft score); `None` or an absent id is a
    missing answer, which makes a missing pair.
    """
    missing: Outcome = (None, None)
    pairs = []
    for entry in entries:
        base, base_soft = baseline.get(entry.question_id, missing)
        cand, cand_soft = candidate.get(entry.question_id, missing)
        pairs.append(
            PairResult(
                question_id=entry.question_id,
                base=base,
                cand=cand,
                base_soft=base_soft,
                cand_soft=cand_soft,
                weight=entry.weight,
                is_probe=entry.is_probe,
            )
        )
    return pairs


def classify_quadrants(pairs: Iterable[PairResult]) -> QuadrantClassification:
    """Sorts question ids by what happened to the answer, whatever the metric."""
    quadrants: dict[str, list[str]] = {
        "both_right": [],
        "both_wrong": [],
        "improved": [],
        "regressed": [],
        "missing": [],
    }
    for pair in pairs:
        quadrants[quadrant(pair)].append(pair.question_id)
    return QuadrantClassification(**{name: tuple(ids) for name, ids in quadrants.items()})


def quadrant(pair: PairResult) -> str:
    """`both_right`, `both_wrong`, `improved`, `regressed` or `missing`."""
    if pair.missing:
        return "missing"
    if pair.base == pair.cand:
        return "both_right" if pair.cand else "both_wrong"
    return "improved" if pair.cand else "regressed"


def full_level(params: GateParams) -> int:
    """The level of a difference of 1."""
    return 1 if params.metric == "hard" else params.soft_levels


def signed_level(pair: PairResult, params: GateParams) -> int | None:
    """The score difference cut into levels, with its sign; `None` when the pair is no evidence.

    level = floor(u |d| + 1/2 + 1e-9), u = 1 for `hard` and `soft_levels` otherwise; 0 is a tie.
    """
    if pair.missing:
        return None
    hard = int(pair.cand) - int(pair.base)
    if params.metric == "hard":
        return hard
    if pair.base_soft is None or pair.cand_soft is None:
        return None
    soft = pair.cand_soft - pair.base_soft
    share = params.mixed_weight if params.metric == "mixed" else 1.0
    difference = (1.0 - share) * hard + share * soft
    level = math.floor(full_level(params) * abs(difference) + 0.5 + 1e-9)
    return level if difference > 0 else -level


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """All that a decision needs of the pairs.

    errors, answered: pairs that are no evidence (see `signed_level`), and pairs that are. improved,
    regressed, probe_net_regressions: counts by sign of the level. attempts_after_block: pairs asked up to
    and with each block.
    block_magnitudes: weight x level of each block's discordant pairs, sorted. looks: (S, D) after each block.
    """

    errors: int
    answered: int
    improved: int
    regressed: int
    probe_net_regressions: int
    attempts_after_block: tuple[int, ...]
    block_magnitudes: tuple[Magnitudes, ...]
    looks: tuple[tuple[int, int], ...]

    @property
    def attempts(self) -> int:
        return self.attempts_after_block[-1] if self.attempts_after_block else 0

    @property
    def discordant(self) -> int:
        return self.improved + self.regressed

    @property
    def statistic(self) -> int:
        return self.looks[-1][0] if self.looks else 0

    @property
    def magnitudes(self) -> Magnitudes:
        return tuple(sorted(magnitude for block in self.block_magnitudes for magnitude in block))


def tally_of(evidence: GateEvidence, params: GateParams) -> Tally:
    """Counts the pairs of `evidence` by the metric of `params`."""
    attempts = errors = answered = improved = regressed = probe_net = statistic = 0
    attempts_after_block, block_magnitudes, looks = [], [], []
    for block in evidence.blocks:
        attempts += len(block)
        magnitudes = []
        for pair in block:
            level = signed_level(pair, params)
            errors += level is None
            answered += level is not None
            if not level:
                continue
            improved += level > 0
            regressed += level < 0
            probe_net += pair.is_probe * (1 if level < 0 else -1)
            statistic += level * pair.weight
            magnitudes.append(abs(level) * pair.weight)
        attempts_after_block.append(attempts)
        block_magnitudes.append(tuple(sorted(magnitudes)))
        looks.append((statistic, improved + regressed))
    return Tally(
        errors=errors,
        answered=answered,
        improved=improved,
        regressed=regressed,
        probe_net_regressions=probe_net,
        attempts_after_block=tuple(attempts_after_block),
        block_magnitudes=tuple(block_magnitudes),
        looks=tuple(looks),
    )


def gate_decision(evidence: GateEvidence, params: GateParams, *, is_last_block: bool) -> GateVerdict:
    """Decides after the last block of `evidence`; the first rule that matches wins.

    0 too many attempts without an answer or its score: REJECT `infra_abort`; 1 boundary crossed:
    ACCEPT_CONFIRMED, or ACCEPT_PROVISIONAL when the probes object; 2 the end: PROVISIONAL or REJECT; 3 and 4
    the remaining questions cannot change the outcome: the same, `curtailed`; 5 little hope: REJECT
    `futility`; 6 CONTINUE.
    """
    return decide(tally_of(evidence, params), evidence.weights, params, is_last_block=is_last_block)


def decide(tally: Tally, weights: Sequence[int], params: GateParams, *, is_last_block: bool) -> GateVerdict:
    """The decision from counts; `weights` are those of all planned questions, in ladder order."""
    planned = len(weights)
    verdict = GateVerdict(
        decision="CONTINUE",
        reason="undecided",
        planned=planned,
        attempts=tally.attempts,
        errors=tally.errors,
        improved=tally.improved,
        regressed=tally.regressed,
        discordant=tally.discordant,
        statistic=tally.statistic,
        probe_net_regressions=tally.probe_net_regressions,
        tau=params.tau_in_force,
        alpha=params.alpha,
    )
    if _infrastructure_failed(tally, params):
        return _decided(verdict, "REJECT", "infra_abort")

    at_the_end = is_last_block or tally.attempts >= planned
    looks = _looks(tally, planned, params, at_the_end=at_the_end)
    probability = mid_probability(tally.magnitudes, tally.statistic)
    verdict = dataclasses.replace(
        verdict,
        threshold=looks[-1].threshold if looks else None,
        probability=float(probability),
        exact_p=float(one_sided_p(tally.magnitudes, tally.statistic)),
        alpha_spent=float(looks[-1].spent) if looks else 0.0,
        e_value=float(e_value(tally.improved, tally.regressed)),
    )
    if _crossed(tally, looks, params):
        if params.probe_veto and tally.probe_net_regressions >= params.probe_veto:
            return _decided(verdict, "ACCEPT_PROVISIONAL", "confirmed_but_probe_veto")
        return _decided(verdict, "ACCEPT_CONFIRMED", "boundary")
    if at_the_end:
        accept = _provisional(tally, tally.statistic, probability, params)
        return _decided(verdict, "ACCEPT_PROVISIONAL" if accept else "REJECT", "terminal")
    return _before_the_end(verdict, tally, weights[tally.attempts :], params, probability)


def _before_the_end(
    verdict: GateVerdict, tally: Tally, weights_left: Sequence[int], params: GateParams, probability: Fraction
) -> GateVerdict:
    """Rules 3 to 6: questions remain and the boundary is not crossed."""
    tau = exact(params.tau_in_force)
    remaining = tuple(full_level(params) * weight for weight in weights_left)
    at_most = tuple(sorted(tally.magnitudes + remaining))
    best, worst = tally.statistic + sum(remaining), tally.statistic - sum(remaining)
    if mid_probability(at_most, best) < tau:
        return _decided(verdict, "REJECT", "curtailed")
    confirmable = one_sided_p(at_most, best) <= exact(params.alpha)
    if not confirmable and _provisional(tally, worst, mid_probability(at_most, worst), params):
        return _decided(verdict, "ACCEPT_PROVISIONAL", "curtailed")

    more = expected_discordant(len(remaining), tally.discordant, tally.answered)
    hope = predictive_power(tally.improved, tally.regressed, more, tau)
    verdict = dataclasses.replace(verdict, expected_discordant=more, predictive_power=float(hope))
    if probability <= Fraction(1, 2) and hope < exact(params.futility):
        return _decided(verdict, "REJECT", "futility")
    return verdict


def expected_discordant(remaining: int, discordant: int, answered: int) -> int:
    """floor(R (D + 1) / (n + 4) + 1/2): discordant pairs to expect among the remaining questions."""
    return (2 * remaining * (discordant + 1) + answered + 4) // (2 * (answered + 4))


def _decided(verdict: GateVerdict, decision: Decision, reason: Reason) -> GateVerdict:
    return dataclasses.replace(verdict, decision=decision, reason=reason)


def _infrastructure_failed(tally: Tally, params: GateParams) -> bool:
    enough = tally.attempts >= params.infra_min_attempts
    return enough and tally.errors > exact(params.infra_max_share) * tally.attempts


def _looks(tally: Tally, planned: int, params: GateParams, *, at_the_end: bool) -> list[SpendingLook]:
    """The boundary after each block; information time is the share of questions asked, 1 at the end."""
    sizes = tally.attempts_after_block
    times = [Fraction(attempts, planned) for attempts in sizes]
    if at_the_end and times:
        times[-1] = Fraction(1)
    alpha = exact(params.alpha)
    return [
        spending_look(tally.block_magnitudes[:look], tuple(times[:look]), alpha)
        for look in range(1, len(sizes) + 1)
    ]


def _crossed(tally: Tally, looks: Sequence[SpendingLook], params: GateParams) -> bool:
    """True when S reached the boundary at this look or any before it."""
    return any(
        look.threshold is not None
        and statistic >= look.threshold
        and discordant >= params.min_discordant_confirm
        for look, (statistic, discordant) in zip(looks, tally.looks, strict=True)
    )


def _provisional(tally: Tally, statistic: int, probability: Fraction, params: GateParams) -> bool:
    """The bar for PROVISIONAL; a tie keeps the incumbent."""
    enough = tally.discordant >= params.min_discordant_provisional
    return statistic > 0 and enough and probability >= exact(params.tau_in_force)
