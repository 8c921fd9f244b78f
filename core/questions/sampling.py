"""Stratified samples of questions."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from core.types import GeneratedQuestion


def check_correctness(correctness: Mapping[str, bool | None]) -> None:
    """Raises `ValueError` naming the first question whose value is not `True`, `False` or `None` itself.

    Others would be taken for something: `np.False_ is False` does not hold, and `"False"` is true.
    """
    for question_id, known in correctness.items():
        if known is not None and not isinstance(known, bool):
            raise ValueError(
                f"correctness of {question_id!r}: {known!r} is none of True, False, None; use bool(...)"
            )


def _by_id(question: GeneratedQuestion) -> str:
    return question.question_id


def stratified_sample(
    questions: Sequence[GeneratedQuestion],
    n: int,
    *,
    correctness: Mapping[str, bool] | None = None,
    correct_ratio: float | None = None,
    min_per_class: int = 0,
    seed: int,
) -> list[GeneratedQuestion]:
    """`n` of the questions (all, if there are fewer), with task types as frequent as among all, by id.

    Places go to task types in proportion, by largest remainders; then types below `min_per_class` (or their
    size) are raised, one place at a time from the type with the most. If `n` is too small for that, it is
    shared as evenly as that rule gets.

    Within a type the draw is random. With `correct_ratio`, in [0, 1], that share of each type's places goes
    to questions known right (`correctness[id] is True`) and the rest to questions known wrong, as far as
    they last; then come questions never observed, then more of the known right. Without it (`None`)
    correctness is not looked at.

    The same `seed` gives the same sample, in whatever order the questions come. Raises `ValueError` for
    arguments out of range and for a `question_id` that stands twice.
    """
    _check_sampling(questions, n, correctness, correct_ratio, min_per_class)
    classes: dict[str, list[GeneratedQuestion]] = defaultdict(list)
    for question in sorted(questions, key=_by_id):
        classes[question.task_type].append(question)
    sizes = {task_type: len(members) for task_type, members in classes.items()}
    places = _raise_small(_proportional(sizes, min(n, len(questions))), sizes, min_per_class)
    sample = []
    for task_type, members in classes.items():
        # A generator of its own for each type: what one type draws does not hang on the others.
        random.Random(f"{seed}/{task_type}").shuffle(members)
        if correct_ratio is not None:
            members = _by_correctness(members, correctness or {}, round(places[task_type] * correct_ratio))
        sample += members[: places[task_type]]
    return sorted(sample, key=_by_id)


def _check_sampling(
    questions: Sequence[GeneratedQuestion],
    n: int,
    correctness: Mapping[str, bool] | None,
    correct_ratio: float | None,
    min_per_class: int,
) -> None:
    if n < 0 or min_per_class < 0:
        raise ValueError(f"n and min_per_class are not negative, found {n} and {min_per_class}")
    if correct_ratio is not None and not 0 <= correct_ratio <= 1:
        raise ValueError(f"correct_ratio: {correct_ratio} is not in [0, 1]")
    if correct_ratio is not None and correctness is None:
        raise ValueError("correct_ratio: needs correctness; give it, or None for the natural distribution")
    check_correctness(correctness or {})
    if twice := [name for name, count in Counter(map(_by_id, questions)).items() if count > 1]:
        raise ValueError(f"question_id {twice[0]!r} stands twice; ids must be unique")


def _proportional(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """`n` places dealt out in proportion to `sizes`: whole parts first, then largest remainders, all in
    integers (Hamilton's method). Equal remainders: the larger class, then by name."""
    total = sum(sizes.values())
    places = {name: n * size // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(n * sizes[name] % total), -sizes[name], name))
    for name in by_remainder[: n - sum(places.values())]:
        places[name] += 1
    return places


def _raise_small(places: Mapping[str, int], sizes: Mapping[str, int], minimum: int) -> dict[str, int]:
    """Moves places, one at a time, from the class with most to the one with fewest of those below `minimum`,
    as long as that brings the two nearer to each other."""
    places = dict(places)
    while short := [name for name in places if places[name] < min(minimum, sizes[name])]:
        receiver = min(short, key=lambda name: (places[name], name))
        giver = max(places, key=lambda name: (places[name], sizes[name], name))
        if places[giver] - places[receiver] < 2:
            break
        places[giver] -= 1
        places[receiver] += 1
    return places


def _by_correctness(
    members: Iterable[GeneratedQuestion], correctness: Mapping[str, bool], n_right: int
) -> list[GeneratedQuestion]:
    """In the order of choice: `n_right` known right, the known wrong, the unobserved, more known right."""
    groups: dict[bool | None, list[GeneratedQuestion]] = {True: [], False: [], None: []}
    for question in members:
        groups[correctness.get(question.question_id)].append(question)
    return groups[True][:n_right] + groups[False] + groups[None] + groups[True][n_right:]
