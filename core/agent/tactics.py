"""Tactics: where to look in a film, as small chains of tool calls.

A tactic knows nothing but the tools, so its trace shows what any agent's would: calls, outputs, opened
nodes. What it found becomes the evidence, in the order of the film. Searches look at what is *seen* (the
cards); only `search_subtitle` looks at what is written or said.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.protocols import ToolDispatcher
from core.tree.words import content_words

# A node as the tools tell it: id, level, time_range, card, subtitle, parent, prev, next.
Node = Mapping[str, Any]

_SMALL_NUMBERS = (
    "no", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_SCENE, _MOMENT = 1, 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a tactic found: the text to answer from and the nodes it comes from. Empty: nothing found."""

    text: str = ""
    node_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tactic:
    """`meaning` completes "look at ..."; `look` runs the chain for a question."""

    meaning: str
    look: Callable[[str, ToolDispatcher], Awaitable[Evidence]]


async def look(tactic: str, question: str, tools: ToolDispatcher) -> Evidence:
    """Runs the chain of the named tactic. Raises `KeyError` for a name that is not in `TACTICS`."""
    return await TACTICS[tactic].look(question, tools)


async def _first_moments(question: str, tools: ToolDispatcher) -> Evidence:
    first = await _view(tools, "first", question)
    return _evidence(first + await _neighbours(tools, first, question, "next"))


async def _last_moments(question: str, tools: ToolDispatcher) -> Evidence:
    last = await _view(tools, "last", question)
    return _evidence(last + await _neighbours(tools, last, question, "prev"))


def _hits(*, k: int = 1, field: str = "card", level: int = _MOMENT):
    async def chain(question: str, tools: ToolDispatcher) -> Evidence:
        return _evidence(await _search(tools, question, k=k, field=field, level=level))

    return chain


def _hit_and(*directions: str):
    async def chain(question: str, tools: ToolDispatcher) -> Evidence:
        hits = await _search(tools, question)
        return _evidence(hits + await _neighbours(tools, hits, question, *directions))

    return chain


async def _event_moments(question: str, tools: ToolDispatcher) -> Evidence:
    opened: list[Node] = []
    for hit in await _search(tools, question):
        opened += await _view(tools, hit["parent"] or hit["id"], question)
    return _evidence([node for node in opened if node["level"] == _MOMENT])


async def _count_word(question: str, tools: ToolDispatcher) -> Evidence:
    """The word that a question wants counted is one that recurs: of its content words the one found in most
    moments, the earlier one among equals. Words of no moment drop out, and with them the question's frame."""
    counts = [json.loads(await tools("count_moments", {"word": word})) for word in content_words(question)]
    found = max(counts, key=lambda answer: answer["count"], default=None)
    if not found or not found["count"]:
        return Evidence()
    number = found["count"]
    spelt = _SMALL_NUMBERS[number] if number < len(_SMALL_NUMBERS) else str(number)
    sentence = f'The word "{found["word"]}" occurs in {spelt} moment{"" if number == 1 else "s"}.'
    return Evidence(sentence, tuple(node["id"] for node in found["nodes"]))


async def _read_all(question: str, tools: ToolDispatcher) -> Evidence:
    opened: list[Node] = []
    for scene in await _view(tools, "root", question):
        for node in await _view(tools, scene["id"], question):
            opened += [node] if node["id"] == scene["id"] else await _view(tools, node["id"], question)
    return _evidence(opened)


TACTICS: Mapping[str, Tactic] = {
    "first_moments": Tactic("the first two moments of the film", _first_moments),
    "last_moments": Tactic("the last two moments of the film", _last_moments),
    "search_1": Tactic("the moment in which what is seen fits best", _hits()),
    "search_2": Tactic("the two moments in which what is seen fits best", _hits(k=2)),
    "search_next": Tactic("the best moment and the one right after it", _hit_and("next")),
    "search_previous": Tactic("the best moment and the one right before it", _hit_and("prev")),
    "search_around": Tactic("the best moment and the ones before and after it", _hit_and("prev", "next")),
    "search_subtitle": Tactic(
        "the moment in which what is written or said fits best", _hits(field="subtitle")
    ),
    "scene_summary": Tactic("the summary of the scene that fits best", _hits(field="card", level=_SCENE)),
    "event_moments": Tactic("all moments of the event that holds the best moment", _event_moments),
    "count_word": Tactic("in how many moments the question's word occurs", _count_word),
    "read_all": Tactic("everything, from the first scene to the last", _read_all),
}


async def _view(tools: ToolDispatcher, node_id: str, question: str) -> list[Node]:
    return json.loads(await tools("view_node", {"node_id": node_id, "question": question}))["nodes"]


async def _search(
    tools: ToolDispatcher, question: str, *, k: int = 1, field: str = "card", level: int = _MOMENT
) -> list[Node]:
    args = {"query": question, "question": question, "k": k, "field": field, "level": level}
    return json.loads(await tools("search_similar", args))["nodes"]


async def _neighbours(
    tools: ToolDispatcher, nodes: list[Node], question: str, *directions: str
) -> list[Node]:
    """What stands directly beside the nodes; nothing beyond the film's ends."""
    beside = [node[direction] for node in nodes for direction in directions if node[direction]]
    return [node for node_id in beside for node in await _view(tools, node_id, question)]


def _evidence(nodes: list[Node]) -> Evidence:
    """The nodes' texts in film order, a scene before its moments; what is written or said in quotes."""
    distinct = {node["id"]: node for node in nodes}.values()
    ordered = sorted(distinct, key=lambda node: (node["time_range"][0], node["level"], node["time_range"][1]))
    return Evidence("\n".join(filter(None, map(_node_text, ordered))), tuple(node["id"] for node in ordered))


def _node_text(node: Node) -> str:
    card, subtitle = node["card"].strip(), node["subtitle"].strip()
    return f'{card} "{subtitle}"'.strip() if subtitle else card
