"""What one attempt's answer is read as."""

import email.utils
import json

import pytest
from fault_server import completion
from hypothesis import given
from hypothesis import strategies as st

from core.adapters.attempts import Completion, Failure, read_reply, retry_after

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
replies = st.fixed_dictionaries(
    {},
    optional={
        "choices": json_values | st.lists(st.fixed_dictionaries({"message": json_values}), max_size=2),
        "usage": json_values,
        "model": json_values,
    },
)


@given(replies | json_values)
def test_any_json_is_a_completion_with_text_or_a_failure_that_is_tried_again(value):
    outcome = read_reply(json.dumps(value))
    assert (isinstance(outcome, Completion) and outcome.content.strip()) or outcome.transient


@given(st.text())
def test_any_text_is_read_without_an_exception(text):
    assert isinstance(read_reply(text), Completion | Failure)


@given(st.data())
def test_a_reply_cut_anywhere_is_a_failure(data):
    whole = json.dumps(completion("A reply with \u00e9, \U0001f3ac and {brackets}."))
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert isinstance(read_reply(whole), Completion)
    assert isinstance(read_reply(whole[:cut]), Failure)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_both_names_that_servers_use(name):
    message = {"role": "assistant", "content": "B", name: "It rains, so B."}
    reply = read_reply(json.dumps(completion("", choices=[{"message": message}])))
    assert (reply.content, reply.reasoning) == ("B", "It rains, so B.")


def test_a_message_that_reached_its_limit_while_thinking_is_no_fault():
    choice = {"message": {"content": "", "reasoning_content": "Let me see"}, "finish_reason": "length"}
    reply = read_reply(json.dumps(completion("", choices=[choice])))
    assert (reply.content, reply.finish_reason) == ("", "length")


def test_an_endpoint_that_does_not_count_gives_none_and_not_zero():
    reply = read_reply(json.dumps(completion("B", usage=None)))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": email.utils.formatdate(NOW + 90, usegmt=True)}, 90),
        ({"retry-after": email.utils.formatdate(NOW - 90, usegmt=True)}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({}, 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers, seconds):
    assert retry_after(headers, now=NOW) == seconds


@given(st.text())
def test_any_retry_after_is_a_wait_that_is_not_negative(text):
    assert retry_after({"retry-after": text}, now=NOW) >= 0
