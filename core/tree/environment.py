"""The films of a folder, and the tools for a question about one of them."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.protocols import LLMProvider, ToolDispatcher, VLMProvider
from core.tree.condense import Prompts
from core.tree.model import VideoTree, lies_inside, load_tree
from core.tree.search import SearchIndex
from core.tree.tools import TreeTools
from core.types import GeneratedQuestion


@dataclass(frozen=True, slots=True)
class Film:
    """A tree, its search index, and the folder that its frames are in."""

    tree: VideoTree
    index: SearchIndex
    folder: Path


class TreeEnvironment:
    """Opens `{video_id}.json` or `{video_id}/tree.json` of a folder, each when first asked for and then kept.

    `tools_for` is the `tool_dispatch_fn` of a run. Files are found by listing the folder, never by joining a
    name from the data to a path.
    """

    def __init__(
        self,
        folder: Path,
        *,
        llm: LLMProvider | None = None,
        vlm: VLMProvider | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        self._folder = folder
        self._llm, self._vlm, self._prompts = llm, vlm, prompts
        self._paths = _tree_paths(folder)
        self._films: dict[str, Film] = {}

    @property
    def video_ids(self) -> tuple[str, ...]:
        """The films of the folder, sorted."""
        return tuple(self._paths)

    def film(self, video_id: str) -> Film:
        """The film, loaded and checked. Raises `ValueError` when there is none or its file is not usable."""
        if video_id not in self._films:
            self._films[video_id] = self._open(video_id)
        return self._films[video_id]

    def tools_for(self, question: GeneratedQuestion) -> ToolDispatcher:
        """The tools for the film that the question is about."""
        film = self.film(question.video_id)
        return TreeTools(
            film.tree,
            llm=self._llm,
            vlm=self._vlm,
            prompts=self._prompts,
            index=film.index,
            folder=film.folder,
        )

    def _open(self, video_id: str) -> Film:
        path = self._paths.get(video_id)
        if path is None:
            near = difflib.get_close_matches(video_id, self._paths, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"no tree for video {video_id!r} among the {len(self._paths)} of {self._folder}{hint}"
            )
        tree = load_tree(path)
        if tree.videoID != video_id:
            raise ValueError(f"{path}: videoID is {tree.videoID!r}, but its name says {video_id!r}")
        return Film(tree, SearchIndex(tree), path.parent)


def _tree_paths(folder: Path) -> Mapping[str, Path]:
    """The tree files by video id, sorted. Links that lead out of the folder are refused."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder of trees")
    found: dict[str, Path] = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/tree.json")]):
        if not lies_inside(path, folder):
            raise ValueError(f"{path}: leads out of {folder}")
        video_id = path.parent.name if path.name == "tree.json" and path.parent != folder else path.stem
        if video_id in found:
            raise ValueError(f"{path}: there is another tree of {video_id!r}, {found[video_id]}")
        found[video_id] = path
    return dict(sorted(found.items()))
