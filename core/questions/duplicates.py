"""Questions that say nearly the same, wherever they stand.

They must not be parted between pools, and a data set should not hold them at all.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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

    The order of options does not matter. Exact: every pair is compared, one question with all at once.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: {threshold} is not in (0, 1]")
    shingles = [_shingles(question) for question in questions]
    sizes = np.array([len(members) for members in shingles])
    holders = _holders(shingles)
    found = []
    for index, members in enumerate(shingles):
        holding_any = np.concatenate([holders[shingle] for shingle in members])
        common = np.bincount(holding_any, minlength=len(questions))
        similarity = common / (sizes + len(members) - common)
        for other in index + 1 + np.flatnonzero(similarity[index + 1 :] >= threshold):
            pair = sorted((questions[index].question_id, questions[other].question_id))
            found.append(NearDuplicate(*pair, float(similarity[other])))
    return sorted(found)


def _holders(shingles: Sequence[Collection[str]]) -> dict[str, np.ndarray]:
    """For each shingle the positions of the questions that hold it, as an array of shape (holders,)."""
    positions: dict[str, list[int]] = defaultdict(list)
    for index, members in enumerate(shingles):
        for shingle in members:
            positions[shingle].append(index)
    return {shingle: np.array(held) for shingle, held in positions.items()}


def _shingles(question: GeneratedQuestion) -> frozenset[str]:
    return frozenset(shingle for text in _texts(question) for shingle in _threes(f" {fold_text(text)} "))


def _texts(question: GeneratedQuestion) -> Iterator[str]:
    yield question.question
    yield from lettered_options(question.options).values() if question.options else (question.answer,)


def _threes(text: str) -> Iterator[str]:
    return (text[start : start + 3] for start in range(max(1, len(text) - 2)))
