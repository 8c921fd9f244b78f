"""Reading a chat model's reply: one JSON object with one action.

Only what the model itself replies is ever read as an action. Tool outputs, captions included, reach the
model as data and are never parsed here; what a reply only quotes of them is no action either.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import json_repair

_ACTION_KEY = re.compile(r'"action"\s*:')  # inside a JSON string the quotes would be escaped: no match
_LOOSE_ACTION_KEY = re.compile(r"""["']action["']\s*:""")  # for JSON that has to be mended first
_NOTHING_AROUND = re.compile(r"\s*(?:```\w*)?\s*")


class ReplyError(ValueError):
    """A reply that is no action. Its text is told to the model."""


@dataclass(frozen=True, slots=True)
class Action:
    """What the model wants done. `reflect` and `plan` are kept for traces, whatever they hold."""

    tool: str
    args: Mapping[str, Any]
    reflect: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None


def parse_action(reply: str, *, told: Sequence[str] = ()) -> Action:
    """The action of a reply; broken JSON is mended where it can be, words around the object are passed over.

    told: the tool outputs so far, as JSON. Raises `ReplyError` for a reply without an object, without an
    action, with more than one (which of two is the model's own cannot be told), or with one that is only
    quoted: it stood in a tool's output, or it stands among words and has no `reflect` and `plan`.
    """
    _refuse_several(reply, _ACTION_KEY)
    fields, start, end = _json_object(reply)
    action = fields.get("action")
    if not isinstance(action, dict):
        raise ReplyError('there is no object "action" in it')
    tool, args = action.get("tool"), action.get("args", {})
    if not isinstance(tool, str) or not tool.strip():
        raise ReplyError('"action" has no "tool" with the name of a tool')
    if not isinstance(args, dict):
        raise ReplyError('"args" of the action is not an object')
    as_told = json.dumps(reply[start:end], ensure_ascii=False)[1:-1]  # the way a caption stands in JSON
    if any(as_told in output for output in told):
        raise ReplyError("its action is a quotation from a tool's result; word your own")
    alone = _NOTHING_AROUND.fullmatch(reply[:start]) and _NOTHING_AROUND.fullmatch(reply[end:])
    if not alone and not {"reflect", "plan"} <= fields.keys():
        raise ReplyError('words stand around an action that has no "reflect" and "plan"')
    return Action(tool.strip(), args, _as_mapping(fields.get("reflect")), _as_mapping(fields.get("plan")))


def _refuse_several(reply: str, action_key: re.Pattern[str]) -> None:
    if len(action_key.findall(reply)) > 1:
        raise ReplyError('it has more than one "action"; reply with one action at a time')


def _json_object(reply: str) -> tuple[dict[str, Any], int, int]:
    """The first object, and where it begins and ends; a broken one reaches to the last brace."""
    start = reply.find("{")
    if start < 0:
        raise ReplyError("it is empty" if not reply.strip() else "there is no JSON object in it")
    try:
        value, end = json.JSONDecoder().raw_decode(reply, start)
    except (ValueError, RecursionError):
        _refuse_several(reply, _LOOSE_ACTION_KEY)
        value, end = _mended(reply[start:]), reply.rfind("}", start) + 1 or len(reply)
    if not isinstance(value, dict):
        raise ReplyError("it is not one JSON object")
    return value, start, end


def _mended(broken: str) -> Any:
    try:
        return json_repair.loads(broken)
    except (ValueError, RecursionError):
        raise ReplyError("its JSON is broken beyond repair") from None


def _as_mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) or value is None else {"text": value}
