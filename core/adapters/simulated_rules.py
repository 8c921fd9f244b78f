"""The rules that a simulated agent finds in its system prompt: plain Markdown list items.

    - In `order-2` questions that are easy: compare the two scenes before you answer. (simulated effect -0.40)

A rule names a cluster of questions, a task type, or `every` question, and may narrow that to one
difficulty. Its effect is added to the ability (in logits) of the questions it names. Because it stands in
the text, ordinary skill files, edits, versions and diffs apply; because it says "simulated", nobody takes
it for advice.
"""

import functools
import re
from dataclasses import dataclass
from typing import Literal

Difficulty = Literal["", "easy", "medium", "hard"]
EVERY = "every"

_RULE = re.compile(
    r"[-*] In `(?P<name>[^`\n]+)` questions(?: that are (?P<difficulty>easy|medium|hard))?: "
    r"(?P<advice>\S.*?) \(simulated effect (?P<effect>[+-]?\d+(?:\.\d+)?)\)"
)
_MARK = "(simulated effect "


class RuleError(ValueError):
    """A line that is marked as a rule and cannot be read as one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`name`: cluster, task type or `every`. `difficulty`: empty for all. `effect`: in logits."""

    name: str
    advice: str
    effect: float
    difficulty: Difficulty = ""


def render_rule(rule: Rule) -> str:
    """The rule as a Markdown list item, without a line break; the effect to 4 decimals."""
    which = f" that are {rule.difficulty}" if rule.difficulty else ""
    return f"- In `{rule.name}` questions{which}: {rule.advice} {_MARK}{rule.effect:+.4f})"


@functools.lru_cache(maxsize=4096)
def read_rules(text: str) -> tuple[Rule, ...]:
    """The distinct rules of a text in their order; saying the same thing twice adds nothing.

    Raises `RuleError` naming the line that is marked as a rule and cannot be read.
    """
    if _MARK not in text:
        return ()
    lines = enumerate(text.splitlines(), start=1)
    rules = [_read_rule(line.strip(), number) for number, line in lines if _MARK in line]
    return tuple(dict.fromkeys(rules))


def _read_rule(line: str, number: int) -> Rule:
    match = _RULE.fullmatch(line)
    if match is None:
        example = render_rule(Rule("order-1", "look twice.", 0.5))
        raise RuleError(f"line {number}: {line!r} is no rule; write it like {example!r}")
    return Rule(match["name"], match["advice"], float(match["effect"]), match["difficulty"] or "")
