"""What came of one attempt at a call: a completion, or a failure that says whether to try again."""

import email.utils
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from openai import APIStatusError
from pydantic import BaseModel, BeforeValidator, ValidationError

RETRIED_STATUSES = frozenset({408, 409, 429})
LONGEST_RETRY_AFTER_S = 120.0
LONGEST_WORDS = 500
MOST_TOKENS = 10**12
"""What one call may be said to have used: sums over millions of calls still fit a 64-bit column."""

HINTS = {
    401: "check the API key",
    403: "check what the API key may do",
    404: "check the model's name and the base URL",
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A usable reply. Token counts are `None` where the endpoint did not count."""

    content: str
    reasoning: str
    model: str
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt gave no reply, in the endpoint's words where it had any.

    `transient`: trying again may help, not before `retry_after_s` seconds. An unusable reply may have been
    counted, and paid, all the same.
    """

    words: str
    transient: bool
    retry_after_s: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def _text_or_blank(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text_of_parts(content: Any) -> Any:
    """Some gateways send a message as a list of parts, of which the texts count."""
    if not isinstance(content, list):
        return content
    return "".join(_text_or_blank(part.get("text")) for part in content if isinstance(part, dict))


def _count_or_none(value: Any) -> int | None:
    """A number of tokens that can be one; whatever else an endpoint says counts as not counted."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if whole and 0 <= value <= MOST_TOKENS else None


Text = Annotated[str, BeforeValidator(_text_or_blank)]
Count = Annotated[int | None, BeforeValidator(_count_or_none)]


class _Message(BaseModel):
    content: Annotated[str | None, BeforeValidator(_text_of_parts)] = None
    refusal: Text = ""
    reasoning_content: Text = ""  # vLLM, llama.cpp, DeepSeek
    reasoning: Text = ""  # some gateways


class _Choice(BaseModel):
    message: _Message
    finish_reason: Text = ""


class _Usage(BaseModel):
    prompt_tokens: Count = None
    completion_tokens: Count = None


class _Reply(BaseModel):
    model: Text = ""
    choices: list[_Choice] | None = None
    usage: Annotated[_Usage, BeforeValidator(lambda value: value if isinstance(value, dict) else {})] = (
        _Usage()
    )


def read_reply(text: str) -> Completion | Failure:
    """The body of a chat completion, of which only the first choice is read.

    Truncated JSON, no choices, and an empty message are failures; what else is odd about a reply costs no
    more than itself. An empty message that was cut off at its length limit or by a filter is what trying
    again would not mend, and is handed over as it is; a refusal is what the model says.
    """
    try:
        reply = _Reply.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "reply"
        return Failure(f"the reply cannot be read: {place}: {first['msg']}: {text}", transient=True)
    counts = {
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
    }
    if not reply.choices:
        return Failure(f"the reply has no choices: {text}", transient=True, **counts)
    message, finish_reason = reply.choices[0].message, reply.choices[0].finish_reason
    content = message.content or message.refusal
    if not content.strip() and finish_reason not in ("length", "content_filter"):
        return Failure(f"the reply is empty (finish reason {finish_reason!r})", transient=True, **counts)
    reasoning = message.reasoning_content or message.reasoning
    return Completion(content, reasoning, reply.model, finish_reason, **counts)


def failure_of_status(error: APIStatusError) -> Failure:
    """What an HTTP error status means: 408, 409, 429 and 5xx pass, everything else does not.

    An endpoint that asks for a longer wait than `LONGEST_RETRY_AFTER_S` is not waited for.
    """
    status = error.status_code
    hint = f" ({HINTS[status]})" if status in HINTS else ""
    words = f"HTTP {status}: {_words_of(error.body)}{hint}"
    if status not in RETRIED_STATUSES and status < 500:
        return Failure(words, transient=False)
    wait_s = retry_after(error.response.headers, now=time.time())
    if wait_s > LONGEST_RETRY_AFTER_S:
        return Failure(f"{words} (it asks to wait {wait_s:.0f} s)", transient=False)
    return Failure(words, transient=True, retry_after_s=wait_s)


def failure_of_connection(error: Exception) -> Failure:
    """A connection that could not be made, or broke: the first cause has the words."""
    while error.__cause__ is not None:
        error = error.__cause__
    return Failure(f"connection failed: {type(error).__name__}: {error}", transient=True)


def failure_of_reading(error: Exception) -> Failure:
    """A reply whose bytes cannot be read, such as an error in a character set that there is not."""
    return Failure(f"the reply cannot be read: {type(error).__name__}: {error}", transient=True)


def retry_after(headers: Mapping[str, str], *, now: float) -> float:
    """Seconds to wait by `Retry-After` (seconds or a date) or `retry-after-ms`; 0 without, or if unreadable.

    `now` is a Unix time in seconds.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text or "").timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


def _seconds(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else max(0.0, number)


def _words_of(body: object) -> str:
    """The message inside an error's body, or the body itself."""
    if isinstance(body, Mapping):
        body = body.get("message") or json.dumps(body)
    return str(body) if body else "no words"
