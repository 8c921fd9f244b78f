"""What is asked of a chat endpoint, as the JSON that is sent, and the hash that names it."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.types import Message

# Not from `mimetypes`: what that knows differs from machine to machine.
IMAGE_TYPES = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


def chat_request(
    model: str,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    json_schema: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a chat completion. What is `None` is left out, so that the endpoint's default holds."""
    options = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": turn.role, "content": _encodable(turn.content)} for turn in messages],
        **{name: value for name, value in options.items() if value is not None},
    }
    if json_schema is not None:
        schema = {"name": "reply", "schema": dict(json_schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


def vision_request(model: str, images: Sequence[Path], prompt: str) -> dict[str, Any]:
    """The body that asks `prompt` about images, which travel inside it (reads the files).

    Raises `ValueError` for a file that is no JPEG, PNG, WebP or GIF by its name, `OSError` for one that can
    not be read; both name it.
    """
    pictures = [{"type": "image_url", "image_url": {"url": _data_url(path)}} for path in images]
    content = [{"type": "text", "text": _encodable(prompt)}, *pictures]
    return {"model": model, "messages": [{"role": "user", "content": content}]}


def request_hash(request: Mapping[str, Any]) -> str:
    """SHA-256 of a request's canonical JSON, in hexadecimal: equal for equal requests, in every process."""
    canonical = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def expected_tokens(request: Mapping[str, Any]) -> int:
    """A guess at what a request will use, before anybody has counted.

    Four characters to a token, and the reply's limit if it has one. Images are left out: what one counts for
    differs too much between models.
    """
    characters = sum(_text_length(turn["content"]) for turn in request["messages"])
    return characters // 4 + request.get("max_tokens", 0)


def _text_length(content: str | Sequence[Mapping[str, Any]]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.get("text", "")) for part in content)


def _encodable(text: str) -> str:
    # Half a character (a lone surrogate) cannot be sent as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _data_url(path: Path) -> str:
    kind = IMAGE_TYPES.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: an image must be a JPEG, PNG, WebP or GIF file, by its name")
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
