"""Grades: what counts as the right answer of each kind, and that nothing an agent says can raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import made, made_number, made_text

from core.grading import (
    ChoiceGrader,
    Grade,
    Grader,
    NumberGrader,
    TextGrader,
    chosen_letter,
    fold_text,
    grader_for,
    read_number,
)
from core.types import lettered_options

RIGHT, WRONG = Grade(True, 1.0), Grade(False, 0.0)
QUESTIONS = [made(), made(options=("A. a tray", "B. a hat")), made_text("a red hat"), made_number("12")]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_answer_is_wrong_with_score_zero(question):
    assert grader_for(question.answer_kind).grade(question, None) == WRONG


@pytest.mark.parametrize("question", QUESTIONS)
@given(prediction=st.text() | st.from_regex(r"\(?[A-Z][.):] ?.*") | st.from_regex(r"[-+]?\d+[.,eE ]?\d*"))
def test_whatever_an_agent_says_gets_a_grade(question, prediction):
    grade = grader_for(question.answer_kind).grade(question, prediction)
    assert grade.score == float(grade.correct)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_reference_itself_is_right(question):
    assert grader_for(question.answer_kind).grade(question, question.answer) == RIGHT


def test_there_is_one_grader_for_each_kind():
    kinds = {kind: type(grader_for(kind)) for kind in ("choice", "text", "number")}
    assert kinds == {"choice": ChoiceGrader, "text": TextGrader, "number": NumberGrader}
    assert all(isinstance(grader_for(kind), Grader) for kind in kinds)
    with pytest.raises(ValueError, match="answer_kind: 'essay' is none of choice, text, number"):
        grader_for("essay")


@pytest.mark.parametrize(
    "prediction",
    [
        "B",
        "b",
        " B ",
        "(B)",
        "B.",
        "b)",
        "a hat",
        "A Hat.",
        " a  hat",
        "B. a hat",
        "(b) A HAT",
        "B: the hat it is",
    ],
)
def test_letter_text_or_both_name_an_option(prediction):
    assert ChoiceGrader().grade(made(), prediction) == RIGHT


@pytest.mark.parametrize(
    "prediction", ["", "A", "E", "a tray", "hat", "B. a tray", "A. a hat", "Bring it", "A, B", "BB", "𝟏"]
)
def test_another_option_none_or_a_contradiction_is_wrong(prediction):
    assert ChoiceGrader().grade(made(), prediction) == WRONG


@given(st.lists(st.text("ABCD. -5", min_size=1, max_size=4).filter(str.strip), min_size=2, max_size=6))
def test_a_letter_means_the_letter_whatever_the_texts_are(options):
    texts = lettered_options(options)
    if len(set(texts.values())) < len(texts) or not all(texts.values()):
        return
    for answer in texts:
        grades = {
            letter: ChoiceGrader().grade(made(options=options, answer=answer), letter) for letter in texts
        }
        assert [letter for letter, grade in grades.items() if grade.correct] == [answer]


@given(
    st.data(), st.lists(st.text(min_size=2, max_size=12).map(str.strip), min_size=2, max_size=6, unique=True)
)
def test_an_options_text_never_names_another_option(data, options):
    if any(len(option) < 2 for option in options):
        return
    texts = lettered_options(options)
    said = data.draw(st.sampled_from(sorted(texts)))
    right = [
        answer
        for answer in texts
        if ChoiceGrader().grade(made(options=options, answer=answer), texts[said]).correct
    ]
    assert right in ([said], [])


@pytest.mark.parametrize(
    ("options", "said", "letter"),
    [
        (("A. a red car", "B. a blue hat", "C. a cat"), "B. a blue  hat.", "B"),
        (("A. a red car", "B. a blue hat", "C. a cat"), "B. a red car", None),
        (("C: drive", "D: drive", "none", "A: drive"), "C: Drive.", "A"),
        (("C: drive", "D: drive", "none", "A: drive"), "C", "C"),
    ],
)
def test_the_letter_that_an_answer_means_can_be_asked_for(options, said, letter):
    assert chosen_letter(made(options=options, answer="A"), said) == letter


def test_options_that_differ_in_a_sign_or_in_case_stay_apart():
    signs = made(options=("-5", "5", "+5"), answer="A")
    assert ChoiceGrader().grade(signs, "-5") == RIGHT
    assert ChoiceGrader().grade(signs, "5") == WRONG
    case = made(options=("us", "US"), answer="A")
    assert ChoiceGrader().grade(case, "us") == RIGHT
    assert ChoiceGrader().grade(case, "US") == WRONG
    assert ChoiceGrader().grade(case, "Us") == WRONG


@pytest.mark.parametrize(
    "prediction", ["the baker's hat", "Baker’s HAT!", "  a bakers   hat ", "\u200fbaker's hat"]
)
def test_case_punctuation_articles_and_blanks_do_not_matter_in_text(prediction):
    assert TextGrader().grade(made_text("A baker's hat"), prediction) == RIGHT


@pytest.mark.parametrize("prediction", ["", " ", "hat", "a baker's red hat", "the"])
def test_other_text_is_wrong(prediction):
    assert TextGrader().grade(made_text("A baker's hat"), prediction) == WRONG


def test_any_of_the_references_will_do_and_blank_lines_are_none():
    question = made_text("the hat\r\n\r\na cap")
    assert [TextGrader().grade(question, said).correct for said in ("Hat", "cap", "", "the")] == [
        True,
        True,
        False,
        False,
    ]


def test_an_answer_that_is_an_article_or_a_sign_is_not_folded_away():
    assert TextGrader().grade(made_text("A"), "a") == RIGHT
    assert TextGrader().grade(made_text("A"), "the") == WRONG
    assert TextGrader().grade(made_text("?"), "!") == WRONG


def test_a_minus_before_a_number_is_no_punctuation():
    assert TextGrader().grade(made_text("-5"), "5") == WRONG
    assert TextGrader().grade(made_text("5"), "–5") == WRONG
    assert TextGrader().grade(made_text("-5"), "(−5)") == RIGHT
    assert TextGrader().grade(made_text("3-5"), "3–5") == RIGHT


@given(st.text())
def test_folding_twice_changes_nothing_more(text):
    assert fold_text(fold_text(text)) == fold_text(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), ("-5", -5), ("−5", -5), ("+.5", 0.5), ("1,234.5", 1234.5), ("1 234", 1234),
        ("12\u202f345\u202f678", 12345678), ("1e3", 1000), ("about 12 km.", 12),
        ("–1200", -1200), ("‑5", -5), ("－5", -5), ("the answer – 5", 5), ("12 m2", 12),
        ("$1,000", 1000), ("12%", 12), ("(7)", 7), ("٣", 3), ("2nd", 2),
    ],
)  # fmt: skip
def test_one_number_is_read_among_words_and_units(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "many",
        "nan",
        "inf",
        "1e999",
        "3,5",
        "1.234.567",
        "12,34",
        "3-5",
        "5 of 7",
        "m2",
        "v2.0",
        "3,5 or 7",
        "0x10",
        "1h30",
        "10x5",
        "1_000",
        "—5",
    ],
)
def test_no_number_several_or_an_unclear_one_is_not_guessed(text):
    assert read_number(text) is None
    assert NumberGrader().grade(made_number("3"), text) == WRONG


@given(st.integers(-(10**12), 10**12))
def test_numbers_are_read_with_and_without_thousands_separators(number):
    assert read_number(str(number)) == read_number(f"{number:,}") == number


@given(st.integers(-999, 999), st.integers(-2000, 2000))
def test_counts_below_a_thousand_are_exact(reference, said):
    assert NumberGrader().grade(made_number(str(reference)), str(said)).correct is (said == reference)


def test_tolerance_is_relative_to_the_reference():
    grader = NumberGrader(relative_tolerance=0.1)
    question = made_number("50\n1000")
    assert [grader.grade(question, said).correct for said in ("45", "55", "44", "1100", "1101", "0")] == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert grader.grade(made_number("0"), "0.0") == RIGHT
    assert grader.grade(made_number("0"), "0.001") == WRONG


@pytest.mark.parametrize("tolerance", [-0.1, 1, float("nan")])
def test_a_tolerance_that_means_nothing_is_refused(tolerance):
    with pytest.raises(ValueError, match="relative_tolerance"):
        NumberGrader(relative_tolerance=tolerance)


def test_an_own_grader_is_any_object_with_a_grade():
    class Lenient:
        def grade(self, question, prediction):
            return RIGHT

    assert isinstance(Lenient(), Grader)
    assert not isinstance(object(), Grader)
