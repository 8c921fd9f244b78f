"""Reading a chat model's reply: one JSON object with one action.

Only what the model itself replies is ever read as an action. Tool outputs, captions included, reach the
model as data and are never parsed here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import json_repair

_ACTION_KEY = re.compile(r'"action"\s*:')  # inside a JSON string the quotes would be escaped: no match


class ReplyError(ValueError):
    """A reply that is no action. Its text is told to the model."""


@dataclass(frozen=True, slots=True)
class Action:
    """What the model wants done. `reflect` and `plan` are kept for traces, whatever they hold."""

    tool: str
    args: Mapping[str, Any]
    reflect: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None


def parse_action(reply: str) -> Action:
    """The action of a reply; broken JSON is mended where it can be, words around the object are passed over.

    Raises `ReplyError` for a reply without an object, without an action, or with more than one: which of two
    actions is the model's own and which one it quotes cannot be told.
    """
    if len(_ACTION_KEY.findall(reply)) > 1:
        raise ReplyError('it has more than one "action"; reply with one action at a time')
    fields = _json_object(reply)
    action = fields.get("action")
    if not isinstance(action, dict):
        raise ReplyError('there is no object "action" in it')
    tool, args = action.get("tool"), action.get("args", {})
    if not isinstance(tool, str) or not tool.strip():
        raise ReplyError('"action" has no "tool" with the name of a tool')
    if not isinstance(args, dict):
        raise ReplyError('"args" of the action is not an object')
    return Action(tool.strip(), args, _as_mapping(fields.get("reflect")), _as_mapping(fields.get("plan")))


def _json_object(reply: str) -> dict[str, Any]:
    start = reply.find("{")
    if start < 0:
        raise ReplyError("it is empty" if not reply.strip() else "there is no JSON object in it")
    try:
        value, _ = json.JSONDecoder().raw_decode(reply, start)
    except (ValueError, RecursionError):
        value = _mended(reply[start:])
    if not isinstance(value, dict):
        raise ReplyError("it is not one JSON object")
    return value


def _mended(broken: str) -> Any:
    try:
        return json_repair.loads(broken)
    except (ValueError, RecursionError):
        raise ReplyError("its JSON is broken beyond repair") from None


def _as_mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) or value is None else {"text": value}
