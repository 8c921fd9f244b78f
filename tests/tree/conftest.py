"""A film of two scenes, three events and five moments."""

import json
from pathlib import Path

import pytest
from loguru import logger

from core.tree.model import VideoTree


@pytest.fixture
def raw_film():
    return json.loads((Path(__file__).parent / "tiny_film.json").read_text(encoding="utf-8"))


@pytest.fixture
def film(raw_film):
    return VideoTree.model_validate(raw_film)


@pytest.fixture
def log_lines():
    """What is logged while the test runs."""
    lines = []
    sink = logger.add(lines.append, format="{message}")
    yield lines
    logger.remove(sink)
