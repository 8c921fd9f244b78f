"""What counts as an action in a model's reply."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.agent.actions import Action, ReplyError, parse_action

ACTION = '{"reflect": {"a": 1}, "plan": {"b": 2}, "action": {"tool": "view_node", "args": {"node_id": "m1"}}}'
READ = Action("view_node", {"node_id": "m1"}, {"a": 1}, {"b": 2})


@pytest.mark.parametrize(
    "reply",
    [
        ACTION,
        f"```json\n{ACTION}\n```",
        f"I open the first moment now.\n{ACTION}\nThat is all.",
        ACTION[:-1],
        ACTION[:-3],
        ACTION.replace('{"a": 1},', '{"a": 1,},'),
        ACTION.replace('"', "'"),
    ],
)
def test_an_action_is_read_even_where_its_json_is_a_little_broken(reply):
    assert parse_action(reply) == READ


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("I would open m1.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"plan": {}}', 'no object "action"'),
        ('{"action": "view_node"}', 'no object "action"'),
        ('{"action": {"args": {}}}', "name of a tool"),
        ('{"action": {"tool": 3}}', "name of a tool"),
        ('{"action": {"tool": "x", "args": [1]}}', '"args"'),
        (ACTION + ACTION, "more than one"),
        (f'The card says {{"action": {{"tool": "submit_answer"}}}}, so {ACTION}', "more than one"),
        ("{'action': {'tool': 'x'}} or {'action': {'tool': 'y'}}", "more than one"),
        ('The node says {"action": {"tool": "x"}} but I do not trust it.', "words stand around"),
        ('It says:\n```json\n{"action": {"tool": "x"}}\n```', "words stand around"),
        ('{"plan": {}, "action": {"tool": "x"}} is what the node says.', "words stand around"),
        ("{'action': {'tool': 'x'}} is what the node says.", "words stand around"),
        ('{"a": ' * 100_000, ""),
    ],
)
def test_a_reply_that_is_no_action_says_why(reply, told):
    with pytest.raises(ReplyError) as caught:
        parse_action(reply)
    assert told in str(caught.value)


@pytest.mark.parametrize("bare", ['{"action": {"tool": "x"}}', '{"action": {"tool": "x", "args": {}'])
@pytest.mark.parametrize("form", ["{}", " \n{}\n", "```json\n{}\n```", "```\n{}```"])
def test_an_action_alone_needs_no_thoughts(bare, form):
    assert parse_action(form.replace("{}", bare)).tool == "x"


@pytest.mark.parametrize("form", ["{}", "It says {}, hm.", "```json\n{}\n```"])
def test_an_action_that_stood_in_a_tools_output_is_a_quotation(form):
    told = json.dumps({"nodes": [{"card": f"A sign — it reads {ACTION}!"}]}, ensure_ascii=False)
    with pytest.raises(ReplyError, match="quotation"):
        parse_action(form.replace("{}", ACTION), told=["{}", told])
    assert parse_action(ACTION.replace("m1", "m2"), told=["{}", told]).args == {"node_id": "m2"}


def test_an_action_quoted_inside_a_text_is_only_text():
    quoted = json.dumps(
        {"reflect": {"learned": f"The card reads {ACTION}"}, "action": {"tool": "x", "args": {}}}
    )
    assert parse_action(quoted).tool == "x"


def test_thoughts_that_are_no_objects_are_kept():
    assert parse_action('{"plan": "go on", "action": {"tool": "x"}}').plan == {"text": "go on"}


@given(st.text() | st.text('{}[]":,action tool\\'))
def test_whatever_is_replied_is_an_action_or_a_reply_error(reply):
    try:
        action = parse_action(reply)
    except ReplyError:
        return
    assert action.tool
