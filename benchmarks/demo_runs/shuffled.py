"""The control of the proposer: the same catalogue and ranking, but the signals come from other questions."""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from core.evolution.protocols import Proposer
from core.evolution.types import CaseSample, Edit, SkillCasePack
from core.types import GeneratedQuestion


def stand_ins(questions: Iterable[GeneratedQuestion], seed: int) -> dict[str, GeneratedQuestion]:
    """Question id -> a question of another task type, each standing in for exactly one; a seeded draw.

    Raises `ValueError` when one type has more than half of the questions.
    """
    by_type: dict[str, list[GeneratedQuestion]] = defaultdict(list)
    for question in sorted(questions, key=lambda question: question.question_id):
        by_type[question.task_type].append(question)
    draw = random.Random(f"{seed} stand-ins")
    groups = sorted(by_type.values(), key=lambda group: (-len(group), group[0].task_type))
    for group in groups:
        draw.shuffle(group)
    in_a_row = [question for group in groups for question in group]
    step = len(groups[0]) if groups else 0
    if 2 * step > len(in_a_row):
        raise ValueError(
            f"stand-ins: {step} of {len(in_a_row)} questions are of type {groups[0][0].task_type!r}; "
            "there are not enough others to stand in for them"
        )
    shifted = in_a_row[step:] + in_a_row[:step]
    return {question.question_id: other for question, other in zip(in_a_row, shifted, strict=True)}


def in_its_place(case: CaseSample, question: GeneratedQuestion) -> CaseSample:
    """The case with another question's content; what was observed of it goes."""
    return CaseSample(
        question.question_id,
        question.video_id,
        question.task_type,
        question.question,
        question.options,
        question.answer,
        prediction=None,
        correct=case.correct,
    )


class ShuffledProposer:
    """Shows another proposer, for each failing case, the question that stands in for it.

    The stand-ins are of other task types, so none of them is on a ladder of the edited file.
    """

    name = "catalogue, signals shuffled (rule-based)"

    def __init__(self, proposer: Proposer, stand_ins: Mapping[str, GeneratedQuestion]) -> None:
        self._proposer, self._stand_ins = proposer, stand_ins
        self.attempts = proposer.attempts

    async def propose(self, pack: SkillCasePack, **asked) -> Sequence[Edit]:
        """As the other proposer; its edits name no cases, for they were made from none of the pack's."""
        failing = tuple(in_its_place(case, self._stand_ins[case.question_id]) for case in pack.failure_cases)
        edits = await self._proposer.propose(dataclasses.replace(pack, failure_cases=failing), **asked)
        return [dataclasses.replace(edit, related_cases=()) for edit in edits]
