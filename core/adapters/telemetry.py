"""What calls cost: recorders for `LLMCall`, and prices."""

import dataclasses
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.types import LLMCall

PRICED_TOKENS = 1_000_000
MOST_ROWS_AT_ONCE = 512
_STOP = None

Row = Mapping[str, Any]


def cost_of(call: LLMCall, prices: Mapping[str, tuple[float, float]]) -> float | None:
    """What a call cost, in the currency of `prices`: model -> (a million prompt tokens, completion tokens).

    `None` where the model has no price or the endpoint did not count: unknown is not free.
    """
    price = prices.get(call.model)
    if price is None or call.prompt_tokens is None or call.completion_tokens is None:
        return None
    return (call.prompt_tokens * price[0] + call.completion_tokens * price[1]) / PRICED_TOKENS


class NullTelemetry:
    """Keeps nothing."""

    def record(self, call: LLMCall) -> None:
        pass

    def flush(self) -> None:
        pass


class SqliteTelemetry:
    """Hands calls, as rows of the table `llm_calls`, to whoever writes the database.

    `write_rows(rows)` stores rows of equal columns and returns when they are durable. It is called from a
    thread of this object, so that `record` never makes the event loop wait for a disk; rows that gather
    meanwhile are written together. `record` fills in the cost from `prices` (see `cost_of`).

    What `write_rows` raises comes out of the next `record`, `flush` or `close`, and nothing more is written.
    """

    def __init__(
        self,
        write_rows: Callable[[Sequence[Row]], None],
        prices: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._write_rows = write_rows
        self._prices = dict(prices or {})
        self._waiting: queue.Queue[Row | None] = queue.Queue()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self._thread.start()

    def record(self, call: LLMCall) -> None:
        """Takes note of a call and returns at once."""
        self._raise_failure()
        if not self._thread.is_alive():
            raise RuntimeError("telemetry is closed")
        row = dataclasses.asdict(call)
        if call.cost is None:
            row["cost"] = cost_of(call, self._prices)
        self._waiting.put(row)

    def flush(self) -> None:
        """Returns when everything recorded so far is durable."""
        self._waiting.join()
        self._raise_failure()

    def close(self) -> None:
        """Writes what waits and stops. Closing twice is harmless."""
        if self._thread.is_alive():
            self._waiting.put(_STOP)
            self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        stopping = False
        while not stopping:
            rows, stopping = self._next_rows()
            try:
                if rows and self._failure is None:
                    self._write_rows(rows)
            except Exception as error:
                self._failure = error
            for _ in range(len(rows) + stopping):
                self._waiting.task_done()

    def _next_rows(self) -> tuple[list[Row], bool]:
        """The rows that wait, at least one, and whether to stop after them."""
        rows: list[Row] = []
        row = self._waiting.get()
        while row is not _STOP:
            rows.append(row)
            if self._waiting.empty() or len(rows) == MOST_ROWS_AT_ONCE:
                return rows, False
            row = self._waiting.get()
        return rows, True
