"""Paired comparisons and the end of a probation."""

import pytest
from gate_evidence import pairs_of
from hypothesis import given, settings
from hypothesis import strategies as st

from core.evolution import GateParams, PairResult, compare_pairs, settle_probation
from core.evolution.exact import posterior_better

small = st.integers(0, 12)


@settings(max_examples=20)  # each draws 10,000 bootstrap samples
@given(small, small, small)
def test_comparison_counts_what_it_was_given(improved, regressed, ties):
    pairs = [*pairs_of(improved, regressed, ties), PairResult("gone", None, True)]
    comparison = compare_pairs(pairs)
    n = improved + regressed + ties
    assert (comparison.n, comparison.W, comparison.L, comparison.D) == (
        n,
        improved,
        regressed,
        improved + regressed,
    )
    assert float(posterior_better(improved, regressed)) == comparison.P
    assert comparison.missing == 1
    assert comparison.difference == (pytest.approx((improved - regressed) / n) if n else None)


@settings(max_examples=20)
@given(st.integers(1, 12), small, st.integers(0, 5))
def test_interval_encloses_the_difference_and_depends_on_the_seed_alone(improved, regressed, seed):
    pairs = pairs_of(improved, regressed, 10)
    comparison = compare_pairs(pairs, seed=seed)
    assert comparison.low <= comparison.difference <= comparison.high
    assert comparison == compare_pairs(list(reversed(pairs)), seed=seed)


def test_questions_that_fail_together_widen_the_interval():
    pairs = pairs_of(20, 10, 30)
    alone = compare_pairs(pairs)
    together = compare_pairs(pairs, group_of={f"q{i}": f"video {i // 10}" for i in range(60)})
    assert (alone.groups, together.groups) == (60, 6)
    assert together.high - together.low > alone.high - alone.low


@pytest.mark.parametrize("groups", [0, 1])
def test_fewer_than_two_groups_have_no_interval(groups):
    comparison = compare_pairs(pairs_of(groups * 3, 0), group_of=dict.fromkeys(["q0", "q1", "q2"], "one"))
    assert (comparison.low, comparison.high) == (None, None)


@pytest.mark.parametrize(
    ("improved", "regressed", "decision"),
    [(0, 0, "kept"), (1, 1, "kept"), (3, 1, "kept"), (0, 1, "rolled_back"), (4, 5, "rolled_back")],
)
def test_probation_keeps_what_is_not_worse(improved, regressed, decision):
    settlement = settle_probation(pairs_of(improved, regressed, 10), GateParams())
    assert settlement.decision == decision
    assert (settlement.n, settlement.W, settlement.L) == (10 + improved + regressed, improved, regressed)
    assert settlement.reason


def test_probation_stays_open_without_evidence():
    settlement = settle_probation([], GateParams())
    assert (settlement.decision, settlement.n, settlement.missing) == ("open", 0, 0)
    assert settlement.reason


def test_probation_asks_for_more_when_told_to():
    assert settle_probation(pairs_of(1, 1, 8), GateParams(settle_tau=0.6)).decision == "rolled_back"


@pytest.mark.parametrize(("missing", "decision"), [(1, "kept"), (2, "open"), (10, "open")])
def test_probation_stays_open_when_a_fifth_or_more_is_missing(missing, decision):
    gone = [PairResult(f"gone{i}", True, None) for i in range(missing)]
    settlement = settle_probation([*pairs_of(2, 0, 8 - missing if missing < 8 else 0), *gone], GateParams())
    assert settlement.decision == decision
    assert settlement.missing == missing
