"""Text, number and choice questions side by side, from the model's reply to the row of its prediction."""

import pytest
from inference_runs import act, answer, infer, rows_of

from core.types import GeneratedQuestion, LLMResponse
from harness.log import HarnessLog


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


def asked(question_id, kind, reference, options=()):
    words = f"What is asked in {question_id}?"
    return GeneratedQuestion(question_id, "v1", kind, words, options, reference, answer_kind=kind)


OPTIONS = ("C: drive", "D: drive", "none", "A: drive")

# question, what the model hands in, what the row holds, whether it is right
CASES = [
    (asked("t1", "text", "the baker's hat\na cap"), " Bakers hat. ", "Bakers hat.", True),
    (asked("t2", "text", "the baker's hat\na cap"), "A CAP", "A CAP", True),
    (asked("t3", "text", "the baker's hat"), "a tray", "a tray", False),
    (asked("t4", "text", "-5"), "5", "5", False),
    (asked("n1", "number", "1234.5"), "about 1,234.5 km", "about 1,234.5 km", True),
    (asked("n2", "number", "12"), 12, "12", True),
    (asked("n3", "number", "1200"), "–1200", "–1200", False),
    (asked("n4", "number", "3"), "3 or 4", "3 or 4", False),
    (asked("c1", "choice", "A", OPTIONS), "C: Drive.", "A", True),
    (asked("c2", "choice", "A", OPTIONS), "C", "C", False),
]


class Answering:
    """Views a node, then hands in what `given` says for the question that it reads in the prompt."""

    model = "answering"

    def __init__(self, given):
        self.given = given

    async def chat(self, messages, **options):
        if len(messages) == 2:
            return LLMResponse(act("view_node", node_id="root"))
        (reply,) = [reply for name, reply in self.given.items() if f"in {name}?" in messages[1].content]
        return LLMResponse(reply)


async def test_free_answers_are_kept_graded_and_written_beside_choices(log):
    given = {question.question_id: answer(said) for question, said, _, _ in CASES}
    result = await infer(log, [question for question, *_ in CASES], llm=Answering(given))
    assert (result.total, result.correct, result.errors) == (10, 5, 0)
    assert {kind: score.correct for kind, score in result.per_task_type.items()} == {
        "choice": 1,
        "number": 2,
        "text": 2,
    }
    rows = {row["question_id"]: row for row in rows_of(log, "predictions")}
    for question, _, kept, right in CASES:
        row = rows[question.question_id]
        assert (row["prediction"], row["correct"], row["score"]) == (kept, right, float(right)), row
        assert (row["stop_reason"], row["answer"]) == ("finished", question.answer)


UNUSABLE = {
    "confidence of 401 digits": answer("A", confidence=10**400),
    "blank answer": answer("  "),
    "no answer": answer(None),
}


@pytest.mark.parametrize("reply", UNUSABLE)
@pytest.mark.parametrize("kind", ["text", "number", "choice"])
async def test_an_answer_that_stays_unusable_is_wrong_and_not_missing(log, kind, reply):
    reference, options = ("A", OPTIONS) if kind == "choice" else ("5", ())
    question = asked("q1", kind, reference, options)
    result = await infer(log, [question], llm=Answering({"q1": UNUSABLE[reply]}))
    (row,) = rows_of(log, "predictions")
    assert (row["stop_reason"], row["prediction"], row["correct"]) == ("parse_error", None, 0)
    assert (result.correct, result.errors) == (0, 0)
