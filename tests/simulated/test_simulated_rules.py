"""Rules are read out of ordinary Markdown, and written so that they read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_worlds import make_world

from core.adapters.simulated_rules import Rule, RuleError, read_rules, render_rule
from core.agent.skills import parse_lines

words = st.text("abc xyz,.", min_size=1).map(str.strip).filter(bool)
rules = st.builds(
    Rule,
    name=st.sampled_from(["order", "order-2", "every", "two words"]),
    advice=words,
    effect=st.integers(-50_000, 50_000).map(lambda tenthousandths: tenthousandths / 10_000),
    difficulty=st.sampled_from(["", "easy", "medium", "hard"]),
)


@given(st.lists(rules, max_size=5, unique=True), st.sampled_from(["\n", "\r\n", "\n\nProse between.\n\n"]))
def test_rendered_rules_read_back_in_their_order_whatever_stands_between(written, between):
    text = "# A skill\n\n" + between.join(map(render_rule, written))
    assert read_rules(text) == tuple(written)
    assert parse_lines(text) == []


@given(rules)
def test_saying_the_same_twice_adds_nothing(rule):
    assert read_rules(f"{render_rule(rule)}\n  {render_rule(rule)}\n") == (rule,)


def test_a_rule_for_what_does_not_occur_moves_nothing():
    world = make_world()
    for rule in (Rule("music", "listen.", 2.0), Rule("order-9", "look.", 2.0)):
        assert world.population_accuracy(lambda _, rule=rule: render_rule(rule)) == pytest.approx(
            world.population_accuracy(lambda _: "")
        )


@pytest.mark.parametrize(
    "line",
    [
        "- In order questions: no name in quotes. (simulated effect +0.5)",
        "- In `order` questions: no number. (simulated effect much)",
        "In `order` questions: no list item. (simulated effect +0.5)",
        "- In `order` questions that are odd: no difficulty. (simulated effect +0.5)",
    ],
)
def test_a_line_marked_as_a_rule_that_is_none_is_an_error_naming_line_and_form(line):
    with pytest.raises(RuleError, match=r"line 3.*write it like"):
        read_rules(f"# A skill\n\n{line}\n")
