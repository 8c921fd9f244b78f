"""CPU per call of the LLM client, beside the floor (a bare aiohttp POST) and the plain SDK.

All talk to a loopback endpoint in another process, whose CPU does not count, with the same request and the
same reply, in turn, several rounds. Prints medians of the rounds and ratios to the floor.
`python -m benchmarks.llm_client`
"""

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from aiohttp import web
from openai import AsyncOpenAI, DefaultAioHttpClient
from pydantic import SecretStr

from core.adapters.chat_request import chat_request
from core.adapters.endpoint import Endpoint
from core.adapters.journal import Journal, JournaledProvider
from core.adapters.openai import OpenAIProvider
from core.adapters.telemetry import SqliteTelemetry
from core.types import Message

CALLS, CONCURRENCY, ROUNDS = 800, 8, 7
TARGET_MS = 1.5
KEY = "sk-benchmark-0123456789"
MESSAGES = (Message("system", "You watch films. " * 120), Message("user", "What happens next? " * 50))
REPLY = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "It rains. " * 40}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 700, "completion_tokens": 100, "total_tokens": 800},
}


def serve(ready: Connection) -> None:
    """The endpoint: answers everything with `REPLY`, and tells its port once it listens."""
    content = json.dumps(REPLY).encode()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=content, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


async def cpu_ms(call: Callable[[], Awaitable[object]]) -> float:
    """CPU milliseconds of this process per call, threads included."""

    async def some() -> None:
        for _ in range(CALLS // CONCURRENCY):
            await call()

    started = time.process_time()
    await asyncio.gather(*[some() for _ in range(CONCURRENCY)])
    return (time.process_time() - started) / CALLS * 1e3


async def measure(base_url: str, folder: Path) -> dict[str, list[float]]:
    """CPU per call of each way to call, one value for each round."""
    request = chat_request("m", MESSAGES, temperature=0.0)
    endpoint = Endpoint("m", base_url, SecretStr(KEY))
    telemetry = SqliteTelemetry(lambda rows: None)
    provider = OpenAIProvider(endpoint, role="agent", telemetry=telemetry)
    sdk = AsyncOpenAI(api_key=KEY, base_url=base_url, http_client=DefaultAioHttpClient(), max_retries=0)
    session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"})
    journal = Journal(folder / "journal.db")
    journaled = JournaledProvider(provider, journal, "benchmark")

    async def bare() -> None:
        async with session.post(f"{base_url}/chat/completions", json=request) as response:
            json.loads(await response.read())

    ways = {
        "bare aiohttp POST (floor)": bare,
        "OpenAIProvider": lambda: provider.chat(MESSAGES, temperature=0.0),
        "... and journal (durable)": lambda: journaled.chat(MESSAGES, temperature=0.0),
        "openai SDK alone": lambda: sdk.chat.completions.create(**request),
    }
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        await way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            figures[name].append(await cpu_ms(way))
    journal.close()
    telemetry.close()
    for closing in (session.close, sdk.close, provider.aclose):
        await closing()
    return figures


def main() -> None:
    ready, to_parent = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(to_parent,), daemon=True)
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(measure(f"http://127.0.0.1:{ready.recv()}/v1", Path(folder)))
    finally:
        server.terminate()
    medians = {name: statistics.median(rounds) for name, rounds in figures.items()}
    floor = next(iter(medians.values()))
    for name, median in medians.items():
        spread = f"{min(figures[name]):.3f} to {max(figures[name]):.3f}"
        print(f"{name:<27}{median:7.3f} ms CPU a call ({spread})   {median / floor:5.2f} x floor")
    print(f"target for OpenAIProvider: at most {TARGET_MS} ms")


if __name__ == "__main__":
    main()
