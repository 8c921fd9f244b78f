"""A question that exists is a usable one, and a refused one says which it is and what is wrong."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import made, made_number, made_text

from core.types import OPTION_LETTERS, Message, lettered_options

texts = st.text(min_size=1, max_size=20).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"question_id": " "}, "question_id"),
        ({"video_id": ""}, "video_id"),
        ({"task_type": "\t"}, "task_type"),
        ({"question": "\n"}, "question"),
        ({"options": ("alone",), "answer": "A"}, "options"),
        ({"options": ()}, "options"),
        ({"options": ("same", "same ")}, "options"),
        ({"options": ("A. red", "B. ")}, "options"),
        ({"options": tuple(map(str, range(27)))}, "options"),
        ({"answer": "E"}, "answer"),
        ({"answer": "b"}, "answer"),
        ({"answer": ""}, "answer"),
        ({"answer": "a hat"}, "answer"),
        ({"answer_kind": "number", "options": (), "answer": "three"}, "answer"),
        ({"answer_kind": "number", "options": (), "answer": "nan"}, "answer"),
        ({"answer_kind": "number", "options": (), "answer": "3\ninf"}, "answer"),
        ({"answer_kind": "text", "options": (), "answer": " "}, "answer"),
        ({"answer_kind": "text", "answer": "a hat"}, "options"),
    ],
)
def test_a_broken_rule_is_told_with_question_and_field(changes, field):
    with pytest.raises(ValueError, match=field) as refused:
        made(**changes)
    assert repr(changes.get("question_id", "q1")) in str(refused.value)


@pytest.mark.parametrize("changes", [{"options": "AB"}, {"answer_kind": "essay"}, {"color": "red"}])
def test_fields_of_wrong_type_or_name_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        made(**changes)


def test_questions_are_frozen_values():
    question = made()
    assert question == made()
    assert hash(question) == hash(made())
    with pytest.raises(dataclasses.FrozenInstanceError):
        question.answer = "A"


def test_text_and_number_questions_hold_several_references():
    assert made_text("a hat\nthe hat").answer.splitlines() == ["a hat", "the hat"]
    assert made_number("3\n4.5e2").answer.splitlines() == ["3", "4.5e2"]


@given(st.lists(texts, min_size=2, max_size=26, unique=True))
def test_written_letters_are_taken_and_cut_off(options):
    written = [f"{letter}. {option}" for letter, option in zip(OPTION_LETTERS, options, strict=False)]
    assert lettered_options(written) == dict(zip(OPTION_LETTERS, options, strict=False))


@given(st.lists(texts, min_size=2, max_size=26, unique=True))
def test_every_option_gets_a_letter_of_its_own(options):
    assert len(lettered_options(options)) == len(options)


def test_letters_count_only_when_every_option_has_one_of_its_own():
    assert lettered_options(["C: drive", "a floppy"]) == {"A": "C: drive", "B": "a floppy"}
    assert lettered_options(["A. one", "A. two"]) == {"A": "A. one", "B": "A. two"}
    assert lettered_options(["(B) last", "(A) second"]) == {"B": "last", "A": "second"}


@pytest.mark.parametrize(
    "options",
    [("J. Smith", "B. Jones", "A. Lee"), ("A.M.", "P.M."), ("C: drive", "D: drive"), ("U.S.A.", "F.B.I.")],
)
def test_initials_and_the_like_are_no_letters(options):
    assert list(lettered_options(options).values()) == list(options)
    assert made(options=options, answer="A").answer == "A"


def test_the_answer_may_be_any_written_letter_and_no_other():
    assert made(options=("B) last", "A) second"), answer="B").answer == "B"
    with pytest.raises(ValueError, match="answer: 'C'"):
        made(options=("B) last", "A) second"), answer="C")


def test_a_message_has_a_known_role():
    assert Message("user", "hello").content == "hello"
    with pytest.raises(ValueError, match="role: 'bot'"):
        Message("bot", "hello")
