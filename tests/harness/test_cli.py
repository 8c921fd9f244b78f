"""The command line: every command, what it prints where, and with which code it ends."""

import json
import re

import frontmatter
import pytest
import yaml
from cli_runs import HARNESS, data_flags, make_world, query, run, write_data

from core.agent.skills import read_skills
from harness.arguments import flag, flags_of_fields
from harness.cli import COMMANDS, make_parser
from harness.config import field_facts

SMALL = ["--epochs", "1", "--run-id", "sim", "--batch-size", "20", "--concurrency", "4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with an experiment that was initialised and trained from the command line."""
    folder = write_data(tmp_path_factory.mktemp("cli"), make_world())
    made = run(["init", ".", *data_flags(folder), "--skills", "skills", *SMALL], cwd=folder)
    assert (made.returncode, made.stderr) == (0, made.stderr), made.stderr
    dry = run(["train", "--config", "harness.yaml", "--dry-run"], cwd=folder)
    left = sorted(path.name for path in folder.iterdir())
    done = run(["train", "--config", "harness.yaml", "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return {"folder": folder, "init": made, "dry": dry, "left_by_dry": left, "train": done}


def in_experiment(trained, *arguments):
    command, *rest = arguments
    return run([command, *rest, "--config", "harness.yaml"], cwd=trained["folder"])


def test_init_says_what_the_data_can_show_and_names_the_configuration(trained):
    assert "150 questions of 18 videos, 2 task types" in trained["init"].stdout
    assert re.search(r"order\.md: \d+ questions, ladder of \d+; accepts a gain of", trained["init"].stdout)
    assert "harness.yaml" in trained["init"].stdout


def test_dry_run_tells_the_plan_and_leaves_nothing_behind(trained):
    assert trained["dry"].returncode == 0
    assert re.search(r"all rollouts +\d+ expected +\d+ at most", trained["dry"].stdout)
    assert "workspace" not in trained["left_by_dry"]


def test_results_go_to_stdout_as_one_json_object_and_the_plan_to_stderr(trained):
    result = json.loads(trained["train"].stdout)
    assert (result["run_id"], result["status"], result["epochs"]) == ("sim", "completed", 1)
    assert "at most" in trained["train"].stderr


def test_flags_win_over_the_file(trained):
    given = yaml.safe_load((trained["folder"] / "harness.yaml").read_text("utf-8"))
    assert given["epochs"] == 1
    told = json.loads(in_experiment(trained, "train", "--dry-run", "--json", "--epochs", "3").stdout)
    assert told["epochs"] == 3


def test_a_trained_workspace_is_not_touched_without_a_flag(trained):
    refused = in_experiment(trained, "train")
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert "--fresh" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_resuming_a_finished_run_asks_nobody_again(trained):
    db_path = trained["folder"] / "workspace" / "harness.db"
    rows = query(db_path, "SELECT run_id, question_id, timestamp FROM predictions ORDER BY 1, 2")
    resumed = in_experiment(trained, "train", "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert query(db_path, "SELECT run_id, question_id, timestamp FROM predictions ORDER BY 1, 2") == rows


def test_resume_and_fresh_together_are_refused(trained):
    refused = in_experiment(trained, "train", "--resume", "--fresh")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_infer_leaves_the_sealed_test_pool_alone(trained):
    told = json.loads(in_experiment(trained, "infer", "--json", "--n-samples", "12").stdout)
    assert (told["run_id"], told["total"]) == ("sim_infer", 12)
    pools = json.loads((trained["folder"] / "workspace" / "pools.json").read_text("utf-8"))
    sql = "SELECT question_id FROM predictions WHERE run_id = 'sim_infer'"
    asked = {row[0] for row in query(trained["folder"] / "workspace" / "harness.db", sql)}
    assert not asked & set(pools["test"])


def test_eval_measures_a_version_and_records_it(trained):
    told = in_experiment(trained, "eval", "--version", "v1")
    assert told.returncode == 0, told.stderr
    assert re.match(r"sim_eval_v1: \d+ of \d+ right", told.stdout)
    sql = "SELECT skills_version FROM _runs WHERE run_id = 'sim_eval_v1'"
    assert query(trained["folder"] / "workspace" / "harness.db", sql) == [("v1",)]


@pytest.mark.parametrize("command", [["eval"], ["compare", "v1", "v1"]])
def test_the_test_pool_is_opened_only_when_told_to_and_that_is_recorded(trained, command):
    db_path = trained["folder"] / "workspace" / "harness.db"
    sql = "SELECT payload FROM _events WHERE event_type = 'unsealed'"
    refused = in_experiment(trained, *command, "--pool", "test")
    assert refused.returncode == 2
    assert "--unseal" in refused.stderr
    before = len(query(db_path, sql))
    opened = in_experiment(trained, *command, "--pool", "test", "--unseal")
    assert opened.returncode == 0, opened.stderr
    assert len(query(db_path, sql)) == before + 1


def test_compare_pairs_two_versions_on_validation(trained):
    told = json.loads(in_experiment(trained, "compare", "v1", "v1", "--json").stdout)
    assert (told["before"], told["after"], told["pool"]) == ("v1", "v1", "validation")
    assert told["comparison"]["n"] + told["comparison"]["missing"] > 0
    text = in_experiment(trained, "compare", "v1", "v1").stdout
    assert re.match(r"v1 \d+\.\d%, v1 \d+\.\d% of \d+ validation questions", text)


def test_a_version_that_is_not_there_is_told_in_words(trained):
    failed = in_experiment(trained, "compare", "v1", "v77")
    assert failed.returncode == 1
    assert "has no skills v77; it has v1" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_diagnose_looks_into_a_run(trained):
    told = in_experiment(trained, "diagnose", "sim_baseline")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("sim_baseline\nrollouts: ")


def test_promote_makes_a_seed_of_what_was_evaluated(trained):
    evaluated = in_experiment(trained, "eval", "--version", "v1")
    assert evaluated.returncode == 0, evaluated.stderr
    named = ["--version", "v1", "--eval-run-id", "sim_eval_v1", "--name", "first-seed"]
    told = json.loads(in_experiment(trained, "promote", *named, "--json").stdout)
    assert (told["name"], told["skills_version"]) == ("first-seed", "v1")
    assert (trained["folder"] / "store" / "seeds" / "first-seed").is_dir()
    told = in_experiment(
        trained, "train", "--start-from", "first-seed", "--workspace-dir", "second", "--run-id", "two"
    )
    assert told.returncode == 0, told.stderr
    copied = (
        "SELECT count(*) FROM predictions WHERE run_id = 'two_baseline' AND source_run_id = 'sim_eval_v1'"
    )
    assert query(trained["folder"] / "second" / "harness.db", copied)[0][0] > 0


def test_report_writes_one_page_and_tells_the_summary(trained):
    told = json.loads(in_experiment(trained, "report", "--output", "page.html", "--json").stdout)
    assert told["run_id"] == "sim"
    assert (trained["folder"] / "page.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_exported_skills_are_folders_with_name_and_description(trained):
    told = json.loads(in_experiment(trained, "export", "skills-out", "--json").stdout)
    manifest = json.loads((trained["folder"] / "workspace" / "manifest.json").read_text("utf-8"))
    assert told["version"] == manifest["best"]["skills"]
    version = trained["folder"] / "store" / "skills" / told["version"]
    trained_skills = read_skills({path.name: path.read_text("utf-8") for path in version.glob("*.md")}).skills
    assert {path.name for path in (trained["folder"] / "skills-out").iterdir()} == {
        s.name for s in trained_skills
    }
    for skill in trained_skills:
        head, body = frontmatter.parse(
            (trained["folder"] / "skills-out" / skill.name / "SKILL.md").read_text("utf-8")
        )
        assert head == {"name": skill.name, "description": skill.description}
        assert body.startswith(skill.body.strip())
    again = in_experiment(trained, "export", "skills-out")
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_every_field_of_the_configuration_is_a_flag_with_help(tmp_path):
    told = run(["train", "--help"], cwd=tmp_path, program=HARNESS)
    words = " ".join(told.stdout.split())
    assert told.returncode == 0
    missing = [
        name
        for name, facts in field_facts().items()
        if name != "mode" and (f"{flag(name)} " not in words or facts["help"].split()[0] not in words)
    ]
    assert missing == []


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_takes_every_field(command):
    own = {"compare": ["v1", "v2"], "diagnose": ["run"], "export": ["folder"]}.get(command, [])
    given = [f"{flag(name)}=x" for name, field in flags_of_fields().items() if field.type is not bool]
    found = vars(make_parser().parse_args([command, *own, *given]))
    assert {name for name in flags_of_fields() if found[name] == "x"} == {
        name for name, field in flags_of_fields().items() if field.type is not bool
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["train"], "workspace_dir: is empty, and mode train needs it"),
        (["train", "--epoch", "3"], "--epoch"),
        (["infer", "--epochs", "many"], "epochs: input should be a valid integer"),
        (["init"], "questions: is empty; name it with --questions"),
    ],
)
def test_a_bad_configuration_ends_with_2_and_names_the_field(arguments, words, tmp_path):
    told = run(arguments, cwd=tmp_path, program=HARNESS)
    assert (told.returncode, told.stdout) == (2, "")
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_a_misspelt_field_of_the_file_gets_the_nearest_name(tmp_path):
    (tmp_path / "bad.yaml").write_text("epoch: 3\nworkspace_dir: here\n", encoding="utf-8")
    told = run(["train", "--config", "bad.yaml"], cwd=tmp_path, program=HARNESS)
    assert told.returncode == 2
    assert "epoch: no such field; did you mean epochs?" in told.stderr


def test_works_on_a_console_without_utf8(tmp_path):
    folder = write_data(tmp_path, make_world())
    questions = json.loads((folder / "questions.json").read_text("utf-8"))
    for question in questions:
        question["task_type"] = {"order": "順序", "content": "çontent"}[question["task_type"]]
    (folder / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    made = run(["init", ".", *data_flags(folder), *SMALL], cwd=folder, program=HARNESS, variables=ascii_only)
    assert made.returncode == 0, made.stderr
    assert "\\u9806\\u5e8f" in made.stdout
    told = run(["train", "--config", "harness.yaml", "--dry-run", "--json"], cwd=folder, variables=ascii_only)
    assert told.returncode == 0, told.stderr
    types = {name for file in json.loads(told.stdout)["files"] for name in file["task_types"]}
    assert types == {"順序", "çontent"}
