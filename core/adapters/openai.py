"""Chat and vision models behind any endpoint that speaks OpenAI's protocol.

```
# reads AGENT_LLM_MODEL, AGENT_LLM_BASE_URL and AGENT_LLM_API_KEY
provider = OpenAIProvider.from_environment("AGENT_LLM")
response = await provider.chat([Message("user", "What is a gate?")], temperature=0)
await provider.aclose()
```
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from core.adapters.attempts import Failure
from core.adapters.chat_request import chat_request, request_hash, vision_request
from core.adapters.endpoint import Endpoint, Tally
from core.adapters.telemetry import NullTelemetry
from core.protocols import ProviderError, TelemetryRecorder
from core.types import CallRole, LLMCall, LLMResponse, Message

PREFIX_ROLES: dict[str, CallRole] = {
    "AGENT_LLM": "agent",
    "JUDGE_LLM": "judge",
    "EVOLVE_LLM": "evolver",
    "VL_LLM": "vlm",
}
NO_TELEMETRY = NullTelemetry()


def _variables(prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The three settings of a prefix; blank where a variable is not set."""
    values = {
        name: environment.get(f"{prefix}_{name}", "").strip() for name in ("MODEL", "BASE_URL", "API_KEY")
    }
    return {**values, "API_KEY": SecretStr(values["API_KEY"])}


class _Caller:
    """Calls an endpoint in a role, on behalf of a scope (a rollout, a decision).

    Telemetry gets one `LLMCall` for each call, also for one that failed or was cancelled, with the number of
    attempts and the tokens of all of them. The latency of a response includes retries and waits. A
    `ProviderError` has the endpoint's words, and never the key.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        role: CallRole,
        scope: str = "",
        telemetry: TelemetryRecorder = NO_TELEMETRY,
    ) -> None:
        self._endpoint = endpoint
        self._role = role
        self._scope = scope
        self._telemetry = telemetry
        self.model = endpoint.model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint!r}, role={self._role!r})"

    @classmethod
    def from_environment(
        cls,
        prefix: str,
        *,
        telemetry: TelemetryRecorder = NO_TELEMETRY,
        environment: Mapping[str, str] = os.environ,
        **settings: Any,
    ) -> Self:
        """From `{prefix}_MODEL`, `{prefix}_BASE_URL` and `{prefix}_API_KEY`; the prefix tells the role too.

        `settings` are the other arguments of `Endpoint`. Raises `ValueError` that names the variables which
        are missing or cannot work.
        """
        # No line that may raise mentions `environment`: some tracebacks show values, and the keys are in it.
        found = _variables(prefix, environment)
        if prefix not in PREFIX_ROLES:
            raise ValueError(f"prefix {prefix!r} is none of {', '.join(PREFIX_ROLES)}")
        if missing := [f"{prefix}_{name}" for name, value in found.items() if not value]:
            raise ValueError(
                f"not set: {', '.join(missing)}. Set them in the environment"
                " (an API key of any word will do for a server that asks for none)."
            )
        try:
            endpoint = Endpoint(found["MODEL"], found["BASE_URL"], found["API_KEY"], **settings)
        except ValueError as error:
            raise ValueError(f"{prefix}_*: {error}") from None
        return cls(endpoint, role=PREFIX_ROLES[prefix], telemetry=telemetry)

    def for_scope(self, scope: str) -> Self:
        """The same, its calls recorded under `scope`; connection and limits stay shared."""
        return type(self)(self._endpoint, role=self._role, scope=scope, telemetry=self._telemetry)

    def in_role(self, role: CallRole) -> Self:
        """The same, its calls recorded as those of another role; connection and limits stay shared."""
        return type(self)(self._endpoint, role=role, scope=self._scope, telemetry=self._telemetry)

    async def aclose(self) -> None:
        """Closes the connection that this provider shares with all that `for_scope` made of it."""
        await self._endpoint.aclose()

    async def _call(self, request: Mapping[str, Any]) -> LLMResponse:
        tally, started, error = Tally(), time.perf_counter(), "interrupted"
        try:
            outcome = await self._endpoint.complete(request, tally)
            error = outcome.words if isinstance(outcome, Failure) else ""
        finally:
            latency_s = time.perf_counter() - started
            self._record(request, tally, latency_s, error)
        if isinstance(outcome, Failure):
            gave_up = f" (gave up after {tally.attempts} attempts)" if tally.attempts > 1 else ""
            raise ProviderError(f"{self.model} at {self._endpoint.host}: {outcome.words}{gave_up}")
        return LLMResponse(
            content=outcome.content,
            reasoning=outcome.reasoning,
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            model=outcome.model or self.model,
            latency_s=latency_s,
            finish_reason=outcome.finish_reason,
        )

    def _record(self, request: Mapping[str, Any], tally: Tally, latency_s: float, error: str) -> None:
        call = LLMCall(
            role=self._role,
            scope=self._scope,
            request_hash=request_hash(request),
            model=self.model,
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            latency_s=latency_s,
            attempts=tally.attempts,
            error=error,
        )
        self._telemetry.record(call)


class OpenAIProvider(_Caller):
    """An `LLMProvider`."""

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> LLMResponse:
        """The model's next turn. What is `None` is not sent. Raises `ProviderError`."""
        options = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            "json_schema": json_schema,
        }
        return await self._call(chat_request(self.model, messages, **options))


class OpenAIVision(_Caller):
    """A `VLMProvider`."""

    async def describe(self, images: Sequence[Path], prompt: str) -> LLMResponse:
        """What the model sees. Raises `ProviderError`, and for the images what `vision_request` raises."""
        return await self._call(await asyncio.to_thread(vision_request, self.model, images, prompt))
