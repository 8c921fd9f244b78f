"""A world that replays what was recorded: which question was answered right under which skill text.

So that studies also run on what a real model did. The table is a CSV file with a header line and a row for
every question and text that was tried:

    question_id,skill_hash,correct
    q17,9f86d081884c7d65...,1

`skill_hash` is that of a prediction's row, the hash of the skill part of the prompt as it was rendered for
the question's task type; `correct` is 1 or 0. One answer to a question and text: the agent that was
recorded is taken to be deterministic, and so is its replay.
"""

import csv
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from core.adapters.simulated_chance import Rows, choose
from core.adapters.simulated_model import Draw, Flags, mean_by_type
from core.adapters.simulated_texts import skill_part
from core.agent.plugins import Plugins
from core.agent.submission import SUBMIT, read_submission
from core.protocols import ToolDispatcher
from core.text_hash import skill_hash
from core.types import GeneratedQuestion, LoopResult, Step, lettered_options

COLUMNS = ("question_id", "skill_hash", "correct")
_TEXTS_KEPT = 1024

Recorded = Mapping[tuple[str, str], bool]
"""(question id, skill hash) -> answered right."""


def read_trace_table(path: Path) -> dict[tuple[str, str], bool]:
    """The recorded answers. Raises `ValueError` naming the file, the line and the mend."""
    recorded: dict[tuple[str, str], bool] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the first line must be {','.join(COLUMNS)}")
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if row["correct"] not in ("0", "1") or not row["question_id"] or not row["skill_hash"]:
                raise ValueError(f"{where}: {dict(row)} needs an id, a hash, and 0 or 1 for correct")
            key, correct = (row["question_id"], row["skill_hash"]), row["correct"] == "1"
            if recorded.setdefault(key, correct) != correct:
                raise ValueError(
                    f"{where}: question {key[0]!r} has another answer to this text above; keep one"
                )
    return recorded


def write_trace_table(path: Path, recorded: Recorded) -> None:
    """Writes the answers, sorted, so that equal tables are equal files."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*key, int(correct)) for key, correct in sorted(recorded.items()))


class TraceWorld:
    """Replays recorded answers to `questions`. `name` says where they come from and stands in the
    fingerprint.

    Has the fast methods of `SimulatedWorld`, so that a study takes either. A text is a system prompt or its
    skill part alone. Asking for what was not recorded is a `LookupError` that names question and hash.
    """

    def __init__(self, questions: Sequence[GeneratedQuestion], recorded: Recorded, *, name: str) -> None:
        self.questions = tuple(questions)
        self.model = f"replayed-{name}"
        self._recorded = recorded
        self._rows = {question.question_id: row for row, question in enumerate(self.questions)}
        self._answers = functools.lru_cache(_TEXTS_KEPT)(self._answers_to)

    def rows_of(self, question_ids: Iterable[str]) -> Rows:
        """The rows by which the fast methods know questions. Raises `LookupError` for an unknown id."""
        return np.array([self._rows[question_id] for question_id in question_ids], dtype=np.intp)

    def correct(self, rows: Rows, text: str, draw: Draw) -> Flags:
        """Whether each question was answered right; the same for every draw."""
        answers = self._answers(text)[rows]
        if (answers < 0).any():
            row = int(rows[np.flatnonzero(answers < 0)[0]])
            raise LookupError(
                f"question {self.questions[row].question_id!r} was never answered under the skill text"
                f" {skill_hash(skill_part(text))}; record it first"
            )
        return answers == 1

    def true_accuracy(self, text_for: Callable[[str], str], rows: Rows | None = None) -> float:
        """The share of questions (default: all) that were answered right, each under its task type's text."""
        return mean_by_type(
            np.arange(len(self.questions)) if rows is None else rows,
            lambda row: self.questions[row].task_type,
            lambda members, task_type: self.correct(members, text_for(task_type), 0),
        )

    def agent(self) -> "ReplayAgent":
        """The agent that answers as was recorded."""
        return ReplayAgent(self)

    def _answers_to(self, text: str) -> np.ndarray:
        """1, 0, or -1 for never recorded, for every question."""
        hashed = skill_hash(skill_part(text))
        answers = [self._recorded.get((question.question_id, hashed), -1) for question in self.questions]
        return np.array(answers, dtype=np.int8)


class ReplayAgent:
    """An `Agent` that hands in the right answer where it was recorded as right, else a wrong one; without
    search."""

    deterministic = True

    def __init__(self, world: TraceWorld) -> None:
        self.fingerprint = f"ReplayAgent/1 model={world.model}"
        self._world = world

    async def run(
        self,
        question: GeneratedQuestion,
        system_prompt: str,
        user_prompt: str,
        tools: ToolDispatcher,
        plugins: Sequence[object] = (),
    ) -> LoopResult:
        """One rollout of one step. Raises `ValueError` for a question without options."""
        if question.answer_kind != "choice":
            raise ValueError(f"question {question.question_id!r}: only choice questions can be replayed")
        rows = self._world.rows_of([question.question_id])
        correct = bool(self._world.correct(rows, system_prompt, 0)[0])
        others = [letter for letter in lettered_options(question.options) if letter != question.answer]
        answer = question.answer if correct else choose(others, "replayed", question.question_id)
        submission = read_submission(
            {"answer": answer, "confidence": 0.5, "reasoning": "replayed from a recorded table"}, question
        )
        hooks = Plugins(plugins, question)
        hooks.before_step(1)
        output = await tools(SUBMIT, submission)
        hooks.after_tool(1, SUBMIT, submission, output)
        step = Step(
            tool_call={"tool": SUBMIT, "args": submission}, tool_output=output, raw_content="replayed"
        )
        hooks.after_step(1, step)
        result = LoopResult(submission, (step,), 1, None, None, "finished")
        hooks.on_finish(result)
        return result
