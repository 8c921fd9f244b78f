"""Exact discrete mathematics of the gate: everything in integers and fractions, nothing rounded.

The sharp null says that each discordant pair went up or down by a fair coin. With magnitudes a_1 ... a_D the
statistic is then S0 = sum of eps_i a_i. Its law is kept as counts of subset sums: b, the sum of the
magnitudes with a plus, happens in `counts[b]` of the 2^D sign patterns, and S0 = 2 b - (a_1 + ... + a_D).
"""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

SLACK = Fraction(1, 10**12)
"""Tolerance of the spending budget, so that a bound written as a decimal is not missed by its last bit."""

_INT64_PAIRS = 62
"""With at most this many discordant pairs all counts fit into 64 bits; beyond, Python integers take over."""

Magnitudes = tuple[int, ...]


@lru_cache(maxsize=256)
def exact(value: float) -> Fraction:
    """The decimal number a person wrote: 0.05 is 1/20 and not the binary number beside it."""
    return Fraction(str(value))


def half_binomial_cdf(n: int, k: int) -> Fraction:
    """P(Bin(n, 1/2) <= k)."""
    return Fraction(sum(math.comb(n, j) for j in range(min(k, n) + 1)), 2**n)


@lru_cache(maxsize=65536)
def posterior_better(improved: int, regressed: int) -> Fraction:
    """P(Bin(D + 1, 1/2) <= W) with D = W + L.

    It is 1 minus the mid-p value of McNemar's exact test, and the posterior probability, under a uniform
    prior, that a discordant pair is more often an improvement than not.
    """
    return half_binomial_cdf(improved + regressed + 1, improved)


@lru_cache(maxsize=4096)
def least_improved(discordant: int, tau: Fraction) -> int:
    """The smallest W with P(Bin(D + 1, 1/2) <= W) >= tau; it may exceed D."""
    return next(w for w in range(discordant + 2) if half_binomial_cdf(discordant + 1, w) >= tau)


def _with_coins(counts: np.ndarray, magnitudes: Sequence[int]) -> np.ndarray:
    """Counts of subset sums after further coins; exact, since no count exceeds 2^D."""
    for magnitude in magnitudes:
        grown = np.zeros(len(counts) + magnitude, dtype=counts.dtype)
        grown[: len(counts)] = counts
        grown[magnitude:] += counts
        counts = grown
    return counts


def _integer_type(discordant: int) -> type:
    return np.int64 if discordant <= _INT64_PAIRS else object


@lru_cache(maxsize=16384)
def subset_counts(magnitudes: Magnitudes) -> np.ndarray:
    """How many of the 2^D sign patterns give each subset sum; shape (sum of magnitudes + 1,), read-only."""
    counts = _with_coins(np.ones(1, dtype=_integer_type(len(magnitudes))), magnitudes)
    counts.flags.writeable = False
    return counts


def _subset_index(magnitudes: Magnitudes, statistic: int) -> int:
    """The least subset sum b with 2 b - total >= statistic."""
    return -((-statistic - sum(magnitudes)) // 2)


@lru_cache(maxsize=65536)
def tail_probability(magnitudes: Magnitudes, statistic: int) -> Fraction:
    """P(S0 >= statistic)."""
    index = max(_subset_index(magnitudes, statistic), 0)
    return Fraction(int(subset_counts(magnitudes)[index:].sum()), 2 ** len(magnitudes))


def one_sided_p(magnitudes: Magnitudes, statistic: int) -> Fraction:
    """The exact p-value of an improvement: P(S0 >= statistic), and 1 where nothing improved on balance."""
    return tail_probability(magnitudes, statistic) if statistic > 0 else Fraction(1)


def mid_probability(magnitudes: Magnitudes, statistic: int) -> Fraction:
    """P(S0 < statistic) + P(S0 = statistic) / 2."""
    return 1 - (tail_probability(magnitudes, statistic) + tail_probability(magnitudes, statistic + 1)) / 2


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SpendingLook:
    """The alpha-spending boundary after one block.

    threshold: the least value of S0 that crosses, `None` when no value can. spent: alpha spent by all looks
    so far. alive: counts of subset sums of the sign patterns that no look has absorbed. magnitudes: all so
    far, sorted.
    """

    threshold: int | None
    spent: Fraction
    alive: np.ndarray
    magnitudes: Magnitudes


@lru_cache(maxsize=16384)
def spending_look(
    blocks: tuple[Magnitudes, ...], times: tuple[Fraction, ...], alpha: Fraction
) -> SpendingLook:
    """The look after the last of `blocks`, each a sorted tuple of magnitudes.

    At information time t the budget is alpha t minus what is spent. The threshold is the smallest positive
    value c with P(S0 >= c and not absorbed before) <= budget; that mass is absorbed and counts as spent. So
    the chance of crossing at any look is at most alpha, whatever the magnitudes. Prefixes are memoised.
    """
    if not blocks:
        return SpendingLook(
            threshold=None, spent=Fraction(0), alive=np.ones(1, dtype=np.int64), magnitudes=()
        )
    before = spending_look(blocks[:-1], times[:-1], alpha)
    magnitudes = tuple(sorted(before.magnitudes + blocks[-1]))
    patterns = 2 ** len(magnitudes)
    alive = _with_coins(before.alive.astype(_integer_type(len(magnitudes))), blocks[-1])

    affordable = math.floor((alpha * times[-1] - before.spent + SLACK) * patterns)
    from_the_top = np.cumsum(alive[::-1])
    absorbed = int(np.searchsorted(from_the_top, affordable, side="right"))
    smallest_positive = sum(magnitudes) // 2 + 1
    cut = max(len(alive) - absorbed, smallest_positive)

    spent = before.spent + Fraction(int(alive[cut:].sum()), patterns)
    alive[cut:] = 0
    alive.flags.writeable = False
    reachable = np.flatnonzero(subset_counts(magnitudes)[cut:])
    threshold = 2 * (cut + int(reachable[0])) - sum(magnitudes) if len(reachable) else None
    return SpendingLook(threshold=threshold, spent=spent, alive=alive, magnitudes=magnitudes)


def beta_binomial(draws: int, successes: int, improved: int, regressed: int) -> Fraction:
    """P(X = successes), X ~ BetaBinomial(draws; improved + 1, regressed + 1)."""
    ways = math.comb(improved + successes, successes)
    ways *= math.comb(regressed + draws - successes, draws - successes)
    return Fraction(ways, math.comb(improved + regressed + draws + 1, draws))


@lru_cache(maxsize=65536)
def predictive_power(improved: int, regressed: int, more: int, tau: Fraction) -> Fraction:
    """Chance of ending acceptable when `more` further pairs turn out discordant.

    That is, of W + X > L + more - X and P(Bin(D + more + 1, 1/2) <= W + X) >= tau, X drawn from the
    beta-binomial law that the pairs so far predict.
    """
    bar = max(least_improved(improved + regressed + more, tau), (improved + regressed + more) // 2 + 1)
    enough = range(max(bar - improved, 0), more + 1)
    return sum((beta_binomial(more, x, improved, regressed) for x in enough), Fraction(0))


@lru_cache(maxsize=16384)
def e_value(improved: int, regressed: int) -> Fraction:
    """E = sum over j <= W of C(D + 1, j), divided by (D + 1) C(D, W).

    The likelihood ratio of "more often an improvement than not" (uniform prior on the better half) against
    fair coins; its expectation under fair coins is at most 1 at any stopping time.
    """
    discordant = improved + regressed
    numerator = sum(math.comb(discordant + 1, j) for j in range(improved + 1))
    return Fraction(numerator, (discordant + 1) * math.comb(discordant, improved))
