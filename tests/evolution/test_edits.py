"""Edits: what is applied, what is refused and why, and what no edit can do."""

import frontmatter
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from core.agent.skills import parse_lines
from core.evolution.edits import apply_edits, edit_key
from core.evolution.markdown import MOMENTUM_END, MOMENTUM_START
from core.evolution.types import Edit

SKILL = f"""---
name: order
description: where to look
always: false
---

# Order

Some prose about the order of things, which a person may read and a proposer may change.

## Where to look

- The question asks what comes next. -> search_next
  - What happens after the bell?
- The question asks what came before. -> search_previous

## Safety

Never guess.

## Notes

```
code, not a heading
## Safety
```

{MOMENTUM_START}
Keep looking twice.
{MOMENTUM_END}

The end.
"""
FROZEN = ("Safety",)


def refusal(edit, text=SKILL, frozen=FROZEN):
    outcome = apply_edits(text, [edit], budget=1, frozen=frozen)
    assert outcome.text == text
    assert outcome.applied == ()
    assert outcome.skipped[0].edit == edit
    assert outcome.skipped[0].detail
    return outcome.skipped[0].reason


def applied(edit, text=SKILL, frozen=FROZEN):
    outcome = apply_edits(text, [edit], budget=1, frozen=frozen)
    assert outcome.skipped == ()
    return outcome.text


def test_append_puts_a_block_at_the_end():
    assert applied(Edit("append", content="More.\n\n")) == SKILL + "\nMore.\n"
    assert applied(Edit("append", content="More."), text="One line") == "One line\n\nMore.\n"
    assert applied(Edit("append", content="First."), text="") == "First.\n"


def test_insert_after_goes_below_the_line_that_holds_the_end_of_the_target():
    text = applied(Edit("insert_after", target="came before.", content="  - What preceded the fire?"))
    assert "-> search_previous\n  - What preceded the fire?\n\n## Safety" in text


def test_replace_changes_the_target_alone():
    assert applied(Edit("replace", target="prose about", content="words on")) == SKILL.replace(
        "prose about", "words on"
    )


def test_delete_of_whole_lines_leaves_no_empty_line():
    text = applied(Edit("delete", target="  - What happens after the bell?"))
    assert "-> search_next\n- The question asks what came before." in text


def test_edits_see_what_the_edits_before_them_left():
    edits = [Edit("append", content="Alpha."), Edit("replace", target="Alpha.", content="Beta.")]
    assert apply_edits("text", edits, budget=2).text == "text\n\nBeta.\n"


def test_only_the_budget_is_applied_and_a_refused_edit_costs_nothing():
    edits = [Edit("delete", target="absent"), *(Edit("append", content=f"Line {i}.") for i in range(3))]
    outcome = apply_edits(SKILL, edits, budget=2)
    assert outcome.applied == tuple(edits[1:3])
    assert [skip.reason for skip in outcome.skipped] == ["anchor_missing", "over_budget"]


@pytest.mark.parametrize(
    ("reason", "edit"),
    [
        ("unknown_op", Edit("prepend", content="x")),
        ("content_blank", Edit("append", content=" \n ")),
        ("content_blank", Edit("replace", target="Order", content="")),
        ("append_with_target", Edit("append", target="Order", content="x")),
        ("anchor_blank", Edit("delete", target="\n")),
        ("anchor_missing", Edit("delete", target="not in the file")),
        ("anchor_not_unique", Edit("delete", target="The question asks")),
        ("touches_front_matter", Edit("replace", target="name: order", content="name: else")),
        ("touches_front_matter", Edit("insert_after", target="always: false", content="task_type: other")),
        ("touches_frozen_section", Edit("replace", target="Never guess.", content="Guess.")),
        ("touches_frozen_section", Edit("insert_after", target="Never guess.", content="Or do.")),
        ("touches_frozen_section", Edit("replace", target="previous\n\n## Safety", content="previous")),
        ("touches_momentum_block", Edit("replace", target="looking twice", content="looking once")),
        ("touches_momentum_block", Edit("insert_after", target="Keep looking", content="More.")),
        ("touches_momentum_block", Edit("delete", target=MOMENTUM_END)),
        ("touches_momentum_block", Edit("append", content=f"{MOMENTUM_START}\nmine\n{MOMENTUM_END}")),
        ("code_fence_open", Edit("append", content="```python\nprint()")),
        ("too_long", Edit("append", content="word " * 2000)),
        ("changes_nothing", Edit("replace", target="The end.", content="The end.")),
    ],
)
def test_refused_with_its_reason_and_nothing_changes(reason, edit):
    assert refusal(edit) == reason


def test_a_file_cannot_be_emptied():
    body = "word " * 200
    assert refusal(Edit("delete", target=body), text=f"start {body}") == "too_short"


def test_short_files_may_grow_to_twice_the_floor():
    assert len(applied(Edit("append", content="x" * 700), text="short")) > 700
    assert refusal(Edit("append", content="x" * 800), text="short") == "too_long"


def test_a_heading_inside_a_code_fence_is_no_frozen_section():
    assert "now code" in applied(Edit("replace", target="code, not a heading", content="now code"))


def test_no_edit_may_hide_a_frozen_heading_in_a_code_fence():
    edit = Edit(
        "replace", target="Some prose", content="```\nSome prose"
    )  # the fence below would close this one
    assert refusal(edit) in ("touches_frozen_section", "code_fence_open")


def test_a_new_front_matter_cannot_be_made():
    edit = Edit("replace", target="plain", content="---\nalways: true\n---")
    assert refusal(edit, text="plain\ntext\n") == "touches_front_matter"


@pytest.mark.parametrize(
    "head", ["\n---\n{}\n---\n", "  \n---\n{}\n---\n", "----\n{}\n----\n", "\ufeff\n---\n{}\n---\n"]
)
@pytest.mark.parametrize("windows", [False, True])
def test_front_matter_is_protected_however_its_reader_finds_it(head, windows):
    text = head.format("name: order\nalways: false") + "\nSome text.\n"
    text = text.replace("\n", "\r\n") if windows else text
    for edit in (
        Edit("replace", target="always: false", content="always: true"),
        Edit("insert_after", target="always: false", content="task_type: other"),
        Edit("delete", target="name: order"),
    ):
        assert refusal(edit, text=text) == "touches_front_matter"
    assert "Any text." in applied(Edit("replace", target="Some text.", content="Any text."), text=text)


@pytest.mark.parametrize("fence", ["---", "----"])
def test_a_text_without_front_matter_is_given_none_behind_blank_lines(fence):
    edit = Edit("replace", target="plain", content=f"{fence}\nalways: true\n{fence}")
    assert refusal(edit, text="\n\nplain\ntext\n") == "touches_front_matter"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<!-- remark", "hides_lines"),
        ("```\n<!--\n```", "hides_lines"),
        ("## Other", "hides_lines"),
        ("<!--momentum:start-->", "touches_momentum_block"),
        ("<!-- momentum:end  -->", "touches_momentum_block"),
    ],
)
def test_no_edit_may_hide_the_lines_of_a_skill(content, reason):
    assert refusal(Edit("insert_after", target="## Where to look", content=content)) == reason


@pytest.mark.parametrize("content", ["````\n```\n````", "        ```", "<!-- remark -->", "```\n- code\n```"])
def test_closed_code_and_remarks_above_the_lines_leave_them_read(content):
    text = applied(Edit("insert_after", target="about the order", content=content))
    assert parse_lines(text) == parse_lines(SKILL)


def test_a_line_may_be_changed_or_dropped():
    line = "- The question asks what came before. -> search_previous"
    assert line not in applied(Edit("delete", target=line))
    assert "-> root" in applied(Edit("replace", target="search_previous", content="root"))


def test_a_momentum_block_is_protected_however_its_markers_are_spaced():
    text = SKILL.replace(MOMENTUM_START, "<!--momentum:start-->").replace(MOMENTUM_END, "<!--momentum:end-->")
    edit = Edit("replace", target="looking twice", content="looking once")
    assert refusal(edit, text=text) == "touches_momentum_block"


def test_appending_below_a_frozen_section_needs_a_heading_of_its_own():
    text = "# Title\n\n## Safety\n\nNever guess.\n"
    assert refusal(Edit("append", content="Or do."), text=text) == "touches_frozen_section"
    assert applied(Edit("append", content="## More\n\nOr do."), text=text).endswith("Or do.\n")


def test_line_ends_and_byte_order_mark_are_kept():
    text = "\ufeff" + SKILL.replace("\n", "\r\n")
    edits = [
        Edit("insert_after", target="came before. -> search_previous", content="  - one\n  - two"),
        Edit("replace", target="Order\n\nSome prose", content="Order\n\nAny prose"),
        Edit("append", content="last\nlines"),
    ]
    outcome = apply_edits(text, edits, budget=3, frozen=FROZEN)
    assert outcome.skipped == ()
    expected = apply_edits(SKILL, edits, budget=3, frozen=FROZEN).text
    assert outcome.text == "\ufeff" + expected.replace("\n", "\r\n")


def test_untouched_line_ends_of_a_mixed_file_stay_as_they_are():
    text = "one\r\ntwo\nthree\r\nfour\r\n"
    assert applied(Edit("replace", target="two", content="2"), text=text) == "one\r\n2\nthree\r\nfour\r\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Edit("append", content="- A  line"), Edit("insert_after", target="x", content="- a line\n"), True),
        (Edit("append", content="Look twice."), Edit("append", content="Look twice"), True),
        (Edit("append", content="Look twice."), Edit("append", content="- Look twice."), True),
        (Edit("append", content="Look twice."), Edit("replace", "x", content="x\nLook twice."), True),
        (Edit("append", content="Look twice."), Edit("replace", "x", content="Look twice."), False),
        (Edit("append", content="Look twice."), Edit("append", content="Look once."), False),
        (Edit("delete", target="x", content="a"), Edit("delete", target="x", content="b"), True),
        (Edit("replace", target="x", content="a"), Edit("replace", target="x", content="b"), False),
        (Edit("delete", target="x"), Edit("delete", target="y"), False),
    ],
)
def test_what_makes_two_edits_the_same_proposal(one, other, same):
    assert (edit_key(one) == edit_key(other)) == same


pieces = st.sampled_from(
    [
        "",
        "\n",
        "---\n",
        "name: order",
        "# Order",
        "Some prose",
        "Never guess.",
        "## Safety\n",
        "```\n",
        "~~~",
        MOMENTUM_START,
        MOMENTUM_END,
        "Keep looking twice.",
        "The end.",
        "-> search_next\n",
        "The question asks what came before.",
        "\r\n",
        "x" * 300,
        "<!-- momentum:",
        "start -->",
    ]
)
texts = st.lists(pieces, max_size=4).map("".join)
edits_of_all_kinds = st.builds(
    Edit, op=st.sampled_from(["append", "insert_after", "replace", "delete"]), target=texts, content=texts
)


def momentum_block(text):
    return text[text.index(MOMENTUM_START) : text.index(MOMENTUM_END)]


def safety_section(text):
    return text[text.index("\n## Safety\n\nNever") : text.index("## Notes")]


@given(st.lists(edits_of_all_kinds, max_size=5), st.integers(0, 4), st.booleans())
def test_no_edit_touches_what_is_protected(edits, budget, windows):
    text = SKILL.replace("\n", "\r\n") if windows else SKILL
    outcome = apply_edits(text, edits, budget=budget, frozen=FROZEN)
    result = outcome.text.replace("\r\n", "\n")
    assert frontmatter.loads(result).metadata == frontmatter.loads(SKILL).metadata
    assert momentum_block(result) == momentum_block(SKILL)
    assert result.count(MOMENTUM_START) == 1
    assert safety_section(result).rstrip() == safety_section(SKILL).rstrip()
    assert 0.3 * len(text) <= len(outcome.text) <= 2.0 * len(text)
    assert len(outcome.applied) <= budget
    assert len(outcome.applied) + len(outcome.skipped) == len(edits)
    if windows:
        assert "\n" not in outcome.text.replace("\r\n", "")
    else:
        assert "\r\n" not in outcome.text


@given(edits_of_all_kinds)
def test_a_refusal_is_idempotent(edit):
    once = apply_edits(SKILL, [edit], budget=1, frozen=FROZEN)
    if once.skipped:
        assert once.text == SKILL
        assert apply_edits(once.text, [edit], budget=1, frozen=FROZEN) == once


@given(st.text(), edits_of_all_kinds)
def test_any_text_and_edit_end_in_an_outcome(text, edit):
    outcome = apply_edits(text, [edit], budget=1)
    assert (outcome.text == text) == (not outcome.applied)


fence_pieces = st.sampled_from(["```", "````", "~~~", "`", "a", "b", "\n", "\n", "\n", " ", "    "])
fenced_texts = st.lists(fence_pieces, max_size=12).map("".join)


@given(fenced_texts, st.sampled_from(["append", "insert_after", "replace"]), fenced_texts)
def test_code_fences_are_closed_whatever_was_applied(text, op, content):
    outcome = apply_edits(text, [Edit(op, "" if op == "append" else "a", content)], budget=1)
    if outcome.applied:
        tokens = MarkdownIt().parse(outcome.text + "\n\nAFTER")
        assert not any(token.type == "fence" and "AFTER" in token.content for token in tokens)
