"""Where the skill stands in a system prompt, for worlds that know answers by text."""

import re

_SKILL_PART = re.compile(r"^# Skill: .*?(?=^# Places named in the skill$|\Z)", re.MULTILINE | re.DOTALL)


def skill_part(prompt: str) -> str:
    """The skills in a system prompt, as `SkillSet.text_for` renders them; the whole text where none are
    marked."""
    match = _SKILL_PART.search(prompt)
    return match[0] if match else prompt
