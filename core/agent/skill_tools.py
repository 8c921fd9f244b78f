"""Manual mode: the agent reads skills of the catalogue when it wants to."""

import json
from collections.abc import Mapping
from typing import Any

from core.agent.skills import SkillSet
from core.protocols import ToolDispatcher, ToolError


class SkillTools:
    """Any world's tools and, where the skill set has a catalogue, `read_skill(name)`."""

    def __init__(self, tools: ToolDispatcher, skills: SkillSet) -> None:
        self._tools = tools
        self._texts = {skill.name: skill.body for skill in skills.catalogue}

    def describe(self) -> str:
        """The world's tools, then this one if there is something to read."""
        item = "- `read_skill(name)`: The text of a skill.\n  - `name`: one of the names under More skills"
        return f"{self._tools.describe()}\n{item}" if self._texts else self._tools.describe()

    async def __call__(self, name: str, args: Mapping[str, Any]) -> str:
        if name != "read_skill" or not self._texts:
            return await self._tools(name, args)
        wanted = args.get("name")
        if not isinstance(wanted, str) or wanted not in self._texts:
            raise ToolError(f"read_skill: no skill {wanted!r}; there are {', '.join(self._texts)}")
        return json.dumps({"skill": wanted, "text": self._texts[wanted]}, ensure_ascii=False)
