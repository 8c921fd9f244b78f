"""Edits of a simulated world: null, helpful and harmful ones in chosen shares and sizes.

An edit adds one or more rules to a file. How much it is worth is decided first, in accuracy over the
questions that the file serves, and the rules' effects are solved for from the response model; so a study
knows the truth about every edit that a gate lets through.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from core.adapters.simulated_chance import Rows, choose, share_drawn
from core.adapters.simulated_model import ResponseModel, logistic, solve_increasing
from core.adapters.simulated_rules import EVERY, Difficulty, Rule, read_rules, render_rule
from core.evolution.edits import EditKey, apply_edits, edit_key, rejected_keys
from core.evolution.protocols import ProposalError
from core.evolution.types import CasePack, Edit, RejectedEdit, SkillCasePack, SystemCasePack

RULES_HEADING = "## Rules"
STRONGEST_EFFECT = 8.0
"""In logits: where a gain cannot be had any more, the effect stays within this."""

_WAYS = (
    "begin with the summary,", "compare two neighbours,", "go back once,", "keep to the text,",
    "look twice,", "name the place first,", "note what is missing,", "read slowly,", "rule options out,",
    "use fewer words,",
)  # fmt: skip
_AIMS = (
    "and say why it fits.", "before anything else.", "even when it seems clear.",
    "however short the card is.", "if steps are left.", "then decide.", "unless it was read before.",
    "until one option is left.", "when two options are close.", "whatever the subtitle says.",
)  # fmt: skip
_TIMES = (
    "Every time,", "First of all,", "If in doubt,", "In the end,", "Now and then,", "Once more,",
    "Only once,",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RulePlan:
    """One rule of an edit to come.

    gain: what it adds to the accuracy over all questions of the file, in [-1, 1]. reach: the questions that
    it names, all of the file's or one failing cluster's. difficulty: only those; empty for all.
    """

    gain: float
    reach: Literal["file", "cluster"] = "file"
    difficulty: Difficulty = ""


@dataclass(frozen=True, slots=True)
class EditKind:
    """A kind of edit, and how large a share of all proposals it is."""

    name: str
    share: float
    rules: tuple[RulePlan, ...]


EditFamily = tuple[EditKind, ...]

NULL_HEAVY: EditFamily = (
    EditKind("null", 0.8, (RulePlan(0.0),)),
    EditKind("helpful", 0.1, (RulePlan(0.05),)),
    EditKind("harmful", 0.1, (RulePlan(-0.05),)),
)
MIXED: EditFamily = (
    EditKind("null", 0.4, (RulePlan(0.0),)),
    EditKind("helpful", 0.2, (RulePlan(0.05),)),
    EditKind("very helpful", 0.1, (RulePlan(0.10),)),
    EditKind("harmful", 0.2, (RulePlan(-0.05),)),
    EditKind("very harmful", 0.1, (RulePlan(-0.10),)),
)
TARGETED: EditFamily = (
    EditKind("null", 0.6, (RulePlan(0.0, "cluster"),)),
    EditKind("helpful", 0.3, (RulePlan(0.05, "cluster"),)),
    EditKind("harmful", 0.1, (RulePlan(-0.05, "cluster"),)),
)
EASY_BREAKING: EditFamily = (
    EditKind("null", 0.5, (RulePlan(0.0),)),
    EditKind("helpful", 0.2, (RulePlan(0.05),)),
    EditKind("easy-breaking", 0.3, (RulePlan(0.04, difficulty="medium"), RulePlan(-0.08, difficulty="easy"))),
)


class EditMaker:
    """Makes edits of one family for a world. Raises `ValueError` for shares that do not add up to 1."""

    def __init__(self, responses: ResponseModel, family: EditFamily, seed: int) -> None:
        total = sum(kind.share for kind in family)
        if abs(total - 1) > 1e-9 or any(kind.share < 0 for kind in family):
            raise ValueError(
                f"family: the shares of its kinds add up to {total:g}, not 1, or one is negative"
            )
        self.family = family
        self._responses = responses
        self._seed = seed

    def make(
        self,
        text: str,
        *,
        served: Sequence[str],
        clusters: Sequence[str],
        tried: Collection[EditKey],
        draw: str,
    ) -> Edit:
        """One edit of `text` that is not among `tried`, drawn for `draw`.

        served: names of the questions that the file serves (task types, or `every`). clusters: those that
        failed, once for each failure; empty for all of `served`.
        """
        kind = self.family[
            share_drawn([kind.share for kind in self.family], self._seed, "kind of edit", draw)
        ]
        cluster = choose(clusters, self._seed, "cluster", draw) if clusters else ""
        attempt = 0
        while True:
            rules = self._rules(kind, read_rules(text), served, cluster, f"{draw} {attempt}")
            edit = _edit(text, rules, kind)
            if edit_key(edit) not in tried:
                return edit
            attempt += 1

    def _rules(
        self, kind: EditKind, present: Sequence[Rule], served: Sequence[str], cluster: str, draw: str
    ) -> list[Rule]:
        """The rules of an edit, each solved for with those before it in force."""
        rules: list[Rule] = []
        for number, plan in enumerate(kind.rules):
            names = [cluster] if plan.reach == "cluster" and cluster else list(served)
            advice = self._advice(f"{draw} {number}")
            wordless = [Rule(name, advice, 0.0, plan.difficulty) for name in names]
            effect = self._effect(plan.gain, wordless, [*present, *rules], served)
            rules += [Rule(rule.name, advice, effect, plan.difficulty) for rule in wordless]
        return rules

    def _effect(
        self, gain: float, rules: Sequence[Rule], present: Sequence[Rule], served: Sequence[str]
    ) -> float:
        """The effect, in logits, with which `rules` add `gain` to the mean chance of the questions served."""
        if gain == 0:
            return 0.0
        abilities = self._responses.abilities(present)
        touched = np.zeros(len(abilities))
        touched[np.concatenate([self._responses.rows_named(rule) for rule in rules])] = 1.0
        rows = rows_served(self._responses, served)
        before = logistic(abilities[rows]).mean()

        def missing(effect: float) -> float:
            return float(logistic((abilities + effect * touched)[rows]).mean() - before - gain)

        return round(solve_increasing(missing, -STRONGEST_EFFECT, STRONGEST_EFFECT), 4)

    def _advice(self, draw: str) -> str:
        parts = [
            choose(words, self._seed, "advice", number, draw)
            for number, words in enumerate((_TIMES, _WAYS, _AIMS))
        ]
        return " ".join(parts)


def rows_served(responses: ResponseModel, served: Sequence[str]) -> Rows:
    """The rows of the questions that the names speak of."""
    return np.unique(np.concatenate([responses.rows_named(Rule(name, "", 0.0)) for name in served]))


def _edit(text: str, rules: Sequence[Rule], kind: EditKind) -> Edit:
    content = "\n".join(map(render_rule, rules))
    reason = f"simulated {kind.name} edit"
    if text.count(RULES_HEADING) == 1:
        return Edit("insert_after", target=RULES_HEADING, content=content, reason=reason)
    return Edit("append", content=content, reason=reason)


class SimulatedProposer:
    """A `Proposer` that knows nothing and draws its edits from a family, for skill files and the system
    prompt.

    What it draws hangs on `seed`, target file and number of the edit, not on the text: in two arms of a study
    the same step brings the same kind of edit. `clusters` tells the cluster of each question by id.
    """

    attempts = 1

    def __init__(self, maker: EditMaker, clusters: Mapping[str, str]) -> None:
        shares = ", ".join(f"{kind.name} {kind.share:.0%}" for kind in maker.family)
        self.name = f"simulated ({shares})"
        self._maker = maker
        self._clusters = clusters

    async def propose(
        self,
        pack: CasePack,
        *,
        text: str,
        rejected: Sequence[RejectedEdit],
        edit_budget: int,
        seed: int,
        problems: Sequence[str] = (),
    ) -> list[Edit]:
        """`edit_budget` edits, each made on top of those before it. Raises `ProposalError` for a tool's
        pack: the simulated agent reads no tool prompt."""
        if isinstance(pack, SkillCasePack):
            served, target = pack.task_types, pack.target_file
        elif isinstance(pack, SystemCasePack):
            served, target = (EVERY,), "system"
        else:
            raise ProposalError("the simulated agent reads no tool prompt")
        clusters = [self._clusters[case.question_id] for case in pack.failure_cases]
        tried = set(rejected_keys(rejected))
        edits: list[Edit] = []
        for number in range(edit_budget):
            draw = f"{seed} {target} {number}"
            edit = self._maker.make(text, served=served, clusters=clusters, tried=tried, draw=draw)
            tried.add(edit_key(edit))
            edits.append(edit)
            text = apply_edits(text, [edit], budget=1).text
        return edits
