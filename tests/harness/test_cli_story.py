"""One seeded run from the first command to the last: what each command says fits what the others said."""

import json

import frontmatter
import pytest
from cli_runs import build, data_flags, make_world, query, write_data
from training_runs import quick_disk

from harness.cli import main
from harness.workspace import load_manifest

SMALL = [
    *("--epochs", "1", "--run-id", "sim", "--seed", "4", "--batch-size", "20", "--concurrency", "4"),
    *("--val-size", "32", "--test-size", "24", "--gate-max-questions", "30"),
    *("--edit-budget-start", "1", "--edit-budget-end", "1"),
]


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder with data; what it tells machines."""
    write_data(tmp_path, make_world())
    monkeypatch.chdir(tmp_path)

    def command(name, *arguments, config=("--config", "harness.yaml")):
        with quick_disk():
            code = main([name, *arguments, *config, "--json"], build=build)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return json.loads(printed.out)

    command("init", ".", *data_flags(tmp_path), "--skills", "skills", *SMALL, config=())
    return command


def test_the_commands_of_one_run_agree_with_each_other(told, tmp_path):
    db = tmp_path / "workspace" / "harness.db"
    trained = told("train")
    assert (trained["status"], trained["run_id"]) == ("completed", "sim")
    best = load_manifest(tmp_path / "workspace").best
    assert best.skills != "v1"

    inferred = told("infer")
    assert query(db, "SELECT count(*) FROM predictions WHERE run_id = 'sim_infer'") == [(inferred["total"],)]

    evaluated = {version: told("eval", "--version", version) for version in ("v1", best.skills)}
    compared = told("compare", "v1", best.skills)
    (n,) = {one["total"] for one in evaluated.values()}
    assert (compared["comparison"]["n"], compared["pool"]) == (n, "validation")
    W, L = compared["comparison"]["W"], compared["comparison"]["L"]
    assert compared["comparison"]["difference"] == pytest.approx((W - L) / n)
    assert W + L > 0

    diagnosed = told("diagnose", "sim_e1_s0")
    wrong = "SELECT count(*) FROM predictions WHERE run_id = 'sim_e1_s0' AND correct = 0"
    assert query(db, wrong) == [(diagnosed["filter_summary"]["wrong"],)]

    promoted = told(
        "promote",
        *("--version", best.skills, "--eval-run-id", evaluated[best.skills]["run_id"], "--name", "good"),
    )
    assert promoted["skills_version"] == best.skills
    assert (tmp_path / "store" / "seeds" / "good").is_dir()

    exported = told("export", "agent-skills")
    assert exported["version"] == best.skills
    accepted = query(db, "SELECT payload FROM _events WHERE event_type = 'accepted' AND run_id = 'sim'")
    lines = [edit["content"] for (payload,) in accepted for edit in json.loads(payload)["applied"]]
    texts = [path.read_text("utf-8") for path in (tmp_path / "agent-skills").rglob("SKILL.md")]
    assert any(line in text for line in lines for text in texts)
    assert all({"name", "description"} == frontmatter.loads(text).keys() for text in texts)

    report = told("report")
    assert (report["run_id"], report["accepted"]) == ("sim", len(accepted))
