"""Where the parts of a skill or prompt file lie that an edit may not touch.

All functions work on text with `\\n` line ends.
"""

import dataclasses
import re
from collections.abc import Sequence
from functools import lru_cache

import frontmatter
import yaml

from core.agent.markdown import MOMENTUM_BLOCK, fence_after

MOMENTUM_START = "<!-- momentum:start -->"
MOMENTUM_END = "<!-- momentum:end -->"

_HEAD = re.compile(r"\A\ufeff?(?:---[ \t]*\n(?:.*?\n)?---[ \t]*(?:\n|\Z))?", re.DOTALL)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\n?\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A protected part: `text[start:end]`, and the reason for which an edit that touches it is refused."""

    reason: str
    start: int
    end: int


def protected_regions(text: str, frozen: Sequence[str]) -> tuple[Region, ...]:
    """Byte order mark with front matter, momentum blocks, and the sections headed by a title in `frozen`."""
    head = [Region("touches_front_matter", 0, _head_end(text))]
    momentum = [Region("touches_momentum_block", *match.span()) for match in MOMENTUM_BLOCK.finditer(text)]
    sections = [Region("touches_frozen_section", *span) for span in _sections(text, frozen)]
    return tuple(region for region in (*head, *momentum, *sections) if region.end > region.start)


@lru_cache(maxsize=64)
def _head_end(text: str) -> int:
    """Where the text proper begins: behind the front matter as the reader of skill files finds it, which lets
    blanks stand before it and longer fences around it."""
    marked = _HEAD.match(text).end()
    try:
        metadata, body = frontmatter.parse(text.removeprefix("\ufeff"))
    except (yaml.YAMLError, ValueError):
        return marked
    return max(marked, len(text.rstrip()) - len(body)) if metadata else marked


def _sections(text: str, titles: Sequence[str]) -> list[tuple[int, int]]:
    """Spans of the sections with these titles, down to the next heading of the same or a higher level."""
    wanted = {title.lstrip("# ").strip().casefold() for title in titles}
    headings = _headings(text)
    spans = []
    for number, (start, level, title) in enumerate(headings):
        if title.casefold() in wanted:
            later = (other for other, other_level, _ in headings[number + 1 :] if other_level <= level)
            spans.append((start, next(later, len(text))))
    return spans


def _headings(text: str) -> list[tuple[int, int, str]]:
    """(position, level, title) of every heading outside front matter and code fences."""
    headings, fence, position = [], "", 0
    head_end = _head_end(text)
    for line in text.splitlines(keepends=True):
        if position >= head_end:
            before, fence = fence, fence_after(fence, line)
            heading = _HEADING.match(line)
            if heading and not before and not fence:
                headings.append((position, len(heading[1]), heading[2]))
        position += len(line)
    return headings


def has_open_fence(text: str) -> bool:
    """True when a code fence is opened and never closed."""
    fence = ""
    for line in text[_head_end(text) :].splitlines():
        fence = fence_after(fence, line)
    return bool(fence)
