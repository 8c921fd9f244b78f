"""A chat endpoint that speaks OpenAI's protocol: settings, connection, retries, deadline, rate limits."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from loguru import logger
from openai import APIStatusError, AsyncOpenAI, DefaultAioHttpClient, OpenAIError
from pydantic import SecretStr
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from core.adapters.attempts import (
    LONGEST_WORDS,
    Completion,
    Failure,
    failure_of_connection,
    failure_of_reading,
    failure_of_status,
    read_reply,
)
from core.adapters.chat_request import expected_tokens
from core.adapters.rate_limits import RateLimits

# The SDK's typed method checks and copies every message and builds a model of the reply, in twice the time.
PATH = "/chat/completions"
SHORTEST_SECRET = 8
LONGEST_HOST = 253
REDACTED = "[API key]"

_back_off = wait_random_exponential(multiplier=1, max=30)


@dataclass(slots=True)
class Tally:
    """What a call has used so far: kept by the caller, so that a call that is cancelled counts too."""

    attempts: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def add(self, outcome: Completion | Failure) -> None:
        self.prompt_tokens = _sum(self.prompt_tokens, outcome.prompt_tokens)
        self.completion_tokens = _sum(self.completion_tokens, outcome.completion_tokens)


class Endpoint:
    """Where a model answers, and how it is called. Used by one event loop at a time.

    `timeout_s` is the deadline of one attempt, however slowly bytes may come. Failures that may pass (408,
    409, 429, 5xx, time-outs, broken connections, replies that are cut off or empty) are tried again up to
    `max_retries` times, after `Retry-After` and an exponential back-off with full jitter (up to 1, 2, 4, ...
    30 seconds), slept by `sleep`. Limits of 0 are none.

    The key goes into the requests' header and nowhere else: it is cut out of whatever the endpoint says. A
    key shorter than 8 characters is taken for the placeholder of a server that asks for none.

    Raises `ValueError` for settings that cannot work.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: SecretStr,
        *,
        timeout_s: float = 120.0,
        max_retries: int = 5,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._key = _checked_key(api_key)
        _check_number("timeout_s", timeout_s, above_zero=True)
        _check_number("max_retries", max_retries)
        _check_number("requests_per_minute", requests_per_minute)
        _check_number("tokens_per_minute", tokens_per_minute)
        self.model = model
        self.host = _checked_host(base_url)
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._limits = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}
        self._retrying = AsyncRetrying(
            sleep=sleep,
            stop=stop_after_attempt(max_retries + 1),
            wait=_wait_s,
            retry=retry_if_result(_is_transient),
            before_sleep=self._log_retry,
            retry_error_callback=lambda state: state.outcome.result(),
        )
        self._connection: _Connection | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.model!r} at {self.host})"

    async def complete(self, request: Mapping[str, Any], tally: Tally) -> Completion | Failure:
        """Sends a chat request until it is answered, refused, or given up; counts into `tally`."""
        return await self._retrying.copy()(self._attempt, request, tally)

    async def aclose(self) -> None:
        """Closes the connection. The next call opens another; so does a call in another event loop."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.client.close()

    async def _attempt(self, request: Mapping[str, Any], tally: Tally) -> Completion | Failure:
        connection = await self._connect()
        expected = expected_tokens(request)
        await connection.limits.admit(expected)
        tally.attempts += 1
        outcome = self._redacted(await self._post(connection.client, request))
        tally.add(outcome)
        if outcome.prompt_tokens is not None and outcome.completion_tokens is not None:
            connection.limits.settle(expected, outcome.prompt_tokens + outcome.completion_tokens)
        return outcome

    async def _post(self, client: AsyncOpenAI, request: Mapping[str, Any]) -> Completion | Failure:
        # Failures are values from here on: an exception would carry the SDK's frames, and the key in them,
        # into whatever prints a traceback. So everything is caught, also what odd replies make readers raise.
        try:
            async with asyncio.timeout(self._timeout_s):
                # JSON is UTF-8 whatever character set the header names.
                body = await client.post(PATH, cast_to=bytes, body=request)
                return read_reply(body.decode("utf-8-sig", "replace"))
        except TimeoutError:
            return Failure(f"no reply within {self._timeout_s:g} s", transient=True)
        except APIStatusError as error:
            return failure_of_status(error)
        except (OpenAIError, aiohttp.ClientError) as error:
            return failure_of_connection(error)
        except Exception as error:
            return failure_of_reading(error)

    async def _connect(self) -> "_Connection":
        loop, stale = asyncio.get_running_loop(), self._connection
        if stale is not None and stale.loop is loop:
            return stale
        client = _sdk_client(self._base_url, self._key)
        connection = self._connection = _Connection(loop, client, RateLimits(**self._limits))
        if stale is not None:
            await stale.client.close()
        return connection

    def _redacted(self, outcome: Completion | Failure) -> Completion | Failure:
        if isinstance(outcome, Failure):
            return replace(outcome, words=_shortened(self._without_key(outcome.words)))
        return replace(
            outcome,
            content=self._without_key(outcome.content),
            reasoning=self._without_key(outcome.reasoning),
            model=self._without_key(outcome.model),
            finish_reason=self._without_key(outcome.finish_reason),
        )

    def _without_key(self, text: str) -> str:
        if len(self._key) < SHORTEST_SECRET:
            return text
        for form in _written_forms(self._key.get_secret_value()):
            text = text.replace(form, REDACTED)
        return text

    def _log_retry(self, state: RetryCallState) -> None:
        failure = state.outcome.result()
        told = "{}: attempt {} failed ({}), the next in {:.1f} s"
        logger.info(told, self, state.attempt_number, failure.words, state.upcoming_sleep)


@dataclass(frozen=True, slots=True)
class _Connection:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: AsyncOpenAI
    limits: RateLimits


def _sdk_client(base_url: str, key: SecretStr) -> AsyncOpenAI:
    client = AsyncOpenAI(
        api_key=key.get_secret_value(),
        base_url=base_url,
        http_client=DefaultAioHttpClient(timeout=None),
        timeout=None,
        max_retries=0,
    )
    # Taken from variables meant for OpenAI itself; another endpoint has no business knowing them.
    client.organization = client.project = None
    return client


def _is_transient(outcome: Completion | Failure) -> bool:
    return isinstance(outcome, Failure) and outcome.transient


def _wait_s(state: RetryCallState) -> float:
    return state.outcome.result().retry_after_s + _back_off(state)


def _checked_key(api_key: SecretStr) -> SecretStr:
    text = api_key.get_secret_value().strip()
    if not text:
        raise ValueError("the API key is empty; a server that asks for none takes any word")
    if not (text.isascii() and text.isprintable()):
        raise ValueError("the API key has a character that cannot stand in an HTTP header")
    return SecretStr(text)


def _check_number(name: str, value: float, *, above_zero: bool = False) -> None:
    if not 0 <= value < math.inf or (above_zero and value == 0):
        raise ValueError(f"{name}: {value} is not a number {'above' if above_zero else 'from'} 0")


def _checked_host(base_url: str) -> str:
    """The host, with its port. Raises `ValueError` without repeating the URL: it may hold a secret."""
    if any(char.isspace() or not char.isprintable() for char in base_url):
        raise ValueError("the base URL holds a blank, a line break or another character that no URL has")
    try:
        address = urlsplit(base_url)
        usable = address.scheme in ("http", "https") and address.port != 0 and _is_host(address.hostname)
    except ValueError:  # brackets that do not match, a port that is no number up to 65535
        usable = False
    if not usable:
        raise ValueError(
            "the base URL must begin with http:// or https:// and name a host; a port is from 1 to 65535"
        )
    if address.username or address.password:
        raise ValueError("the base URL must not hold a user or password: they would end up in logs")
    return address.netloc


def _is_host(name: str | None) -> bool:
    """True for what can be a host's name (RFC 1035: labels of 1 to 63 bytes, 253 in all) or address."""
    try:
        return 0 < len((name or "").encode("idna")) <= LONGEST_HOST
    except UnicodeError:
        return False


def _written_forms(key: str) -> tuple[str, ...]:
    """The key as it may stand in text, in JSON (with `/` escaped or not) and in a URL."""
    in_json = json.dumps(key)[1:-1]
    return key, in_json, in_json.replace("/", "\\/"), quote(key, safe="")


def _shortened(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."


def _sum(total: int | None, count: int | None) -> int | None:
    return total if count is None else (total or 0) + count
