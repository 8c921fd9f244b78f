"""The seams: small protocols that the harness calls and anybody can implement.

Everything that waits is `async`. The protocols are `runtime_checkable`, so that a wrong part is refused
when a run is put together and not in its middle.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from core.types import GeneratedQuestion, LLMCall, LLMResponse, LoopResult, Message

Item = TypeVar("Item")


class ToolError(ValueError):
    """An invalid tool call: unknown tool, missing or wrong argument. Told to the model; costs no step."""


class ProviderError(RuntimeError):
    """A provider that can not be used at all: wrong key, unknown model, or retries used up."""


@runtime_checkable
class LLMProvider(Protocol):
    """A chat model. Raises `ProviderError` when it has given up."""

    model: str

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> LLMResponse: ...


@runtime_checkable
class TextScorer(Protocol):
    """A small local model that tells exact log-probabilities instead of generating."""

    model: str

    async def score(self, context: str, continuations: Sequence[str]) -> list[float]:
        """log P(continuation | context) in nats, summed over tokens, one value for each continuation."""
        ...


@runtime_checkable
class ToolDispatcher(Protocol):
    """The tools of one question's world."""

    def describe(self) -> str:
        """What the tools are and take, as text for the system prompt."""
        ...

    async def __call__(self, name: str, args: Mapping[str, Any]) -> str:
        """The tool's output as JSON text. Raises `ToolError` on an invalid call."""
        ...


@runtime_checkable
class Agent(Protocol):
    """Answers one question with tools. `fingerprint`: model id, decoding, class and its version."""

    fingerprint: str
    deterministic: bool

    async def run(
        self,
        question: GeneratedQuestion,
        system_prompt: str,
        user_prompt: str,
        tools: ToolDispatcher,
        plugins: Sequence[object] = (),
    ) -> LoopResult: ...


@runtime_checkable
class VLMProvider(Protocol):
    """A model that describes images."""

    model: str

    async def describe(self, images: Sequence[Path], prompt: str) -> LLMResponse: ...


@runtime_checkable
class TelemetryRecorder(Protocol):
    """Keeps what calls cost."""

    def record(self, call: LLMCall) -> None: ...


@runtime_checkable
class Executor(Protocol):
    """Runs `fn` over items, some at once, and hands over `(index, result)` as they finish.

    An `Exception` that one item raises is that item's result and never hides another's. The unit of
    work is one attempt at one question: execution is at least once, outcomes are exactly once by the key of
    the row that the driver writes.
    """

    def run(
        self, fn: Callable[[Item], Awaitable[Any]], items: Sequence[Item], *, concurrency: int
    ) -> AsyncIterator[tuple[int, Any]]: ...
