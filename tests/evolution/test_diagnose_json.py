"""Reading JSON out of replies: whatever a model wraps around it, mends out, or is cut off in."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evolution import extract_json_from_response
from core.evolution.json_reply import MOST_CHARACTERS, UnreadableReplyError

EDITS = {"edits": [{"op": "append", "content": 'Look {twice} and say "done".'}]}
PLAIN = json.dumps(EDITS)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(min_size=1, max_size=5), json_values, min_size=1, max_size=4)


@pytest.mark.parametrize(
    "reply",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"```\n{json.dumps(EDITS, indent=2)}\n```\nI hope this helps.",
        f"As [noted] above {{see F1}}, and as in [1]:\n\n{PLAIN}\n\nThat is all {{really}}.",
        f'<think>Perhaps {{"edits": []}}? No.</think>\n{PLAIN}',
        PLAIN[:-1] + ",}",
        f"```json\n{PLAIN[:-1]},}}\n```\nSo far.",
        PLAIN.replace('"edits"', "'edits'"),
    ],
    ids=["plain", "fenced", "fenced, prose", "prose", "thought", "comma", "fenced comma", "single quotes"],
)
def test_the_value_is_found_whatever_stands_around_it(reply):
    assert extract_json_from_response(reply) == EDITS


@given(json_objects, st.sampled_from([None, 0, 2]))
def test_every_object_is_read_back_unchanged_from_a_fence_between_prose(value, indent):
    reply = f"Here it is:\n```json\n{json.dumps(value, indent=indent)}\n```\nDone."
    assert extract_json_from_response(reply) == value


def test_a_fence_or_a_brace_inside_a_string_is_text():
    value = {"content": "```python\nif x: {\n```\nand } then ] end"}
    assert extract_json_from_response(json.dumps(value)) == value
    sloppy = json.dumps(value).replace("\\n", "\n")
    assert extract_json_from_response(sloppy) == value


def test_quotes_that_were_not_escaped_are_mended():
    reply = '{"op": "append", "content": "When it says "no", look twice"}'
    assert extract_json_from_response(reply) == {"op": "append", "content": 'When it says "no", look twice'}


def test_of_two_arrays_the_first_counts():
    first, second = [{"op": "append"}], [{"op": "delete"}]
    assert extract_json_from_response(f"{json.dumps(first)}\n\nor\n\n{json.dumps(second)}") == first


def test_of_several_objects_the_one_with_a_wanted_key_counts():
    reply = 'For example {"op": 1}. My edits: {"edits": []}'
    assert extract_json_from_response(reply, keys=["edits"]) == {"edits": []}
    assert extract_json_from_response(reply, keys=["nothing"]) == {"op": 1}
    assert extract_json_from_response(reply) == {"op": 1}


@pytest.mark.parametrize(
    "prose",
    [
        "As in [1, p. 3] the file is weak.",
        "The cases ['F1' and 'F2'] fail.",
        "[-1 .. 3]",
        "See ['F1', [3, so]], [\"F2\" or] and [4 of 5].",
    ],
)
@pytest.mark.parametrize("keys", [(), ("edits",)])
def test_a_bracket_in_prose_hides_nothing_behind_it(prose, keys):
    assert extract_json_from_response(f"{prose}\n{PLAIN}", keys=keys) == EDITS
    assert extract_json_from_response(f"{prose}\n```json\n{PLAIN[:-1]},}}\n```", keys=keys) == EDITS


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ('{"completeness": 0.8, "hallucination": 0.', {"completeness": 0.8}),
        ('{"edits": [{"op": "append", "content": "A."}, {"op": "del', [{"op": "append", "content": "A."}]),
        ('{"edits": [{"op": "append", "content": "Half a sent', [{"op": "append"}]),
        ('{"edits": [{"op": "append", "content": "with, comma\\', [{"op": "append"}]),
        ('```json\n{"edits": [{"op": "append", "content": "A."}', [{"op": "append", "content": "A."}]),
    ],
)
def test_of_cut_json_only_what_was_said_to_its_end_is_kept(cut, kept):
    value = extract_json_from_response(cut)
    assert value.get("edits", value) == kept


@given(json_objects, st.data())
def test_a_cut_reply_brings_a_part_of_what_was_meant_or_an_error(value, data):
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        kept = extract_json_from_response(cut)
    except UnreadableReplyError:
        return
    assert_part(kept, value)


def assert_part(kept, meant):
    """Everything kept stands in what was meant; only containers may be shorter."""
    if isinstance(kept, dict):
        assert kept.keys() <= meant.keys()
        for key, item in kept.items():
            assert_part(item, meant[key])
    elif isinstance(kept, list):
        for item, other in zip(kept, meant, strict=False):
            assert_part(item, other)
    else:
        assert kept == meant


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("I have no edits.", "no JSON"),
        ("null", "no JSON"),
        ("[brackets] and {braces}", "no JSON"),
        ('{"a": "' + "x" * MOST_CHARACTERS + '"}', "characters"),
    ],
)
def test_a_reply_without_json_is_an_error_that_says_so(reply, told):
    with pytest.raises(UnreadableReplyError, match=told):
        extract_json_from_response(reply)


@given(st.text(alphabet='{}[]",: \\`\n1aé', max_size=60))
def test_nonsense_brings_a_value_or_the_one_error(reply):
    with contextlib.suppress(UnreadableReplyError):
        assert isinstance(extract_json_from_response(reply), dict | list)


@pytest.mark.parametrize("nonsense", ["[" * 50_000, '{"a":' * 20_000, "{'" * 5_000])
def test_deep_nesting_does_not_break_the_reader(nonsense):
    with contextlib.suppress(UnreadableReplyError):
        assert isinstance(extract_json_from_response(nonsense), dict | list)
