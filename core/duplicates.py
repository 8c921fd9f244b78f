"""Questions that say nearly the same, wherever they stand.

They must not be parted between pools, and a data set should not hold them at all.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.grading import fold_text
from core.types import GeneratedQuestion, lettered_options


@dataclass(frozen=True, slots=True, order=True)
class NearDuplicate:
    """Two questions by id, the smaller first, and how alike they are, in [0, 1]."""

    first: str
    second: str
    similarity: float


def near_duplicates(
    questions: Sequence[GeneratedQuestion], *, threshold: float = 0.85
) -> list[NearDuplicate]:
    """All pairs at least `threshold`, in (0, 1], alike, sorted: the Jaccard similarity of the sets of three
    characters in a row that question and options (without options: the reference) have when folded.

    The order of options does not matter. Exact, and quick for some ten thousand questions: two sets so much
    alike share a member among the rarest few of each (prefix filtering, Bayardo, Ma and Srikant 2007).
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: {threshold} is not in (0, 1]")
    shingles = {question.question_id: _shingles(question) for question in questions}
    frequency = Counter(shingle for members in shingles.values() for shingle in members)
    seen_with: dict[str, list[str]] = defaultdict(list)
    found = []
    for question_id, members in shingles.items():
        rarest_first = sorted(members, key=lambda shingle: (frequency[shingle], shingle))
        prefix = rarest_first[: len(members) - math.ceil(threshold * len(members) - 1e-9) + 1]
        for other in {other for shingle in prefix for other in seen_with[shingle]}:
            similarity = len(members & shingles[other]) / len(members | shingles[other])
            if similarity >= threshold:
                found.append(NearDuplicate(*sorted((question_id, other)), similarity))
        for shingle in prefix:
            seen_with[shingle].append(question_id)
    return sorted(found)


def _shingles(question: GeneratedQuestion) -> frozenset[str]:
    return frozenset(shingle for text in _texts(question) for shingle in _threes(f" {fold_text(text)} "))


def _texts(question: GeneratedQuestion) -> Iterator[str]:
    yield question.question
    yield from lettered_options(question.options).values() if question.options else (question.answer,)


def _threes(text: str) -> Iterator[str]:
    return (text[start : start + 3] for start in range(max(1, len(text) - 2)))
