"""Reads JSON out of what a chat model replied: fenced, with words around it, sloppy, or cut off."""

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import json_repair

MOST_CHARACTERS = 200_000
"""Longer replies are not read: whatever they are, they are not what was asked for."""

MOST_BROKEN = 20
"""After so many beginnings that are no JSON, the rest of a reply is not looked at."""

# What a JSON object or array begins with, so that [brackets] and {braces} of prose are passed over.
_START = re.compile(r"""\{\s*["'}]|\[\s*[\[{"'\]\d-]""")
_OPENING_FENCE = re.compile(r"```\w*\s*\Z")
_CLOSING_FENCE = "\n```"
_END_OF_THINKING = "</think>"
# A string (the last one may be cut), or what structures JSON outside of strings.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*\\?(?:"|\Z)|(?P<mark>[\[\]{},])', re.DOTALL)
_CLOSED_BY = {"{": "}", "[": "]"}
# Not strict: line breaks inside strings are let pass.
_DECODER = json.JSONDecoder(strict=False)


class UnreadableReplyError(ValueError):
    """A reply without JSON in it. Its text can be told to the model."""


def extract_json_from_response(text: str, *, keys: Collection[str] = ()) -> dict[str, Any] | list[Any]:
    """The JSON object or array of a reply.

    Of several the first that is an object or an array of objects; with `keys`, the first in which one of
    them stands, if there is one. Sloppy JSON is mended as far as it can be (`json_repair`), so what comes out
    must be validated; of JSON that was cut off, what was said to its end is kept. What a model thought aloud,
    up to `</think>`, does not count.

    Raises `UnreadableReplyError` for a reply that holds none, is empty, or is longer than
    `MOST_CHARACTERS`.
    """
    reply = text.rpartition(_END_OF_THINKING)[2].strip()
    if not reply:
        raise UnreadableReplyError("the reply is empty")
    if len(reply) > MOST_CHARACTERS:
        raise UnreadableReplyError(
            f"the reply has {len(reply)} characters, and at most {MOST_CHARACTERS} are read"
        )
    others = []
    for value in _values(reply):
        if any(not keys or any(key in part for key in keys) for part in _parts(value)):
            return value
        others.append(value)
    for choice in (*filter(_parts, others), *others):
        return choice
    raise UnreadableReplyError("there is no JSON object in the reply")


def _parts(value: Any) -> list[dict[str, Any]]:
    """An object alone, the objects of an array that holds nothing else, or nothing."""
    items = value if isinstance(value, list) else [value]
    return items if all(isinstance(item, dict) for item in items) else []


def _values(reply: str) -> Iterator[Any]:
    """The objects and arrays that stand beside each other, in order. Behind the beginning of a broken one,
    which may be a bracket in prose, the search goes on."""
    position = broken = 0
    while broken < MOST_BROKEN and (match := _START.search(reply, position)):
        try:
            value, position = _DECODER.raw_decode(reply, match.start())
        except (ValueError, RecursionError):
            yield from _mended(reply, match.start())
            position, broken = match.start() + 1, broken + 1
        else:
            yield value


def _mended(reply: str, start: int) -> Iterator[Any]:
    broken = reply[start:]
    if _OPENING_FENCE.search(reply[:start]) and _CLOSING_FENCE in broken:
        broken = broken[: broken.rindex(_CLOSING_FENCE)]
    value = _lenient(broken)
    # Mending puts objects that stood beside each other into an array.
    if isinstance(value, list) and broken.startswith("{"):
        yield from (item for item in value if isinstance(item, dict))
    elif isinstance(value, dict | list):
        yield value


def _lenient(broken: str) -> Any:
    """The value of cut or sloppy JSON, `None` where it is beyond mending."""
    said = _said_to_its_end(broken)
    with contextlib.suppress(ValueError, RecursionError):
        if value := _DECODER.decode(said):
            return value
    sloppy = broken if broken.rstrip().endswith(("}", "]")) else said
    with contextlib.suppress(ValueError, RecursionError):
        return json_repair.loads(sloppy)
    return None


def _said_to_its_end(cut: str) -> str:
    """JSON that was cut off, closed, and without the element in which it was cut: half a number or half a
    sentence misleads."""
    end, depth = 1, 1
    still_open: list[str] = []
    for match in _TOKEN.finditer(cut):
        mark = match["mark"]
        if mark in ("{", "["):
            still_open.append(_CLOSED_BY[mark])
        elif mark == ",":
            end, depth = match.start(), len(still_open)
        elif mark and still_open:
            still_open.pop()
            end, depth = match.end(), len(still_open)
    return cut[:end] + "".join(reversed(still_open[:depth]))
