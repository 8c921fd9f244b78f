"""The last tool call of every agent: the answer, checked against the question it is for."""

import math
from collections.abc import Mapping
from typing import Any

from core.grading import chosen_letter
from core.protocols import ToolError
from core.types import GeneratedQuestion, lettered_options

SUBMIT = "submit_answer"


def read_submission(args: Mapping[str, Any], question: GeneratedQuestion) -> dict[str, Any]:
    """`answer`, `confidence`, `evidence` and `reasoning` as a rollout's result; a choice as its letter.

    Raises `ToolError` saying what would be right.
    """
    return {
        "answer": _answer(args.get("answer"), question),
        "confidence": _confidence(args.get("confidence")),
        "evidence": args.get("evidence", ""),
        "reasoning": str(args.get("reasoning", "")),
    }


def _answer(given: Any, question: GeneratedQuestion) -> str:
    answer = "" if given is None else str(given).strip()
    if question.answer_kind != "choice":
        if not answer:
            raise ToolError(f"{SUBMIT}: answer is blank")
        return answer
    letter = chosen_letter(question, answer)
    if letter is None:
        letters = ", ".join(lettered_options(question.options))
        raise ToolError(f"{SUBMIT}: answer {answer!r} is not the letter of an option ({letters})")
    return letter


def _confidence(given: Any) -> float:
    try:
        confidence = float(given)
    except (TypeError, ValueError, OverflowError):
        confidence = math.nan
    if not 0 <= confidence <= 1:
        raise ToolError(f"{SUBMIT}: confidence is a number from 0 to 1, not {given!r}")
    return confidence
