"""Every outcome of training in seeded runs of a simulated world, each proved by rows and not by words."""

import asyncio
import dataclasses
import json
from collections import Counter

import pytest
from training_runs import make_config, make_runner, make_world, query, quick_disk

from core.adapters.simulated_edits import MIXED
from harness.store import read_meta, read_version
from harness.workspace import load_manifest

STORE = "store"


def train(folder, seed, **changes):
    """The result of a seeded run in a new folder."""
    world = make_world(seed)
    config = make_config(folder, world, seed=seed, **changes)
    with quick_disk():
        return make_runner(config, world, evolve_llm=world.evolver_llm(MIXED)).run()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of one run in which nearly everything happens."""
    folder = tmp_path_factory.mktemp("seed-4") / "run"
    train(folder, 4)
    return folder


def events(folder, event_type, decision=None):
    """Rows of `_events` of a type, with the payload read; those of a decision if one is given."""
    rows = query(folder, "SELECT * FROM _events WHERE event_type = ? ORDER BY id", event_type)
    read = [{**row, **json.loads(row["payload"])} for row in rows]
    return [row for row in read if decision in (None, row.get("decision"))]


def answers(folder, run_id):
    """Question id -> whether a run answered it right."""
    sql = "SELECT question_id, correct FROM predictions WHERE run_id = ? AND correct IS NOT NULL"
    return {row["question_id"]: row["correct"] for row in query(folder, sql, run_id)}


def improved_and_regressed(before, after):
    pairs = Counter((before[name], after[name]) for name in before.keys() & after.keys())
    return pairs[0, 1], pairs[1, 0]


def skills(folder, version):
    return read_version(folder / STORE, "skills", version)


def test_an_accept_is_a_version_with_pairs_that_speak_for_it(run):
    accepted = events(run, "accepted")
    assert accepted
    for event in accepted:
        pairs = query(
            run,
            "SELECT quadrant, count(*) AS n FROM quadrant_pairs"
            " WHERE epoch = ? AND step = ? AND target_file = ? GROUP BY quadrant",
            *(event[name] for name in ("epoch", "step", "target")),
        )
        counts = {row["quadrant"]: row["n"] for row in pairs}
        assert counts["improved"] == event["improved"] > event["regressed"] == counts.get("regressed", 0)
        (last,) = query(
            run,
            "SELECT verdict FROM gate_evidence WHERE epoch = ? AND step = ? AND target_file = ?"
            " ORDER BY block DESC LIMIT 1",
            *(event[name] for name in ("epoch", "step", "target")),
        )
        assert last["verdict"] == event["decision"]
        meta = read_meta(run / STORE, "skills", event["result_version"])
        assert (meta.parent, meta.source) == (event["source_version"], "accept")
        changed = skills(run, event["result_version"]).items() - skills(run, meta.parent).items()
        assert [name for name, _ in changed] == [event["target"]]


def test_a_second_accept_joins_the_probation_of_its_file(run):
    (joined,) = [event for event in events(run, "probation_settled") if len(event["accepted_versions"]) > 1]
    made = [
        event["result_version"] for event in events(run, "accepted") if event["target"] == joined["target"]
    ]
    assert joined["accepted_versions"] == made[:2]
    assert read_meta(run / STORE, "skills", made[0]).parent == joined["base_version"]


def test_a_rollback_is_what_the_rows_of_r_say_and_takes_back_one_file(run):
    (rolled_back,) = events(run, "probation_settled", "rolled_back")
    assert rolled_back["W"] < rolled_back["L"]
    meta = read_meta(run / STORE, "skills", rolled_back["result_version"])
    assert (meta.source, meta.trigger_run) == ("rollback", f"sim_e{rolled_back['epoch']}_R")
    now, before = (skills(run, rolled_back[name]) for name in ("result_version", "base_version"))
    target = rolled_back["target"]
    assert now[target] == before[target] != skills(run, meta.parent)[target]
    types = {one.task_type for one in make_world(4).questions if f"{one.task_type}.md" == target}
    of_file = {one.question_id for one in make_world(4).questions if one.task_type in types}
    # The base version was measured by R2 of the epoch before; the version taken back by this R.
    base, measured = answers(run, "sim_e1_R2"), answers(run, meta.trigger_run)
    found = improved_and_regressed(
        *({name: right for name, right in side.items() if name in of_file} for side in (base, measured))
    )
    assert found == (rolled_back["W"], rolled_back["L"])


@pytest.mark.parametrize("decision", ["kept", "reverted"])
def test_r2_is_kept_or_taken_back_and_the_next_run_has_that_pair(run, decision):
    (decided,) = events(run, "prompts_decided", decision)
    epoch = decided["epoch"]
    (r2,) = query(run, "SELECT * FROM dual_metric WHERE phase = 'R2' AND epoch = ?", epoch)
    assert (r2["skills_version"], r2["prompts_version"]) == tuple(decided["measured"].values())
    path = run / "experiment" / "runs" / "sim" / "reports" / f"epoch_e{epoch}.json"
    report = json.loads(path.read_text("utf-8"))
    in_force = {"skills": report["skills_version"], "prompts": report["prompts_version"]}
    assert in_force == decided["measured" if decision == "kept" else "before"]
    assert (decided["comparison"]["P"] >= decided["slow_tau"]) == (decision == "kept")


def test_the_first_r2_was_kept_on_the_pairs_of_r_and_r2(run):
    (decided,) = events(run, "prompts_decided", "kept")
    found = improved_and_regressed(answers(run, "sim_e1_R"), answers(run, "sim_e1_R2"))
    assert found == (decided["comparison"]["W"], decided["comparison"]["L"])


def test_the_best_pair_is_delivered_although_it_was_not_the_last(run):
    path = run / "experiment" / "runs" / "sim" / "reports" / "epoch_e2.json"
    last = json.loads(path.read_text("utf-8"))
    manifest = load_manifest(run / "experiment")
    best = events(run, "best_changed")[-1]
    assert (manifest.best.skills, manifest.best.prompts) == (best["skills"], best["prompts"])
    assert manifest.current == manifest.best
    assert manifest.best.skills != last["skills_version"]
    (final,) = query(run, "SELECT skills_version, prompts_version FROM _runs WHERE run_id = 'sim_final_best'")
    assert tuple(final.values()) == (best["skills"], best["prompts"])


def test_every_row_of_a_test_question_was_written_by_the_final_test_after_all_others(run):
    pools = json.loads((run / "experiment" / "pools.json").read_text("utf-8"))
    rows = query(run, "SELECT rowid, run_id, question_id FROM predictions")
    sealed = [row for row in rows if row["question_id"] in set(pools["test"])]
    assert {row["run_id"] for row in sealed} == {"sim_final_best", "sim_final_baseline"}
    assert len(sealed) == 2 * len(pools["test"])
    assert min(row["rowid"] for row in sealed) > max(row["rowid"] for row in rows if row not in sealed)
    traced = query(run, "SELECT DISTINCT run_id, question_id FROM traces")
    named = {row["run_id"] for row in traced if row["question_id"] in set(pools["test"])}
    assert named == {"sim_final_best", "sim_final_baseline"}
    assert query(run, "SELECT * FROM _events WHERE event_type = 'unsealed'") == []
    asked_before = {row["question_id"] for row in rows if row not in sealed}
    assert asked_before == set(pools["validation"]) | set(pools["diagnosis"])


def test_a_run_without_a_new_best_stops_early(tmp_path):
    folder = tmp_path / "run"
    stopped = train(folder, 6, epochs=4, early_stop_patience=4)
    steps = query(
        folder, "SELECT DISTINCT run_id FROM predictions WHERE run_id GLOB 'sim_e[0-9]_s[0-9]' ORDER BY 1"
    )
    epochs = Counter(row["run_id"][:6] for row in steps)
    assert (stopped.status, stopped.epochs, stopped.steps) == ("completed", 2, len(steps))
    assert list(epochs) == ["sim_e1", "sim_e2"]
    assert epochs["sim_e1"] < 4 <= stopped.steps  # judged after a slow update, counted in steps
    assert events(folder, "best_changed") == []
    assert query(folder, "SELECT run_id FROM _runs WHERE run_id GLOB 'sim_e3*'") == []


def test_a_run_whose_budget_is_spent_says_where_and_goes_on_to_the_same_end(tmp_path, run):
    folder = tmp_path / "run"
    world = make_world(4)
    with quick_disk():
        config = make_config(folder, world, seed=4, max_rollouts=400)
        given = {"evolve_llm": world.evolver_llm(MIXED)}
        ended = make_runner(config, world, **given).run()
        assert ended.status == "budget_exhausted"
        (event,) = events(folder, "budget_exhausted")
        assert "max_rollouts" in event["reason"]
        assert query(folder, "SELECT count(*) AS n FROM predictions") == [{"n": 400}]
        larger = dataclasses.replace(config, max_rollouts=0)
        asyncio.run(make_runner(larger, world, **given).train(resume=True))
    sql = "SELECT run_id, question_id, correct FROM predictions ORDER BY 1, 2"
    assert query(folder, sql) == query(run, sql)
    assert load_manifest(folder / "experiment").current == load_manifest(run / "experiment").current
