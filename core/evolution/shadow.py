"""What other gates would have decided on the same evidence. Recorded beside the verdict, never deciding.

All use hard correctness and look at answered pairs alone; none corrects for looking more than once unless
it says so.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from core.evolution.exact import half_binomial_cdf
from core.evolution.gate_types import GateEvidence, PairResult

MCNEMAR_ALPHA = Fraction(1, 20)
STANDARD_ERRORS = 1.0
BET = 0.5
E_PROCESS_BAR = 20.0
"""1 / alpha with alpha = 0.05, by Ville's inequality."""
MINIBATCH = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ShadowVerdict:
    """gate: its name; accept: what it would have done; statistic: its own, if any; n_pairs: pairs it used."""

    gate: str
    accept: bool
    statistic: float | None
    n_pairs: int


def shadow_verdicts(evidence: GateEvidence) -> tuple[ShadowVerdict, ...]:
    """The verdict of every shadow gate, in a fixed order."""
    return tuple(gate(evidence) for gate in SHADOW_GATES.values())


def strict_greater(evidence: GateEvidence) -> ShadowVerdict:
    """Accepts when the candidate has more right answers. Statistic: W - L."""
    changes = _changes(evidence.pairs)
    return ShadowVerdict("strict_greater", sum(changes) > 0, float(sum(changes)), len(changes))


def mcnemar_exact(evidence: GateEvidence) -> ShadowVerdict:
    """Exact one-sided McNemar test at 0.05 on what was seen. Statistic: P(Bin(D, 1/2) >= W)."""
    changes = _changes(evidence.pairs)
    improved, regressed = changes.count(1), changes.count(-1)
    p_value = half_binomial_cdf(improved + regressed, regressed)
    return ShadowVerdict("mcnemar_exact", p_value <= MCNEMAR_ALPHA, float(p_value), len(changes))


def paired_k_se(evidence: GateEvidence) -> ShadowVerdict:
    """Accepts when the mean difference exceeds one standard error of it. Statistic: mean / standard error.

    All pairs alike have no standard error: then the statistic is `None`, and improvements alone are accepted.
    """
    changes = _changes(evidence.pairs)
    n = len(changes)
    mean = sum(changes) / n if n else 0.0
    spread = sum((change - mean) ** 2 for change in changes)
    if n < 2 or spread == 0:
        return ShadowVerdict("paired_k_se", n >= 2 and mean > 0, None, n)
    statistic = mean / math.sqrt(spread / (n - 1) / n)
    return ShadowVerdict("paired_k_se", statistic > STANDARD_ERRORS, statistic, n)


def e_process(evidence: GateEvidence) -> ShadowVerdict:
    """Bets half the wealth on improvement at each discordant pair; accepts once it reached 20 after a block.

    Valid at every look. Statistic: the greatest wealth after any block.
    """
    wealth = greatest = 1.0
    for block in evidence.blocks:
        for change in _changes(block):
            wealth *= 1.0 + BET * change
        greatest = max(greatest, wealth)
    return ShadowVerdict("e_process", greatest >= E_PROCESS_BAR, greatest, len(_changes(evidence.pairs)))


def minibatch3(evidence: GateEvidence) -> ShadowVerdict:
    """Accepts when the first three answered questions give more right answers. Statistic: their W - L."""
    changes = _changes(evidence.pairs)[:MINIBATCH]
    return ShadowVerdict("minibatch3", sum(changes) > 0, float(sum(changes)), len(changes))


SHADOW_GATES: dict[str, Callable[[GateEvidence], ShadowVerdict]] = {
    gate.__name__: gate for gate in (strict_greater, mcnemar_exact, paired_k_se, e_process, minibatch3)
}


def _changes(pairs: Sequence[PairResult]) -> list[int]:
    """Candidate minus baseline of every answered pair: 1 improved, -1 regressed, 0 equal."""
    return [int(pair.cand) - int(pair.base) for pair in pairs if not pair.missing]
