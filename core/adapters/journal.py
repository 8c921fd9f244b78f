"""Replies that were paid for, kept so that a restart never pays twice.

```
journal = Journal(folder / "journal.db")
provider = JournaledProvider(provider, journal, scope="run_baseline/q17/agent")
```
"""

import asyncio
import contextlib
import dataclasses
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from core.adapters.chat_request import chat_request, request_hash, vision_request
from core.files import connect_read_only
from core.protocols import LLMProvider, VLMProvider
from core.types import LLMResponse, Message

_TABLE = """CREATE TABLE IF NOT EXISTS replies (
    scope TEXT, sequence INTEGER, request_hash TEXT, reply TEXT NOT NULL,
    PRIMARY KEY (scope, sequence, request_hash)) WITHOUT ROWID"""
_FIND = "SELECT reply FROM replies WHERE scope = ? AND sequence = ? AND request_hash = ?"
_KEEP = "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)"


class JournalError(RuntimeError):
    """The journal can not be opened, read or written: says which file, and the reason in words."""


@dataclasses.dataclass(frozen=True, slots=True)
class EntryKey:
    """The call that a reply belongs to. `sequence` counts the scope's answered calls that asked the same."""

    scope: str
    sequence: int
    request_hash: str


class Journal:
    """A SQLite file of replies. What `keep` has taken survives a power cut.

    It holds the one writing connection to its file, which nobody else may write to (a run holds the lock of
    its workspace). Replies that arrive while others are being written go to disk together, in a thread of
    the journal's own. Raises `JournalError`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._pending: list[tuple[Any, ...]] = []
        self._pending_lock = threading.Lock()
        with self._errors_in_words("opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, check_same_thread=False, timeout=10)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_TABLE)
            self._reader = connect_read_only(self.path, check_same_thread=False)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find(self, key: EntryKey) -> LLMResponse | None:
        """The reply kept under a key."""
        with self._errors_in_words("read"):
            row = self._reader.execute(_FIND, dataclasses.astuple(key)).fetchone()
        if row is None:
            return None
        try:
            return LLMResponse(**json.loads(row[0]))
        except (TypeError, ValueError) as error:
            raise JournalError(
                f"{self.path}: the reply kept for {key.scope!r} is damaged ({error}); restore the file, or"
                " delete it to ask everything anew"
            ) from None

    async def keep(self, key: EntryKey, response: LLMResponse) -> None:
        """Takes a reply; returns when it is durable."""
        row = (*dataclasses.astuple(key), json.dumps(dataclasses.asdict(response)))
        with self._pending_lock:
            self._pending.append(row)
        await asyncio.get_running_loop().run_in_executor(self._writer, self._commit_pending)

    def close(self) -> None:
        """Writes what waits and lets go of the file. Closing twice is harmless."""
        self._writer.shutdown()
        try:
            if self._pending:  # somebody who waited for it was cancelled
                self._commit_pending()
        finally:
            self._reader.close()
            self._connection.close()

    def _commit_pending(self) -> None:
        with self._pending_lock:
            rows, self._pending = self._pending, []
        try:
            with self._errors_in_words("written"), self._connection:
                self._connection.executemany(_KEEP, rows)
        except JournalError:
            # Not durable: whoever waits for one of these must not find "nothing to do" and take it for done.
            with self._pending_lock:
                self._pending = rows + self._pending
            raise

    @contextlib.contextmanager
    def _errors_in_words(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"{self.path}: the journal cannot be {done}: {error}") from error


class _Replay:
    """Answers a scope's requests from the journal, and keeps the answers that are not there yet.

    Requests are told apart by content, equal ones by their number: so calls of one scope may run at once, in
    any order. A request that has changed finds nothing and is asked anew. So are, in a conversation, all
    later ones, because they hold the changed reply; a later request that did not change is still answered
    from the journal. A call that fails is not counted.
    """

    def __init__(self, journal: Journal, scope: str) -> None:
        self._journal = journal
        self._scope = scope
        self._answered: Counter[str] = Counter()

    async def answer(
        self, request: Mapping[str, Any], call: Callable[[], Awaitable[LLMResponse]]
    ) -> LLMResponse:
        asked = request_hash(request)
        kept = self._journal.find(EntryKey(self._scope, self._answered[asked], asked))
        response = kept if kept is not None else await call()
        key = EntryKey(self._scope, self._answered[asked], asked)
        self._answered[asked] += 1
        if kept is None:
            await self._journal.keep(key, response)
        return response


class JournaledProvider:
    """An `LLMProvider` whose completed calls are kept, and replayed instead of paid again after a restart.

    `scope` names the rollout or decision (run id, question id and role); in a process, one instance serves a
    scope at a time.
    """

    def __init__(self, provider: LLMProvider, journal: Journal, scope: str) -> None:
        self._provider = provider
        self._replay = _Replay(journal, scope)
        self.model = provider.model

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> LLMResponse:
        """The kept reply, or the provider's. Raises `JournalError` and what the provider raises."""
        options = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            "json_schema": json_schema,
        }
        request = chat_request(self.model, messages, **options)
        return await self._replay.answer(request, lambda: self._provider.chat(messages, **options))


class JournaledVision:
    """The same for a `VLMProvider`."""

    def __init__(self, provider: VLMProvider, journal: Journal, scope: str) -> None:
        self._provider = provider
        self._replay = _Replay(journal, scope)
        self.model = provider.model

    async def describe(self, images: Sequence[Path], prompt: str) -> LLMResponse:
        """The kept reply, or the provider's. Raises `JournalError` and what the provider raises."""
        request = await asyncio.to_thread(vision_request, self.model, images, prompt)
        return await self._replay.answer(request, lambda: self._provider.describe(images, prompt))
