"""Skills: what the agent knows about where to look, as Markdown that people edit and training changes.

A skill may hold *lines*, the part that the scoring agent acts on (a chat model reads them as advice):

    ## Where to look
    - The question asks what comes directly after an event it names. -> search_next
      - What happens directly after the baker drops the tray?

A line is a rule, the tactic to use when it fits, and example questions below it.
"""

import re
from dataclasses import dataclass

from core.agent.tactics import TACTICS

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_MOMENTUM = re.compile(r"<!--\s*momentum:start\s*-->.*?(?:<!--\s*momentum:end\s*-->|\Z)", re.DOTALL)
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
    for number, content in _section_items(text):
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


def _section_items(text: str) -> list[tuple[int, str]]:
    """The list items, each with its line number from 1, of the sections that hold lines."""
    items: list[tuple[int, str]] = []
    section_level = 0  # 0: outside
    fenced = False
    for number, content in enumerate(_without_remarks(text).splitlines(), start=1):
        if content.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced:
            continue
        elif heading := _HEADING.match(content):
            level = len(heading[1])
            if heading[2].casefold() == _LINES_HEADING:
                section_level = level
            elif level <= section_level:
                section_level = 0
        elif section_level and content.lstrip().startswith(("- ", "* ")):
            items.append((number, content.rstrip()))
    return items


def _without_remarks(text: str) -> str:
    """`text` without comments and the momentum block; line breaks stay, so that line numbers are true."""
    for pattern in (_MOMENTUM, _COMMENT):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    return text
