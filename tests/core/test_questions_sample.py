"""Stratified samples: places add up, small types are raised, order never matters, a seed repeats."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import made

from core.questions import check_correctness, stratified_sample


def benchmark(sizes):
    """Questions `type-number`, as many of each task type as `sizes` says."""
    return [
        made(question_id=f"{task_type}-{number:03}", task_type=task_type)
        for task_type, size in sizes.items()
        for number in range(size)
    ]


def ids(questions):
    return [question.question_id for question in questions]


def per_type(questions):
    return Counter(question.task_type for question in questions)


class_sizes = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 25), min_size=1)
counts = st.integers(0, 120)
seeds = st.integers(0, 2**63)
verdicts = st.sampled_from([True, False, None])
ratios = st.none() | st.floats(0, 1)


@st.composite
def samplings(draw):
    """Questions, a correctness map that leaves some out, and the other arguments."""
    questions = benchmark(draw(class_sizes))
    drawn = {question_id: draw(verdicts) for question_id in ids(questions)}
    correctness = {question_id: verdict for question_id, verdict in drawn.items() if verdict is not None}
    arguments = {
        "n": draw(counts),
        "correct_ratio": draw(ratios),
        "min_per_class": draw(st.integers(0, 8)),
        "seed": draw(seeds),
    }
    return questions, correctness, arguments


@given(samplings())
def test_a_sample_has_n_questions_or_all_and_none_twice(sampling):
    questions, correctness, arguments = sampling
    sample = stratified_sample(questions, correctness=correctness, **arguments)
    assert len(sample) == min(arguments["n"], len(questions))
    assert len(set(ids(sample))) == len(sample)
    assert set(sample) <= set(questions)


@given(samplings(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(sampling, random):
    questions, correctness, arguments = sampling
    expected = stratified_sample(questions, correctness=correctness, **arguments)
    shuffled = random.sample(questions, len(questions))
    reordered = dict(random.sample(sorted(correctness.items()), len(correctness)))
    assert stratified_sample(shuffled, correctness=reordered, **arguments) == expected


@given(samplings())
def test_the_input_is_left_as_it_was(sampling):
    questions, correctness, arguments = sampling
    before = list(questions), dict(correctness)
    stratified_sample(questions, correctness=correctness, **arguments)
    assert (questions, correctness) == before


@given(class_sizes, counts, seeds)
def test_places_are_proportional_to_within_one(sizes, n, seed):
    questions = benchmark(sizes)
    if n > len(questions):
        return
    got = per_type(stratified_sample(questions, n, seed=seed))
    for task_type, size in sizes.items():
        assert math.floor(n * size / len(questions)) <= got[task_type] <= math.ceil(n * size / len(questions))


@given(class_sizes, counts, seeds)
def test_places_left_over_go_to_the_largest_remainders(sizes, n, seed):
    questions = benchmark(sizes)
    if n > len(questions):
        return
    got = per_type(stratified_sample(questions, n, seed=seed))
    remainders = {name: n * size % len(questions) for name, size in sizes.items()}
    raised = [remainders[name] for name, size in sizes.items() if got[name] > n * size // len(questions)]
    left = [remainders[name] for name, size in sizes.items() if got[name] == n * size // len(questions)]
    assert min(raised, default=math.inf) >= max(left, default=0)


@given(samplings())
def test_every_type_gets_its_minimum_when_there_is_room(sampling):
    questions, correctness, arguments = sampling
    sizes = per_type(questions)
    minimum = {name: min(arguments["min_per_class"], size) for name, size in sizes.items()}
    got = per_type(stratified_sample(questions, correctness=correctness, **arguments))
    if sum(minimum.values()) <= arguments["n"]:
        assert all(got[name] >= least for name, least in minimum.items())
    else:  # no room: as even as it goes, so none of the short ones is two below a larger share
        short = [got[name] for name, least in minimum.items() if got[name] < least]
        assert not short or max(got.values(), default=0) - min(short) <= 1


@given(class_sizes, counts, st.integers(0, 8), seeds)
def test_raising_takes_from_the_largest_only(sizes, n, minimum, seed):
    questions = benchmark(sizes)
    plain = per_type(stratified_sample(questions, n, seed=seed))
    raised = per_type(stratified_sample(questions, n, min_per_class=minimum, seed=seed))
    gave = [name for name in sizes if raised[name] < plain[name]]
    kept = [name for name in sizes if raised[name] >= plain[name]]
    # A giver still has as many as any type that gave nothing, but for the one place it gave last.
    assert all(
        raised[giver] + 1 >= raised[name] for giver in gave for name in kept if raised[name] == plain[name]
    )


@given(samplings())
def test_correctness_is_not_looked_at_without_a_ratio(sampling):
    questions, correctness, arguments = sampling
    arguments["correct_ratio"] = None
    assert stratified_sample(questions, correctness=correctness, **arguments) == stratified_sample(
        questions, **arguments
    )


@given(samplings(), st.floats(0, 1))
def test_a_ratio_holds_in_every_type_as_far_as_the_questions_last(sampling, ratio):
    questions, correctness, arguments = sampling
    arguments["correct_ratio"] = ratio
    sample = stratified_sample(questions, correctness=correctness, **arguments)

    def known(among, task_type, verdict):
        return sum(correctness.get(q.question_id) is verdict for q in among if q.task_type == task_type)

    for task_type, places in per_type(sample).items():
        right, wrong, unobserved = (known(questions, task_type, verdict) for verdict in (True, False, None))
        wanted = min(round(places * ratio), right)
        taken_wrong = min(places - wanted, wrong)
        taken_unobserved = min(places - wanted - taken_wrong, unobserved)
        assert known(sample, task_type, False) == taken_wrong
        assert known(sample, task_type, None) == taken_unobserved
        assert known(sample, task_type, True) == places - taken_wrong - taken_unobserved


def test_a_ratio_of_zero_is_not_no_ratio():
    questions = benchmark({"a": 40})
    correctness = {question_id: number % 2 == 0 for number, question_id in enumerate(ids(questions))}
    for ratio, right in [(0, 0), (0.25, 5), (1, 20)]:
        sample = stratified_sample(questions, 20, correctness=correctness, correct_ratio=ratio, seed=1)
        assert sum(correctness[question_id] for question_id in ids(sample)) == right


@pytest.mark.parametrize("verdict", [True, False])
def test_all_right_or_all_wrong_still_fills_the_sample(verdict):
    questions = benchmark({"a": 10, "b": 20})
    correctness = dict.fromkeys(ids(questions), verdict)
    sample = stratified_sample(questions, 12, correctness=correctness, correct_ratio=0.5, seed=3)
    assert per_type(sample) == {"a": 4, "b": 8}


@given(seeds)
def test_none_and_one_and_one_class_work(seed):
    assert stratified_sample([], 5, min_per_class=2, seed=seed) == []
    assert stratified_sample([made()], 1, min_per_class=3, seed=seed) == [made()]
    assert stratified_sample([made()], 0, seed=seed) == []
    one_class = benchmark({"a": 9})
    assert len(stratified_sample(one_class, 4, min_per_class=2, seed=seed)) == 4


def test_asking_for_more_than_there_is_gives_all_by_id():
    questions = benchmark({"b": 3, "a": 4})
    assert ids(stratified_sample(questions, 100, seed=0)) == sorted(ids(questions))


def test_seeds_differ_and_one_seed_repeats():
    questions = benchmark({"a": 30, "b": 30})
    drawn = [ids(stratified_sample(questions, 20, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_one_type_draws_does_not_hang_on_the_others():
    alone = stratified_sample(benchmark({"a": 30}), 10, seed=5)
    among = stratified_sample(benchmark({"a": 30, "b": 60}), 30, seed=5)
    assert [question for question in among if question.task_type == "a"] == alone


def test_every_question_is_as_likely_as_any_other():
    questions = benchmark({"a": 10, "b": 20})
    drawn = Counter(name for seed in range(600) for name in ids(stratified_sample(questions, 9, seed=seed)))
    # Each is drawn with probability 0.3: 180 of 600 times, standard error 11.2; five of them are allowed.
    assert set(drawn) == set(ids(questions))
    assert all(abs(count - 180) < 57 for count in drawn.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": -1}, "not negative"),
        ({"n": 1, "min_per_class": -1}, "not negative"),
        ({"n": 1, "correct_ratio": 1.5, "correctness": {}}, "correct_ratio: 1.5"),
        ({"n": 1, "correct_ratio": float("nan"), "correctness": {}}, "correct_ratio: nan"),
        ({"n": 1, "correct_ratio": 0.0}, "correct_ratio: needs correctness"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        stratified_sample([made()], seed=0, **arguments)


def test_an_id_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="question_id 'q1' stands twice"):
        stratified_sample([made(), made(video_id="other")], 1, seed=0)


@pytest.mark.parametrize("known", ["yes", 1, 0.5, np.True_, np.False_])
def test_a_correctness_that_is_no_bool_is_told_by_question(known):
    with pytest.raises(ValueError, match=r"correctness of 'q1': .*use bool"):
        stratified_sample([made()], 1, correctness={"q1": known}, correct_ratio=0.5, seed=0)
    check_correctness({"q1": True, "q2": False, "q3": None})
