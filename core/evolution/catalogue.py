"""Proposers that need no language model: they try ready-made advice from a catalogue of skill lines.

A catalogue is Markdown with lines as in a skill file (`core.agent.skills`), good and bad mixed; which of it
helps is for the gate to find out. Wherever its results show, a catalogue's proposal is called rule-based.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from core.agent.skills import SkillError, SkillLine, parse_lines, render_line
from core.evolution.edits import EditKey, apply_edits, edit_key, rejected_keys
from core.evolution.fit import LineFit, Reach
from core.evolution.leak_guard import LeakGuard
from core.evolution.protocols import ProposalError
from core.evolution.types import CasePack, CaseSample, Edit, RejectedEdit, SkillCasePack

BEST = 4
"""The draw is among this many of the best-ranked edits."""
EXAMPLES_OF_A_NEW_LINE = 3
MOST_EXAMPLES = 5
LINES_HEADING = "## Where to look"


def load_catalogue(path: Path) -> list[SkillLine]:
    """The lines of a catalogue file. Raises `SkillError` naming the file when it has none or a bad one."""
    lines = parse_lines(path.read_text(encoding="utf-8-sig"), source=path.name)
    if not lines:
        raise SkillError(f"{path.name}: no lines; put them below a heading `{LINES_HEADING}`")
    return lines


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """An edit that can be made, the text it makes, and that text's lines."""

    edit: Edit
    text: str
    lines: tuple[SkillLine, ...]


def possible_edits(text: str, catalogue: Sequence[SkillLine]) -> list[Candidate]:
    """Every edit that the catalogue allows on `text`, in a fixed order.

    Add a catalogue line whose rule the text has not; give a line another example, of a catalogue line with
    the same rule or tactic; swap a line's tactic for another of the catalogue's; drop a line, but not the
    last one. A line that is not written as `render_line` writes it cannot be anchored and is left as it is.

    Raises `ProposalError` when the text's own lines cannot be read.
    """
    try:
        lines = tuple(parse_lines(text))
    except SkillError as error:
        raise ProposalError(f"the skill's lines cannot be read: {error}") from error
    edits = (
        *_additions(lines, catalogue),
        *_examples(lines, catalogue),
        *_swaps(lines, catalogue),
        *_drops(lines),
    )
    candidates = []
    for edit in edits:
        outcome = apply_edits(text, [edit], budget=1)
        if outcome.applied:
            candidates.append(Candidate(edit, outcome.text, tuple(parse_lines(outcome.text))))
    return candidates


def _additions(lines: Sequence[SkillLine], catalogue: Sequence[SkillLine]) -> Iterator[Edit]:
    present = {line.rule for line in lines}
    for line in catalogue:
        if line.rule in present:
            continue
        new = render_line(dataclasses.replace(line, examples=line.examples[:EXAMPLES_OF_A_NEW_LINE]))
        if lines:
            yield Edit("insert_after", target=render_line(lines[-1]), content=new, reason="adds a line")
        else:
            yield Edit("append", content=f"{LINES_HEADING}\n\n{new}", reason="adds a line")


def _examples(lines: Sequence[SkillLine], catalogue: Sequence[SkillLine]) -> Iterator[Edit]:
    present = {example for line in lines for example in line.examples}
    for line in lines:
        if len(line.examples) >= MOST_EXAMPLES:
            continue
        for other in catalogue:
            if other.rule != line.rule and other.tactic != line.tactic:
                continue
            for example in other.examples:
                if example not in present:
                    content = f"  - {example}"
                    yield Edit("insert_after", render_line(line), content, reason="gives a line an example")


def _swaps(lines: Sequence[SkillLine], catalogue: Sequence[SkillLine]) -> Iterator[Edit]:
    tactics = sorted({line.tactic for line in catalogue})
    for line in lines:
        bare = dataclasses.replace(line, examples=())
        for tactic in tactics:
            if tactic != line.tactic:
                swapped = render_line(dataclasses.replace(bare, tactic=tactic))
                yield Edit("replace", render_line(bare), swapped, reason="swaps a line's tactic")


def _drops(lines: Sequence[SkillLine]) -> Iterator[Edit]:
    if len(lines) > 1:
        for line in lines:
            yield Edit("delete", target=render_line(line), reason="drops a line")


def _allowed(
    text: str, catalogue: Sequence[SkillLine], guard: LeakGuard, tried: frozenset[EditKey]
) -> list[Candidate]:
    """The possible edits that were not tried before and copy nothing from the cases."""
    return [
        candidate
        for candidate in possible_edits(text, catalogue)
        if edit_key(candidate.edit) not in tried and guard.copied(candidate.edit.content) is None
    ]


def _skill_pack(pack: CasePack) -> SkillCasePack:
    if not isinstance(pack, SkillCasePack):
        raise ProposalError("a catalogue holds lines for skill files and nothing for prompts")
    return pack


class RandomProposer:
    """Draws edits from the same catalogue blindly: what ranking is worth shows beside it."""

    name = "random from catalogue (rule-based)"
    attempts = 1

    def __init__(self, catalogue: Sequence[SkillLine]) -> None:
        self.catalogue = tuple(catalogue)

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
        """At most `edit_budget` edits, each a seeded draw among all that the text then allows."""
        guard = LeakGuard.for_pack(_skill_pack(pack), known=text)
        tried = rejected_keys(rejected)
        edits: list[Edit] = []
        while len(edits) < edit_budget:
            candidates = _allowed(text, self.catalogue, guard, tried)
            if not candidates:
                break
            chosen = _draw(candidates, seed, len(edits))
            edits.append(chosen.edit)
            text, tried = chosen.text, tried | {edit_key(chosen.edit)}
        return edits


class CatalogueProposer:
    """Ranks the catalogue's edits by the failing cases and draws among the best four.

    An edit is worth what the edited file would reach: each failing question goes to the line that fits it
    best, and `reach` says what that line's tactic opens; equal edits are ordered by how well that line fits.
    Without `reach` (no source nodes known) it counts how many failing questions would go to another tactic
    than in the text as it was given, so that no edit undoes one before it.
    """

    name = "catalogue (rule-based)"
    attempts = 1

    def __init__(self, catalogue: Sequence[SkillLine], *, fit: LineFit, reach: Reach | None = None) -> None:
        self.catalogue = tuple(catalogue)
        self._fit = fit
        self._reach = reach

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
        """At most `edit_budget` edits; those after the first only if they are worth something."""
        pack = _skill_pack(pack)
        guard = LeakGuard.for_pack(pack, known=text)
        tried = rejected_keys(rejected)
        edits: list[Edit] = []
        given = text
        while len(edits) < edit_budget:
            candidates = _allowed(text, self.catalogue, guard, tried)
            ranked = await self._ranked(given, text, candidates, pack.failure_cases)
            if edits:
                ranked = [entry for entry in ranked if entry.gain > 0]
            if not ranked:
                break
            chosen = _draw(ranked[:BEST], seed, len(edits))
            edits.append(chosen.edit_with_ground(len(pack.failure_cases)))
            text, tried = chosen.candidate.text, tried | {edit_key(chosen.candidate.edit)}
        return edits

    async def _ranked(
        self, given: str, text: str, candidates: Sequence[Candidate], cases: Sequence[CaseSample]
    ) -> list["_Ranked"]:
        """The candidates with their worth, best first; ties keep the fixed order of candidates.

        given: the text before all edits. text: the one that the candidates edit.
        """
        lines_given, lines = tuple(parse_lines(given)), tuple(parse_lines(text))
        fits = await self._fits([lines_given, lines, *(candidate.lines for candidate in candidates)], cases)
        at_first = [_route(lines_given, fits, position) for position in range(len(cases))]
        now = [_route(lines, fits, position) for position in range(len(cases))]
        reached_now = [
            await self._reached(case, route, before)
            for case, route, before in zip(cases, now, at_first, strict=True)
        ]
        ranked = []
        for candidate in candidates:
            routes = [_route(candidate.lines, fits, position) for position in range(len(cases))]
            reached = [
                await self._reached(case, route, before)
                for case, route, before in zip(cases, routes, at_first, strict=True)
            ]
            best_fits = [fits[_key(line)][position] for position, line in enumerate(routes) if line]
            helped = tuple(
                case.question_id
                for case, after, before in zip(cases, reached, reached_now, strict=True)
                if after > before
            )
            gain = sum(reached) - sum(reached_now)
            ranked.append(_Ranked(candidate, gain, sum(best_fits), helped))
        return sorted(ranked, key=lambda entry: (-entry.gain, -entry.fit))

    async def _fits(
        self, files: Sequence[tuple[SkillLine, ...]], cases: Sequence[CaseSample]
    ) -> Mapping["_LineKey", list[float]]:
        """Fit of every distinct line of all files to every case's question, whatever its tactic."""
        distinct = {_key(line): line for lines in files for line in lines}
        values = await self._fit(list(distinct.values()), [case.question for case in cases])
        return dict(zip(distinct, values, strict=True))

    async def _reached(self, case: CaseSample, line: SkillLine | None, before: SkillLine | None) -> float:
        if line is None:
            return 0.0
        if self._reach is not None:
            return await self._reach(case, line.tactic)
        return float(before is None or line.tactic != before.tactic)


Choice = TypeVar("Choice")
_LineKey = tuple[str, tuple[str, ...]]


def _key(line: SkillLine) -> _LineKey:
    return line.rule, line.examples


def _route(
    lines: Sequence[SkillLine], fits: Mapping[_LineKey, list[float]], position: int
) -> SkillLine | None:
    """The line that the question at `position` goes to: the best fit, the first among equals."""
    return max(lines, key=lambda line: fits[_key(line)][position], default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ranked:
    """gain: what the edit reaches more than the text as it is. fit: that of the lines chosen.

    Both are summed over failing cases. helped: ids of the cases that it reaches better.
    """

    candidate: Candidate
    gain: float
    fit: float
    helped: tuple[str, ...]

    def edit_with_ground(self, cases: int) -> Edit:
        edit = self.candidate.edit
        reason = f"{edit.reason}; helps to reach {len(self.helped)} of {cases} failing cases"
        return dataclasses.replace(edit, reason=reason, related_cases=self.helped)


def _draw(choices: Sequence[Choice], seed: int, number: int) -> Choice:
    return random.Random(f"{seed} {number}").choice(choices)
