"""Properties that hold for every evidence."""

import dataclasses

import pytest
from gate_evidence import as_the_gate_would_reach_it, evidences, one_block, pairs_of, parameters
from hypothesis import assume, given
from hypothesis import strategies as st

from core.evolution.gate import classify_quadrants, gate_decision, pair_block, signed_level
from core.evolution.gate_types import GateEvidence, GateParams, PairResult


def with_blocks(evidence, blocks):
    return GateEvidence.from_blocks(evidence.planned, blocks, evidence.weights)


def exchanged(pair):
    """The pair with the roles of baseline and candidate exchanged."""
    return dataclasses.replace(
        pair, base=pair.cand, cand=pair.base, base_soft=pair.cand_soft, cand_soft=pair.base_soft
    )


@given(evidences(), parameters(), st.booleans(), st.randoms(use_true_random=False))
def test_verdict_never_depends_on_the_order_inside_a_block(evidence, params, is_last_block, rng):
    shuffled = [rng.sample(block, len(block)) for block in evidence.blocks]
    assert gate_decision(evidence, params, is_last_block=is_last_block) == gate_decision(
        with_blocks(evidence, shuffled), params, is_last_block=is_last_block
    )


@given(evidences(spare=5), parameters())
def test_confirmed_implies_exact_p_within_alpha_at_the_look_that_crossed(evidence, params):
    reached, is_last = as_the_gate_would_reach_it(evidence, params)
    verdict = gate_decision(reached, params, is_last_block=is_last)
    if verdict.reason in ("boundary", "confirmed_but_probe_veto"):
        assert verdict.exact_p <= params.alpha + 1e-9
        assert verdict.improved > 0


@given(evidences(), parameters(), st.booleans())
def test_alpha_spent_never_exceeds_alpha(evidence, params, is_last_block):
    verdict = gate_decision(evidence, params, is_last_block=is_last_block)
    assert verdict.alpha_spent is None or 0 <= verdict.alpha_spent <= params.alpha + 1e-9


@given(evidences(missing=False, spare=1), parameters())
def test_a_tie_more_on_the_last_block_leaves_the_decision_unchanged(evidence, params):
    tie = PairResult("tie", True, True, 0.5, 0.5, evidence.weights[-1])
    longer = with_blocks(evidence, [*evidence.blocks[:-1], (*evidence.blocks[-1], tie)])
    before = gate_decision(evidence, params, is_last_block=True)
    after = gate_decision(longer, params, is_last_block=True)
    assert (before.decision, before.reason) == (after.decision, after.reason)


@given(evidences(missing=False), parameters(), st.data())
def test_an_improvement_made_a_tie_never_creates_an_accept(evidence, params, data):
    improved = [pair for pair in evidence.pairs if signed_level(pair, params) > 0]
    assume(improved)
    chosen = data.draw(st.sampled_from(improved))
    tie = dataclasses.replace(chosen, cand=chosen.base, cand_soft=chosen.base_soft)
    lessened = [[tie if pair == chosen else pair for pair in block] for block in evidence.blocks]
    before = gate_decision(evidence, params, is_last_block=True)
    after = gate_decision(with_blocks(evidence, lessened), params, is_last_block=True)
    assert before.accepted or not after.accepted


@given(evidences(missing=False, spare=3, decisive=True), parameters())
def test_mirrored_evidence_is_never_accepted_when_the_original_was_confirmed(evidence, params):
    reached, is_last = as_the_gate_would_reach_it(evidence, params)
    original = gate_decision(reached, params, is_last_block=is_last)
    mirrored = with_blocks(reached, [[exchanged(pair) for pair in block] for block in reached.blocks])
    if original.decision == "ACCEPT_CONFIRMED":
        assert not gate_decision(mirrored, params, is_last_block=is_last).accepted


@given(evidences(missing=False, spare=4, decisive=True), parameters(), st.data())
def test_a_curtailed_decision_is_the_one_that_the_end_would_have_brought(evidence, params, data):
    verdict = gate_decision(evidence, params, is_last_block=False)
    left = evidence.weights[evidence.attempts :]
    rest = [
        PairResult(
            f"rest{position}",
            data.draw(st.booleans()),
            data.draw(st.booleans()),
            data.draw(st.sampled_from([0.0, 0.5, 1.0])),
            data.draw(st.sampled_from([0.0, 0.5, 1.0])),
            weight,
        )
        for position, weight in enumerate(left)
    ]
    end = gate_decision(with_blocks(evidence, [*evidence.blocks, rest]), params, is_last_block=True)
    if verdict.reason == "curtailed":
        assert end.decision == verdict.decision


@given(evidences(), parameters(), st.booleans())
def test_every_verdict_explains_itself_in_one_sentence(evidence, params, is_last_block):
    sentence = gate_decision(evidence, params, is_last_block=is_last_block).explain()
    assert sentence.endswith(".")
    assert "None" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("improved", "regressed", "ground"),
    [
        (1, 0, "too few answers changed"),
        (3, 3, "a tie keeps the text in force"),
        (8, 7, "where 0.6 is asked"),
    ],
)
def test_a_rejection_at_the_end_names_the_condition_that_failed(improved, regressed, ground):
    verdict = gate_decision(one_block(improved, regressed, 20), GateParams(), is_last_block=True)
    assert verdict.decision == "REJECT"
    assert ground in verdict.explain()


@given(evidences(), parameters())
def test_the_last_block_always_decides(evidence, params):
    assert gate_decision(evidence, params, is_last_block=True).decision != "CONTINUE"


@pytest.mark.parametrize("pairs", [0, 1, 40])
def test_identical_answers_keep_the_incumbent(pairs):
    assert gate_decision(one_block(0, 0, pairs), GateParams(), is_last_block=True).decision == "REJECT"


def test_more_pairs_than_64_bits_can_count_are_still_exact():
    verdict = gate_decision(one_block(60, 40), GateParams(), is_last_block=True)
    assert verdict.decision == "ACCEPT_CONFIRMED"
    assert verdict.exact_p == pytest.approx(0.028443966820490395, abs=1e-15)  # P(Bin(100, 1/2) >= 60)


def test_missing_pairs_are_attempts_and_no_evidence():
    pairs = [PairResult("a", None, True), PairResult("b", False, None), PairResult("c", False, True)]
    verdict = gate_decision(GateEvidence.from_blocks(3, [pairs]), GateParams(), is_last_block=True)
    assert (verdict.attempts, verdict.errors, verdict.discordant) == (3, 2, 1)


@pytest.mark.parametrize("weight", [0, -1, 1.5, 2.0, True])
def test_a_pairs_weight_is_a_positive_integer(weight):
    with pytest.raises(ValueError, match="positive integer"):
        PairResult("q", True, False, weight=weight)


@pytest.mark.parametrize("metric", ["soft", "mixed"])
def test_a_pair_without_a_soft_score_counts_as_unanswered_and_the_verdict_says_so(metric):
    evidence = GateEvidence.from_blocks(
        2, [[PairResult("a", False, True), PairResult("b", True, True, 1, 1)]]
    )
    verdict = gate_decision(evidence, GateParams(metric=metric), is_last_block=True)
    assert (verdict.errors, verdict.discordant) == (1, 0)
    assert "1 had no answer or no score" in verdict.explain()


@pytest.mark.parametrize("metric", ["soft", "mixed"])
def test_without_a_judge_a_gate_on_soft_scores_is_aborted_and_blames_no_edit(metric):
    verdict = gate_decision(one_block(10, 0), GateParams(metric=metric), is_last_block=True)
    assert (verdict.reason, verdict.errors) == ("infra_abort", 10)
    assert "10 had no answer or no score" in verdict.explain()
    assert gate_decision(one_block(10, 0), GateParams(), is_last_block=True).errors == 0


def test_a_crossing_that_was_undone_since_is_not_explained_by_what_stands_now():
    evidence = GateEvidence.from_blocks(20, [pairs_of(10, 0), pairs_of(0, 10, prefix="later")])
    verdict = gate_decision(evidence, GateParams(), is_last_block=True)
    assert (verdict.decision, verdict.exact_p) == ("ACCEPT_CONFIRMED", 1.0)
    assert "an earlier block" in verdict.explain()
    assert "exact p" not in verdict.explain()
    probes = [dataclasses.replace(pair, is_probe=True) for pair in evidence.blocks[1]]
    vetoed = gate_decision(
        with_blocks(evidence, [evidence.blocks[0], probes]), GateParams(), is_last_block=True
    )
    assert vetoed.reason == "confirmed_but_probe_veto"
    assert "an earlier block" in vetoed.explain()


def test_crossing_is_latched():
    evidence = GateEvidence.from_blocks(40, [pairs_of(7, 0, 3), pairs_of(0, 7, 3, prefix="later")])
    assert gate_decision(evidence, GateParams(), is_last_block=False).decision == "ACCEPT_CONFIRMED"


@pytest.mark.parametrize(
    ("planned", "blocks", "weights", "problem"),
    [
        (1, [pairs_of(1, 1)], None, "only 1 questions were planned"),
        (2, [pairs_of(1, 0), pairs_of(1, 0)], None, "'q0' appears twice"),
        (2, [pairs_of(1, 0)], [3, 1], "not the planned ones"),
        (2, [], [1], "planned 2 questions but 1 weights"),
        (1, [], [0], "positive"),
        (2, [], [1.9, 1.5], "positive integers"),
        (2.0, [], None, "planned must be"),
    ],
)
def test_evidence_that_contradicts_its_plan_is_refused(planned, blocks, weights, problem):
    with pytest.raises(ValueError, match=problem):
        GateEvidence.from_blocks(planned, blocks, weights)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 0.0),
        ("alpha", 0.3),
        ("tau", 0.4),
        ("tau", 1.0),
        ("futility", 1.0),
        ("block", 0),
        ("block", 2.5),
        ("block", True),
        ("soft_levels", 2.5),
        ("soft_levels", 20.0),
        ("min_pairs", "10"),
        ("max_questions", 5),
        ("metric", "loud"),
        ("infra_max_share", 1.0),
        ("p_high", 0.1),
        ("gamma", 1.0),
        ("ladder", "rope"),
        ("settle_tau", 0.4),
        ("slow_tau", 1.0),
    ],
)
def test_parameter_out_of_range_or_no_integer_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        GateParams(**{field: value})


@pytest.mark.parametrize(
    ("tau", "probation", "shared", "expected"),
    [
        (None, True, False, 0.60),
        (None, False, False, 0.75),
        (None, True, True, 0.75),
        (0.65, True, False, 0.65),
        (0.65, True, True, 0.75),
        (0.9, True, True, 0.9),
    ],
)
def test_tau_of_a_file_depends_on_whether_probation_can_take_it_back(tau, probation, shared, expected):
    assert GateParams(tau=tau).for_file(probation=probation, shared=shared).tau == expected


@dataclasses.dataclass(frozen=True)
class Entry:
    question_id: str
    weight: int = 1
    is_probe: bool = False


def test_pair_block_follows_the_ladder_and_marks_what_is_missing():
    entries = [Entry("b", weight=2), Entry("a", is_probe=True), Entry("c")]
    pairs = pair_block(
        {"a": (True, None), "b": (False, 0.5)}, {"a": (False, None), "b": (True, 1.0)}, entries
    )
    assert [(pair.question_id, pair.weight, pair.is_probe) for pair in pairs] == [
        ("b", 2, False),
        ("a", 1, True),
        ("c", 1, False),
    ]
    assert pairs[2].missing
    assert (pairs[0].base_soft, pairs[0].cand_soft) == (0.5, 1.0)


def test_quadrants_hold_every_question_once():
    pairs = [*pairs_of(2, 1, 1), PairResult("wrong", False, False), PairResult("gone", True, None)]
    quadrants = classify_quadrants(pairs)
    assert quadrants.improved == ("q0", "q1")
    assert quadrants.regressed == ("q2",)
    assert quadrants.both_right == ("q3",)
    assert quadrants.both_wrong == ("wrong",)
    assert quadrants.missing == ("gone",)
