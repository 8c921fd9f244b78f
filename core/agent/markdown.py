"""Which parts of a skill text are code or remarks: one reading for those who use its lines and who edit it.

All functions work on text with `\\n` line ends.
"""

import re

MOMENTUM_MARKER = re.compile(r"<!--\s*momentum:(start|end)\s*-->")
MOMENTUM_BLOCK = re.compile(r"<!--\s*momentum:start\s*-->.*?(?:<!--\s*momentum:end\s*-->|\Z)", re.DOTALL)

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def without_remarks(text: str) -> str:
    """`text` without comments and the momentum block; line breaks stay, so that line numbers are true."""
    for pattern in (MOMENTUM_BLOCK, _COMMENT):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    return text


def fence_after(fence: str, line: str) -> str:
    """The marker of the code fence that is open after `line`, `fence` being open before; empty for none.

    A fence closes with at least as many of the same character and nothing behind them (CommonMark 4.5).
    """
    match = _FENCE.match(line)
    if not match:
        return fence
    marker, behind = match[1], match[2].strip()
    if not fence:
        return "" if marker[0] == "`" and "`" in behind else marker
    closes = marker[0] == fence[0] and len(marker) >= len(fence) and not behind
    return "" if closes else fence
