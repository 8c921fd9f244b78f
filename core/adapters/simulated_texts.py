"""Which texts are the same to worlds that know answers by text, and where the skill stands in a system
prompt."""

import hashlib
import json
import re

_SKILL_PART = re.compile(r"^# Skill: .*?(?=^# Places named in the skill$|\Z)", re.MULTILINE | re.DOTALL)


def skill_hash(text: str) -> str:
    """SHA-256 of a text; line ends and blanks at the end of lines and of the whole aside. For the skill
    part of a prompt this is the hash that stands in a prediction's row."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    normalised = "\n".join(line.rstrip() for line in lines).rstrip("\n")
    return hashlib.sha256(json.dumps(normalised).encode()).hexdigest()


def skill_part(prompt: str) -> str:
    """The skills in a system prompt, as `SkillSet.text_for` renders them; the whole text where none are
    marked."""
    match = _SKILL_PART.search(prompt)
    return match[0] if match else prompt
