"""The scripted lab of `slow_runs` with a scripted proposer, for tests of steps and gates."""

import dataclasses

from slow_runs import make_lab

from core.evolution.protocols import ProposalError
from core.evolution.types import Edit

PER_TYPE = 20
TYPES = ("content", "order", "other")
WRONG = {name: [f"d-{name}-{number:02d}" for number in range(1, PER_TYPE, 2)] for name in TYPES}
RIGHT = {name: [f"d-{name}-{number:02d}" for number in range(0, PER_TYPE, 2)] for name in TYPES}
BATCH = {name: WRONG[name][:2] for name in TYPES}
"""What a batch holds of a type: a proposer that saw them may not name them, so edits are about the others."""


def mends(task_type, most=PER_TYPE):
    """A line that mends so many of the wrong questions outside the batch."""
    return f"mends {' '.join(WRONG[task_type][2 : 2 + most])}"


def spoils(task_type, most=PER_TYPE):
    """A line that spoils so many of the right questions."""
    return f"spoils {' '.join(RIGHT[task_type][1 : 1 + most])}"


class ScriptedProposer:
    """Proposes, for each file, the next of its lines; a list of lines is several edits at once.

    An `Edit` is proposed as it is. A file without lines left is proposed nothing; `None` is a reply that
    nobody can read. `asked` keeps what it was asked, in order.
    """

    name, attempts = "scripted", 1

    def __init__(self, lines):
        self.lines = {target: list(queue) for target, queue in lines.items()}
        self.asked = []

    async def propose(self, pack, *, text, rejected, edit_budget, seed, problems=()):
        target = pack.target_file
        self.asked.append(
            {"target": target, "rejected": list(rejected), "edit_budget": edit_budget, "seed": seed}
        )
        if not self.lines.get(target):
            return []
        proposed = self.lines[target].pop(0)
        if proposed is None:
            raise ProposalError("nothing readable")
        several = proposed if isinstance(proposed, list) else [proposed]
        return [edit if isinstance(edit, Edit) else Edit("append", content=edit) for edit in several]


async def step_lab(folder, lines, *, proposer=None, alike=False, **config):
    """A lab whose proposer has these lines: file name -> what it is proposed, one step after another.

    alike: whether near-duplicates count as such.
    """
    given = {"gate_block": 10, "gate_max_questions": 20, "gate_min_pairs": 5, "cooldown": 1, **config}
    lab = await make_lab(folder, per_type=PER_TYPE, **given)
    proposer = ScriptedProposer(lines) if proposer is None else proposer
    parts = dataclasses.replace(lab.parts, proposer=proposer)
    if not alike:
        parts.__dict__["alike"] = {}  # the lab's questions differ by a number alone
    return dataclasses.replace(lab, parts=parts)


def at_step(state, *batches, step=0):
    """The state before a step, with these batches of question ids in its epoch."""
    return dataclasses.replace(
        state, batches=tuple(tuple(batch) for batch in batches), step=step, global_step=step
    )
