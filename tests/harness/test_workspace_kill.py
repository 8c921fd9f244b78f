"""A process killed at any moment leaves the old manifest or the new one, and whole copies behind them."""

import os

import pytest
from killed import ended_well, in_child, killed_at_every_moment, temporaries

from harness.store import VersionMeta, advance_version, init_store, read_files, read_version, write_files
from harness.workspace import (
    VersionPair,
    archive_workspace,
    init_workspace,
    load_manifest,
    record_run,
    resolve_paths,
    update_best,
    update_manifest,
    use_versions,
    workspace_lock,
)

V1, V2 = VersionPair("v1", "v1"), VersionPair("v2", "v1")


@pytest.fixture(autouse=True)
def quick_syncs(monkeypatch):
    """A kill, unlike a power cut, loses nothing that was written: a sync is a moment that does nothing."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def template(tmp_path):
    """A store with two versions of the skills, questions, and a workspace with the first version in force."""
    here = tmp_path / "template"
    here.mkdir()
    write_files(here / "skills", {"order.md": b"- old\n", "default-strategy.md": b"- Look.\n"})
    write_files(here / "prompts", {"system.md": b"You answer.\n"})
    init_store(here / "store", here / "skills", here / "prompts")
    (here / "skills" / "order.md").write_bytes(b"- new\n")
    advance_version(here / "store", "skills", here / "skills", VersionMeta(source="accept", parent="v1"))
    (here / "questions.jsonl").write_text("")
    init_workspace(here / "pilot", here / "store", V1, str(here / "questions.jsonl"))
    return here


def locked(action):
    """The action as a process does it: with the lock held."""

    def with_lock(place):
        with workspace_lock(place / "pilot"):
            action(place)

    return with_lock


def assert_whole(place):
    """The manifest can be read, and the versions that it has in force are those of the store."""
    manifest, paths = load_manifest(place / "pilot"), resolve_paths(place / "pilot", place / "store")
    assert read_files(paths.skills_dir) == read_version(place / "store", "skills", manifest.current.skills)
    assert read_files(paths.prompts_dir) == read_version(place / "store", "prompts", manifest.current.prompts)
    return manifest


def sweep(template, action):
    """Kills the action at every moment: the manifest is the old or the new, a repeated call finishes."""
    before = load_manifest(template / "pilot")
    outcomes = []
    for moment, place in killed_at_every_moment(template, locked(action)):
        left = assert_whole(place)
        locked(action)(place)
        assert temporaries(place) == [], f"killed at moment {moment}: something was left for good"
        outcomes.append((moment, left, assert_whole(place)))
    assert ended_well(in_child(lambda: locked(action)(template)))
    after = load_manifest(template / "pilot")
    assert before != after
    for moment, left, repeated in outcomes:
        assert left in (before, after), f"killed at moment {moment}"
        assert repeated == after, f"killed at moment {moment}"
    assert {left == after for _, left, _ in outcomes} == {False, True}, "the kills fell on one side only"


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(
            lambda place: update_manifest(place / "pilot", questions_ref="other"), id="update_manifest"
        ),
        pytest.param(lambda place: record_run(place / "pilot", "pilot_baseline"), id="record_run"),
        pytest.param(lambda place: update_best(place / "pilot", V1), id="update_best"),
        pytest.param(lambda place: use_versions(place / "pilot", place / "store", V2), id="use_versions"),
    ],
)
def test_kill_9_at_every_moment_of_a_manifest_write(template, action):
    sweep(template, action)


def begin(place):
    init_workspace(place / "second", place / "store", V2, str(place / "questions.jsonl"))


def test_kill_9_inside_init_workspace_leaves_all_or_nothing(template):
    seen = set()
    for moment, place in killed_at_every_moment(template, begin, stride=3):
        there = (place / "second").exists()
        seen.add(there)
        with workspace_lock(place / "second"):
            if not there:
                begin(place)
        assert load_manifest(place / "second").current == V2, moment
        assert read_files(place / "second" / "skills" / "v2") == read_version(
            place / "store", "skills", "v2"
        ), moment
        assert temporaries(place) == [], moment
    assert seen == {False, True}


def test_kill_9_inside_begin_anew_keeps_the_old_workspace_whole(template):
    """What `--fresh` does: archive, then begin. The old experiment is always there, under one name."""

    def anew(place):
        with workspace_lock(place / "pilot"):
            archive_workspace(place / "pilot")
            init_workspace(place / "pilot", place / "store", V2, str(place / "questions.jsonl"))

    old = read_files(template / "pilot")
    for moment, place in killed_at_every_moment(template, anew, stride=5):
        kept = [path for path in place.glob("pilot*") if read_files(path) == old]
        assert len(kept) == 1, f"killed at moment {moment}"
