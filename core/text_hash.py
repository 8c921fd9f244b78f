"""Which texts count as the same: hashes over texts whose line ends and trailing blanks are evened out."""

import hashlib
import json
from typing import Any


def sha256_of(value: Any) -> str:
    """SHA-256 of a value's JSON with sorted names, as hexadecimal text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def normalised(text: str) -> str:
    """The text with Unix line ends, and without blanks at the end of lines and of the whole."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).rstrip("\n")


def skill_hash(text: str) -> str:
    """SHA-256 of the skill part of a system prompt, as it is rendered for one task type."""
    return sha256_of(normalised(text))
