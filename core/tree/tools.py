"""The tools with which an agent browses one film. Answers are JSON; a wrong call is a `ToolError`."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.protocols import LLMProvider, ToolError, VLMProvider
from core.tree.arguments import (
    TOOLS,
    CountMoments,
    ObserveFrame,
    SearchSimilar,
    SubmitAnswer,
    ViewNode,
    describe_tool,
    read_arguments,
)
from core.tree.bounds import MOST_NODES, left_out, within_bounds
from core.tree.condense import Prompts, condense_nodes, describe_images
from core.tree.model import EVENT, MOMENT, PLACES, SCENE, VideoTree, lies_inside
from core.tree.search import NodeSearch, SearchIndex
from core.tree.words import words

_LISTED_MOMENTS = 20  # of a counted word; a long film must not flood a prompt
_MOST_FRAMES = 4


class TreeTools:
    """A `ToolDispatcher` over a tree.

    With `llm`, what `view_node` and `search_similar` found is condensed to what the question needs, by the
    tool prompts that `prompts` reads; without it the nodes' own text comes back. `observe_frame` is there if
    `vlm` is, and looks for the nodes' images in `folder`. `index` may be shared by all tools of a tree.
    """

    def __init__(
        self,
        tree: VideoTree,
        *,
        llm: LLMProvider | None = None,
        vlm: VLMProvider | None = None,
        prompts: Prompts | None = None,
        index: NodeSearch | None = None,
        folder: Path | None = None,
    ) -> None:
        if (llm is not None or vlm is not None) and prompts is None:
            raise ValueError("prompts: a model that condenses or looks needs the tool prompts")
        if vlm is not None and folder is None:
            raise ValueError("folder: a model that looks at frames needs the folder that holds them")
        self._tree = tree
        self._llm, self._vlm, self._prompts = llm, vlm, prompts
        self._index = SearchIndex(tree) if index is None else index
        self._folder = folder
        self._tools = {
            "view_node": self._view_node,
            "search_similar": self._search_similar,
            "count_moments": self._count_moments,
            "submit_answer": self._submit_answer,
            **({"observe_frame": self._observe_frame} if vlm is not None else {}),
        }

    def with_prompts(self, prompts: Prompts) -> "TreeTools":
        """The same tools under other tool prompts, such as a candidate's.

        Raises what `prompts` raises for one that is not there: it is missed before anything is paid.
        """
        condensing = ("view_node", "search_similar") if self._llm is not None else ()
        looking = ("observe_frame",) if self._vlm is not None else ()
        for tool, part in itertools.product((*condensing, *looking), ("extract", "verify")):
            prompts.read(f"{tool}_{part}")
        return self._with(llm=self._llm, vlm=self._vlm, prompts=prompts)

    def for_scope(self, scope: str) -> "TreeTools":
        """The same tools for one rollout, under whose name the calls of their models are kept."""
        models = {"llm": self._llm, "vlm": self._vlm}
        scoped = {
            name: model.for_scope(scope) if hasattr(model, "for_scope") else model
            for name, model in models.items()
        }
        return self._with(prompts=self._prompts, **scoped)

    def _with(self, **changes: Any) -> "TreeTools":
        return TreeTools(self._tree, index=self._index, folder=self._folder, **changes)

    def describe(self) -> str:
        """The available tools as a Markdown list."""
        return "\n".join(describe_tool(name) for name in TOOLS if name in self._tools)

    async def __call__(self, name: str, args: Mapping[str, Any]) -> str:
        """The tool's answer as JSON. Raises `ToolError` for an unknown tool or node, or wrong arguments."""
        if name not in self._tools:
            raise ToolError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
        answer = await self._tools[name](read_arguments(name, args))
        return json.dumps(answer, ensure_ascii=False)

    async def _view_node(self, args: ViewNode) -> dict[str, Any]:
        return await self._tell("view_node", args.question, self._opened_by(args.node_id))

    async def _search_similar(self, args: SearchSimilar) -> dict[str, Any]:
        hits = self._index.search(args.query, k=args.k, field=args.field, level=args.level)
        return await self._tell("search_similar", args.question, hits)

    async def _count_moments(self, args: CountMoments) -> dict[str, Any]:
        if len(words(args.word)) != 1:
            raise ToolError(f"count_moments: {args.word!r} is not one word; ask for each word by itself")
        (word,) = words(args.word)
        moments = self._tree.film_order[MOMENT]
        found = [node_id for node_id in moments if word in words(self._tree.nodes[node_id].card)]
        return {
            "word": word,
            "count": len(found),
            "nodes": within_bounds([self._node(node_id) for node_id in found[:_LISTED_MOMENTS]]),
        }

    async def _observe_frame(self, args: ObserveFrame) -> dict[str, Any]:
        moments = self._moments_to_observe(args.node_ids)
        images = [self._image(node_id) for node_id in moments]
        seen = await describe_images(self._vlm, self._prompts, images, args.question)
        return {"nodes": [self._place(node_id) for node_id in moments], "observation": seen}

    async def _submit_answer(self, args: SubmitAnswer) -> dict[str, Any]:
        return args.model_dump()

    async def _tell(self, tool: str, question: str, node_ids: Sequence[str]) -> dict[str, Any]:
        """The nodes' own texts, or, where there is a model to condense them, what they say in short."""
        nodes = within_bounds([self._node(node_id) for node_id in node_ids[:MOST_NODES]])
        missing = left_out(len(nodes), len(node_ids))
        if self._llm is None or not nodes:
            return {"nodes": nodes, **missing}
        extract = await condense_nodes(self._llm, self._prompts, tool, question, nodes)
        if not extract:
            return {"nodes": nodes, **missing}
        return {"nodes": [self._place(node["id"]) for node in nodes], "extract": extract, **missing}

    def _opened_by(self, place: str) -> list[str]:
        if place == "root":
            return list(self._tree.film_order[SCENE])
        if place in PLACES:
            moments = self._tree.film_order[MOMENT]
            return [moments[0 if place == "first" else -1]] if moments else []
        return [self._known(place), *self._tree.nodes[place].children_ids]

    def _known(self, node_id: str) -> str:
        if node_id not in self._tree.nodes:
            raise ToolError(f'there is no node {node_id!r}; view_node with node_id="root" lists the scenes')
        return node_id

    def _moments_to_observe(self, node_ids: Sequence[str]) -> list[str]:
        levels = [self._tree.nodes[self._known(node_id)].level for node_id in node_ids]
        if levels == [EVENT]:
            moments = self._tree.nodes[node_ids[0]].children_ids
            if not moments:
                raise ToolError(f"observe_frame: event {node_ids[0]!r} has no moments to look at")
            step = max(1, -(-len(moments) // _MOST_FRAMES))
            return list(moments[::step])
        if set(levels) != {MOMENT}:
            raise ToolError(
                "observe_frame: node_ids are one to four moments (level 3) or one event (level 2)"
            )
        return list(node_ids)

    def _image(self, node_id: str) -> Path:
        frame = self._tree.nodes[node_id].frame
        if not frame:
            raise ToolError(f"observe_frame: {node_id!r} has no image; view_node tells what is seen there")
        image = self._folder / frame
        if not lies_inside(image, self._folder):  # a link inside the folder may lead out of it
            raise ToolError(f"observe_frame: the image of {node_id!r} lies outside the film's folder")
        if not _can_be_read(image):
            raise ToolError(f"observe_frame: the image of {node_id!r} is missing or cannot be read")
        return image.resolve()

    def _place(self, node_id: str) -> dict[str, Any]:
        node = self._tree.nodes[node_id]
        before, after = self._tree.neighbours[node_id]
        return {
            "id": node_id,
            "level": node.level,
            "time_range": node.time_range,
            "parent": self._tree.parents.get(node_id),
            "prev": before,
            "next": after,
        }

    def _node(self, node_id: str) -> dict[str, Any]:
        node = self._tree.nodes[node_id]
        return {**self._place(node_id), "card": node.card, "subtitle": node.subtitle}


def _can_be_read(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        path.open("rb").close()
    except OSError:  # no permission, a name too long for the file system
        return False
    return True
