"""Questions for tests: `made(...)` as a value, `item(...)` as the mapping that a file would hold."""

from typing import Any

from core.types import GeneratedQuestion


def item(**changes: Any) -> dict[str, Any]:
    """A good multiple-choice item; a change to `None` leaves the field out."""
    fields = {
        "question_id": "q1",
        "video_id": "film",
        "task_type": "order",
        "question": "What does the baker drop?",
        "options": ["a tray", "a hat", "a goat", "a key"],
        "answer": "B",
    } | changes
    return {name: value for name, value in fields.items() if value is not None}


def made(**changes: Any) -> GeneratedQuestion:
    return GeneratedQuestion(**item(**changes))


def made_text(answer: str, **changes: Any) -> GeneratedQuestion:
    return made(options=(), answer=answer, answer_kind="text", **changes)


def made_number(answer: str, **changes: Any) -> GeneratedQuestion:
    return made(options=(), answer=answer, answer_kind="number", **changes)
