"""The reference executor: asyncio tasks in one process."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class AsyncioExecutor:
    """Tasks started in list order, at most `concurrency` at once; results handed over as they finish.

    An `Exception` of one item becomes that item's result. When the caller stops listening or is cancelled,
    what is still running is cancelled and waited for, so no task outlives its run. Who leaves the loop early
    closes the iterator (`contextlib.aclosing`), else that waits for garbage collection.
    """

    async def run(
        self, fn: Callable[[Item], Awaitable[Any]], items: Sequence[Item], *, concurrency: int
    ) -> AsyncIterator[tuple[int, Any]]:
        """Yields `(index, result or Exception)` for each item. Raises `ValueError` if `concurrency < 1`."""
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is not positive")
        finished: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        waiting = deque(enumerate(items))

        async def work() -> None:
            # The workers share one queue: an item starts only when a worker is free, so ten thousand
            # items cost `concurrency` tasks and not ten thousand.
            while waiting:
                index, item = waiting.popleft()
                try:
                    result = await fn(item)
                except BaseException as error:
                    finished.put_nowait((index, error))
                    if not isinstance(error, Exception):
                        raise
                else:
                    finished.put_nowait((index, result))

        workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(items)))]
        try:
            for _ in range(len(items)):
                index, result = await finished.get()
                if isinstance(result, BaseException) and not isinstance(result, Exception):
                    raise result
                yield index, result
        finally:
            # An item may answer its cancellation with an ordinary error: nothing must be left to start then.
            waiting.clear()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
