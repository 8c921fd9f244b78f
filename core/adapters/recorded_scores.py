"""A model's scores, written down while it works and replayed without it: the same run in seconds, anywhere.

The file is compressed JSON with the model's id and a score for each key, which is the beginning of the
SHA-256 of model, context and continuation (`core.adapters.memo.score_key`). Scores are kept to `DIGITS`
decimals, far under what counts as a tie.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.adapters.memo import score_key
from core.protocols import ProviderError, TextScorer

KEY_CHARACTERS = 16
DIGITS = 5


def short_key(model: str, context: str, continuation: str) -> str:
    """The name of a score in a recording."""
    return score_key(model, context, continuation).hex()[:KEY_CHARACTERS]


class ScoreRecorder:
    """A `TextScorer` that passes calls on and keeps every score. Raises `ValueError` where keys clash."""

    def __init__(self, scorer: TextScorer) -> None:
        self.model = scorer.model
        self._scorer = scorer
        self.scores: dict[str, float] = {}

    async def score(self, context: str, continuations: Sequence[str]) -> list[float]:
        """As the wrapped scorer's, to `DIGITS` decimals, so that recording and replay decide alike."""
        given = await self._scorer.score(context, continuations)
        scores = [round(score, DIGITS) for score in given]
        for continuation, score in zip(continuations, scores, strict=True):
            key = short_key(self.model, context, continuation)
            if self.scores.setdefault(key, score) != score:
                raise ValueError(f"two scores have the key {key}; make KEY_CHARACTERS greater")
        return scores

    def write(self, path: Path) -> None:
        """Writes what was scored; equal scores are equal files."""
        content = {"model": self.model, "scores": dict(sorted(self.scores.items()))}
        path.write_bytes(gzip.compress(json.dumps(content, indent=0).encode(), mtime=0))


class RecordedScorer:
    """A `TextScorer` that replays. What was not recorded is an error, never a guess."""

    def __init__(self, model: str, scores: Mapping[str, float], *, source: str) -> None:
        self.model = model
        self._scores = scores
        self._source = source

    @classmethod
    def read(cls, path: Path) -> RecordedScorer:
        """The recording in a file. Raises `ValueError` naming a file that is none."""
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
            return cls(content["model"], content["scores"], source=path.name)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: is no recording of scores ({error}); record it again") from error

    async def score(self, context: str, continuations: Sequence[str]) -> list[float]:
        """The recorded scores. Raises `ProviderError` naming question and continuation of one that is missing."""
        keys = [short_key(self.model, context, continuation) for continuation in continuations]
        for key, continuation in zip(keys, continuations, strict=True):
            if key not in self._scores:
                raise ProviderError(
                    f"{self._source} has no score of {continuation!r} after {context[-200:]!r}: the run asks "
                    "what the recorded one did not; record it again"
                )
        return [self._scores[key] for key in keys]
