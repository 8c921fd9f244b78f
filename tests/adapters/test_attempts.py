"""What one attempt's answer is read as."""

import email.utils
import json

import pytest
from fault_server import completion
from hypothesis import given
from hypothesis import strategies as st

from core.adapters.attempts import MOST_TOKENS, Completion, Failure, read_reply, retry_after

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


@pytest.mark.parametrize(
    "odd", [-5, int("9" * 40), 3.5, "n/a", True, [], {"a": 1}, float("nan"), float("inf"), MOST_TOKENS + 1]
)
def test_a_count_that_cannot_be_one_is_missing_and_costs_no_reply(odd):
    usage = {"prompt_tokens": odd, "completion_tokens": 0}
    reply = read_reply(json.dumps(completion("B", usage=usage)))
    assert (reply.content, reply.prompt_tokens, reply.completion_tokens) == ("B", None, 0)


def test_a_count_written_as_a_whole_fraction_is_a_count():
    assert read_reply(json.dumps(completion("B", usage={"prompt_tokens": 12.0}))).prompt_tokens == 12


@pytest.mark.parametrize("changes", [{"model": None}, {"model": 3}, {"usage": "n/a"}, {"usage": [1]}])
def test_what_is_odd_beside_the_message_costs_no_reply(changes):
    assert read_reply(json.dumps(completion("B", **changes))).content == "B"


@pytest.mark.parametrize("reason", [None, 1, {"type": "stop"}])
def test_a_finish_reason_that_is_no_text_costs_no_reply(reason):
    choice = {"message": {"content": "B"}, "finish_reason": reason}
    assert read_reply(json.dumps(completion("", choices=[choice]))).finish_reason == ""


def test_a_message_in_parts_is_the_texts_of_its_parts():
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "B, "},
        {"type": "text", "text": "so."},
    ]
    assert read_reply(json.dumps(completion(parts))).content == "B, so."
    assert read_reply(json.dumps(completion([]))).transient


def test_a_refusal_is_what_the_model_says_and_not_asked_for_again():
    choice = {"message": {"content": None, "refusal": "I cannot say."}, "finish_reason": "stop"}
    assert read_reply(json.dumps(completion("", choices=[choice]))).content == "I cannot say."


@pytest.mark.parametrize("content", [None, ""])
def test_a_reply_that_a_filter_emptied_is_not_asked_for_again(content):
    choice = {"message": {"content": content}, "finish_reason": "content_filter"}
    reply = read_reply(json.dumps(completion("", choices=[choice])))
    assert (reply.content, reply.finish_reason) == ("", "content_filter")


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
