"""What a gate can detect before it is paid for, and what chance alone would have accepted afterwards."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from core.evolution.exact import exact, half_binomial_cdf, least_improved, posterior_better
from core.evolution.gate import Tally, decide
from core.evolution.gate_types import GateParams

Tier = Literal["confirmed", "accepted"]

GAIN_RESOLUTION = 0.001
NULL_DRAWS = 2_000
MIDDLE_OF_DRAWS = (5, 95)
"""Percentiles that hold the middle 90 % of draws."""


@dataclasses.dataclass(frozen=True, slots=True)
class HeldGate:
    """What `expected_null_accepts` needs to know of a gate that a run held.

    planned: the ladder's length. answered, discordant: pairs it saw. tau: what its P was compared with.
    probation_pairs, probation_discordant: the same counts of the settlement; 0 pairs where an acceptance
    could not be taken back, and `None` discordant where no settlement took place: then the gate's own rate
    stands in.
    """

    planned: int
    answered: int
    discordant: int
    tau: float
    probation_pairs: int = 0
    probation_discordant: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.discordant <= self.answered <= self.planned:
            raise ValueError(
                f"held gate: need discordant <= answered <= planned, "
                f"got {self.discordant}, {self.answered}, {self.planned}"
            )
        if not 0 <= (self.probation_discordant or 0) <= self.probation_pairs:
            raise ValueError(
                f"held gate: probation_discordant ({self.probation_discordant}) must lie between 0 and "
                f"probation_pairs ({self.probation_pairs})"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class NullAccepts:
    """How many edits chance alone would have accepted and kept, over seeded draws.

    accepted, kept: means; the `_low` and `_high` ends hold the middle 90 % of draws. gates, draws: counts.
    """

    gates: int
    draws: int
    accepted: float
    accepted_low: float
    accepted_high: float
    kept: float
    kept_low: float
    kept_high: float

    def explain(self, *, accepted: int, kept: int) -> str:
        """What was observed beside what chance would have done, in one sentence."""
        return (
            f"{self.gates} gates: {accepted} accepted, {kept} kept; had every edit been worthless: "
            f"{self.accepted:.1f} accepted, {self.kept:.1f} kept."
        )


def detectable_gain(
    questions: int, params: GateParams, *, churn: float = 0.0, power: float = 0.8, tier: Tier = "confirmed"
) -> float | None:
    """The smallest true gain in accuracy, in (0, 1], that a ladder of `questions` detects with `power`.

    `churn` is the share of questions on which two runs of the same text differ: half of it up, half down, the
    gain on top. `tier` says what counts as detection: CONFIRMED, or any acceptance. Equal weights; the test
    at the end of the ladder, which is a little more powerful than one that also looks earlier. `None` when no
    gain will do.
    """
    if not 0.0 <= churn < 1.0:
        raise ValueError(f"churn must be at least 0 and under 1, is {churn}")
    bars = [_least_improved_for(tier, discordant, params) for discordant in range(questions + 1)]
    undetected, detected = 0.0, 1.0 - churn
    if _power(bars, detected, churn) < power:
        return None
    while detected - undetected > GAIN_RESOLUTION:
        middle = (undetected + detected) / 2
        if _power(bars, middle, churn) >= power:
            detected = middle
        else:
            undetected = middle
    return detected


def fewest_improved(questions: int, params: GateParams, *, tier: Tier = "confirmed") -> int | None:
    """How many of a ladder's questions must improve at least, if none gets worse, for detection; `None`: never.

    `tier` is as in `detectable_gain`.
    """
    bars = (_least_improved_for(tier, discordant, params) for discordant in range(questions + 1))
    return next((bar for bar in bars if bar is not None), None)


def _least_improved_for(tier: Tier, discordant: int, params: GateParams) -> int | None:
    """The least W that is detected when D = `discordant` at the end of the ladder; `None` when none is."""
    if tier == "confirmed":
        if discordant < params.min_discordant_confirm:
            return None
        alpha = exact(params.alpha)
        enough = (w for w in range(discordant + 1) if half_binomial_cdf(discordant, discordant - w) <= alpha)
        return next(enough, None)
    if discordant < params.min_discordant_provisional:
        return None
    bar = max(least_improved(discordant, exact(params.tau_in_force)), discordant // 2 + 1)
    return bar if bar <= discordant else None


def _power(bars: Sequence[int | None], gain: float, churn: float) -> float:
    """The chance of detection when a question improves with churn / 2 + gain and regresses with churn / 2."""
    questions = len(bars) - 1
    rate = min(churn + gain, 1.0)
    improving = (churn / 2 + gain) / rate if rate else 0.0
    return math.fsum(
        _binomial(questions, discordant, rate)
        * math.fsum(_binomial(discordant, w, improving) for w in range(bar, discordant + 1))
        for discordant, bar in enumerate(bars)
        if bar is not None
    )


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1.0 - p) ** (n - k)


def expected_null_accepts(
    gates: Sequence[HeldGate], params: GateParams, *, draws: int = NULL_DRAWS, seed: int = 0
) -> NullAccepts:
    """Replays the gates as if every edit had changed as many answers as it did, each up or down by a coin.

    Each draw sends every gate through the same rules, block by block, and what it accepts through probation.
    """
    accepted = np.zeros(draws, dtype=np.int64)
    kept = np.zeros(draws, dtype=np.int64)
    for number, gate in enumerate(gates):
        random = np.random.default_rng([seed, number])
        accepts = _accepts_by_chance(gate, params, draws, random)
        accepted += accepts
        kept += accepts & _outlives_probation(gate, params, draws, random)
    accepted_low, accepted_high = np.percentile(accepted, MIDDLE_OF_DRAWS)
    kept_low, kept_high = np.percentile(kept, MIDDLE_OF_DRAWS)
    return NullAccepts(
        gates=len(gates),
        draws=draws,
        accepted=float(accepted.mean()),
        accepted_low=float(accepted_low),
        accepted_high=float(accepted_high),
        kept=float(kept.mean()),
        kept_low=float(kept_low),
        kept_high=float(kept_high),
    )


def _accepts_by_chance(
    gate: HeldGate, params: GateParams, draws: int, random: np.random.Generator
) -> np.ndarray:
    """Whether each draw of the gate ends accepted; shape (draws,), bool."""
    accepts = np.zeros(draws, dtype=bool)
    if not gate.discordant:
        return accepts
    gate_params = dataclasses.replace(params, tau=gate.tau, metric="hard")
    sizes = _block_sizes(gate.planned, params.block)
    discordant = random.binomial(sizes, gate.discordant / gate.answered, size=(draws, len(sizes)))
    improved = random.binomial(discordant, 0.5)
    undecided = np.arange(draws)
    for look in range(1, len(sizes) + 1):
        # The decision depends on D after each block and on W so far, so equal draws are decided once.
        state = np.column_stack([discordant[undecided, :look], improved[undecided, :look].sum(axis=1)])
        _, first, same_as = np.unique(state, axis=0, return_index=True, return_inverse=True)
        verdicts = [
            decide(
                _hard_tally(sizes[:look], improved[draw, :look], discordant[draw, :look]),
                (1,) * gate.planned,
                gate_params,
                is_last_block=look == len(sizes),
            )
            for draw in undecided[first]
        ]
        same_as = same_as.reshape(-1)
        accepts[undecided] = np.array([verdict.accepted for verdict in verdicts])[same_as]
        goes_on = np.array([verdict.decision == "CONTINUE" for verdict in verdicts])[same_as]
        undecided = undecided[goes_on]
        if not len(undecided):
            break
    return accepts


def _block_sizes(planned: int, block: int) -> list[int]:
    return [min(block, planned - start) for start in range(0, planned, block)]


def _hard_tally(sizes: Sequence[int], improved: np.ndarray, discordant: np.ndarray) -> Tally:
    """The tally of unweighted hard evidence without missing answers or probes."""
    asked = [int(attempts) for attempts in np.cumsum(sizes)]
    up, changed = np.cumsum(improved), np.cumsum(discordant)
    return Tally(
        errors=0,
        answered=asked[-1],
        improved=int(up[-1]),
        regressed=int(changed[-1] - up[-1]),
        probe_net_regressions=0,
        attempts_after_block=tuple(asked),
        block_magnitudes=tuple((1,) * int(count) for count in discordant),
        looks=tuple((int(2 * w - d), int(d)) for w, d in zip(up, changed, strict=True)),
    )


def _outlives_probation(
    gate: HeldGate, params: GateParams, draws: int, random: np.random.Generator
) -> np.ndarray:
    """Whether each draw's acceptance would be kept; shape (draws,), bool."""
    if not gate.probation_pairs:
        return np.ones(draws, dtype=bool)
    if gate.probation_discordant is None:
        rate = gate.discordant / gate.answered if gate.answered else 0.0
    else:
        rate = gate.probation_discordant / gate.probation_pairs
    discordant = random.binomial(gate.probation_pairs, rate, size=draws)
    improved = random.binomial(discordant, 0.5)
    bar: Fraction = exact(params.settle_tau)
    return np.array(
        [posterior_better(int(w), int(d - w)) >= bar for w, d in zip(improved, discordant, strict=True)]
    )
