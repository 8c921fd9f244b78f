"""The embedded small language model: a `TextScorer` that needs no key and, after one download, no network.

```
with LocalScorer(workers=2) as scorer:
    scores = await scorer.score("Question: What is the capital of France?\\nAnswer:", [" Paris", " Rome"])
```
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.adapters.model_fetch import find_model

NEEDED = ("numpy", "gguf", "tokenizers")
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
REMEMBERED_HOMES = 1000
CHARACTERS_TOGETHER = 4000


class LocalScorer:
    """Exact log-probabilities of given continuations under the embedded model.

    It owns `workers` processes, one core each, which load the model while the caller goes on; `close`, or
    leaving a `with` block, ends them. `model` names the file and the start of its SHA-256.

    Raises `ImportError` when the extra `local` is not installed and `ModelFetchError` when the model
    cannot be had.
    """

    def __init__(self, *, workers: int = 1):
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        _check_installed()
        found = find_model()
        self.model = f"{found.path.stem}@{found.sha256[:12]}"
        self._workers = [_Worker(found.path) for _ in range(workers)]
        self._homes: dict[str, _Worker] = {}
        self._closed = False

    @property
    def worker_ids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process_id for worker in self._workers]

    async def score(self, context: str, continuations: Sequence[str]) -> list[float]:
        """The sum of log P(token | everything before it) over the tokens of each continuation, raw.

        Context and continuation are tokenised apart, so the space between them belongs to the
        continuation's front. Text that looks like a special token is spelt out as characters.

        Raises `ValueError` for an empty continuation, for more tokens than the model reads and for text
        that UTF-8 cannot hold, and `RuntimeError` when a worker process has died.
        """
        if isinstance(continuations, str):
            raise ValueError("continuations is one text; give a list of texts")
        if not continuations:
            return []
        for text in (context, *continuations):
            text.encode()  # half a surrogate pair is an error here rather than in the worker
        if self._closed:
            raise RuntimeError("this LocalScorer has been closed; start another")
        worker = self._choose_worker(context)
        return await worker.score(context, list(continuations))

    def close(self) -> None:
        """End the worker processes; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> LocalScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose_worker(self, context: str) -> _Worker:
        """The worker that saw such a beginning, unless waiting for it costs more than reading the context."""
        beginning = context[:100]
        idlest = min(self._workers, key=lambda worker: worker.pending_characters)
        home = self._homes.pop(beginning, idlest)
        if home.pending_characters > idlest.pending_characters + len(context):
            home = idlest
        self._homes[beginning] = home
        if len(self._homes) > REMEMBERED_HOMES:
            del self._homes[next(iter(self._homes))]
        return home


@dataclass(frozen=True, slots=True)
class _Job:
    """A call that waits for a worker."""

    context: str
    continuations: list[str]
    result: Future[list[float]]

    @property
    def characters(self) -> int:
        return len(self.context) + sum(map(len, self.continuations))


class _Worker:
    """One process, and the thread that talks to it.

    Calls that wait at the same time go to the process together, which is quicker and changes no score.
    """

    def __init__(self, model_path: Path):
        self.pending_characters = 0
        self._waiting: deque[_Job] = deque()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "core.adapters.local_worker", str(model_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_worker_environment(),
        )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-scorer")
        self._thread.submit(self._read)  # the process says that it is ready

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def score(self, context: str, continuations: list[str]) -> list[float]:
        job = _Job(context, continuations, Future())
        self.pending_characters += job.characters
        self._waiting.append(job)
        try:
            await asyncio.sleep(0)  # calls made in the same breath are to go together
            self._thread.submit(self._serve)
            return await asyncio.wrap_future(job.result)
        finally:
            self.pending_characters -= job.characters

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._process.terminate()
        self._thread.shutdown(wait=True)
        self._process.wait()
        for job in self._waiting:
            job.result.cancel()
        with suppress(BrokenPipeError):  # what a dead process did not read
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _serve(self) -> None:
        """Send the calls that wait, if another `_serve` has not sent them already."""
        jobs = self._take()
        if not jobs:
            return
        try:
            replies = self._exchange([{"context": j.context, "continuations": j.continuations} for j in jobs])
        except Exception as error:
            for job in jobs:
                job.result.set_exception(error)
            return
        for job, reply in zip(jobs, replies, strict=True):
            if "error" in reply:
                job.result.set_exception(ValueError(reply["error"]))
            else:
                job.result.set_result(reply["scores"])

    def _take(self) -> list[_Job]:
        jobs: list[_Job] = []
        while self._waiting and sum(job.characters for job in jobs) < CHARACTERS_TOGETHER:
            job = self._waiting.popleft()
            if job.result.set_running_or_notify_cancel():
                jobs.append(job)
        return jobs

    def _exchange(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        with suppress(BrokenPipeError):  # reading tells how the process ended
            self._process.stdin.write(json.dumps(questions).encode() + b"\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        raise RuntimeError(
            f"a worker of the embedded model ended with exit code {code}: "
            f"{words[-1] if words else 'it said nothing (out of memory?)'}"
        )


def _check_installed() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the embedded model needs {', '.join(missing)}: install the extra `local` "
            "(pip install 'trm-harness[local]')"
        )


def _worker_environment() -> dict[str, str]:
    """This process's environment with one thread for linear algebra, and `core` where it was found here."""
    package_parent = str(Path(__file__).parents[2])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | dict.fromkeys(THREAD_VARIABLES, "1") | {"PYTHONPATH": os.pathsep.join(paths)}
