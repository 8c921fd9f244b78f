"""The tiny film's tools, a question about it, and models that answer from a script."""

import json
from pathlib import Path

import pytest
from loguru import logger

from core.tree.model import VideoTree
from core.tree.tools import TreeTools
from core.types import GeneratedQuestion, LLMResponse


@pytest.fixture
def film():
    path = Path(__file__).parents[1] / "tree" / "tiny_film.json"
    return VideoTree.model_validate(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture
def tools(film):
    return TreeTools(film)


@pytest.fixture
def question():
    return GeneratedQuestion(
        "q1", "tiny", "order", "What happens after the boat drifts under a bridge?",
        ("A boy swims.", "A miller lifts it out of the wheel.", "It sinks."), "B",
    )  # fmt: skip


@pytest.fixture
def log_lines():
    """What is logged while the test runs."""
    lines = []
    sink = logger.add(lines.append, format="{message}")
    yield lines
    logger.remove(sink)


class ScriptedChat:
    """Replies in turn; an exception in the script is raised. Keeps the conversations it was sent."""

    model = "scripted"

    def __init__(self, *replies):
        self.replies, self.conversations = list(replies), []

    async def chat(self, messages, **_):
        self.conversations.append(list(messages))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, LLMResponse):
            return reply
        content = reply if isinstance(reply, str) else json.dumps(reply)
        return LLMResponse(content, prompt_tokens=10, completion_tokens=2)


@pytest.fixture
def chat():
    return ScriptedChat
