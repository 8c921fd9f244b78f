"""What the catalogue's author meant its lines for, and which of them a training run kept."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from core.agent.skills import SkillLine, parse_lines

USEFUL_LINES = Path(__file__).with_name("useful_lines.json")

Intent = Literal["useful", "nonsense", "remade"]
Place = tuple[str, str]
"""A line's rule and tactic."""


def useful_places(catalogue: Sequence[SkillLine], path: Path = USEFUL_LINES) -> frozenset[Place]:
    """Rule and tactic of the lines that are useful by intent.

    Raises `ValueError` naming the line when the catalogue has another one at a number of the list.
    """
    useful = set()
    for number, told in json.loads(path.read_text(encoding="utf-8"))["useful"].items():
        line = catalogue[int(number) - 1] if int(number) <= len(catalogue) else None
        if line is None or told != f"{line.rule} -> {line.tactic}":
            raise ValueError(
                f"{path.name}: line {number} of the catalogue is not {told!r}; bring it up to date"
            )
        useful.add((line.rule, line.tactic))
    return frozenset(useful)


def intent_of(place: Place, catalogue: Sequence[SkillLine], useful: frozenset[Place]) -> Intent:
    """`useful` or `nonsense` by intent; `remade`: a tactic was swapped, so nobody intended the line."""
    if place in useful:
        return "useful"
    return "nonsense" if place in {(line.rule, line.tactic) for line in catalogue} else "remade"


def lines_kept(
    first: Mapping[str, str], last: Mapping[str, str], catalogue: Sequence[SkillLine]
) -> list[dict[str, str]]:
    """The lines that training brought and kept: file, rule, tactic and intent of each.

    first, last: file name -> text, before and after training.
    """
    useful, kept = useful_places(catalogue), []
    for name, text in sorted(last.items()):
        before = {(line.rule, line.tactic) for line in parse_lines(first[name], source=name)}
        for line in parse_lines(text, source=name):
            place = (line.rule, line.tactic)
            if place not in before:
                intent = intent_of(place, catalogue, useful)
                kept.append({"file": name, "rule": line.rule, "tactic": line.tactic, "intent": intent})
    return kept
