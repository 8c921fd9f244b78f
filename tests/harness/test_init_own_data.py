"""`harness init` on a table and trees made by hand, of clips and talk that are unlike the demo's films.

As they lie there, one question and one tree are broken, as a person would break them: the text of the answer
stands where its letter should, and a child is mistyped.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest
from cli_runs import HARNESS, run

DATA = Path(__file__).parents[1] / "data" / "unseen"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True)
    return tmp_path


def init(folder, *arguments):
    flags = ["--questions", "questions.csv", "--trees-dir", "trees", "--agent", "local"]
    return run(["init", "made", *flags, *arguments], cwd=folder, program=HARNESS)


def replace(path, old, new):
    text = path.read_text("utf-8-sig")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def write_clips(folder, sizes):
    """A table with so many questions about each of some clips, and a tree for each."""
    tree = (DATA / "trees" / "harbour_cam.json").read_text("utf-8")
    (folder / "trees").mkdir()
    items = []
    for clip, size in enumerate(sizes):
        name = f"clip-{clip}"
        (folder / "trees" / f"{name}.json").write_text(tree.replace("harbour_cam", name), encoding="utf-8")
        for number in range(len(items), len(items) + size):
            question = {"question_id": f"q{number}", "video_id": name, "task_type": "step"}
            question |= {"question": f"What is number {number} of {name} about?", "answer": "AB"[number % 2]}
            items.append({**question, "options": json.dumps([f"tea {number}", f"rain {number}"])})
    with (folder / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(items[0]))
        table.writeheader()
        table.writerows(items)


def test_the_broken_question_and_the_broken_tree_are_told_by_file_item_and_mend(folder):
    told = init(folder)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.splitlines() == [
        "harness: questions.csv and its trees: 2 problems, nothing was made; mend, or go on without these "
        "items with --skip-broken:",
        "  - questions.csv: line 9: question 'ramen_stream_said1': answer: 'green stuff so mum is happy' is "
        "not the letter of an option (A, B, C, D); that is option D: write D",
        f"  - {Path('trees', 'dash_a7.json')}: node 'e3': its child 'm80' does not exist; node 'm08': has "
        "level 3 but is nobody's child (11 questions of it)",
    ]


def test_mended_as_told_all_questions_are_used(folder):
    replace(folder / "questions.csv", ",green stuff so mum is happy,", ",D,")
    replace(folder / "trees" / "dash_a7.json", '"m80"', '"m08"')
    told = init(folder)
    assert (told.returncode, told.stderr) == (0, "")
    assert "33 questions of 3 videos, 4 task types" in told.stdout
    assert "the proposer is a chat model" in told.stdout


def test_without_the_broken_items_the_others_are_used(folder):
    told = init(folder, "--skip-broken")
    assert told.returncode == 0, told.stderr
    assert "21 questions of 2 videos" in told.stdout


def test_a_table_with_its_own_column_names_is_told_once_and_not_for_every_row(folder):
    replace(folder / "questions.csv", "video_id,task_type", "clip,category")
    lines = init(folder).stderr.splitlines()
    assert "unknown fields 'clip', 'category'; rename them" in lines[1]
    assert [line.rpartition("line 2 and 32 more: ")[2] for line in lines[2:]] == [
        "video_id: is missing",
        "task_type: is missing",
    ]


def test_whole_videos_are_cut_so_that_most_are_left_to_learn_from(tmp_path):
    """Eleven questions of each of thirteen clips: a quarter is 35, for which four clips would be needed."""
    write_clips(tmp_path, [11] * 13)
    told = init(tmp_path)
    assert told.returncode == 0, told.stderr
    lines = [line.split() for line in told.stdout.splitlines()]
    assert ["step.md", "33", "33", "77", "step"] in lines
    assert "an interval over so few" not in told.stdout
    told = run(
        ["init", "other", "--config", "made/harness.yaml", "--test-size", "11", "--store-dir", "other/store"],
        cwd=tmp_path,
        program=HARNESS,
    )
    assert "worth knowing: test has 1 video: an interval over so few" in told.stdout


def test_some_long_and_many_short_videos_can_be_cut(tmp_path):
    """Five clips have eleven questions, four only one: three times eleven for two pools would be too many."""
    write_clips(tmp_path, [11] * 5 + [1] * 4)
    told = init(tmp_path)
    assert told.returncode == 0, told.stderr


def test_help_tells_what_questions_and_trees_look_like(tmp_path):
    told = run(["init", "--help"], cwd=tmp_path, program=HARNESS).stdout
    assert all(name in told for name in ("question_id", "options", "videoID", "time_range", "children_ids"))
