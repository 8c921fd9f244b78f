"""The leak guard: nothing of a case pack gets into a skill."""

import dataclasses

import pytest
from case_packs import case, pack
from hypothesis import given
from hypothesis import strategies as st

from core.evolution.leak_guard import COMMON_WORDS, LeakGuard
from core.evolution.types import Edit, SystemCasePack, ToolCasePack

QUESTION = "What does the old miller hide behind the broken wheel at dusk?"
TRACE = {
    "thought": "I should look near the mill.",
    "output": '{"card": "A lantern swings over the empty quay."}',
}
PACK = pack([case("film-1-q07", QUESTION, trace=[TRACE])])
GUARD = LeakGuard.for_pack(PACK)


@pytest.mark.parametrize(
    ("content", "copied"),
    [
        ("Think of the old miller hide behind things.", "the old miller hide behind"),
        ("MILLER, hide -- behind the 'broken' wheel!", "miller hide behind the broken"),
        ("Often it is a red tin car.", "a red tin car"),
        ("Often it is a_red_tin_car.", "a red tin car"),
        ("Often it is ａ ｒｅｄ ｔｉｎ ｃａｒ.", "a red tin car"),
        ("Often it is a red t\u00adin c\u200bar.", "a red tin car"),
        ("Answer: the Mayor\u2019s hat", "the mayor's hat"),
        ("As in film-1-q07, look twice.", "film-1-q07"),
        ("A lantern swings over the quay", "a lantern swings over the"),
    ],
)
def test_copies_are_found(content, copied):
    assert GUARD.copied(content).casefold().replace("\u2019", "'") == copied


@pytest.mark.parametrize(
    "content",
    [
        "The old miller hides things.",
        "Search for the object, then read the moment before it.",
        "A red car, a tin hat.",
        "film-1-q077 and xfilm-1-q07 are other ids",
        "",
    ],
)
def test_what_copies_less_is_let_through(content):
    assert GUARD.copied(content) is None


def test_common_phrases_are_nobodys():
    guard = LeakGuard.for_pack(
        pack([case("q1x", "What happens right before the end of the film?", ("A. yes", "B. 3", "C. none"))])
    )
    assert (
        guard.copied("The question asks what happens right before the end of the film: 3, yes or none.")
        is None
    )


def test_what_the_file_said_before_is_not_news():
    known = "Beware of the old miller hide behind tricks."
    guard = LeakGuard.for_pack(PACK, known=known)
    assert guard.copied("Really beware of the old miller hide behind tricks.") is None
    assert guard.copied("Beware: hide behind the broken wheel") is not None


def test_reference_answers_count_as_options():
    guard = LeakGuard.for_pack(pack([case("q1x", "Which city?", (), answer="Port Amalia\nAmalia harbour")]))
    assert guard.copied("It is mostly Amalia Harbour.") == "amalia harbour"


def test_ids_of_the_whole_batch_are_guarded():
    guarded = dataclasses.replace(PACK, evidence_ids=("film-1-q07", "film-9-q01"))
    assert LeakGuard.for_pack(guarded).copied("see FILM-9-Q01") == "FILM-9-Q01"


def test_a_short_number_is_no_id():
    guard = LeakGuard.for_pack(pack([case("12", "Why?"), case("2024117", "Why?")]))
    assert guard.copied("Open the best 12 hits.") is None
    assert guard.copied("As in 2024117.") == "2024117"


def test_scripts_without_spaces_are_compared_by_characters():
    guard = LeakGuard.for_pack(
        pack([case("q1x", "老磨坊主在黄昏时把钥匙藏在哪里?", ("A. 车轮后面", "B. 井里"))])
    )
    assert guard.copied("记住老磨坊主在黄昏时把钥匙藏好") is not None
    assert guard.copied("多半在车轮后面") is not None
    assert guard.copied("先看黄昏时的场景") is None


def test_packs_of_all_kinds_are_guarded():
    cases = (case("film-1-q07", QUESTION),)
    system = SystemCasePack(stats={}, failure_cases=cases, success_cases=())
    span = {"question_id": "film-2-q01", "args": {"query": "the mule that ate the blue letter"}}
    tool = ToolCasePack("search_similar", ("search.md",), {}, (span,), ())
    assert LeakGuard.for_pack(system).copied(QUESTION) is not None
    assert LeakGuard.for_pack(tool).copied("mule that ate the blue things") is not None
    assert LeakGuard.for_pack(tool).copied("film-2-q01") is not None


def test_edits_are_parted_and_the_refusal_says_what_was_copied():
    good, bad = Edit("append", content="Look twice."), Edit("append", content=QUESTION)
    kept, refused = GUARD.judge([bad, good])
    assert kept == (good,)
    assert refused[0].edit == bad
    assert refused[0].reason == "copies_training_data"
    assert "miller" in refused[0].detail


uncommon = st.text("bcdfgh", min_size=6, max_size=8).filter(lambda word: word not in COMMON_WORDS)


@given(
    st.lists(uncommon, min_size=5, max_size=9, unique=True), st.integers(0, 4), st.lists(uncommon, max_size=3)
)
def test_five_words_in_a_row_are_always_found_and_four_never(words, start, around):
    guard = LeakGuard.for_pack(pack([case("film-1-q07", " ".join(words))]))
    start = min(start, len(words) - 5)
    alien = [f"{word}zz" for word in around]
    assert guard.copied(" ".join([*alien, *words[start : start + 5], *alien])) is not None
    assert guard.copied(" ".join([*alien, *words[start : start + 4], "zz", *alien])) is None
