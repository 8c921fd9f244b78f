"""Skills: what the agent knows about where to look, as Markdown that people edit and training changes.

A skill may hold *lines*, the part that the scoring agent acts on (a chat model reads them as advice):

    ## Where to look
    - The question asks what comes directly after an event it names. -> search_next
      - What happens directly after the baker drops the tray?

A line is a rule, the tactic to use when it fits, and example questions below it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import frontmatter
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from core.agent.markdown import fence_after, without_remarks
from core.agent.tactics import TACTICS
from core.tree.model import lies_inside

SkillMode = Literal["auto", "manual", "none"]
DEFAULT_SKILL = "default-strategy"

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_LINES_HEADING = "where to look"
_ARROW = " -> "
_FORM = "`- <rule> -> <tactic>`, its examples below it as `  - <question>`"


class SkillError(ValueError):
    """A skill file that cannot be used as it stands. Names the file, the line and the mend."""


@dataclass(frozen=True, slots=True)
class SkillLine:
    """When `rule` fits a question, look with `tactic`; `examples` are questions that it fits."""

    rule: str
    tactic: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill file: `name` is the file's without `.md`, `body` its text without the front matter."""

    name: str
    description: str
    task_type: str
    always: bool
    body: str


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills that a run may use, and how (`skill_mode`).

    `auto`: `always` skills, then the task type's own skill or `default-strategy`. `manual`: the same, and a
    catalogue of the skills bound to no type, which the agent reads when it wants to. `none`: nothing.
    """

    skills: tuple[Skill, ...]
    skill_mode: SkillMode = "auto"

    def text_for(self, task_type: str) -> str:
        """The skill part of the system prompt for a task type. Raises `SkillError` when no file serves it."""
        if self.skill_mode == "none":
            return ""
        always = [skill for skill in self.skills if skill.always]
        parts = [_render_skill(skill) for skill in [*always, self._serving(task_type)]]
        return "\n\n".join([*parts, *([self._render_catalogue()] if self.catalogue else [])])

    @property
    def catalogue(self) -> tuple[Skill, ...]:
        """What `read_skill` offers; empty but in manual mode."""
        if self.skill_mode != "manual":
            return ()
        return tuple(
            skill
            for skill in self.skills
            if not (skill.always or skill.task_type or skill.name == DEFAULT_SKILL)
        )

    def _serving(self, task_type: str) -> Skill:
        for fits in (lambda skill: skill.task_type == task_type, lambda skill: skill.name == DEFAULT_SKILL):
            if found := [skill for skill in self.skills if not skill.always and fits(skill)]:
                return found[0]
        raise SkillError(
            f"no skill for task type {task_type!r}: add a file with `task_type: {task_type}` in its front"
            f" matter, or {DEFAULT_SKILL}.md"
        )

    def _render_catalogue(self) -> str:
        items = [f"- `{skill.name}`: {skill.description}" for skill in self.catalogue]
        return "\n".join(
            ["# More skills", "", "Read one with the tool `read_skill` when it may help.", *items]
        )


def discover_skills(skills_dir: Path, *, skill_mode: SkillMode = "auto") -> SkillSet:
    """The skills in the `*.md` files of a folder. Raises `SkillError` naming the file and the mend."""
    if not skills_dir.is_dir():
        raise SkillError(f"{skills_dir}: no such folder of skills")
    texts: dict[str, str] = {}
    for path in sorted(skills_dir.glob("*.md")):
        if not lies_inside(path, skills_dir):
            raise SkillError(f"{path}: leads out of {skills_dir}")
        try:
            texts[path.name] = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise SkillError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise SkillError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    return read_skills(texts, skill_mode=skill_mode)


def read_skills(texts: Mapping[str, str], *, skill_mode: SkillMode = "auto") -> SkillSet:
    """The skills in texts by file name (with or without `.md`), as a `SkillStore` gives them."""
    if skill_mode not in get_args(SkillMode):
        raise ValueError(f"skill_mode: {skill_mode!r} is none of {', '.join(get_args(SkillMode))}")
    skills = [read_skill_file(text, source=source) for source, text in sorted(texts.items())]
    owners: dict[str, str] = {}
    for skill in skills:
        if skill.always or not skill.task_type:
            continue
        if skill.task_type in owners:
            raise SkillError(
                f"{skill.name}.md: task type {skill.task_type!r} already has {owners[skill.task_type]}.md"
            )
        owners[skill.task_type] = skill.name
    return SkillSet(tuple(skills), skill_mode)


class _FrontMatter(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str
    description: str
    task_type: str = ""
    always: bool = False


def read_skill_file(text: str, *, source: str) -> Skill:
    """One skill file's text, its lines checked too. Raises `SkillError` naming `source` and the mend."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        metadata, body = frontmatter.parse(text)
        if not metadata:
            raise SkillError(
                f"{source}: no front matter; begin with `---`, `name: ...`, `description: ...`, `---`"
            )
        head = _FrontMatter.model_validate(metadata)
    except yaml.YAMLError as error:
        raise SkillError(f"{source}: front matter is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise SkillError(f"{source}: front matter, {problem['loc'][0]}: {problem['msg']}") from None
    parse_lines(text, source=source)
    return Skill(source.removesuffix(".md"), head.description, head.task_type, head.always, body)


def _render_skill(skill: Skill) -> str:
    return f"# Skill: {skill.name}\n\n{skill.body}"


def render_line(line: SkillLine) -> str:
    """The line as Markdown, without a final line break. `parse_lines` reads it back unchanged."""
    return "\n".join(
        [f"- {line.rule}{_ARROW}{line.tactic}", *(f"  - {example}" for example in line.examples)]
    )


def parse_lines(text: str, *, source: str = "") -> list[SkillLine]:
    """All lines of a skill file, a catalogue or a whole system prompt, in their order.

    Lines stand in sections headed `Where to look` (any level), which end at the next heading of the same or a
    higher level. List items outside such sections, prose, HTML comments, the momentum block and fenced code
    are for other readers and are passed over.

    Raises `SkillError` naming `source` and the line number for a list item that is no line, an unknown
    tactic, or an example without a rule.
    """
    lines: list[SkillLine] = []
    for number, content in section_items(text):
        where = f"{source or 'skill text'}, line {number}"
        if content.startswith(("- ", "* ")):
            lines.append(_parse_rule(content[2:].strip(), where))
        elif not lines:
            raise SkillError(f"{where}: an example without a rule above it; a line reads {_FORM}")
        else:
            example = content.strip()[2:].strip()
            lines[-1] = SkillLine(lines[-1].rule, lines[-1].tactic, (*lines[-1].examples, example))
    return lines


def _parse_rule(content: str, where: str) -> SkillLine:
    rule, arrow, tactic = (part.strip() for part in content.rpartition(_ARROW))
    if not arrow or not rule or not tactic:
        raise SkillError(f"{where}: {content!r} names no rule and tactic; a line reads {_FORM}")
    if tactic not in TACTICS:
        raise SkillError(f"{where}: unknown tactic {tactic!r}; there are {', '.join(TACTICS)}")
    return SkillLine(rule, tactic)


def section_items(text: str) -> list[tuple[int, str]]:
    """The list items, each with its line number from 1, of the sections that hold lines."""
    items: list[tuple[int, str]] = []
    section_level = 0  # 0: outside
    fence = ""
    for number, content in enumerate(without_remarks(text).splitlines(), start=1):
        before, fence = fence, fence_after(fence, content)
        if before or fence:
            continue
        if heading := _HEADING.match(content):
            level = len(heading[1])
            if heading[2].casefold() == _LINES_HEADING:
                section_level = level
            elif level <= section_level:
                section_level = 0
        elif section_level and content.lstrip().startswith(("- ", "* ")):
            items.append((number, content.rstrip()))
    return items
