"""A process killed at any moment leaves whole versions and seeds or none; the next call finishes its work."""

import contextlib
import json
import os

import pytest
from killed import ended_well, in_child, killed_at_every_moment, temporaries

import harness.store
from harness.log import HarnessLog, open_for_reading
from harness.store import (
    MANIFEST,
    POOLS,
    RUN_DB,
    StoreError,
    VersionMeta,
    advance_version,
    init_store,
    list_seeds,
    list_versions,
    promote_to_seed,
    read_meta,
    read_seed,
    read_version,
    write_files,
    write_json_atomic,
)

OLD = {"order.md": b"- old line\n", "default-strategy.md": b"- Look around.\n"}
NEW = {**OLD, "order.md": b"- new line that is longer than the old one\n"}
KEY = "pilot/1/0/accept/order.md"


@pytest.fixture(autouse=True)
def quick_syncs(monkeypatch):
    """A kill, unlike a power cut, loses nothing that was written: a sync is a moment that does nothing."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def template(tmp_path):
    """A store with v1, a candidate folder beside it, and a workspace whose evaluation run measured v1."""
    here = tmp_path / "template"
    here.mkdir()
    for name, files in [("skills", OLD), ("prompts", {"system.md": b"You answer.\n"}), ("candidate", NEW)]:
        write_files(here / name, files)
    init_store(here / "store", here / "skills", here / "prompts")
    (here / "pilot").mkdir()
    write_json_atomic(here / "pilot" / MANIFEST, {"seed": None})
    ids = {pool: [pool] for pool in ("test", "validation", "diagnosis")}
    texts = {pool: f"text of {pool}" for pool in ids}
    write_json_atomic(here / "pilot" / POOLS, {"cut": {"split_seed": 7}, "texts": texts, **ids})
    with HarnessLog(here / "pilot" / RUN_DB, "pilot_eval_v1") as log:
        log.create_table(
            "predictions", {"question_id": "TEXT NOT NULL", "correct": "INTEGER"}, ["run_id", "question_id"]
        )
        log.insert_many("predictions", [{"question_id": "validation", "correct": 1}])
        log.set_run_versions("pilot_eval_v1", "v1", "v1", "questions")
    return here


def advance(place):
    meta = VersionMeta(source="accept", parent="v1", trigger_run="pilot_e1_s0")
    return advance_version(place / "store", "skills", place / "candidate", meta, key=KEY)


def promote(place):
    return promote_to_seed(place / "store", place / "pilot", "v1", "pilot_eval_v1", "after-pilot")


def rows(db_path):
    """All rows of all tables of a database, which must be undamaged."""
    with open_for_reading(db_path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: list(map(tuple, connection.execute(f"SELECT * FROM {name}"))) for name in tables}


def content(path):
    """What a file says, apart from when it was made."""
    if path.suffix == ".db":
        return rows(path)
    if path.suffix != ".json":
        return path.read_bytes()
    value = json.loads(path.read_text("utf-8"))
    return {key: part for key, part in value.items() if key != "created_at"}


def state(store):
    """All that anybody reads in a store. Equal states: nobody can tell the stores apart."""
    names = {path: path.relative_to(store) for path in store.rglob("*") if path.is_file()}
    read = {
        path: name for path, name in names.items() if not any(part.startswith(".") for part in name.parts)
    }
    return {name.as_posix(): content(path) for path, name in read.items()}


def assert_whole(store):
    """Every version and seed that the store lists is complete and unharmed."""
    for resource_type in ("skills", "prompts"):
        for version in list_versions(store, resource_type):
            assert read_meta(store, resource_type, version).version == version
            assert read_version(store, resource_type, version)
    for name in list_seeds(store):
        seed = read_seed(store, name)
        assert seed.lineage.trained_ids == ("diagnosis", "validation")
        assert rows(seed.db_path)["predictions"]
        assert json.loads(seed.pools_path.read_text("utf-8"))["cut"] == {"split_seed": 7}


def finished(template, action):
    """The state that an action reaches when nobody kills it."""
    assert ended_well(in_child(lambda: action(template)))
    return state(template / "store")


def outcome(place, action):
    """What a killed action left, and what it is after the action was called again."""
    store = place / "store"
    assert_whole(store)
    left = state(store)
    action(place)
    assert_whole(store)
    assert temporaries(store) == [], "something was left for good"
    return left, state(store)


def sweep(template, action):
    """Kills the action at every moment; checks what is left, and that calling it again finishes the job."""
    before = state(template / "store")
    outcomes = [
        (moment, *outcome(place, action)) for moment, place in killed_at_every_moment(template, action)
    ]
    after = finished(template, action)
    for moment, left, repeated in outcomes:
        assert left in (before, after), f"killed at moment {moment}: neither as before nor as after"
        assert repeated == after, f"killed at moment {moment}: the repeated call did not finish the job"
    done = [left == after for _, left, _ in outcomes]
    assert done == sorted(done), "once it is there, it stays there"
    assert set(done) == {False, True}, "the kills fell on one side only"


def test_kill_9_at_every_moment_of_advance_version(template):
    sweep(template, advance)


def test_kill_9_at_every_moment_of_promote_to_seed(template):
    sweep(template, promote)


def test_the_sweep_notices_a_store_that_writes_in_place(template, monkeypatch):
    monkeypatch.setattr(harness.store, "in_one_piece", contextlib.nullcontext)
    with pytest.raises((AssertionError, StoreError)):
        sweep(template, advance)


def test_kill_9_inside_init_store_is_finished_by_the_next_call(template):
    def begin(place):
        init_store(place / "another", place / "candidate", place / "prompts")

    for moment, place in killed_at_every_moment(template, begin, stride=5):
        begin(place)
        assert read_version(place / "another", "skills", "v1") == NEW, moment
        assert (
            list_versions(place / "another", "skills")
            == list_versions(place / "another", "prompts")
            == ["v1"]
        ), moment
        assert temporaries(place / "another") == [], moment
