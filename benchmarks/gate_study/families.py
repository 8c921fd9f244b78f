"""The families of worlds, their parameters and all seeds: fixed before anything was run.

A worthless edit of these worlds is not an idle one: `TEXT_NOISE` is the share of questions whose answer is
drawn anew for every wording, up and down alike, as it is for language models. So also an agent that always
answers alike (`churn` 0) answers some questions otherwise after a worthless edit, and the true accuracy of an
edit is that of the population: what infinitely many questions of the same difficulties would average.
"""

from dataclasses import dataclass

from core.adapters.simulated_edits import EASY_BREAKING, MIXED, NULL_HEAVY, TARGETED, EditFamily

TASK_TYPES = ("content", "order")
"""Each has a skill file of its own; a step proposes one edit of each."""
CLUSTERS = 3
ACCURACY = 0.55
SPREAD = 1.0
TEXT_NOISE = 0.1

EPOCHS = 4
STEPS_PER_EPOCH = 5
PROPOSALS = EPOCHS * STEPS_PER_EPOCH * len(TASK_TYPES)
BATCH_SIZE = 16

BUDGET_PER_PROPOSAL = 50
"""Rollouts, both sides together, that the gates of a run may spend for each of its proposals."""

SEEDS = {"tuning": tuple(range(1_000, 1_300)), "reporting": tuple(range(2_000, 2_300))}
"""Rules and parameters are chosen on one half and reported on the other. A first pass takes the first 60."""
FIRST_PASS = 60


@dataclass(frozen=True, slots=True)
class WorldFamily:
    """A kind of world.

    edits: the kinds of edits and their shares. churn: how often two rollouts of one question disagree.
    diagnosis, validation: questions in the pools. videos: of the world; validation takes whole ones.
    drift: in logits, what each epoch adds to each ability.
    """

    name: str
    edits: EditFamily
    churn: float = 0.1
    diagnosis: int = 240
    validation: int = 80
    videos: int = 40
    drift: float = 0.0

    @property
    def questions(self) -> int:
        return self.diagnosis + self.validation

    @property
    def budget(self) -> int:
        """Rollouts that every arm may spend: the baseline run, batches, an evaluation and at times a second
        one in each epoch, and the gates."""
        batches = EPOCHS * STEPS_PER_EPOCH * BATCH_SIZE
        evaluations = 3 * EPOCHS // 2 * self.validation
        return self.questions + batches + evaluations + PROPOSALS * BUDGET_PER_PROPOSAL


def _with_churns(name: str, edits: EditFamily) -> list[WorldFamily]:
    return [WorldFamily(f"{name}, churn {churn:g}", edits, churn) for churn in (0.0, 0.1, 0.3)]


FAMILIES: dict[str, WorldFamily] = {
    family.name: family
    for family in [
        *_with_churns("null-heavy", NULL_HEAVY),
        *_with_churns("mixed", MIXED),
        *_with_churns("easy-breaking", EASY_BREAKING),
        *_with_churns("targeted", TARGETED),
        WorldFamily("drift", MIXED, drift=0.3),
        WorldFamily("pool of 60", MIXED, diagnosis=60, validation=40, videos=20),
        WorldFamily("pool of 500", MIXED, diagnosis=500, validation=80, videos=58),
    ]
}
