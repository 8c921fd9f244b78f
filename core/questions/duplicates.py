"""Questions that are the same, or nearly, whatever they are called and wherever they stand.

They must not be parted between pools, and a data set should not hold them at all.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
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


def question_digest(question: GeneratedQuestion) -> str:
    """SHA-256 (hexadecimal) by which a question is known again under another id: of its video and its
    wording, folded, with the options (without options: the reference) in any order."""
    content = [question.video_id, *_wording(question)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def near_duplicates(
    questions: Sequence[GeneratedQuestion], *, threshold: float = 0.85
) -> list[NearDuplicate]:
    """All pairs at least `threshold`, in (0, 1], alike, sorted: the Jaccard similarity of the sets of three
    characters in a row that question and options (without options: the reference) have when folded.

    Equal wording about different videos counts only where it has one answer, whatever the video: "How many
    people can be seen?" is asked of many films, and what one film taught does not answer it for the next.

    The order of options does not matter. Exact: every pair is compared, one question with all at once.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: {threshold} is not in (0, 1]")
    shingles = [_shingles(question) for question in questions]
    sizes = np.array([len(members) for members in shingles])
    holders = _holders(shingles)
    answers = _answers(questions)
    found = []
    for index, members in enumerate(shingles):
        holding_any = np.concatenate([holders[shingle] for shingle in members])
        common = np.bincount(holding_any, minlength=len(questions))
        similarity = common / (sizes + len(members) - common)
        for other in index + 1 + np.flatnonzero(similarity[index + 1 :] >= threshold):
            if _same_film_or_answer(questions[index], questions[other], answers):
                pair = sorted((questions[index].question_id, questions[other].question_id))
                found.append(NearDuplicate(*pair, float(similarity[other])))
    return sorted(found)


_Wording = tuple[str, ...]


def _wording(question: GeneratedQuestion) -> _Wording:
    """Question and options, folded; the options sorted."""
    asked, *options = map(fold_text, _texts(question))
    return (asked, *sorted(options))


def _asked(question: GeneratedQuestion) -> _Wording:
    """The wording without what gives the answer away: a question without options is its text alone."""
    return _wording(question) if question.options else (fold_text(question.question),)


def _answer(question: GeneratedQuestion) -> str:
    """What is right, folded: the text of the option, not its letter."""
    return fold_text(lettered_options(question.options).get(question.answer, question.answer))


def _answers(questions: Iterable[GeneratedQuestion]) -> dict[_Wording, set[str]]:
    """For each wording, all answers that it has in any video."""
    answers: dict[_Wording, set[str]] = defaultdict(set)
    for question in questions:
        answers[_asked(question)].add(_answer(question))
    return answers


def _same_film_or_answer(
    first: GeneratedQuestion, second: GeneratedQuestion, answers: dict[_Wording, set[str]]
) -> bool:
    if first.video_id == second.video_id:
        return True
    return len(answers[_asked(first)] | answers[_asked(second)]) == 1


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
