"""Speed, memory and loading time of the embedded model, without any memo.

One core: prompt tokens a second by length of the context, each context new to the cache, and the same by
llama.cpp where `cyllama` is installed. Then two workers against one: whether the answers have the same
bits, and the speed-up. Prints a table; `python -m benchmarks.scorer`.

Seconds are CPU seconds of one process, except for two workers against one, where they are on the clock.
On a machine that others use, both grow.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from core.adapters.local import LocalScorer
from core.adapters.model_fetch import find_model

LENGTHS = (100, 300, 800)
ROUNDS = 5
QUESTIONS, CONCURRENCY = 40, 8
OPTIONS = [
    " a man opens the door slowly",
    " the goat eats the hat",
    " a red car drives away",
    " two women dance",
]
WORDS = ["the", "a", "man", "goat", "red", "old", "car", "door", "opens", "takes", "in", "under", "hat"]


def one_core() -> dict[str, float]:
    """Figures of this process, which has one thread for linear algebra."""
    import resource

    started = time.process_time()
    from core.adapters.gguf_file import encode, read_gguf
    from core.adapters.llama import LlamaModel, Request

    shape, weights, tokenizer = read_gguf(find_model().path)
    model = LlamaModel(shape, weights)
    figures = {"load, CPU seconds": time.process_time() - started}
    options = [encode(tokenizer, option) for option in OPTIONS]

    def read(tokens: Sequence[int]) -> None:
        model.score([Request(tokens, [[1]])])

    def answer(tokens: Sequence[int]) -> None:
        model.score([Request(tokens, options)])

    vocabulary = len(weights.embedding)
    for length in LENGTHS:
        figures[f"prompt tokens/s, {length} tokens"] = tokens_a_second(read, length, vocabulary)
    for length in LENGTHS:
        name = f"prompt tokens/s, {length} tokens, four options scored"
        figures[name] = tokens_a_second(answer, length, vocabulary)
    figures["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux: in KB
    if find_spec("cyllama"):
        sys.path.append(str(Path(__file__).parents[1] / "tests" / "core"))
        from llama_cpp_scores import LlamaCpp

        other = LlamaCpp(find_model().path, vocabulary=vocabulary)
        for length in LENGTHS:
            speed = tokens_a_second(lambda tokens: other.score(tokens, [[1]]), length, vocabulary)
            figures[f"ratio to llama.cpp, {length} tokens"] = (
                figures[f"prompt tokens/s, {length} tokens"] / speed
            )
    return figures


def tokens_a_second(score: Callable[[Sequence[int]], None], length: int, vocabulary: int) -> float:
    """Best of some rounds, each with tokens of its own; the best is the one least disturbed."""
    draw = random.Random(length)
    seconds = []
    for _ in range(ROUNDS):
        tokens = [draw.randrange(vocabulary) for _ in range(length)]
        started = time.process_time()
        score(tokens)
        seconds.append(time.process_time() - started)
    return length / min(seconds)


async def answer_all(scorer: LocalScorer, contexts: Sequence[str]) -> tuple[list[list[float]], float]:
    """Scores of the options after each context, and the seconds that all took."""
    await scorer.score("", OPTIONS)  # loaded
    limit = asyncio.Semaphore(CONCURRENCY)

    async def answer(context: str) -> list[float]:
        async with limit:
            return await scorer.score(context, OPTIONS)

    started = time.perf_counter()
    scores = await asyncio.gather(*map(answer, contexts))
    return scores, time.perf_counter() - started


def workers_compared() -> dict[str, float]:
    draw = random.Random(0)
    contexts = [" ".join(draw.choices(WORDS, k=draw.randint(100, 400))) for _ in range(QUESTIONS)]
    figures, scores = {}, {}
    for workers in (1, 2):
        with LocalScorer(workers=workers) as scorer:
            scores[workers], seconds = asyncio.run(answer_all(scorer, contexts))
        figures[f"{QUESTIONS} questions, {workers} worker(s), seconds"] = seconds
    one, two = figures.values()
    return figures | {
        "speed-up by the second worker": one / two,
        "same bits (1 = yes)": scores[1] == scores[2],
    }


def main() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--one-core"], env=environment, stdout=subprocess.PIPE, check=True
    )
    for name, figure in (json.loads(done.stdout) | workers_compared()).items():
        print(f"{name:52}{figure:10.2f}")


if __name__ == "__main__":
    if "--one-core" in sys.argv:
        print(json.dumps(one_core()))
    else:
        main()
