"""What other gates would have said."""

import math

import pytest
from gate_evidence import evidences, one_block, pairs_of
from hypothesis import given

from core.evolution.gate_types import GateEvidence, PairResult
from core.evolution.shadow import SHADOW_GATES, shadow_verdicts


def said(evidence):
    return {verdict.gate: verdict for verdict in shadow_verdicts(evidence)}


@given(evidences())
def test_every_shadow_gate_speaks_once_and_uses_answered_pairs_alone(evidence):
    answered = sum(not pair.missing for pair in evidence.pairs)
    verdicts = shadow_verdicts(evidence)
    assert [verdict.gate for verdict in verdicts] == list(SHADOW_GATES)
    for verdict in verdicts:
        assert verdict.n_pairs == (min(3, answered) if verdict.gate == "minibatch3" else answered)


@given(evidences())
def test_no_shadow_gate_accepts_when_nothing_improved(evidence):
    if not any(pair.cand and pair.base is False for pair in evidence.pairs):
        assert not any(verdict.accept for verdict in shadow_verdicts(evidence))


def test_strict_greater_accepts_a_lead_of_one():
    assert said(one_block(5, 4))["strict_greater"].accept
    assert not said(one_block(5, 5))["strict_greater"].accept


@pytest.mark.parametrize(("improved", "regressed", "accept"), [(5, 0, True), (4, 0, False), (9, 2, True)])
def test_mcnemar_is_the_exact_binomial_test(improved, regressed, accept):
    verdict = said(one_block(improved, regressed, 5))["mcnemar_exact"]
    total = improved + regressed
    tail = sum(math.comb(total, w) for w in range(improved, total + 1)) / 2**total
    assert verdict.statistic == pytest.approx(tail)
    assert verdict.accept == accept


def test_one_standard_error_is_the_bar_of_paired_k_se():
    verdict = said(one_block(3, 1, 4))["paired_k_se"]
    assert verdict.statistic == pytest.approx(0.25 / math.sqrt((4 - 8 * 0.25**2) / 7 / 8))
    assert verdict.accept == (verdict.statistic > 1)


def test_pairs_without_spread_have_no_standard_error():
    assert said(one_block(4, 0))["paired_k_se"].statistic is None
    assert said(one_block(4, 0))["paired_k_se"].accept
    assert not said(one_block(0, 0, 4))["paired_k_se"].accept


def test_e_process_keeps_the_wealth_it_once_reached():
    evidence = GateEvidence.from_blocks(30, [pairs_of(8, 0), pairs_of(0, 8, prefix="later")])
    verdict = said(evidence)["e_process"]
    assert verdict.statistic == pytest.approx(1.5**8)
    assert verdict.accept


def test_minibatch_looks_at_the_first_three_answers():
    pairs = [PairResult("gone", None, True), *pairs_of(1, 0, 2), *pairs_of(0, 9, prefix="later")]
    assert said(GateEvidence.from_blocks(13, [pairs]))["minibatch3"].accept
