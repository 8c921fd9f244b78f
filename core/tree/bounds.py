"""How much of a film one tool call tells: a prompt is no place for a hundred thousand scenes."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST_NODES = 200
MOST_CHARACTERS = 60_000
"""Of the cards and subtitles of one call together, about 15,000 tokens."""
LONGEST_TEXT = 10_000

Node = dict[str, Any]


def within_bounds(nodes: Sequence[Mapping[str, Any]]) -> list[Node]:
    """The first of the nodes, their `card` and `subtitle` cut where they are too long, with a note of how
    much is missing. At most `MOST_NODES`, and none after `MOST_CHARACTERS` are used up."""
    told: list[Node] = []
    room = MOST_CHARACTERS
    for node in nodes[:MOST_NODES]:
        shown = dict(node)
        for field in ("card", "subtitle"):
            most = min(LONGEST_TEXT, room)
            room -= min(len(node[field]), most)
            shown[field] = _shortened(node[field], most)
        told.append(shown)
        if room == 0:
            break
    return told


def left_out(told: int, found: int) -> dict[str, str]:
    """What an answer says beside `nodes` when not all that were found are told."""
    if told == found:
        return {}
    return {"left_out": f"{found - told} more nodes; search_similar finds them, `next` leads on"}


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [{len(text) - most} more characters left out]"
