"""Is an answer right? One grader for each kind of answer; a run takes a user's own in their place."""

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.types import AnswerKind, GeneratedQuestion, lettered_options

_LETTER_AND_TEXT = re.compile(r"\(?([A-Za-z])[.):]+\s*(.*)", re.DOTALL)
_APOSTROPHES = str.maketrans("", "", "'’ʼ＇")
_ARTICLES = {"a", "an", "the"}
_BLANKS = " \u00a0\u2009\u202f"
# Hyphens and dashes as keyboards, editors and models write a minus (U+2010 to U+2013, small, full width).
_MINUS = "−‐‑‒–﹣－-"  # the last one is literal in a character class
_LEADING_MINUS = re.compile(rf"(?<!\w)[{_MINUS}](?=[.,]?\d)")
# Whatever is written with digits and does not end a word ("m2", "v2.0") ...
_NUMERAL = re.compile(
    rf"(?<!\w)(?<!\w[.,])[+—{_MINUS}]?[.,]?\d(?:[.,]?\d|[{_BLANKS}](?=\d{{3}}(?!\d)))*(?:[eE][-+]?\d+)?"
    r"(?:[^\W\d]\w*\d)?"
)
# ... and the ways of writing a number that are read: not "3,5", not "1.234.567", not "0x10" or "1h30".
_NUMBER = re.compile(
    rf"[+{_MINUS}]?(?:(?:\d{{1,3}}(?:[,{_BLANKS}]\d{{3}})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
)
_TO_PLAIN = str.maketrans({**dict.fromkeys(_MINUS, "-"), **dict.fromkeys("," + _BLANKS)})


@dataclass(frozen=True, slots=True)
class Grade:
    """`correct` is what the gate counts; `score`, in [0, 1], is for graders that give part of the credit."""

    correct: bool
    score: float


@runtime_checkable
class Grader(Protocol):
    """Grades one prediction. `None`, an agent that ended without an answer, is wrong with score 0."""

    def grade(self, question: GeneratedQuestion, prediction: str | None) -> Grade: ...


@dataclass(frozen=True, slots=True)
class ChoiceGrader:
    """Multiple choice: the letter (`B`, `b`, `(B)`), the option's text, or both (`B. a red car`).

    A letter always means the letter, even where an option's text is a letter too. Texts are compared
    without regard to case, blanks and a full stop at the end. A letter with the text of another option
    contradicts itself and is wrong.
    """

    def grade(self, question: GeneratedQuestion, prediction: str | None) -> Grade:
        given = None if prediction is None else chosen_letter(question, prediction)
        return _all_or_nothing(given == question.answer)


@dataclass(frozen=True, slots=True)
class TextGrader:
    """Short free text: equal to any of the references once both are folded (see `fold_text`)."""

    def grade(self, question: GeneratedQuestion, prediction: str | None) -> Grade:
        if prediction is None or not prediction.strip():
            return _all_or_nothing(False)
        given = fold_text(prediction)
        references = [line for line in question.answer.splitlines() if line.strip()]
        return _all_or_nothing(any(given == fold_text(reference) for reference in references))


@dataclass(frozen=True, slots=True)
class NumberGrader:
    """A number near any of the references: |given - reference| <= `relative_tolerance` x |reference|.

    The default takes `3.14` for pi and keeps counts below 1,000 exact; a reference of 0 admits only 0. The
    number is read by `read_number`, units stand for nothing: `12 km` is 12, and `12 %` is 12 and not 0.12.
    """

    relative_tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.relative_tolerance < 1:
            raise ValueError(f"relative_tolerance: {self.relative_tolerance} is not in [0, 1)")

    def grade(self, question: GeneratedQuestion, prediction: str | None) -> Grade:
        given = None if prediction is None else read_number(prediction)
        if given is None:
            return _all_or_nothing(False)
        references = map(float, question.answer.splitlines())
        return _all_or_nothing(any(self._near(given, reference) for reference in references))

    def _near(self, given: float, reference: float) -> bool:
        return abs(given - reference) <= self.relative_tolerance * abs(reference)


def grader_for(answer_kind: AnswerKind) -> Grader:
    """The grader of a kind of answer. Raises `ValueError` for a kind that there is not."""
    graders = {"choice": ChoiceGrader(), "text": TextGrader(), "number": NumberGrader()}
    if answer_kind not in graders:
        raise ValueError(f"answer_kind: {answer_kind!r} is none of {', '.join(graders)}")
    return graders[answer_kind]


def chosen_letter(question: GeneratedQuestion, prediction: str) -> str | None:
    """The letter of the option that the prediction means; `None` when it is none, or none alone.

    The one reading of a choice, for whoever grades and whoever takes an answer (see `ChoiceGrader`).
    """
    texts = lettered_options(question.options)
    given = prediction.strip()
    if given.upper() in texts:
        return given.upper()
    named = _letter_of_text(texts, given)
    parts = _LETTER_AND_TEXT.fullmatch(given)
    if named or not parts or parts[1].upper() not in texts:
        return named
    letter = parts[1].upper()
    return letter if _letter_of_text(texts, parts[2]) in (None, letter) else None


def fold_text(text: str) -> str:
    """Text without what does not matter: case, punctuation, English articles, blanks, invisible marks.

    Apostrophes vanish (`it's` is `its`), other punctuation parts words; a minus before a number stays. Width
    and ligatures are unified (Unicode NFKC). Where nothing but articles or punctuation would be left, they
    stay: `A` is not `the`.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    visible = "".join(char for char in plain if unicodedata.category(char) != "Cf")
    signed = _LEADING_MINUS.sub("−", visible)  # U+2212 is no punctuation
    parted = "".join(" " if unicodedata.category(char).startswith("P") else char for char in signed)
    words = parted.split()
    return " ".join([word for word in words if word not in _ARTICLES] or words or plain.split())


def read_number(text: str) -> float | None:
    """The one number that `text` holds; `None` when it holds none, more than one, or one that is not finite.

    Words and units around it are ignored (`about 12 km`). Thousands may be parted by a comma or a blank
    (`1,234.5`), and any hyphen or short dash is a minus. A decimal comma (`3,5`), ranges (`3-5`) and digits
    joined by letters (`0x10`, `1h30`) are not read: a guess could be wrong.
    """
    numerals = [match[0] for match in _NUMERAL.finditer(text)]
    if len(numerals) != 1 or not _NUMBER.fullmatch(numerals[0]):
        return None
    value = float(numerals[0].translate(_TO_PLAIN))
    return value if math.isfinite(value) else None


def _all_or_nothing(correct: bool) -> Grade:
    return Grade(correct, float(correct))


def _letter_of_text(texts: dict[str, str], given: str) -> str | None:
    """The letter of the only option that reads like `given`, to the letter or else loosely."""
    for reading in (str.strip, _loosely):
        same = [letter for letter, text in texts.items() if reading(text) == reading(given)]
        if len(same) == 1:
            return same[0]
    return None


def _loosely(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
