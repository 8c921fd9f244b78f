"""Paired comparisons of two versions, and the rule by which probation ends. Pure functions.

They use hard correctness and every question once; neither knows anything of ladders or blocks.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from core.evolution.exact import exact, posterior_better
from core.evolution.gate_types import GateParams, PairResult

SettlementDecision = Literal["kept", "rolled_back", "open"]

BOOTSTRAP_DRAWS = 10_000
INTERVAL = (2.5, 97.5)
"""Percentiles of the bootstrap that bound the interval."""


@dataclasses.dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two versions on the same questions, hard correctness only.

    n: answered pairs; missing: pairs without an answer on either side; W, L, D: improved, regressed,
    discordant; P: P(Bin(D + 1, 1/2) <= W). difference: accuracy of the second minus the first, in [-1, 1],
    `None` without pairs. low, high: 95 % interval of the difference from a bootstrap over `groups` groups
    (10,000 seeded draws), `None` with fewer than two groups.
    """

    n: int
    W: int
    L: int
    D: int
    P: float
    difference: float | None
    low: float | None
    high: float | None
    groups: int
    missing: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProbationSettlement:
    """How a probation ended: `kept`, `rolled_back`, or still `open` because there is nothing to decide by
    or too much of R is missing.

    n, W, L, D, P as in `PairedComparison`; missing: ids without an answer; settle_tau: what P was
    compared with; reason: the ground in one sentence.
    """

    decision: SettlementDecision
    reason: str
    n: int
    W: int
    L: int
    D: int
    P: float
    missing: int
    settle_tau: float


def compare_pairs(
    pairs: Iterable[PairResult], *, group_of: Mapping[str, str] | None = None, seed: int = 0
) -> PairedComparison:
    """Compares the second version (`cand`) with the first (`base`) on all `pairs`.

    `group_of` maps a question id to its group, for example its video: questions of one group fail together,
    so the bootstrap draws whole groups. `None`, or an id that is not in it, makes a question its own group.
    """
    groups = group_of or {}
    answered_by_group: dict[str, int] = {}
    gain_by_group: dict[str, int] = {}
    improved = regressed = missing = 0
    for pair in pairs:
        if pair.missing:
            missing += 1
            continue
        change = int(pair.cand) - int(pair.base)
        improved += change > 0
        regressed += change < 0
        group = groups.get(pair.question_id, f"question {pair.question_id}")
        answered_by_group[group] = answered_by_group.get(group, 0) + 1
        gain_by_group[group] = gain_by_group.get(group, 0) + change
    answered = sum(answered_by_group.values())
    names = sorted(answered_by_group)
    low, high = _bootstrap_interval(
        np.array([gain_by_group[name] for name in names]),
        np.array([answered_by_group[name] for name in names]),
        seed,
    )
    return PairedComparison(
        n=answered,
        W=improved,
        L=regressed,
        D=improved + regressed,
        P=float(posterior_better(improved, regressed)),
        difference=(improved - regressed) / answered if answered else None,
        low=low,
        high=high,
        groups=len(names),
        missing=missing,
    )


def _bootstrap_interval(gains: np.ndarray, sizes: np.ndarray, seed: int) -> tuple[float | None, float | None]:
    """The middle 95 % of sum of gains / sum of sizes when groups are drawn with replacement."""
    groups = len(sizes)
    if groups < 2:
        return None, None
    draws = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), BOOTSTRAP_DRAWS)
    low, high = np.percentile((draws @ gains) / (draws @ sizes), INTERVAL)
    return float(low), float(high)


def settle_probation(pairs: Iterable[PairResult], params: GateParams) -> ProbationSettlement:
    """Keeps or takes back what was accepted, by pairs of the version before and the version now.

    Kept iff P(Bin(D + 1, 1/2) <= W) >= `settle_tau`. With `infra_max_share` of the ids or more unanswered,
    or without any pair, nothing is decided and the probation stays open.
    """
    all_pairs = list(pairs)
    answered = [pair for pair in all_pairs if not pair.missing]
    missing = len(all_pairs) - len(answered)
    improved = sum(pair.cand and not pair.base for pair in answered)
    regressed = sum(pair.base and not pair.cand for pair in answered)
    better = posterior_better(improved, regressed)
    counts = f"{improved} improved, {regressed} regressed of {len(answered)}"
    decision: SettlementDecision
    if not all_pairs:
        decision, reason = "open", "there is no question to compare on"
    elif missing and missing >= exact(params.infra_max_share) * len(all_pairs):
        decision, reason = "open", f"{missing} of {len(all_pairs)} questions have no answer"
    elif better >= exact(params.settle_tau):
        decision, reason = "kept", f"{counts}: P = {float(better):.3f} reaches {params.settle_tau:g}"
    else:
        decision, reason = "rolled_back", f"{counts}: P = {float(better):.3f} is under {params.settle_tau:g}"
    return ProbationSettlement(
        decision=decision,
        reason=reason,
        n=len(answered),
        W=improved,
        L=regressed,
        D=improved + regressed,
        P=float(better),
        missing=missing,
        settle_tau=params.settle_tau,
    )
