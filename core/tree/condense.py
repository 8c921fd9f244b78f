"""Condensing what a tool found to what the question needs: one call extracts, one checks the extract.

The prompt files are instructions only. Material travels as data in a message of its own, so no edit of
a prompt can lose a placeholder, and no caption can pose as an instruction of ours.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from core.protocols import LLMProvider, VLMProvider
from core.types import Message


class Prompts(Protocol):
    """Where prompts are read by name (`view_node_extract`), without the `.md`."""

    def read(self, name: str) -> str: ...


async def condense_nodes(
    llm: LLMProvider, prompts: Prompts, tool: str, question: str, nodes: Sequence[Mapping[str, Any]]
) -> str:
    """What the nodes say about the question. Blank when the model finds nothing to say."""
    material = {"question": question, "nodes": list(nodes)}
    extract = await _ask(llm, prompts.read(f"{tool}_extract"), material)
    return await _ask(llm, prompts.read(f"{tool}_verify"), {**material, "extract": extract})


async def describe_images(vlm: VLMProvider, prompts: Prompts, images: Sequence[Path], question: str) -> str:
    """What the images show about the question, looked at twice: once to tell, once to check what was told."""
    material = {"question": question}
    told = await _look(vlm, prompts.read("observe_frame_extract"), images, material)
    return await _look(vlm, prompts.read("observe_frame_verify"), images, {**material, "extract": told})


async def _ask(llm: LLMProvider, prompt: str, material: Mapping[str, Any]) -> str:
    answer = await llm.chat([Message("system", prompt), Message("user", _as_data(material))])
    return answer.content.strip()


async def _look(vlm: VLMProvider, prompt: str, images: Sequence[Path], material: Mapping[str, Any]) -> str:
    answer = await vlm.describe(images, f"{prompt.rstrip()}\n\n{_as_data(material)}")
    return answer.content.strip()


def _as_data(material: Mapping[str, Any]) -> str:
    return json.dumps(material, ensure_ascii=False, indent=1)
