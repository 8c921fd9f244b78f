"""The gate against an independent brute force: all sign patterns spelt out, every rule written anew."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, PairResult

CASES = 1_000
MOST_COINS = 14
PATTERNS = {n: np.array(list(itertools.product((-1, 1), repeat=n))).reshape(2**n, n) for n in range(15)}


def random_params(rng):
    return GateParams(
        alpha=rng.choice([0.01, 0.05, 0.1, 0.2]),
        tau=rng.choice([None, 0.5, 0.6, 0.75, 0.9]),
        futility=rng.choice([0.0, 0.1, 0.3]),
        metric=rng.choice(["hard", "hard", "soft", "mixed"]),
        mixed_weight=rng.choice([0.25, 0.5]),
        soft_levels=rng.choice([3, 20]),
        min_discordant_confirm=rng.choice([1, 5, 7]),
        min_discordant_provisional=rng.choice([1, 2, 3]),
        probe_veto=rng.choice([0, 1, 2]),
        infra_max_share=rng.choice([0.1, 0.2]),
        infra_min_attempts=rng.choice([5, 10]),
    )


def random_evidence(rng, *, is_last_block):
    """Pairs with mixed weights; before the end, at most 14 pairs in all, so that what remains fits too."""
    planned = rng.randint(1, 24) if is_last_block else rng.randint(6, MOST_COINS)
    weights = [rng.choice([1, 1, 2, 3, 8]) for _ in range(planned)]
    asked = rng.randint(planned // 2, planned)
    base_rate, cand_rate = rng.choice([0.1, 0.4]), rng.choice([0.2, 0.5, 0.8, 0.95])
    pairs, coins = [], 0
    for position in range(asked):
        base, cand = rng.random() < base_rate, rng.random() < cand_rate
        base_soft, cand_soft = rng.choice([(0.2, 0.55), (rng.random(), rng.random()), (0.5, 0.5)])
        if coins >= MOST_COINS:
            cand, cand_soft = base, base_soft
        coins += (cand, cand_soft) != (base, base_soft)
        is_probe = rng.random() < (0.8 if base and not cand else 0.2)
        if rng.random() < 0.05:
            cand = None
        pairs.append(
            PairResult(f"q{position}", base, cand, base_soft, cand_soft, weights[position], is_probe)
        )
    blocks = []
    while pairs:
        size = rng.randint(1, 10)
        blocks.append(pairs[:size])
        pairs = pairs[size:]
    return GateEvidence.from_blocks(planned, blocks, weights)


def level(pair, params):
    if pair.base is None or pair.cand is None:
        return None
    hard = pair.cand - pair.base
    if params.metric == "hard":
        return hard
    soft = pair.cand_soft - pair.base_soft
    w = {"soft": 1.0, "mixed": params.mixed_weight}[params.metric]
    difference = (1 - w) * hard + w * soft
    return int(math.copysign(1, difference)) * math.floor(params.soft_levels * abs(difference) + 0.5 + 1e-9)


def sums(magnitudes):
    return PATTERNS[len(magnitudes)] @ np.array(magnitudes, dtype=int)


def share(condition):
    return Fraction(int(condition.sum()), len(condition))


def mid(magnitudes, statistic):
    law = sums(magnitudes)
    return share(law < statistic) + share(law == statistic) / 2


def p_value(magnitudes, statistic):
    return share(sums(magnitudes) >= statistic) if statistic > 0 else Fraction(1)


def binomial_posterior(improved, discordant):
    return Fraction(sum(math.comb(discordant + 1, j) for j in range(improved + 1)), 2 ** (discordant + 1))


def urn(improved, regressed, draws):
    """Law of further improvements when each outcome adds a ball of its own colour to the urn."""
    law = {0: Fraction(1)}
    for drawn in range(draws):
        balls = improved + regressed + 2 + drawn
        after = dict.fromkeys(range(drawn + 2), Fraction(0))
        for x, probability in law.items():
            after[x + 1] += probability * Fraction(improved + 1 + x, balls)
            after[x] += probability * Fraction(regressed + 1 + drawn - x, balls)
        law = after
    return law


def brute_force(evidence, params, is_last_block):
    """(decision, reason, numbers) by the table of rules."""
    tau = Fraction(str(0.6 if params.tau is None else params.tau))
    alpha = Fraction(str(params.alpha))
    pairs = [pair for block in evidence.blocks for pair in block]
    levels = [level(pair, params) for pair in pairs]
    errors = sum(value is None for value in levels)
    answered = len(pairs) - errors
    improved = sum(value is not None and value > 0 for value in levels)
    regressed = sum(value is not None and value < 0 for value in levels)
    discordant = improved + regressed
    numbers = {
        "attempts": len(pairs),
        "errors": errors,
        "improved": improved,
        "regressed": regressed,
        "discordant": discordant,
    }
    if len(pairs) >= params.infra_min_attempts and errors > Fraction(str(params.infra_max_share)) * len(
        pairs
    ):
        return "REJECT", "infra_abort", numbers

    signed = [value * pair.weight for value, pair in zip(levels, pairs, strict=True) if value]
    magnitudes = [abs(value) for value in signed]
    statistic = sum(signed)
    finished = is_last_block or len(pairs) == evidence.planned
    spent, crossed = walk_boundary(evidence, levels, magnitudes, signed, params, alpha, finished)
    probability = mid(magnitudes, statistic)
    numbers |= {
        "statistic": statistic,
        "probability": float(probability),
        "exact_p": float(p_value(magnitudes, statistic)),
        "alpha_spent": float(spent),
    }
    if crossed:
        net = sum(
            (1 if value < 0 else -1)
            for value, pair in zip(levels, pairs, strict=True)
            if value and pair.is_probe
        )
        if params.probe_veto and net >= params.probe_veto:
            return "ACCEPT_PROVISIONAL", "confirmed_but_probe_veto", numbers
        return "ACCEPT_CONFIRMED", "boundary", numbers
    enough = discordant >= params.min_discordant_provisional
    if finished:
        accept = statistic > 0 and probability >= tau and enough
        return ("ACCEPT_PROVISIONAL" if accept else "REJECT"), "terminal", numbers

    unit = 1 if params.metric == "hard" else params.soft_levels
    rest = [unit * weight for weight in evidence.weights[len(pairs) :]]
    if mid(magnitudes + rest, statistic + sum(rest)) < tau:
        return "REJECT", "curtailed", numbers
    worst = statistic - sum(rest)
    unreachable = p_value(magnitudes + rest, statistic + sum(rest)) > alpha
    if worst > 0 and mid(magnitudes + rest, worst) >= tau and enough and unreachable:
        return "ACCEPT_PROVISIONAL", "curtailed", numbers

    more = math.floor(Fraction(len(rest) * (discordant + 1), answered + 4) + Fraction(1, 2))
    hope = sum(
        probability
        for x, probability in urn(improved, regressed, more).items()
        if improved + x > regressed + more - x and binomial_posterior(improved + x, discordant + more) >= tau
    )
    numbers |= {"predictive_power": float(hope), "expected_discordant": more}
    if probability <= Fraction(1, 2) and hope < Fraction(str(params.futility)):
        return "REJECT", "futility", numbers
    return "CONTINUE", "undecided", numbers


def walk_boundary(evidence, levels, magnitudes, signed, params, alpha, finished):
    """Alpha spent over all looks, and whether S crossed at one of them, by marking every sign pattern."""
    patterns = PATTERNS[len(magnitudes)]
    absorbed = np.zeros(len(patterns), dtype=bool)
    spent, crossed, asked = Fraction(0), False, 0
    for number, block in enumerate(evidence.blocks):
        asked += len(block)
        coins = sum(bool(value) for value in levels[:asked])
        time = Fraction(asked, evidence.planned)
        if finished and number == len(evidence.blocks) - 1:
            time = Fraction(1)
        law = patterns[:, :coins] @ np.array(magnitudes[:coins], dtype=int)
        budget = alpha * time - spent + Fraction(1, 10**12)
        for bound in sorted({int(value) for value in law if value > 0}):
            newly = (law >= bound) & ~absorbed
            if share(newly) <= budget:
                absorbed |= newly
                spent += share(newly)
                crossed |= sum(signed[:coins]) >= bound and coins >= params.min_discordant_confirm
                break
    return spent, crossed


@pytest.mark.parametrize("batch", range(10))
def test_verdict_equals_brute_force_over_all_sign_patterns(batch):
    for number in range(batch * CASES // 10, (batch + 1) * CASES // 10):
        rng = random.Random(number)
        is_last_block = rng.random() < 0.4
        params = random_params(rng)
        evidence = random_evidence(rng, is_last_block=is_last_block)
        decision, reason, numbers = brute_force(evidence, params, is_last_block)
        verdict = gate_decision(evidence, params, is_last_block=is_last_block)
        assert (verdict.decision, verdict.reason) == (decision, reason), f"seed {number}"
        for name, expected in numbers.items():
            assert getattr(verdict, name) == pytest.approx(expected, abs=1e-12), f"seed {number}: {name}"


def test_the_random_evidence_meets_every_reason():
    reasons = set()
    for number in range(CASES):
        rng = random.Random(number)
        is_last_block = rng.random() < 0.4
        params = random_params(rng)
        evidence = random_evidence(rng, is_last_block=is_last_block)
        reasons.add(gate_decision(evidence, params, is_last_block=is_last_block).reason)
    assert reasons == {
        "undecided",
        "boundary",
        "confirmed_but_probe_veto",
        "terminal",
        "curtailed",
        "futility",
        "infra_abort",
    }
