"""Faults on purpose: a wrapper around any chat model that fails as an endpoint does, by rate and seed.

The faults go through the same reading as a real endpoint's (`attempts`), so that words, retries and the final
`ProviderError` are those of the OpenAI adapter; only nobody waits between two attempts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from core.adapters.attempts import Failure, failure_of_connection, read_reply
from core.adapters.chat_request import chat_request, request_hash
from core.adapters.simulated_chance import key_of, uniform
from core.protocols import LLMProvider, ProviderError
from core.types import LLMResponse, Message

Fault = Literal["rate_limited", "server_error", "unavailable", "time_out", "reset", "truncated", "empty"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

_TIME_OUT_S = 120
_STATUSES = {"rate_limited": 429, "server_error": 500, "unavailable": 503}
_BODIES = {"truncated": '{"choices": [{"message": {"content": "The ans', "empty": '{"choices": []}'}


@dataclass(slots=True)
class FaultCount:
    """What was asked for and what it took. `faults`: attempts that failed, by kind."""

    calls: int
    attempts: int
    faults: Counter[Fault]


class FaultyProvider:
    """An `LLMProvider` whose attempts fail with probability `rate`, each of `faults` as likely as the others.

    An attempt that fails is tried again up to `max_retries` times, then a `ProviderError` is raised. Which
    attempts fail hangs on `seed`, scope, request and how often that request was made in this scope, and not
    on what else is going on. `count` is shared by all that `for_scope` makes.

    Raises `ValueError` for a rate outside [0, 1] or a fault that there is not.
    """

    def __init__(
        self,
        llm: LLMProvider,
        *,
        rate: float,
        seed: int,
        faults: Sequence[Fault] = FAULTS,
        max_retries: int = 5,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"rate: {rate} is not in [0, 1]")
        if not faults or not set(faults) <= set(FAULTS):
            raise ValueError(f"faults: {list(faults)} must be some of {', '.join(FAULTS)}")
        self.model = llm.model
        self.count = FaultCount(0, 0, Counter())
        self._llm = llm
        self._rate = rate
        self._seed = seed
        self._faults = tuple(faults)
        self._max_retries = max_retries
        self._scope = ""
        self._made: Counter[str] = Counter()

    def for_scope(self, scope: str) -> "FaultyProvider":
        """The same, with faults of its own, around the model for that scope."""
        llm = self._llm.for_scope(scope) if hasattr(self._llm, "for_scope") else self._llm
        scoped = FaultyProvider(
            llm, rate=self._rate, seed=self._seed, faults=self._faults, max_retries=self._max_retries
        )
        scoped.count, scoped._scope = self.count, scope
        return scoped

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> LLMResponse:
        """The model's next turn. Raises `ProviderError` when every attempt failed."""
        options = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            "json_schema": json_schema,
        }
        request = request_hash(chat_request(self.model, messages, **options))
        key = key_of(self._seed, "faults", self._scope, request, self._made[request])
        self._made[request] += 1
        self.count.calls += 1
        for attempt in range(self._max_retries + 1):
            self.count.attempts += 1
            fault = self._fault(key, attempt)
            if fault is None:
                return await self._llm.chat(messages, **options)
            self.count.faults[fault] += 1
        gave_up = f" (gave up after {self._max_retries + 1} attempts)" if self._max_retries else ""
        raise ProviderError(f"{self.model}, simulated fault: {failure_of(fault).words}{gave_up}")

    def _fault(self, key: int, attempt: int) -> Fault | None:
        if uniform(key, 2 * attempt) >= self._rate:
            return None
        return self._faults[int(uniform(key, 2 * attempt + 1) * len(self._faults))]


def failure_of(fault: Fault) -> Failure:
    """What the OpenAI adapter makes of the fault; all of them may pass."""
    if fault == "time_out":
        return Failure(f"no reply within {_TIME_OUT_S} s", transient=True)
    if fault == "reset":
        return failure_of_connection(ConnectionResetError("connection reset by peer"))
    if fault in _BODIES:
        return read_reply(_BODIES[fault])
    return Failure(f"HTTP {_STATUSES[fault]}: simulated {fault}", transient=True)
