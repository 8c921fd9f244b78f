"""A worker process of `LocalScorer`: loads the model, then answers a JSON line with a JSON line.

Started as `python -m core.adapters.local_worker MODEL`. It ends when its input ends, so it never outlives
the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

START_TOKEN = 0
"""`<|endoftext|>`, which precedes every text."""


class TextModel:
    """A Llama model that is given text; context and continuations are tokenised apart."""

    def __init__(self, path: Path):
        from core.adapters.gguf_file import encode, read_gguf
        from core.adapters.llama import LlamaModel, Request

        shape, weights, tokenizer = read_gguf(path)
        self._encode = partial(encode, tokenizer)
        self._request = Request
        self._model = LlamaModel(shape, weights)

    def answer(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """For each `{"context": ..., "continuations": ...}` the scores, or what is wrong with it."""
        replies: list[dict[str, Any]] = []
        requests = []
        for question in questions:
            request = self._request(
                [START_TOKEN, *self._encode(question["context"])],
                [self._encode(continuation) for continuation in question["continuations"]],
            )
            try:
                self._model.check(request)
            except ValueError as error:
                replies.append({"error": str(error)})
            else:
                replies.append({})
                requests.append(request)
        scores = iter(self._model.score(requests))
        return [reply or {"scores": next(scores)} for reply in replies]


def main(path: str) -> None:
    """Say `{"ready": true}` and serve until the input ends; a model that cannot be read ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    try:
        model = TextModel(Path(path))
    except (OSError, ValueError, ImportError) as error:
        sys.exit(str(error))
    _write({"ready": True})
    for line in sys.stdin.buffer:
        _write(model.answer(json.loads(line)))


def _write(reply: Any) -> None:
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main(sys.argv[1])
