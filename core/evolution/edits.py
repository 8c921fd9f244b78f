"""Applies bounded edits to a skill or prompt text, or refuses each with a reason.

Whatever a proposer sends, the text that comes out has the same front matter, frozen sections and momentum
block, its code fences are closed, its line ends are kept, and its length has stayed within bounds.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from core.agent.markdown import MOMENTUM_MARKER
from core.agent.skills import section_items
from core.evolution.markdown import has_open_fence, protected_regions
from core.evolution.types import Edit, EditOp, EditOutcome, RejectedEdit, SkippedEdit

SHORTEST, LONGEST = 0.3, 2.0
"""Bounds of the length after all edits, as multiples of the length before."""
GROWTH_FLOOR = 400
"""Shorter texts may grow as if they had this many characters."""

_LIST_MARK = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")

EditKey = tuple[str, str, str]


class _RefusedError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def apply_edits(text: str, edits: Iterable[Edit], *, budget: int, frozen: Sequence[str] = ()) -> EditOutcome:
    """Applies edits in their order, each to the text that the ones before it left, at most `budget` of them.

    `frozen` are titles of headings whose sections stay as they are. A refused edit changes nothing and is
    handed back with a reason:

    `unknown_op`, `content_blank`, `append_with_target`, `anchor_blank`, `anchor_missing`,
    `anchor_not_unique`, `touches_front_matter`, `touches_frozen_section`, `touches_momentum_block`,
    `code_fence_open`, `hides_lines`, `too_short`, `too_long`, `changes_nothing`, `over_budget`.
    """
    current, applied, skipped = text, [], []
    for edit in edits:
        if len(applied) >= budget:
            skipped.append(SkippedEdit(edit, "over_budget", f"at most {budget} edits are applied"))
            continue
        try:
            current = _apply(current, edit, original=text, frozen=frozen)
            applied.append(edit)
        except _RefusedError as refusal:
            skipped.append(SkippedEdit(edit, refusal.reason, refusal.detail))
    return EditOutcome(current, tuple(applied), tuple(skipped))


def edit_key(edit: Edit) -> EditKey:
    """What makes two edits the same proposal: letter case, spaces, list marks and closing stops aside, the
    same change.

    An addition is the same wherever it stands, also below a line that a `replace` repeats.
    """
    if edit.op == "replace" and (added := _added_below(edit)):
        return "add", "", _folded(added)
    if edit.op in ("append", "insert_after"):
        return "add", "", _folded(edit.content)
    return edit.op, _folded(edit.target), "" if edit.op == "delete" else _folded(edit.content)


def rejected_keys(rejected: Iterable[RejectedEdit]) -> frozenset[EditKey]:
    """The keys of edits that must not be proposed again."""
    return frozenset(edit_key(entry.edit) for entry in rejected)


def _added_below(edit: Edit) -> str:
    """What a replacement that keeps its target puts on lines of its own below it; empty for any other."""
    target, content = _unix(edit.target).rstrip("\n"), _unix(edit.content)
    return content.removeprefix(f"{target}\n") if content.startswith(f"{target}\n") else ""


def _folded(text: str) -> str:
    lines = (_LIST_MARK.sub("", line).strip().rstrip(".!;") for line in text.splitlines())
    return " ".join(" ".join(lines).split()).casefold()


def _apply(text: str, edit: Edit, *, original: str, frozen: Sequence[str]) -> str:
    """The text after one edit. Raises `_RefusedError`."""
    _check_form(edit)
    view = _unix(text)
    start, end, content = _replacement(view, edit)
    positions = _positions(text)
    result = text[: positions[start]] + _with_line_ends(content, text) + text[positions[end] :]
    _check_result(result, text, original, frozen)
    return result


def _check_form(edit: Edit) -> None:
    if edit.op not in get_args(EditOp):
        raise _RefusedError("unknown_op", f"{edit.op!r} is none of {', '.join(get_args(EditOp))}")
    if edit.op != "delete" and not edit.content.strip():
        raise _RefusedError("content_blank", "give the new text, or use delete")
    if edit.op == "append" and edit.target.strip():
        raise _RefusedError("append_with_target", "append goes to the end; use insert_after for a place")
    if edit.op != "append" and not edit.target.strip():
        raise _RefusedError("anchor_blank", f"{edit.op} needs a target")
    if edit.op != "delete" and MOMENTUM_MARKER.search(edit.content):
        raise _RefusedError("touches_momentum_block", "leave the markers of the momentum block alone")


def _replacement(view: str, edit: Edit) -> tuple[int, int, str]:
    """What becomes of `view[start:end]`: (start, end, new text), all with `\\n` line ends."""
    if edit.op == "append":
        return len(view), len(view), _blank_line_before(view) + _block(edit.content)
    start, end = _anchor(view, _unix(edit.target))
    if edit.op == "replace":
        return start, end, _unix(edit.content)
    if edit.op == "insert_after":
        line_end = view.find("\n", end - 1)
        if line_end < 0:
            return len(view), len(view), "\n" + _block(edit.content)
        return line_end + 1, line_end + 1, _block(edit.content)
    whole_lines = (start == 0 or view[start - 1] == "\n") and view[end : end + 1] == "\n"
    return start, end + whole_lines, ""


def _anchor(view: str, target: str) -> tuple[int, int]:
    start = view.find(target)
    if start < 0:
        raise _RefusedError("anchor_missing", "copy the target from the text exactly as it stands")
    if view.find(target, start + 1) >= 0:
        raise _RefusedError("anchor_not_unique", "take a longer target that occurs once")
    return start, start + len(target)


def _check_result(result: str, before: str, original: str, frozen: Sequence[str]) -> None:
    if result == before:
        raise _RefusedError("changes_nothing", "the text would stay the same")
    kept, protected = _protected_texts(result, frozen), _protected_texts(before, frozen)
    for reason in dict.fromkeys(name for name, _ in (*protected, *kept)):
        if [text for name, text in kept if name == reason] != [
            text for name, text in protected if name == reason
        ]:
            raise _RefusedError(reason, "the edit would change or enlarge it")
    if has_open_fence(_unix(result)):
        raise _RefusedError("code_fence_open", "close the code fence")
    if hidden := _hidden_line(_unix(before), _unix(result)):
        raise _RefusedError("hides_lines", f"{hidden!r} would still stand there and be read no more")
    longest = LONGEST * max(len(original), GROWTH_FLOOR)
    if len(result) > longest:
        raise _RefusedError("too_long", f"{len(result)} characters, at most {longest:.0f}")
    if len(result) < SHORTEST * len(original):
        raise _RefusedError("too_short", f"{len(result)} characters, at least {SHORTEST * len(original):.0f}")


def _hidden_line(before: str, after: str) -> str:
    """A skill line that was read before and now stands where nobody reads it; empty when there is none.

    A remark, a code fence or a heading put above lines does that to them.
    """
    read_before, unread_before = _read_and_unread(before)
    read_after, unread_after = _read_and_unread(after)
    lost = (
        line
        for line in read_before
        if read_after[line] < read_before[line] and unread_after[line] > unread_before[line]
    )
    return next(lost, "")


def _read_and_unread(text: str) -> tuple[Counter[str], Counter[str]]:
    """How often each line of a text is read as one of a skill's lines, and how often it is not."""
    read = Counter(content for _, content in section_items(text))
    return read, Counter(line.rstrip() for line in text.splitlines()) - read


def _protected_texts(text: str, frozen: Sequence[str]) -> list[tuple[str, str]]:
    """(reason, text) of each protected region; blank space at a region's end does not count."""
    view = _unix(text)
    return [
        (region.reason, view[region.start : region.end].rstrip())
        for region in protected_regions(view, frozen)
    ]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _positions(text: str) -> list[int]:
    """For every position of `_unix(text)` the position in `text`; a CRLF counts at its CR."""
    inside_crlf = {match.start() + 1 for match in re.finditer("\r\n", text)}
    return [position for position in range(len(text) + 1) if position not in inside_crlf]


def _with_line_ends(content: str, text: str) -> str:
    """`content` with the line ends that most lines of `text` have."""
    return content.replace("\n", "\r\n") if 2 * text.count("\r\n") > text.count("\n") else content


def _block(content: str) -> str:
    """Content on lines of its own."""
    return _unix(content).strip("\n") + "\n"


def _blank_line_before(view: str) -> str:
    """What must stand between the end of `view` and an appended block."""
    if not view or view.endswith("\n\n"):
        return ""
    return "\n" if view.endswith("\n") else "\n\n"
