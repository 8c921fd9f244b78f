"""The greedy control: keep an edit if accuracy on diagnosis is strictly greater. No gate, no probation.

It is what many systems do, and the reference for what a gate is worth: it also keeps edits that were luck.
Used by `benchmarks/embedded.py`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from core.agent.skills import DEFAULT_SKILL, read_skills
from core.evolution.edits import apply_edits
from core.evolution.protocols import Proposer
from core.evolution.types import CaseSample, Edit, RejectedEdit, SkillCasePack
from core.protocols import TextScorer
from core.questions.check_model import Answered, DemoSet, answer_with_skills, at_once
from core.types import GeneratedQuestion

BATCH = 16

Texts = Mapping[str, str]
"""Skill file name (without `.md`) -> its text."""


@dataclass(frozen=True)
class Trial:
    """One proposal: what it changed, and right answers of diagnosis with and without it.

    `validation` is the number of right answers there *after* the decision; it decides nothing.
    """

    number: int
    file: str
    operation: str
    anchor: str
    content: str
    reason: str
    before: int
    after: int
    kept: bool
    validation: int


class Answers:
    """Right and wrong for any skill texts. A question is asked once for each text of its own file."""

    def __init__(self, scorer: TextScorer, demo: DemoSet) -> None:
        self._scorer, self._demo = scorer, demo
        self._known: dict[tuple[str, str], Answered] = {}
        self.asked = 0

    async def of(self, texts: Texts, questions: Sequence[GeneratedQuestion]) -> dict[str, bool]:
        """Question id -> right? for each question, with the skill that serves its task type."""
        skills = read_skills({f"{name}.md": text for name, text in texts.items()}, skill_mode="auto")
        keys = {question.question_id: texts[file_of(texts, question)] for question in questions}
        missing = [
            question
            for question in questions
            if (question.question_id, keys[question.question_id]) not in self._known
        ]

        async def ask(question: GeneratedQuestion) -> Answered:
            return (await answer_with_skills(self._scorer, self._demo, skills, question))[0]

        for answer in await at_once(ask, missing):
            self._known[answer.question_id, keys[answer.question_id]] = answer
        self.asked += len(missing)
        return {name: self._known[name, text].correct for name, text in keys.items()}


def file_of(texts: Texts, question: GeneratedQuestion) -> str:
    """The skill file that serves a question: its task type's own, or the default strategy."""
    return question.task_type if question.task_type in texts else DEFAULT_SKILL


def case_pack(
    texts: Texts, batch: Sequence[GeneratedQuestion], file: str, right: Mapping[str, bool]
) -> SkillCasePack:
    """What a proposer is shown of a batch: its failing and succeeding questions of one file's types."""
    cases = [
        CaseSample(
            question.question_id, question.video_id, question.task_type, question.question,
            question.options, question.answer, None, right[question.question_id],
        )
        for question in batch
        if file_of(texts, question) == file
    ]  # fmt: skip
    return SkillCasePack(
        target_file=f"{file}.md",
        task_types=tuple(sorted({case.task_type for case in cases})),
        stats={},
        failure_cases=tuple(case for case in cases if not case.correct),
        success_cases=tuple(case for case in cases if case.correct),
        evidence_ids=tuple(case.question_id for case in cases),
    )


async def train_greedily(
    answers: Answers,
    demo: DemoSet,
    texts: Texts,
    proposer: Proposer,
    *,
    proposals: int,
    seed: int,
    told: Callable[[Trial], None] = lambda _: None,
) -> tuple[dict[str, str], list[Trial]]:
    """The texts after `proposals` proposals, and each of them. `told` hears of each as it is decided.

    A proposal starts from a failed question of a seeded mini-batch of the diagnosis pool and is made for that
    question's skill file; it is kept if strictly more of the diagnosis pool is right with it.
    """
    diagnosis, validation = demo.pools["diagnosis"], demo.pools["validation"]
    texts, trials, rejected = dict(texts), [], []
    right = await answers.of(texts, diagnosis)
    on_validation = sum((await answers.of(texts, validation)).values())
    for number in range(proposals):
        draw = random.Random(f"{seed} greedy {number}")
        batch = draw.sample(diagnosis, min(BATCH, len(diagnosis)))
        failed = [question for question in batch if not right[question.question_id]]
        if not failed:
            continue
        file = file_of(texts, draw.choice(failed))
        edits = await proposer.propose(
            case_pack(texts, batch, file, right),
            text=texts[file],
            rejected=[entry for entry in rejected if entry.target_file == f"{file}.md"],
            edit_budget=1,
            seed=draw.randrange(2**31),
        )
        if not edits:
            continue
        candidate = {**texts, file: apply_edits(texts[file], edits, budget=1).text}
        outcome = await answers.of(candidate, diagnosis)
        before, after = sum(right.values()), sum(outcome.values())
        if after > before:
            texts, right = candidate, outcome
            on_validation = sum((await answers.of(texts, validation)).values())
            rejected = [entry for entry in rejected if entry.target_file != f"{file}.md"]
        else:
            rejected.append(RejectedEdit(f"{file}.md", edits[0], "not strictly better", 0, number, 0, 0))
        trials.append(_trial(number, file, edits[0], before, after, on_validation))
        told(trials[-1])
    return texts, trials


def _trial(number: int, file: str, edit: Edit, before: int, after: int, validation: int) -> Trial:
    return Trial(
        number=number,
        file=file,
        operation=edit.op,
        anchor=edit.target,
        content=edit.content,
        reason=edit.reason,
        before=before,
        after=after,
        kept=after > before,
        validation=validation,
    )


def as_rows(trials: Sequence[Trial]) -> list[dict]:
    """The trials as plain values, for JSON."""
    return [asdict(trial) for trial in trials]
