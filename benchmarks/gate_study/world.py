"""A world made ready for a run: its pools, its epochs, its rollouts and its proposals.

One `Setting` serves all arms of a seed. Whatever two arms do alike - roll out a text for the same purpose,
propose in the same step - comes out alike in both.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gate_study.families import (
    ACCURACY,
    CLUSTERS,
    EPOCHS,
    SPREAD,
    TASK_TYPES,
    TEXT_NOISE,
    WorldFamily,
)
from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_chance import shuffled
from core.adapters.simulated_edits import EditFamily, EditMaker
from core.adapters.simulated_questions import question_id
from core.adapters.simulated_rules import EVERY
from core.evolution.edits import EditKey, apply_edits, edit_key

Answers = dict[str, bool]
SYSTEM = "system"
"""The name under which the text stands that is put before every file's."""


@dataclass(frozen=True, slots=True)
class Question:
    """As much of a question as pools, ladders and batches ask for."""

    question_id: str
    video_id: str
    task_type: str
    cluster: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit of a file. kind: what the family calls it. text: the file's with the edit. evidence_ids: what
    its proposer saw."""

    file: str
    kind: str
    text: str
    key: EditKey
    evidence_ids: frozenset[str]


class Setting:
    """The world of one seed. diagnosis, validation: the pools' questions by task type; they share no film."""

    def __init__(self, family: WorldFamily, seed: int, edits: EditFamily | None = None) -> None:
        first = SimulatedWorld(
            seed,
            family.videos,
            family.questions,
            TASK_TYPES,
            clusters=CLUSTERS,
            accuracy=ACCURACY,
            spread=SPREAD,
            churn=family.churn,
            text_noise=TEXT_NOISE,
            drift=family.drift,
        )
        self.family, self.seed = family, seed
        self._worlds = [
            first if epoch == 0 or family.drift == 0 else first.at_epoch(epoch) for epoch in range(EPOCHS)
        ]
        self._makers = [EditMaker(world.responses, edits or family.edits, seed) for world in self._worlds]
        questions = [
            Question(question_id(row), place.video_id, place.task_type, place.cluster)
            for row, place in enumerate(first.places)
        ]
        per_video = family.questions // family.videos
        videos = shuffled(sorted({question.video_id for question in questions}), seed, "validation films")
        kept_apart = frozenset(videos[: family.validation // per_video])
        self.diagnosis = _by_type(one for one in questions if one.video_id not in kept_apart)
        self.validation = _by_type(one for one in questions if one.video_id in kept_apart)
        self.cluster_of = {question.question_id: question.cluster for question in questions}
        self.initial_texts = {
            **{task_type: first.initial_skills()[f"{task_type}.md"] for task_type in TASK_TYPES},
            SYSTEM: "",
        }

    def answers(self, epoch: int, text: str, question_ids: Sequence[str], draw: str) -> Answers:
        """One rollout of each question under `text`."""
        world = self._worlds[epoch]
        right = world.correct(world.rows_of(question_ids), text, draw)
        return dict(zip(question_ids, right.tolist(), strict=True))

    def accuracy(self, texts: Mapping[str, str]) -> float:
        """The true accuracy of texts at the end of the run, over the population, in [0, 1]."""
        return self._worlds[-1].population_accuracy(lambda task_type: rendered(texts, task_type))

    def propose(
        self,
        epoch: int,
        step: int,
        file: str,
        texts: Mapping[str, str],
        failed: Iterable[str],
        evidence_ids: Collection[str],
        tried: Collection[EditKey],
    ) -> Proposal:
        """The edit that this step brings for this file; its kind is the same in every arm.

        failed: ids of the questions that the proposer saw fail.
        """
        edit = self._makers[epoch].make(
            texts[file],
            served=[EVERY] if file == SYSTEM else [file],
            clusters=sorted(self.cluster_of[name] for name in failed),
            tried=tried,
            draw=f"{file} e{epoch} s{step}",
        )
        outcome = apply_edits(texts[file], [edit], budget=1)
        if not outcome.applied:
            raise RuntimeError(f"edit of {file!r} was refused: {outcome.skipped[0].reason}")
        kind = edit.reason.removeprefix("simulated ").removesuffix(" edit")
        return Proposal(file, kind, outcome.text, edit_key(edit), frozenset(evidence_ids))


def rendered(texts: Mapping[str, str], task_type: str) -> str:
    """What the agent is given for a task type: the system prompt, then the type's file."""
    return texts[SYSTEM] + texts[task_type]


def _by_type(questions: Iterable[Question]) -> dict[str, list[Question]]:
    groups: dict[str, list[Question]] = {task_type: [] for task_type in TASK_TYPES}
    for question in questions:
        groups[question.task_type].append(question)
    return groups
