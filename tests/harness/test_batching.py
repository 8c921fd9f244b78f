"""Mini-batches: their invariants on generated classes, and what a user of `build_batches` relies on."""

import functools
import math
import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.types import GeneratedQuestion
from harness.batching import _distribute_large_classes, _pack_small_class, _place_round_robin, build_batches

THOROUGH = settings(max_examples=2000)


@functools.cache
def question(task_type: str, number: int) -> GeneratedQuestion:
    return GeneratedQuestion(f"{task_type}-{number}", f"film-{number}", task_type, "?", ("a", "b"), "A")


def ask(task_type: str, n: int) -> list[GeneratedQuestion]:
    return [question(task_type, number) for number in range(n)]


def ids(questions) -> list[str]:
    return [question.question_id for question in questions]


def counts(batches, task_type: str) -> list[int]:
    return [sum(question.task_type == task_type for question in batch) for batch in batches]


@dataclass(frozen=True)
class Case:
    """One input. `classes` holds how many questions of each class are wrong, right and unknown."""

    classes: tuple[tuple[int, int, int], ...]
    batch_size: int
    min_class: int
    correct_ratio: float
    seed: int

    def questions(self) -> list[GeneratedQuestion]:
        return [question for i, sizes in enumerate(self.classes) for question in ask(f"class{i}", sum(sizes))]

    def correctness(self) -> dict[str, bool | None]:
        """Wrong ones first, then right ones; unknown ones are `None` or (even numbers) missing."""
        known: dict[str, bool | None] = {}
        for i, (wrong, right, unknown) in enumerate(self.classes):
            answers = [False] * wrong + [True] * right + [None] * unknown
            numbered = list(enumerate(answers))
            known |= {f"class{i}-{n}": answer for n, answer in numbered if answer is not None or n % 2}
        return known

    def build(self, questions=None) -> tuple[list[list[GeneratedQuestion]], int]:
        return build_batches(
            self.questions() if questions is None else questions,
            self.correctness(),
            batch_size=self.batch_size,
            min_class=self.min_class,
            correct_ratio=self.correct_ratio,
            seed=self.seed,
        )

    def selected(self, i: int) -> int:
        """How many questions of class `i` take part, by the formula of the specification."""
        wrong, right, _ = self.classes[i]
        wanted = round(wrong * self.correct_ratio / (1 - self.correct_ratio))
        return wrong + min(right, wanted) if wrong else 0


@st.composite
def cases(draw) -> Case:
    sizes = st.tuples(st.integers(0, 25), st.integers(0, 12), st.integers(0, 3))
    batch_size = draw(st.integers(1, 12))
    return Case(
        classes=tuple(draw(st.lists(sizes, max_size=7))),
        batch_size=batch_size,
        min_class=draw(st.integers(0, batch_size - 1)),
        correct_ratio=draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8])),
        seed=draw(st.integers(0, 3)),
    )


@THOROUGH
@given(cases())
def test_every_selected_question_is_placed_exactly_once(case):
    batches, placed = case.build()
    appearances = Counter(ids(question for batch in batches for question in batch))
    assert set(appearances.values()) <= {1}
    assert placed == appearances.total() == sum(map(case.selected, range(len(case.classes))))
    correctness = case.correctness()
    assert {name for name, answer in correctness.items() if answer is False} <= set(appearances)
    assert all(correctness.get(name) is not None for name in appearances)


@THOROUGH
@given(cases())
def test_no_batch_is_empty_or_over_batch_size(case):
    batches, placed = case.build()
    assert all(1 <= len(batch) <= case.batch_size for batch in batches)
    assert len(batches) >= math.ceil(placed / case.batch_size)


@THOROUGH
@given(cases())
def test_small_classes_are_never_split(case):
    batches, _ = case.build()
    for i in range(len(case.classes)):
        if 0 < case.selected(i) <= case.min_class:
            assert sum(count > 0 for count in counts(batches, f"class{i}")) == 1


@THOROUGH
@given(cases())
def test_same_input_and_seed_give_the_same_batches_whatever_the_order(case):
    shuffled = case.questions()
    random.Random(case.seed).shuffle(shuffled)
    assert case.build(shuffled) == case.build()


@THOROUGH
@given(cases())
def test_large_classes_are_even_among_batches_that_had_room(case):
    batches, _ = case.build()
    is_large = {f"class{i}": case.selected(i) > case.min_class for i in range(len(case.classes))}
    by_size = sorted(
        (i for i in range(len(case.classes)) if is_large[f"class{i}"]),
        key=lambda i: (-case.selected(i), f"class{i}"),
    )
    filled = [sum(not is_large[question.task_type] for question in batch) for batch in batches]
    for i in by_size:
        had_room_before = [size < case.batch_size for size in filled]
        dealt = counts(batches, f"class{i}")
        filled = [size + n for size, n in zip(filled, dealt, strict=True)]
        never_full = [n for n, size in zip(dealt, filled, strict=True) if size < case.batch_size]
        if never_full:
            assert max(never_full) - min(never_full) <= 1
            assert max(dealt) <= min(never_full) + 1
        assert all(room or not n for room, n in zip(had_room_before, dealt, strict=True))


def build(questions, correctness, **changes):
    parameters = {"batch_size": 4, "min_class": 2, "correct_ratio": 0.0, "seed": 0} | changes
    return build_batches(questions, correctness, **parameters)


def wrong(questions) -> dict[str, bool]:
    return dict.fromkeys(ids(questions), False)


def test_build_batches_deterministic():
    questions = ask("order", 30) + ask("why", 3)
    correctness = {name: n % 3 == 0 for n, name in enumerate(ids(questions))}
    parameters = {"batch_size": 8, "min_class": 3, "correct_ratio": 0.25}
    first = build(questions, correctness, seed=5, **parameters)
    random.seed(99)  # somebody else's use of the global generator must not matter
    assert build(questions[::-1], correctness, seed=5, **parameters) == first
    assert build(questions, correctness, seed=6, **parameters) != first


def test_small_class_not_split():
    """Three groups of two, batches of three: first fit leaves gaps rather than part a group."""
    questions = ask("count", 2) + ask("who", 2) + ask("why", 2)
    batches, placed = build(questions, wrong(questions), batch_size=3)
    assert [{q.task_type for q in batch} for batch in batches] == [{"count"}, {"who"}, {"why"}]
    assert placed == 6


def test_small_group_opens_a_new_batch_only_when_none_has_room_for_all_of_it():
    batches = [ask("order", 3), ask("detail", 2)]
    _pack_small_class(batches, ask("why", 2), batch_size=4)
    _pack_small_class(batches, ask("who", 2), batch_size=4)
    assert [len(batch) for batch in batches] == [3, 4, 2]


def test_small_groups_are_packed_largest_first():
    """Three, two, two and one fill two batches of four; smallest first would open a third."""
    questions = ask("a", 1) + ask("b", 2) + ask("c", 2) + ask("d", 3)
    batches, _ = build(questions, wrong(questions), min_class=3)
    assert [{q.task_type for q in batch} for batch in batches] == [{"d", "a"}, {"b", "c"}]


def test_large_class_round_robin():
    questions = ask("order", 9) + ask("detail", 3)
    batches, _ = build(questions, wrong(questions))
    assert counts(batches, "order") == [3, 3, 3]
    assert counts(batches, "detail") == [1, 1, 1]


def test_pointer_carries_over_from_class_to_class():
    batches = [[], [], []]
    large = {name: ask(name, 4) for name in ["a", "b", "c"]}
    _distribute_large_classes(batches, large, batch_size=4)
    assert [counts(batches, name) for name in large] == [[2, 1, 1], [1, 2, 1], [1, 1, 2]]


def test_full_batches_are_passed_over_and_a_new_one_opened_when_all_are_full():
    batches = [ask("a", 2), ask("b", 1)]
    pointer = _place_round_robin(batches, question("c", 0), 0, batch_size=2)
    assert (pointer, [len(batch) for batch in batches]) == (2, [2, 2])
    pointer = _place_round_robin(batches, question("c", 1), pointer, batch_size=2)
    assert (pointer, [len(batch) for batch in batches]) == (3, [2, 2, 1])


@pytest.mark.parametrize(("ratio", "n_right"), [(0.0, 0), (0.25, 2), (0.5, 6), (0.75, 10)])
def test_correct_ratio_mixing(ratio, n_right):
    """Six wrong and ten right: the share is kept until the right ones are used up."""
    questions = ask("order", 16)
    correctness = {name: n >= 6 for n, name in enumerate(ids(questions))}
    batches, placed = build(questions, correctness, correct_ratio=ratio)
    assert placed == 6 + n_right
    assert sum(correctness[q.question_id] for batch in batches for q in batch) == n_right


def test_right_questions_spread_over_batches_like_wrong_ones():
    questions = ask("order", 16)
    correctness = {name: n >= 12 for n, name in enumerate(ids(questions))}
    batches, _ = build(questions, correctness, correct_ratio=0.25)
    assert [sum(correctness[q.question_id] for q in batch) for batch in batches] == [1, 1, 1, 1]


def test_no_wrong_answers_empty():
    questions = ask("order", 5)
    assert build(questions, dict.fromkeys(ids(questions), True), correct_ratio=0.5) == ([], 0)
    assert build(questions, {}) == ([], 0)
    assert build([], {}) == ([], 0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 0, "min_class": -1}, "batch_size"),
        ({"min_class": 4}, "min_class"),
        ({"min_class": 5}, "min_class"),
        ({"correct_ratio": 1.0}, "correct_ratio"),
        ({"correct_ratio": -0.1}, "correct_ratio"),
        ({"correct_ratio": math.nan}, "correct_ratio"),
    ],
)
def test_validate_params_strict(changes, named):
    questions = ask("order", 3)
    with pytest.raises(ValueError, match=named):
        build(questions, wrong(questions), **changes)


def test_batches_of_one_question_are_allowed():
    questions = ask("order", 3)
    batches, _ = build(questions, wrong(questions), batch_size=1, min_class=0)
    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_correctness_false_vs_none():
    """Only `False` is wrong: `None` (a failed rollout) and a missing key are not."""
    correctness = {"order-0": False, "order-1": None, "order-3": True, "order-4": None}
    batches, placed = build(ask("order", 6), correctness, correct_ratio=0.9, min_class=0)
    assert placed == 2
    assert sorted(ids(batches[0])) == ["order-0", "order-3"]


def test_what_is_drawn_in_one_class_does_not_depend_on_another():
    questions = ask("order", 20) + ask("detail", 9)
    correctness = {name: n % 2 == 0 for n, name in enumerate(ids(questions))}
    alone, _ = build(ask("order", 20), correctness, correct_ratio=0.25)
    together, _ = build(questions, correctness, correct_ratio=0.25)

    def drawn(batches):
        return {q.question_id for batch in batches for q in batch if q.task_type == "order"}

    assert drawn(alone) == drawn(together)


def test_each_class_has_a_generator_of_its_own():
    """Classes of one size would all draw the same positions if they shared a seed."""
    names = [f"class{i}" for i in range(10)]
    questions = [question for name in names for question in ask(name, 20)]
    correctness = {q.question_id: int(q.question_id.split("-")[1]) >= 4 for q in questions}
    batches, _ = build(questions, correctness, correct_ratio=0.5)
    drawn = [
        frozenset(
            q.video_id
            for batch in batches
            for q in batch
            if q.task_type == name and correctness[q.question_id]
        )
        for name in names
    ]
    assert [len(numbers) for numbers in drawn] == [4] * 10
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("known", [np.False_, np.True_, 0, 1, "False"])
def test_a_correctness_that_is_no_bool_is_refused_and_not_passed_over(known):
    question = GeneratedQuestion("q1", "film", "order", "What comes next?", ("tea", "rain"), "A")
    with pytest.raises(ValueError, match="correctness of 'q1'"):
        build_batches([question], {"q1": known}, batch_size=2, min_class=1, correct_ratio=0, seed=0)
