"""`tree.json`: a film as scenes (level 1), their events (level 2) and the events' key moments (level 3).

Whatever a file says is checked on loading, so that everything after may trust the tree: children exist, have
one parent and lie one level below it, and no path leads out of the tree's folder.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from textwrap import shorten
from typing import Any, Literal

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

SCENE, EVENT, MOMENT = 1, 2, 3
PLACES = ("root", "first", "last")
"""What the tools understand beside node ids: the list of scenes, the first and the last moment."""
FRAME_SUFFIXES = (".gif", ".jpeg", ".jpg", ".png", ".webp")
"""The kinds of images that models which see take, by the ends of their names in lower case."""

_PROBLEMS_TOLD = 3
_WANTED = {
    "level": "1 (scene), 2 (event) or 3 (moment) is expected",
    "time_range": "start and end in seconds are expected, like [12.5, 30]",
    "children_ids": 'a list of node ids is expected, like ["L3_01"]',
    "nodes": "an object with the nodes by their id is expected",
}


class TreeNode(BaseModel):
    """One part of a film. `time_range` is start and end in seconds, `card` says what is seen, `subtitle` what
    is written or said, `frame` is the path of an image relative to the tree's folder (empty: none).
    Other keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    level: Literal[1, 2, 3]
    time_range: tuple[float, float]
    card: str = ""
    subtitle: str = ""
    children_ids: tuple[str, ...] = ()
    frame: str = ""

    @field_validator("time_range")
    @classmethod
    def _starts_before_it_ends(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= value[0] <= value[1] < float("inf"):
            raise ValueError(f"{list(value)} is no start and end in seconds")
        return value

    @field_validator("frame")
    @classmethod
    def _is_an_image_inside(cls, value: str) -> str:
        # A tree may have been written on any platform, so both ways of writing a path are looked at.
        for path in (PurePosixPath(value), PureWindowsPath(value)):
            if path.is_absolute() or path.anchor or ".." in path.parts:
                raise ValueError(f"{value!r} leads out of the tree's folder")
        if "\0" in value:
            raise ValueError(f"{value!r} is no path: it holds a null character")
        if value and PurePosixPath(value).suffix.lower() not in FRAME_SUFFIXES:
            raise ValueError(f"{value!r} is no image; its name must end in {', '.join(FRAME_SUFFIXES)}")
        return value


class VideoTree(BaseModel):
    """A film and its parts by id. Other keys (`title`, `year`, `time_source`, ...) are kept.

    Raises `ValueError` naming the node when the nodes form no tree; time ranges that do not nest are only
    warned of, for many are approximate.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    videoID: str = Field(min_length=1)
    duration_seconds: float = Field(gt=0, allow_inf_nan=False)
    domain: str = ""
    nodes: Mapping[str, TreeNode]

    @model_validator(mode="after")
    def _is_a_tree(self) -> "VideoTree":
        if not self.nodes:
            raise ValueError("nodes: there are none")
        if problems := [f"node {problem}" for problem in _structure_problems(self.nodes)]:
            raise ValueError(_told(problems))
        if not any(node.card or node.subtitle or node.frame for node in self.nodes.values()):
            raise ValueError(f"nodes: none has a card, a subtitle or a frame{_other_keys(self.nodes)}")
        if not any(node.level == MOMENT for node in self.nodes.values()):
            logger.warning(
                "{}: no node has level {}, and most tactics, `first` and `last` look at nothing else; give it "
                "to the lowest nodes, under events (level {}) of scenes (level {})",
                self.videoID, MOMENT, EVENT, SCENE,
            )  # fmt: skip
        outside = list(_nodes_outside_their_parent(self))
        if outside:
            logger.warning(
                "{}: the time range of {} of {} nodes lies outside the one above it, first of node {!r}",
                self.videoID, len(outside), len(self.nodes), outside[0],
            )  # fmt: skip
        return self

    @cached_property
    def parents(self) -> dict[str, str]:
        """The parent's id of every node but the scenes."""
        return {child: node_id for node_id, node in self.nodes.items() for child in node.children_ids}

    @cached_property
    def film_order(self) -> dict[int, tuple[str, ...]]:
        """For each level its node ids by start time; what starts together stays in the order of the file."""
        walked: dict[int, list[str]] = {SCENE: [], EVENT: [], MOMENT: []}
        waiting = [node_id for node_id, node in self.nodes.items() if node.level == SCENE]
        while waiting:
            walked[self.nodes[waiting[0]].level] += waiting
            waiting = [child for node_id in waiting for child in self.nodes[node_id].children_ids]
        return {
            level: tuple(sorted(ids, key=lambda node_id: self.nodes[node_id].time_range))
            for level, ids in walked.items()
        }

    @cached_property
    def neighbours(self) -> dict[str, tuple[str | None, str | None]]:
        """The node before and the node after each, on its level and in film order; `None` at the ends."""
        return {
            node_id: (before, after)
            for ids in self.film_order.values()
            for before, node_id, after in zip((None, *ids), ids, (*ids[1:], None), strict=False)
        }

    def ancestors(self, node_id: str) -> Iterator[str]:
        """The nodes above, nearest first."""
        while node_id in self.parents:
            node_id = self.parents[node_id]
            yield node_id


def load_tree(path: Path) -> VideoTree:
    """Reads a tree file. Raises `ValueError` that names the file, the node and what is wrong with it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_refuse_twins)
    except OSError as error:
        raise ValueError(f"{path}: the tree cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a readable JSON tree: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: a tree is a JSON object, found {type(raw).__name__}")
    try:
        return VideoTree.model_validate(raw)
    except ValidationError as error:
        problems = [_in_words(detail) for detail in error.errors(include_url=False)]
        raise ValueError(f"{path}: {_told(problems)}") from None


def lies_inside(path: Path, folder: Path) -> bool:
    """True when a path, all links followed, stays in the folder; not for links that go round in a circle."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def _told(problems: Sequence[str]) -> str:
    more = len(problems) - _PROBLEMS_TOLD
    return "; ".join([*problems[:_PROBLEMS_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _in_words(detail: Mapping[str, Any]) -> str:
    """One of pydantic's complaints, with the field in front and, where a field is missing, what is there."""
    own = detail.get("ctx", {}).get("error")
    place = ".".join(map(str, detail["loc"]))
    if own:
        return f"{place}: {own}" if place else str(own)
    field = next((key for key in reversed(detail["loc"]) if isinstance(key, str)), "")
    if detail["type"] == "missing" and field == detail["loc"][-1]:
        return f"{place}: is missing; found {shorten(', '.join(detail['input']), 100) or 'nothing'}"
    return f"{place}: {_WANTED.get(field, detail['msg'])}, found {detail['input']!r:.60}"


def _other_keys(nodes: Mapping[str, TreeNode]) -> str:
    found = sorted({key for node in nodes.values() for key in node.model_extra or {}})
    return f"; rename what holds the text, found {', '.join(found)}" if found else ""


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with the same key twice would silently lose one of two nodes."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twin = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twin!r} stands twice in one object")
    return value


def _structure_problems(nodes: Mapping[str, TreeNode]) -> Iterator[str]:
    parents: dict[str, str] = {}
    for node_id, node in nodes.items():
        if not node_id or node_id != node_id.strip() or node_id in PLACES:
            # Blanks around it would be lost when a tool is called.
            yield f"{node_id!r}: not usable as an id (empty, blanks around it, or one of {', '.join(PLACES)})"
        for child in node.children_ids:
            if child not in nodes:
                yield f"{node_id!r}: its child {child!r} does not exist"
            elif nodes[child].level != node.level + 1:
                # This also rules cycles out: along children the level can only rise.
                yield (
                    f"{node_id!r}: its child {child!r} has level {nodes[child].level}, not {node.level + 1}"
                )
            if child in parents:
                yield f"{child!r}: is a child of {parents[child]!r} and again of {node_id!r}"
            parents[child] = node_id
    for node_id, node in nodes.items():
        if node.level != SCENE and node_id not in parents:
            yield f"{node_id!r}: has level {node.level} but is nobody's child"


def _nodes_outside_their_parent(tree: VideoTree) -> Iterator[str]:
    for node_id, node in tree.nodes.items():
        above = tree.parents.get(node_id)
        start, end = tree.nodes[above].time_range if above else (0.0, tree.duration_seconds)
        if not start <= node.time_range[0] <= node.time_range[1] <= end:
            yield node_id
