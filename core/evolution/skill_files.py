"""Which skill file serves a task type, and what steps it tells the agent to take."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.agent.markdown import fence_after
from core.agent.skills import DEFAULT_SKILL, read_skill_file
from core.evolution.markdown import protected_regions
from core.evolution.protocols import SkillStore

_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s+(?P<step>\S.*)")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file that may be edited. `steps`: its top-level list items."""

    name: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServingFiles:
    """The files by task type, and the one that serves all other types (`None`: there is no such file)."""

    by_type: Mapping[str, SkillFile]
    default: SkillFile | None

    def of(self, task_type: str) -> SkillFile | None:
        """The file that serves a task type, `None` when none does."""
        return self.by_type.get(task_type, self.default)


def serving_files(skills: SkillStore) -> ServingFiles:
    """Reads a store's skill files; `always` skills and those bound to no type serve none.

    Raises `SkillError` naming a file that cannot be read.
    """
    by_type, default = {}, None
    for name in skills.list():
        text = skills.read(name)
        skill = read_skill_file(text, source=name)
        if skill.always:
            continue
        if skill.task_type:
            by_type[skill.task_type] = SkillFile(name, skill_steps(text))
        elif skill.name == DEFAULT_SKILL:
            default = SkillFile(name, skill_steps(text))
    return ServingFiles(by_type, default)


def skill_steps(text: str) -> tuple[str, ...]:
    """The distinct top-level list items of a skill's text, without front matter, momentum block and code."""
    view = text.replace("\r\n", "\n")
    for region in sorted(protected_regions(view, ()), key=lambda region: -region.start):
        view = view[: region.start] + view[region.end :]
    steps, fence = [], ""
    for line in view.splitlines():
        before, fence = fence, fence_after(fence, line)
        if not (before or fence) and (item := _ITEM.match(line)):
            steps.append(item["step"].strip())
    return tuple(dict.fromkeys(steps))
