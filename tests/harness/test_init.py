"""`harness init`: what it finds wrong, what it makes, and what it says the data can show."""

import json

import pytest
import yaml
from cli_runs import HARNESS, data_flags, make_world, run, write_data

from core.agent.skills import read_skills
from core.questions import load_benchmark
from harness.config import load_config
from harness.pools import build_pools, cut_of
from harness.store import read_version


@pytest.fixture
def folder(tmp_path):
    return write_data(tmp_path, make_world())


def init(folder, *arguments):
    return run(["init", "made", *data_flags(folder), *arguments], cwd=folder, program=HARNESS)


def break_two_items(folder):
    path = folder / "questions.json"
    questions = json.loads(path.read_text("utf-8"))
    questions[3]["answer"] = "Z"
    questions[70]["source_nodes"] = ["m99"]
    path.write_text(json.dumps(questions), encoding="utf-8")
    return questions


def skills_of(folder):
    files = read_version(folder / "made" / "store", "skills", "v1")
    return read_skills({name: text.decode() for name, text in files.items()}).skills


def test_two_broken_items_are_both_named_and_nothing_is_made(folder):
    break_two_items(folder)
    told = init(folder)
    assert (told.returncode, told.stdout) == (2, "")
    assert "2 problems, nothing was made" in told.stderr
    assert "item 4 (index 3)" in told.stderr
    assert "item 71 (index 70): source_nodes: 'm99'" in told.stderr
    assert not (folder / "made").exists()


def test_with_skip_broken_it_goes_on_with_the_rest(folder):
    questions = break_two_items(folder)
    told = init(folder, "--skip-broken")
    assert told.returncode == 0, told.stderr
    assert "148 questions of 18 videos" in told.stdout
    assert told.stdout.count("left out: ") == 2
    config = load_config(folder / "made" / "harness.yaml", cli={"mode": "train"}, environment={})
    broken = {questions[3]["question_id"], questions[70]["question_id"]}
    kept = {question.question_id for question in load_benchmark(folder / config.questions)}
    assert kept == {question["question_id"] for question in questions} - broken


def test_a_missing_and_a_broken_tree_are_named_with_the_questions_that_need_them(folder):
    (folder / "trees" / "sim-film-02.json").unlink()
    (folder / "trees" / "sim-film-05.json").write_text("{}", encoding="utf-8")
    told = init(folder)
    assert told.returncode == 2
    assert "no tree for video 'sim-film-02'" in told.stderr
    assert "sim-film-05.json" in told.stderr
    assert "questions of it)" in told.stderr


def test_what_is_written_is_a_configuration_that_cuts_these_questions(folder):
    assert init(folder).returncode == 0
    config = load_config(folder / "made" / "harness.yaml", cli={"mode": "train"}, environment={})
    questions = load_benchmark(folder / config.questions)
    assert config.n_task_types == 2
    pools = build_pools(questions, cut_of(config))
    assert sum(map(len, pools.ids().values())) == 150


def test_flags_and_file_are_kept_in_what_is_written(folder):
    (folder / "mine.yaml").write_text("epochs: 7\nval_size: 40\n", encoding="utf-8")
    told = init(folder, "--config", "mine.yaml", "--val-size", "44", "--agent", "local")
    assert told.returncode == 0, told.stderr
    written = yaml.safe_load((folder / "made" / "harness.yaml").read_text("utf-8"))
    assert (written["epochs"], written["val_size"], written["agent"]) == (7, 44, "local")


def test_places_named_in_a_dotenv_file_are_those_that_training_will_look_at(folder):
    (folder / ".env").write_text("HARNESS_STORE_DIR=elsewhere\n", encoding="utf-8")
    told = init(folder)
    assert told.returncode == 0, told.stderr
    assert (folder / "elsewhere" / "skills" / "v1").is_dir()


def test_a_type_with_too_few_questions_to_be_judged_on_gets_no_file_of_its_own(folder):
    path = folder / "questions.json"
    questions = json.loads(path.read_text("utf-8"))
    for question in questions[:12]:
        question["task_type"] = "rare"
    path.write_text(json.dumps(questions), encoding="utf-8")
    told = init(folder)
    assert told.returncode == 0, told.stderr
    assert {skill.task_type for skill in skills_of(folder)} == {"", "order", "content"}
    assert "default-strategy.md: " in told.stdout


def test_sixty_questions_of_eleven_types_are_told_what_they_can_show(folder):
    path = folder / "questions.json"
    questions = json.loads(path.read_text("utf-8"))[:60]
    for number, question in enumerate(questions):
        question["task_type"] = f"type-{number % 11}"
    path.write_text(json.dumps(questions), encoding="utf-8")
    told = init(folder)
    assert told.returncode == 0, told.stderr
    assert [skill.name for skill in skills_of(folder)] == ["default-strategy"]
    assert "60 questions" in told.stdout
    assert "default-strategy.md: " in told.stdout
    written = yaml.safe_load((folder / "made" / "harness.yaml").read_text("utf-8"))
    assert (written["n_task_types"], written["edit_budget_start"]) == (11, 1)


def test_too_few_questions_for_three_pools_say_so(folder):
    path = folder / "questions.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[:2]), encoding="utf-8")
    told = init(folder)
    assert told.returncode == 2
    assert "pools:" in told.stderr


def test_an_experiment_that_is_there_is_not_overwritten(folder):
    assert init(folder).returncode == 0
    before = (folder / "made" / "harness.yaml").read_text("utf-8")
    told = init(folder, "--epochs", "9")
    assert told.returncode == 1
    assert "exists" in told.stderr
    assert (folder / "made" / "harness.yaml").read_text("utf-8") == before


def test_answers_that_favour_a_letter_are_worth_a_word(folder):
    path = folder / "questions.json"
    questions = json.loads(path.read_text("utf-8"))
    for question in questions:
        right = question["options"]["ABCD".index(question["answer"])]
        others = [option for option in question["options"] if option != right]
        question |= {"options": [right, *others], "answer": "A"}
    path.write_text(json.dumps(questions), encoding="utf-8")
    assert "worth knowing: answer letters" in init(folder).stdout


def test_first_skills_are_the_plain_line_for_every_type(folder):
    assert init(folder).returncode == 0
    assert {skill.name for skill in skills_of(folder)} == {"order", "content", "default-strategy"}
    assert all("-> search_1" in skill.body for skill in skills_of(folder))
