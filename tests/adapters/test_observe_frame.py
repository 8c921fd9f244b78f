"""Looking at frames from the tool to the endpoint: what is sent is the files, and only what can be sent."""

import base64
import json

import pytest
from fault_server import KEY, MODEL, FaultServer
from PIL import Image
from pydantic import SecretStr

from core.adapters.endpoint import Endpoint
from core.adapters.openai import OpenAIVision
from core.agent.prompts import PromptDirectory
from core.protocols import ToolError
from core.tree.model import VideoTree
from core.tree.tools import TreeTools


@pytest.fixture
def tree(tmp_path):
    """An event of two moments with a JPEG each, and one without moments."""
    for number, colour in enumerate(("red", "blue"), start=1):
        Image.new("RGB", (8, 6), colour).save(tmp_path / f"m{number}.jpg")
    nodes = {
        "s": {"level": 1, "time_range": [0, 9], "children_ids": ["e", "empty"]},
        "e": {"level": 2, "time_range": [0, 9], "children_ids": ["m1", "m2"]},
        "empty": {"level": 2, "time_range": [9, 9]},
        "m1": {"level": 3, "time_range": [0, 4], "frame": "m1.jpg"},
        "m2": {"level": 3, "time_range": [4, 9], "frame": "m2.jpg"},
    }
    return VideoTree.model_validate({"videoID": "v", "duration_seconds": 9, "nodes": nodes})


def tools_of(tree, folder, server):
    vision = OpenAIVision(Endpoint(MODEL, server.base_url, SecretStr(KEY)), role="vlm")
    return TreeTools(tree, vlm=vision, prompts=PromptDirectory(), folder=folder), vision


async def test_the_frames_of_an_event_reach_the_endpoint_as_they_are_on_disk(tree, tmp_path):
    replies = iter(["a draft", "Image 1 is red, image 2 is blue."])
    async with FaultServer(reply=lambda body: next(replies)) as server:
        tools, vision = tools_of(tree, tmp_path, server)
        told = await tools("observe_frame", {"node_ids": ["e"], "question": "Which colours?"})
        await vision.aclose()
    assert json.loads(told)["observation"] == "Image 1 is red, image 2 is blue."
    assert [node["id"] for node in json.loads(told)["nodes"]] == ["m1", "m2"]
    assert server.answered == ["ok", "ok"]
    for call in server.calls:
        prompt, *pictures = call.body["messages"][0]["content"]
        assert "Which colours?" in prompt["text"]
        heads, data = zip(*[part["image_url"]["url"].split(",") for part in pictures], strict=True)
        assert heads == ("data:image/jpeg;base64",) * 2
        assert [base64.b64decode(text) for text in data] == [
            (tmp_path / name).read_bytes() for name in ("m1.jpg", "m2.jpg")
        ]
    assert "a draft" in server.calls[1].body["messages"][0]["content"][0]["text"]


@pytest.mark.parametrize("node_ids", [["empty"], ["m1", "m2"]])
async def test_what_cannot_be_looked_at_costs_no_call(tree, tmp_path, node_ids):
    (tmp_path / "m2.jpg").unlink()
    async with FaultServer() as server:
        tools, vision = tools_of(tree, tmp_path, server)
        with pytest.raises(ToolError, match="observe_frame"):
            await tools("observe_frame", {"node_ids": node_ids, "question": "q"})
        await vision.aclose()
    assert server.calls == []
