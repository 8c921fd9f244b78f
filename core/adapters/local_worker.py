"""A worker process of `LocalScorer`: loads the model, then answers one JSON line with one JSON line.

Started as `python -m core.adapters.local_worker MODEL`. It ends when its input ends, so it never outlives
the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

START_TOKEN = 0
"""`<|endoftext|>`, which precedes every text."""


class TextModel:
    """A Llama model that is given text."""

    def __init__(self, path: Path):
        from core.adapters.gguf_file import read_gguf
        from core.adapters.llama import LlamaModel

        shape, weights, self._tokenizer = read_gguf(path)
        self._model = LlamaModel(shape, weights)

    def score(self, context: str, continuations: list[str]) -> list[float]:
        """As `LocalScorer.score`; context and continuations are tokenised apart."""
        from core.adapters.gguf_file import encode

        return self._model.score(
            [START_TOKEN, *encode(self._tokenizer, context)],
            [encode(self._tokenizer, continuation) for continuation in continuations],
        )


def answer(model: TextModel, request: dict[str, Any]) -> dict[str, Any]:
    """Scores, or the text of what is wrong with the request."""
    try:
        return {"scores": model.score(request["context"], request["continuations"])}
    except ValueError as error:
        return {"error": str(error)}


def main(path: str) -> None:
    """Say `{"ready": true}` and serve until the input ends; a model that cannot be read ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    try:
        model = TextModel(Path(path))
    except (OSError, ValueError, ImportError) as error:
        sys.exit(str(error))
    _write({"ready": True})
    for line in sys.stdin.buffer:
        _write(answer(model, json.loads(line)))


def _write(reply: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main(sys.argv[1])
