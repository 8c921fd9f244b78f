"""What a gate can detect, and what chance would have accepted."""

import numpy as np
import pytest

from core.evolution import GateParams, detectable_gain, expected_null_accepts, gate_decision
from core.evolution.gate_types import GateEvidence, PairResult
from core.evolution.types import HeldGate

PARAMS = GateParams()


def test_longer_ladders_detect_smaller_gains():
    gains = [detectable_gain(n, PARAMS) for n in (15, 25, 40, 80)]
    assert gains == sorted(gains, reverse=True)


def test_churn_makes_gains_harder_to_confirm():
    gains = [detectable_gain(40, PARAMS, churn=churn) for churn in (0.0, 0.1, 0.3)]
    assert gains == sorted(gains)


def test_accepting_needs_less_than_confirming():
    assert detectable_gain(40, PARAMS, tier="accepted") < detectable_gain(40, PARAMS, tier="confirmed")


def test_without_churn_the_gain_is_the_one_that_brings_five_improvements():
    gain = detectable_gain(40, PARAMS)
    fewer_than_five = sum(
        float(np.prod([(40 - i) / (i + 1) for i in range(k)])) * gain**k * (1 - gain) ** (40 - k)
        for k in range(5)
    )
    assert fewer_than_five == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("questions", [0, 4])
def test_a_ladder_too_short_to_confirm_detects_nothing(questions):
    assert detectable_gain(questions, PARAMS) is None


@pytest.mark.parametrize("churn", [-0.1, 1.0])
def test_impossible_churn_is_refused(churn):
    with pytest.raises(ValueError, match="churn"):
        detectable_gain(40, PARAMS, churn=churn)


def test_simulated_gates_detect_the_gain_about_as_often_as_promised():
    """Looking early costs something: the real gate may fall short of 80 %, but not far."""
    churn, draws, random = 0.1, 400, np.random.default_rng(1)
    gain = detectable_gain(40, PARAMS, churn=churn)
    confirmed = 0
    for _ in range(draws):
        change = random.choice([1, -1, 0], size=40, p=[churn / 2 + gain, churn / 2, 1 - churn - gain])
        confirmed += run_gate(change).decision == "ACCEPT_CONFIRMED"
    assert 0.65 <= confirmed / draws <= 0.85


def run_gate(changes):
    pairs = [
        PairResult(f"q{position}", bool(change <= 0), bool(change >= 0))
        for position, change in enumerate(changes)
    ]
    for asked in range(10, len(pairs) + 1, 10):
        blocks = [pairs[start : start + 10] for start in range(0, asked, 10)]
        verdict = gate_decision(
            GateEvidence.from_blocks(len(pairs), blocks), PARAMS, is_last_block=asked == len(pairs)
        )
        if verdict.decision != "CONTINUE":
            return verdict
    raise AssertionError("the last block always decides")


def test_null_accepts_agree_with_gates_played_one_by_one():
    rate, draws, random = 0.25, 1_500, np.random.default_rng(2)
    played = np.mean(
        [
            run_gate(random.choice([1, -1, 0], size=40, p=[rate / 2, rate / 2, 1 - rate])).accepted
            for _ in range(draws)
        ]
    )
    computed = expected_null_accepts([HeldGate(40, 40, 10, tau=0.6)], PARAMS).accepted
    assert computed == pytest.approx(played, abs=3 * (0.25 / draws + 0.25 / 2000) ** 0.5)


def test_null_accepts_are_seeded_and_ordered():
    gates = [HeldGate(40, 20, 6, tau=0.6, probation_pairs=30) for _ in range(5)]
    once = expected_null_accepts(gates, PARAMS, draws=200)
    assert once == expected_null_accepts(gates, PARAMS, draws=200)
    assert 0 < once.kept < once.accepted < len(gates)
    assert once.accepted_low <= once.accepted <= once.accepted_high
    assert once.kept_low <= once.kept <= once.kept_high


def test_a_gate_that_saw_no_change_accepts_nothing_by_chance():
    assert expected_null_accepts([HeldGate(40, 40, 0, tau=0.6)], PARAMS).accepted == 0.0


def test_what_cannot_be_taken_back_is_kept():
    result = expected_null_accepts([HeldGate(40, 40, 12, tau=0.75)], PARAMS, draws=200)
    assert result.kept == result.accepted


def test_no_gates_no_accepts():
    result = expected_null_accepts([], PARAMS)
    assert (result.gates, result.accepted, result.kept) == (0, 0.0, 0.0)


def test_the_sentence_puts_observed_and_expected_side_by_side():
    result = expected_null_accepts([HeldGate(40, 40, 12, tau=0.6)], PARAMS, draws=200)
    sentence = result.explain(accepted=1, kept=0)
    assert sentence.startswith("1 gates: 1 accepted, 0 kept; had every edit been worthless:")


@pytest.mark.parametrize(("answered", "discordant"), [(41, 1), (5, 6)])
def test_impossible_counts_are_refused(answered, discordant):
    with pytest.raises(ValueError, match="discordant <= answered <= planned"):
        HeldGate(40, answered, discordant, tau=0.6)
