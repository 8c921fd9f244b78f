"""The data checker: each check finds what it is for, and says nothing of sound data."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import item, made, made_number, made_text

from core.questions.__main__ import main
from core.questions.check import (
    check_data,
    check_duplicates,
    check_lengths,
    check_letters,
    check_standing_out,
    table,
)
from core.questions.duplicates import NearDuplicate, near_duplicates, question_digest
from core.types import GeneratedQuestion

ANIMALS = ["goat", "horse", "sparrow", "rabbit", "salmon", "beetle", "donkey", "lizard"]
PLACES = ["harbour", "attic", "bakery", "station", "orchard", "cellar", "theatre", "quarry"]
TREE = {
    "videoID": "film",
    "duration_seconds": 60,
    "nodes": {
        "L1_1": {"level": 1, "time_range": [0, 60], "children_ids": ["L2_1"]},
        "L2_1": {"level": 2, "time_range": [0, 60], "children_ids": ["L3_01"]},
        "L3_01": {"level": 3, "time_range": [0, 60], "card": "A goat eats a hat."},
    },
}


def sound_items():
    """Eight questions unlike one another, options of equal length, each letter the answer twice."""
    return [
        item(
            question_id=f"q{number}",
            question=f"Which of these does the {animal} find behind the {place}, and why just there?",
            options=[f"{place[:5]} {thing}" for thing in ("cup", "hat", "key", "map")],
            answer="ABCD"[number % 4],
            source_nodes=["L3_01"],
        )
        for number, (animal, place) in enumerate(zip(ANIMALS, PLACES, strict=True))
    ]


def write_data(folder, items, tree=TREE):
    (folder / "questions").mkdir()
    (folder / "questions" / "film.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / "trees").mkdir()
    (folder / "trees" / "film.json").write_text(json.dumps(tree), encoding="utf-8")
    return folder


def failing(findings):
    return {finding.name: finding.problems for finding in findings if not finding.holds}


def test_sound_data_passes_with_exit_code_zero(tmp_path, capsys):
    assert main(["check", str(write_data(tmp_path, sound_items()))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "holds", "measured"]
    assert len(lines) == 7
    assert all(" yes " in line for line in lines[1:])


def test_questions_may_be_one_file_beside_the_trees(tmp_path):
    folder = write_data(tmp_path, sound_items())
    (folder / "questions" / "film.json").rename(folder / "questions.json")
    (folder / "questions").rmdir()
    assert failing(check_data(folder)) == {}


def test_an_unknown_source_node_is_named_with_the_nearest(tmp_path, capsys):
    items = sound_items()
    items[2]["source_nodes"] = ["L3_01", "L3_1"]
    assert main(["check", str(write_data(tmp_path, items))]) == 1
    assert "q2: 'L3_1' is no node of 'film'; did you mean 'L3_01'?" in capsys.readouterr().out


def test_a_video_without_a_tree_and_a_broken_tree_are_told(tmp_path):
    items = sound_items()
    items[0]["video_id"] = "flim"
    [problem] = failing(check_data(write_data(tmp_path, items)))["source nodes"]
    assert "no tree for video 'flim'" in problem
    (tmp_path / "trees" / "flim.json").write_text("{")
    [problem] = failing(check_data(tmp_path))["source nodes"]
    assert "flim.json" in problem


def test_a_folder_without_trees_is_told(tmp_path):
    folder = write_data(tmp_path, sound_items())
    (folder / "trees" / "film.json").unlink()
    (folder / "trees").rmdir()
    assert "no such folder of trees" in failing(check_data(folder))["source nodes"][0]


def test_unreadable_questions_are_the_only_finding(tmp_path, capsys):
    items = [item(answer="E"), item(question_id="q2", task_type=" ")]
    assert main(["check", str(write_data(tmp_path, items))]) == 1
    told = capsys.readouterr().out
    assert "item 1 (index 0): question 'q1': answer" in told
    assert "item 2 (index 1): question 'q2': task_type is blank" in told


@pytest.mark.parametrize("names", [[], ["questions.json", "questions.csv"]])
def test_no_questions_or_two_lots_of_them_are_told(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    [finding] = check_data(tmp_path)
    assert not finding.holds
    assert "one `questions` folder or file is expected" in finding.problems[0]


@pytest.mark.parametrize("arguments", [[], ["chekc", "x"], ["check"]])
def test_a_mistyped_command_exits_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: python -m core.questions" in capsys.readouterr().err


def test_it_runs_as_a_module_on_a_console_without_utf8(tmp_path):
    items = sound_items()
    items[0]["source_nodes"] = ["🐐"]
    command = [sys.executable, "-m", "core.questions", "check", str(write_data(tmp_path, items))]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 1
    assert r"q0: '\U0001f410' is no node of 'film'" in ended.stdout
    assert "Traceback" not in ended.stderr


def answered(letters):
    return [made(question_id=f"q{number}", answer=letter) for number, letter in enumerate(letters)]


@given(st.integers(1, 50))
def test_letters_in_equal_numbers_are_balanced(times):
    assert check_letters(answered("ABCD" * times)).holds


@pytest.mark.parametrize("letters", ["A" * 8, "ABC" * 20, "ABCD" * 5 + "A" * 12])
def test_a_letter_too_often_or_never_is_told(letters):
    finding = check_letters(answered(letters))
    assert not finding.holds
    assert {problem[0] for problem in finding.problems} <= {"A", "D"}


def test_chance_counts_each_questions_own_number_of_options():
    pairs = [
        made(question_id=f"p{n}", options=["yes it is", "no it is"], answer="AB"[n % 2]) for n in range(40)
    ]
    assert check_letters(answered("ABCD" * 10) + pairs).holds


def with_options(number, options, answer):
    return made(question_id=f"q{number}", options=options, answer=answer)


def test_always_taking_the_longest_option_must_not_pay():
    options = ["a cup of tea", "a hat", "a key", "a map"]
    assert "longest" in check_lengths([with_options(n, options, "A") for n in range(12)]).problems[0]
    assert check_lengths([with_options(n, options, "ABCD"[n % 4]) for n in range(12)]).holds


@pytest.mark.parametrize(
    ("answer", "stands_out"),
    [
        ("a tall man who carries a ladder", True),
        ("a man with a dog", False),
        ("ten", False),
        ("a", False),
    ],
)
def test_one_answer_much_longer_than_the_others_is_told(answer, stands_out):
    finding = check_standing_out([with_options(1, [answer, "a brown cow", "a red hat", "a goat"], "A")])
    assert finding.holds is not stands_out


def test_one_answer_much_shorter_than_the_others_is_told():
    options = ["a cup", "a tall man who climbs", "the goat in the attic", "a letter in the sand"]
    assert check_standing_out([with_options(1, options, "A")]).problems[0].startswith("q1: its answer has 5")


def test_checks_of_options_pass_over_questions_without_any():
    questions = [made_text("a hat"), made_text("a goat", question_id="q2")]
    assert all(check(questions).holds for check in (check_letters, check_lengths, check_standing_out))


def test_many_problems_are_told_briefly():
    finding = check_duplicates([made(question_id=f"q{number}") for number in range(9)])
    assert table([finding]).endswith(f"... and {len(finding.problems) - 10} more")


def test_the_same_question_with_options_in_another_order_is_a_duplicate():
    first = made(options=["a tray", "a hat", "a goat"], answer="B")
    second = made(
        question_id="q2", question="What does the BAKER drop", options=["a goat", "a tray", "a hat"]
    )
    assert near_duplicates([second, first]) == [NearDuplicate("q1", "q2", 1.0)]
    assert not check_duplicates([first, second]).holds


def test_one_question_of_two_films_with_other_options_is_none():
    first = made(
        options=["the sea at dawn", "a burning house", "two men on a bench"], question="What is seen first?"
    )
    other = made(
        question_id="q2",
        options=["a street in the rain", "the old clock", "a dog asleep"],
        question=first.question,
    )
    assert near_duplicates([first, other]) == []


def test_equal_wording_about_different_films_is_a_duplicate_only_where_it_has_one_answer():
    first, other = (made(question_id=f"q{n}", video_id=f"film{n}") for n in (1, 2))
    assert near_duplicates([first, other]) == [NearDuplicate("q1", "q2", 1.0)]
    third = made(question_id="q3", video_id="film3", answer="C")
    assert near_duplicates([first, other, third]) == []
    assert near_duplicates([first, made(question_id="q4", video_id="film1", answer="C")]) != []
    ask = "How many people can be seen in the film from its beginning to its end?"
    numbers = [made_number(n, question_id=f"n{n}", video_id=f"film{n}", question=ask) for n in "12"]
    assert near_duplicates(numbers) == []


def test_a_question_is_known_by_film_and_wording_whatever_its_id_and_the_order_of_its_options():
    first = made(options=["a tray", "a hat", "a goat"], answer="B")
    same = made(
        question_id="film/001", question=" what does the BAKER drop", options=["a goat", "a tray", "a hat"]
    )
    assert question_digest(first) == question_digest(same)
    for other in ({"video_id": "other"}, {"question": "Who drops it?"}, {"options": ["a tray", "a hat"]}):
        changed = made(**{"options": ["a tray", "a hat", "a goat"], "answer": "B", **other})
        assert question_digest(changed) != question_digest(first)


def brute_force(questions, threshold):
    def shingles(question: GeneratedQuestion):
        texts = [question.question, *(question.options or (question.answer,))]
        padded = [f" {' '.join(text.split())} " for text in texts]
        return {text[start : start + 3] for text in padded for start in range(max(1, len(text) - 2))}

    sets = {question.question_id: shingles(question) for question in questions}
    return [
        (first, second)
        for first in sorted(sets)
        for second in sorted(sets)
        if first < second and len(sets[first] & sets[second]) >= threshold * len(sets[first] | sets[second])
    ]


@given(
    st.lists(st.text("xyz ", min_size=1, max_size=30).filter(str.strip), max_size=12),
    st.sampled_from([0.5, 0.6, 0.75, 0.85, 1.0]),
)
def test_near_duplicates_are_those_that_comparing_all_pairs_finds(texts, threshold):
    questions = [
        made_text("yx", question_id=f"q{number:02}", question=text) for number, text in enumerate(texts)
    ]
    found = near_duplicates(questions, threshold=threshold)
    assert [(pair.first, pair.second) for pair in found] == brute_force(questions, threshold)


@pytest.mark.parametrize("threshold", [0, -1, 1.1])
def test_a_threshold_that_means_nothing_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates([], threshold=threshold)
