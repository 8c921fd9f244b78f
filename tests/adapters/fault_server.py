"""A chat endpoint on loopback that fails on purpose, by script or by rate and seed, and logs every call.

What a client did is counted here, in `calls`, and not by the client itself.
"""

import asyncio
import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import ClientConnectionResetError, web

KEY = "sk-test-0123456789abcdef"
MODEL = "served-model"
LONG_S = 3600.0


@dataclass(frozen=True)
class Call:
    """One request as the server saw it, and how it was answered: `ok`, `401`, `404` or a fault."""

    answered: str
    key: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


def echo(body: Mapping[str, Any]) -> str:
    """The default reply: depends on the request alone, so that two runs can be compared."""
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
    return f"reply {digest[:12]}"


def completion(content: str | None, **changes: Any) -> dict[str, Any]:
    """A chat completion as endpoints send it; `changes` overwrite its fields."""
    message = {"role": "assistant", "content": content}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": MODEL,
        "choices": choices,
        "usage": usage,
        **changes,
    }


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def _reset(request: web.Request) -> web.Response:
    request.transport.abort()
    return web.Response()


async def _hang(request: web.Request) -> web.Response:
    await asyncio.sleep(LONG_S)
    return web.Response()


async def _drip(request: web.Request) -> web.StreamResponse:
    """Never silent for long, and never done: no limit between two bytes would notice."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ClientConnectionResetError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)
    return response


async def _cut_short(request: web.Request) -> web.StreamResponse:
    """Promises more bytes than it sends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "5000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    request.transport.close()
    return response


def _answering(make: Callable[[], web.Response]) -> Callable:
    async def answer(request: web.Request) -> web.Response:
        return make()

    return answer


WHOLE = json.dumps(completion("a reply that is cut in the middle"))

FAULTS: dict[str, Callable] = {
    "408": _answering(lambda: error(408, "too slow in asking")),
    "409": _answering(lambda: error(409, "conflict")),
    "429": _answering(lambda: error(429, "rate limit reached", {"Retry-After": "7"})),
    "429 for hours": _answering(lambda: error(429, "quota used up", {"Retry-After": "7200"})),
    "500": _answering(lambda: error(500, "internal error")),
    "503": _answering(lambda: error(503, "overloaded")),
    "500 in no charset": _answering(
        lambda: web.Response(body=b"broken", status=500, headers={"Content-Type": "text/plain; charset=zlib"})
    ),
    "reset": _reset,
    "time-out": _hang,
    "drip": _drip,
    "cut short": _cut_short,
    "truncated JSON": _answering(
        lambda: web.Response(text=WHOLE[: len(WHOLE) // 2], content_type="application/json")
    ),
    "HTML": _answering(lambda: web.Response(text="<html>gateway</html>", content_type="text/html")),
    "empty choices": _answering(lambda: web.json_response(completion("", choices=[]))),
    "empty reply": _answering(lambda: web.json_response(completion(""))),
    "null reply": _answering(lambda: web.json_response(completion(None))),
    "400": _answering(lambda: error(400, "the prompt is too long")),
    "403": _answering(lambda: error(403, f"key {KEY} may not use this model")),
    "422": _answering(lambda: web.json_response({"detail": "seed must be positive"}, status=422)),
}


@dataclass
class FaultServer:
    """`script` names the faults of the first calls (`ok` for none); then `rate` of the calls fail, at random.

    A wrong key is refused with 401, repeating the key; an unknown model with 404.
    """

    script: Iterable[str] = ()
    rate: float = 0.0
    seed: int = 0
    faults: tuple[str, ...] = ("429", "500", "503", "reset", "truncated JSON", "empty choices", "empty reply")
    reply: Callable[[Mapping[str, Any]], str] = echo
    key: str = KEY
    delay_s: float = 0.0
    port: int = 0
    calls: list[Call] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.arrived = asyncio.Event()
        self._script, self._random = list(self.script), random.Random(self.seed)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def answered(self) -> list[str]:
        """How each call was answered, in the order of arrival."""
        return [call.answered for call in self.calls]

    def _next_fault(self) -> str:
        if self._script:
            return self._script.pop(0)
        return self._random.choice(self.faults) if self._random.random() < self.rate else "ok"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body, key = await request.json(), request.headers.get("Authorization", "").removeprefix("Bearer ")
        answered = self._refusal(key, body["model"]) or self._next_fault()
        self.calls.append(Call(answered, key, dict(request.headers), body))
        self.arrived.set()
        if answered == "401":
            return error(401, f"Incorrect API key provided: {key}")
        if answered == "404":
            return error(404, f"The model `{body['model']}` does not exist")
        if answered != "ok":
            return await FAULTS[answered](request)
        await asyncio.sleep(self.delay_s)
        return web.json_response(completion(self.reply(body)))

    def _refusal(self, key: str, model: str) -> str:
        if key != self.key:
            return "401"
        return "404" if model != MODEL else ""
