"""Killed anywhere and resumed, a training run ends as one that was never killed; and asks nobody twice."""

import dataclasses
import json
import os
import signal
import sqlite3
from collections import Counter

import pytest
from killed import ended_well, in_child
from training_runs import (
    NOT_COMPARED,
    Asked,
    KeptModel,
    canonical_hash,
    canonical_state,
    canonical_table,
    differences,
    make_config,
    make_runner,
    make_world,
    query,
    quick_disk,
    tables_of,
    watched,
)

from core.adapters.simulated_edits import MIXED
from harness.config import RunConfig
from harness.training import Keeper

CONCURRENCY = 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder in which a run was never killed, and what it asked."""
    folder = tmp_path_factory.mktemp("never") / "run"
    asked = Asked(folder.parent / "asked.txt")
    result = trained(start(folder, asked))
    return folder, asked.scopes(), result


def start(folder, asked):
    """The runner of a new folder."""
    world = make_world(n_questions=120)
    sizes = {"val_size": 24, "test_size": 16, "momentum_samples": 6}
    config = make_config(folder, world, concurrency=CONCURRENCY, **sizes)
    (folder.parent / "config.json").write_text(json.dumps(dataclasses.asdict(config)), encoding="utf-8")
    return runner_of(config, asked)


def resumed(folder, asked):
    """The runner of a folder that another process has worked in."""
    return runner_of(RunConfig(**json.loads((folder.parent / "config.json").read_text("utf-8"))), asked)


def runner_of(config, asked):
    world = make_world(n_questions=120)
    return make_runner(config, world, agent=watched(world, asked), evolve_llm=world.evolver_llm(MIXED))


def trained(runner, **flags):
    with quick_disk():
        return runner.run(**flags)


def check_equal(never, folder):
    """The two folders hold the same."""
    one, other = canonical_state(never), canonical_state(folder)
    assert differences(one, other) == []
    assert canonical_hash(one) == canonical_hash(other)


def test_the_uninterrupted_run_has_something_to_lose(prepared):
    folder, asked, result = prepared
    events = Counter(row["event_type"] for row in query(folder, "SELECT event_type FROM _events"))
    assert result.status == "completed"
    assert {"accepted", "rejected", "probation_settled", "prompts_decided"} <= set(events)
    assert query(folder, "SELECT * FROM dual_metric WHERE phase = 'R2'")
    assert max(Counter(asked).values()) == 1


KILLED_IN = {
    "baseline": ("_baseline/", 40),
    "after step 1": ("_e1_s2/", 0),
    "a gate": ("_e1_s0_gate_order_cand_", 7),
    "the second epoch": ("_e2_s0", 3),
    "R": ("_e1_R/", 9),
    "momentum": ("_e1_mom_new/", 2),
    "R2": ("_e1_R2/", 9),
    "final test": ("_final_best/", 5),
}


@pytest.mark.parametrize("where", KILLED_IN)
def test_resumed_run_equals_uninterrupted_run(prepared, tmp_path, where):
    never, never_asked, _ = prepared
    scope, after = KILLED_IN[where]
    if not any(scope in one for one in never_asked):
        pytest.fail(f"the run never comes to {scope}")
    folder = tmp_path / "run"
    asked = Asked(tmp_path / "asked.txt", kill_at=scope, kill_after=after)
    assert not ended_well(in_child(lambda: trained(start(folder, asked))))
    before = asked.scopes()
    quiet = Asked(asked.path)
    assert ended_well(in_child(lambda: trained(resumed(folder, quiet), resume=True)))
    check_equal(never, folder)
    repeated = [one for one, times in Counter(quiet.scopes()).items() if times > 1]
    assert len(repeated) <= 2 * CONCURRENCY  # as many were running, and as many not yet on the disk
    assert set(quiet.scopes()) == set(never_asked)
    assert len(before) < len(never_asked)


def killed_around_save(number, *, saved):
    """Makes `Keeper.save` kill its process at the given save, before or after it has written."""
    real, left = Keeper.save, [number]

    def save(self, state):
        left[0] -= 1
        if left[0] == 0 and not saved:
            os.kill(os.getpid(), signal.SIGKILL)
        state = real(self, state)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return state

    Keeper.save = save


@pytest.mark.parametrize(("number", "saved"), [(1, True), (3, False), (9, False), (12, False)])
def test_resumed_run_equals_uninterrupted_run_when_killed_around_a_checkpoint(
    prepared, tmp_path, number, saved
):
    never, never_asked, _ = prepared
    folder, asked = tmp_path / "run", Asked(tmp_path / "asked.txt")

    def die():
        killed_around_save(number, saved=saved)
        trained(start(folder, asked))

    assert not ended_well(in_child(die))
    assert ended_well(in_child(lambda: trained(resumed(folder, asked), resume=True)))
    check_equal(never, folder)
    assert Counter(asked.scopes()) == Counter(never_asked)


def test_a_damaged_checkpoint_costs_nothing_but_the_way_back_to_the_one_before(prepared, tmp_path):
    never, never_asked, _ = prepared
    folder, asked = tmp_path / "run", Asked(tmp_path / "asked.txt", kill_at="_e2_s1/")
    assert not ended_well(in_child(lambda: trained(start(folder, asked))))
    checkpoint = folder / "experiment" / "checkpoint.json"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: len(content) // 2])
    quiet = Asked(asked.path)
    assert ended_well(in_child(lambda: trained(resumed(folder, quiet), resume=True)))
    check_equal(never, folder)
    assert Counter(quiet.scopes()) == Counter(never_asked)


def kept_run(folder, *, kill_at=""):
    """The calls that a run with kept models paid for, by scope; the run is killed and resumed if told to."""
    folder.parent.mkdir()
    asked = Asked(folder.parent / "asked.txt", kill_at=kill_at)
    survived = ended_well(in_child(lambda: trained(with_kept_models(start(folder, asked)))))
    assert survived != bool(kill_at)
    if not survived:
        quiet = Asked(asked.path)
        assert ended_well(in_child(lambda: trained(with_kept_models(resumed(folder, quiet)), resume=True)))
    return Counter((folder.parent / "calls.txt").read_text("utf-8").splitlines())


def test_no_call_of_a_model_that_was_answered_is_paid_again(tmp_path):
    calls = kept_run(tmp_path / "never" / "run")
    assert {scope.rpartition("/")[2] for scope in calls} == {"evolver", "judge"}
    for number, scope in enumerate(("_e1_s1_gate_", "_e1_mom_new/", "_e1_R2/")):
        folder = tmp_path / f"killed-{number}" / "run"
        assert kept_run(folder, kill_at=scope) == calls
        check_equal(tmp_path / "never" / "run", folder)


def with_kept_models(runner):
    """The runner with edits written by a chat model and rollouts judged by one, all kept in a journal."""
    world, folder = make_world(n_questions=120), runner.workspace_dir.parent.parent
    models = {"evolve_llm": world.evolver_llm(MIXED), "judge_llm": world.judge_llm()}
    kept = {role: KeptModel(model, folder) for role, model in models.items()}
    return make_runner(runner.config, world, agent=runner.players.agent_factory, proposer=None, **kept)


def test_the_hash_sees_every_cell_that_is_compared(prepared):
    folder, _, _ = prepared
    unseen = []
    with sqlite3.connect(folder / "experiment" / "harness.db") as connection:
        for table in tables_of(connection):
            before = canonical_table(connection, table, folder)
            left_out = NOT_COMPARED["*"] | NOT_COMPARED.get(table, set())
            for name in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} - left_out:
                connection.execute(
                    f"UPDATE {table} SET {name} = 'changed' WHERE rowid = (SELECT min(rowid) FROM {table})"
                )
                if before and canonical_table(connection, table, folder) == before:
                    unseen.append(f"{table}.{name}")
                connection.rollback()
    assert unseen == []
