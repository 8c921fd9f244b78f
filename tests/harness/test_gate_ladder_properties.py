"""What holds of every ladder, whatever the questions, the answers and the seed."""

import dataclasses
import itertools
import random
from collections import Counter
from typing import get_args

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.evolution.gate_types import LadderKind
from core.types import GeneratedQuestion
from harness.gate_ladder import (
    MAX_WEIGHT,
    QUOTAS,
    GatePools,
    apportion,
    build_cold_entries,
    interleaved,
    stratum_counts,
    stratum_of,
)

EXAMPLES = 200
TASK_TYPES = ("order", "counting", "objects")
KINDS = get_args(LadderKind)
BAND = {"p_low": 0.15, "p_high": 0.85}

questions_known = st.dictionaries(
    st.from_regex(r"[a-z][0-9]{1,2}", fullmatch=True),
    st.tuples(st.sampled_from(TASK_TYPES), st.sampled_from([True, False, None])),
    max_size=60,
)
updates = st.lists(st.integers(0, 2**32), max_size=6)  # each: the seed of one epoch's answers


@dataclasses.dataclass(frozen=True)
class World:
    """A pool with some history, and what a gate asks of it."""

    pools: GatePools
    task_types: list[str]
    excluded: frozenset[str]
    max_questions: int
    seed: int

    def ladder(self, kind: str):
        return self.pools.ladder_for(
            self.task_types,
            self.excluded,
            ladder=kind,
            max_questions=self.max_questions,
            seed=self.seed,
            **BAND,
        )

    @property
    def eligible(self) -> set[str]:
        chosen = set(self.task_types)
        return {
            one.question_id
            for task_type, entries in self.pools.entries.items()
            for one in entries
            if task_type in chosen and one.question_id not in self.excluded
        }


def pools_of(known, n_probes: int, seed: int, epochs: list[int]) -> GatePools:
    correctness = {name: right for name, (_, right) in known.items()}
    by_type: dict[str, list[GeneratedQuestion]] = {}
    for name, (task_type, _) in known.items():
        question = GeneratedQuestion(name, "film", task_type, "What comes next?", ("A. tea", "B. rain"), "A")
        by_type.setdefault(task_type, []).append(question)
    entries = {
        task_type: tuple(build_cold_entries(group, correctness, n_probes=n_probes, seed=seed))
        for task_type, group in by_type.items()
    }
    pools = GatePools(entries, "made in a test", n_probes)
    for epoch in epochs:
        answers = random.Random(epoch)
        observed = {name: answers.random() < 0.5 for name in sorted(known) if answers.random() < 0.7}
        pools = pools.update_probs(observed, gamma=0.7)
    return pools


@st.composite
def worlds(draw) -> World:
    known = draw(questions_known)
    pools = pools_of(known, draw(st.integers(0, 6)), draw(st.integers(0, 99)), draw(updates))
    excluded = draw(st.frozensets(st.sampled_from(sorted(known)), max_size=15)) if known else frozenset()
    return World(
        pools,
        draw(st.lists(st.sampled_from(TASK_TYPES), max_size=4)),
        excluded,
        draw(st.integers(0, 70)),
        draw(st.integers(0, 99)),
    )


@settings(max_examples=EXAMPLES)
@given(worlds(), st.sampled_from(KINDS))
def test_a_ladder_holds_each_question_once_and_none_that_is_excluded(world, kind):
    names = [one.question_id for one in world.ladder(kind)]
    assert len(set(names)) == len(names)
    assert set(names) <= world.eligible


@settings(max_examples=EXAMPLES)
@given(worlds(), st.sampled_from(KINDS))
def test_a_ladder_is_as_long_as_it_can_be_and_no_longer_than_it_may(world, kind):
    assert len(world.ladder(kind)) == min(world.max_questions, len(world.eligible))


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_a_plan_ladder_has_its_probes_at_the_tail_and_no_more_than_allowed(world):
    flags = [one.is_probe for one in world.ladder("plan")]
    assert flags == sorted(flags)
    available = sum(
        one.is_probe and one.question_id in world.eligible
        for entries in world.pools.entries.values()
        for one in entries
    )
    assert sum(flags) == min(world.pools.n_probes, available, world.max_questions)
    assert {one.weight for one in world.ladder("plan")} <= {1}


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_a_warm_plan_ladder_is_band_by_information_then_unknown_then_fill(world):
    assume(world.pools.warm)
    ordinary = [one for one in world.ladder("plan") if not one.is_probe]
    in_band = [BAND["p_low"] <= one.p_hat <= BAND["p_high"] for one in ordinary]
    assert in_band == sorted(in_band, reverse=True)
    band = ordinary[: sum(in_band)]
    observed = [one for one in band if one.n_obs]
    assert band[: len(observed)] == observed
    variances = [one.p_hat * (1 - one.p_hat) for one in observed]
    assert all(first >= second - 1e-9 for first, second in itertools.pairwise(variances))


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_every_prefix_of_a_stratified_ladder_keeps_the_quotas_within_one(world):
    strata = [stratum_of(one) for one in world.ladder("stratified")]
    totals = Counter(strata)
    for places in range(1, len(strata) + 1):
        taken = Counter(strata[:places])
        assert all(abs(taken[name] - places * total / len(strata)) < 1 for name, total in totals.items())


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_stratified_weights_are_integers_from_1_to_8_equal_within_a_stratum_and_8_is_used(world):
    ladder = world.ladder("stratified")
    weights = {stratum_of(one): one.weight for one in ladder}
    assert all(one.weight == weights[stratum_of(one)] for one in ladder)
    assert all(isinstance(weight, int) and 1 <= weight <= MAX_WEIGHT for weight in weights.values())
    assert not ladder or max(weights.values()) == MAX_WEIGHT
    assert all(one.is_probe == (stratum_of(one) == "easy") for one in ladder)


@settings(max_examples=EXAMPLES)
@given(
    questions_known,
    st.integers(0, 6),
    updates,
    st.integers(0, 70),
    st.integers(0, 99),
    st.sampled_from(KINDS),
    st.randoms(),
)
def test_ladders_depend_on_seed_and_content_and_not_on_the_order_of_the_input(
    known, n_probes, epochs, max_questions, seed, kind, shuffler
):
    shuffled = list(known.items())
    shuffler.shuffle(shuffled)
    ladders = [
        pools_of(dict(items), n_probes, seed, epochs).ladder_for(
            types, [], ladder=kind, max_questions=max_questions, seed=seed, **BAND
        )
        for items, types in [(known.items(), TASK_TYPES), (shuffled, TASK_TYPES[::-1])]
    ]
    assert ladders[0] == ladders[1]


@settings(max_examples=EXAMPLES)
@given(
    worlds(),
    st.dictionaries(st.from_regex(r"[a-z][0-9]{1,2}", fullmatch=True), st.booleans()),
    st.floats(0, 0.99),
)
def test_an_update_moves_each_observed_estimate_toward_its_answer_and_no_other(world, observed, gamma):
    after = world.pools.update_probs(observed, gamma)
    for task_type, entries in world.pools.entries.items():
        for old, new in zip(entries, after.entries[task_type], strict=True):
            if old.question_id not in observed:
                assert new == old
                continue
            assert 0 <= new.p_hat <= 1
            assert new.n_obs == old.n_obs + 1
            answer = float(observed[old.question_id])
            assert abs(new.p_hat - answer) <= abs(old.p_hat - answer) + 1e-12
            assert (new.is_probe, new.weight) == (old.is_probe, old.weight)


counts = st.fixed_dictionaries({name: st.integers(0, 60) for name in QUOTAS})


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 80), counts)
def test_strata_share_the_places_within_what_they_have_and_keep_the_quotas_where_they_can(places, available):
    chosen = stratum_counts(places, available)
    assert sum(chosen.values()) == min(places, sum(available.values()))
    assert all(chosen[name] <= available[name] for name in QUOTAS)
    shares = apportion(places, QUOTAS)
    assert all(abs(shares[name] - places * quota / 100) < 1 for name, quota in QUOTAS.items())
    if all(available[name] >= shares[name] for name in QUOTAS):
        assert chosen == shares
    # A stratum gets less than its share only when it has no more.
    assert all(chosen[name] == available[name] or chosen[name] >= shares[name] for name in QUOTAS)


@settings(max_examples=EXAMPLES)
@given(counts)
def test_interleaving_takes_from_each_stratum_exactly_its_count(chosen):
    assert Counter(interleaved(chosen)) == Counter(chosen)
