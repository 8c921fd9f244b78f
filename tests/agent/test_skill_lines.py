"""Lines: written as Markdown, read by one reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.agent.skills import SkillError, SkillLine, parse_lines, render_line
from core.agent.tactics import TACTICS

TEXT = """---
name: order
description: An order.
---

- a list item of the prose is no line

## Where to look

Lines for people and machines.

- It asks what comes next -> or later. -> search_next
  - What happens -> then?
  - And after?
- Anything else. -> search_1

### A group of lines

* It asks for a scene. -> scene_summary

<!-- - a remark -> nowhere -->
```
- code -> nowhere
```
<!-- momentum:start -->
- guidance, not a line
<!-- momentum:end -->

## Something else
- neither is this
"""


def test_lines_are_read_where_their_heading_stands_and_nowhere_else():
    assert parse_lines(TEXT) == [
        SkillLine(
            "It asks what comes next -> or later.", "search_next", ("What happens -> then?", "And after?")
        ),
        SkillLine("Anything else.", "search_1"),
        SkillLine("It asks for a scene.", "scene_summary"),
    ]


def test_a_text_without_such_a_heading_has_no_lines():
    assert parse_lines("# Tools\n- `view_node(node_id)`: opens\n") == []


def test_several_sections_of_one_prompt_are_read_in_order():
    prompt = f"{TEXT}\n# Skill: two\n- prose\n# WHERE TO LOOK\n- Last. -> read_all\n"
    assert [line.tactic for line in parse_lines(prompt)] == [
        "search_next",
        "search_1",
        "scene_summary",
        "read_all",
    ]


def test_line_ends_and_a_byte_order_mark_change_nothing():
    assert parse_lines("\ufeff" + TEXT.replace("\n", "\r\n")) == parse_lines(TEXT)


@pytest.mark.parametrize(
    ("lines", "number", "told"),
    [
        ("- Fits. -> look_up", 2, "unknown tactic 'look_up'; there are first_moments, "),
        ("- Fits. -> search_1\n- No arrow", 3, "'No arrow' names no rule and tactic"),
        ("- -> search_1", 2, "names no rule"),
        ("- Fits. -> ", 2, "names no rule and tactic"),
        ("  - An example", 2, "an example without a rule"),
        ("<!--\nlong\nremark -->\n- Fits. -> look_up", 5, "unknown tactic"),
        ("<!-- momentum:start -->\n- x\n<!-- momentum:end -->\n- Fits", 5, "names no rule"),
    ],
)
def test_a_line_that_is_none_is_named_with_file_and_line(lines, number, told):
    with pytest.raises(SkillError) as caught:
        parse_lines(f"## Where to look\n{lines}\n", source="order.md")
    assert f"order.md, line {number}: " in str(caught.value)
    assert told in str(caught.value)


PHRASE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).map(str.strip)
PLAIN = PHRASE.filter(lambda text: text and "<!--" not in text and not text.startswith(("```", "~~~")))


@given(st.builds(SkillLine, PLAIN, st.sampled_from(list(TACTICS)), st.lists(PLAIN, max_size=4).map(tuple)))
def test_a_rendered_line_is_read_back_unchanged(line):
    assert parse_lines(f"## Where to look\n{render_line(line)}\n") == [line]
