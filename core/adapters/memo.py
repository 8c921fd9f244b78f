"""Scores kept on disk by content, so that the same call is never computed twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_path

from core.protocols import TextScorer

WAIT_SECONDS = 60.0
CREATE_TABLE = "CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, score REAL NOT NULL) WITHOUT ROWID"


class MemoScorer:
    """A `TextScorer` that asks another one only for what it has not scored before.

    The key of a score is the SHA-256 of model id, context and continuation. Several processes may share
    the SQLite file at `path` (default: `scores.sqlite` in the user's cache directory). It is meant for
    scorers whose score of a continuation does not depend on the others in the call.
    """

    def __init__(self, scorer: TextScorer, path: Path | None = None):
        self.model = scorer.model
        self._scorer = scorer
        self.path = path or user_cache_path("harness") / "scores.sqlite"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS)
        try:
            with self._connection:
                self._connection.execute(CREATE_TABLE)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(f"{self.path} cannot be used to keep scores ({error}); delete it") from error

    async def score(self, context: str, continuations: Sequence[str]) -> list[float]:
        """As the wrapped scorer's; what is missing goes to it in one call."""
        keys = [score_key(self.model, context, continuation) for continuation in continuations]
        known = self._read(keys)
        missing = {key: text for key, text in zip(keys, continuations, strict=True) if key not in known}
        if missing:
            scores = await self._scorer.score(context, list(missing.values()))
            fresh = dict(zip(missing, scores, strict=True))
            self._write(fresh)
            known |= fresh
        return [known[key] for key in keys]

    def close(self) -> None:
        """Close the file; the wrapped scorer is its owner's to close."""
        self._connection.close()

    def __enter__(self) -> MemoScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, float]:
        query = "SELECT score FROM scores WHERE key = ?"
        rows = ((key, self._connection.execute(query, (key,)).fetchone()) for key in keys)
        return {key: row[0] for key, row in rows if row is not None}

    def _write(self, scores: dict[bytes, float]) -> None:
        with self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", scores.items())


def score_key(model: str, context: str, continuation: str) -> bytes:
    """SHA-256 over the three texts, written so that no two triples look alike."""
    return hashlib.sha256(json.dumps([model, context, continuation]).encode()).digest()
