"""Damage of a checkpoint is seen and told, and a kill at any moment leaves one that can be used."""

import dataclasses
import os

import pytest
from checkpoints import BEGUN, FIRST, FULL, FULL_STATE
from killed import killed_at_every_moment, temporaries

import harness.checkpoint
from harness.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointWarning,
    Fingerprints,
    load_checkpoint,
    previous_path,
    write_checkpoint,
)
from harness.store import remove_leftovers

SMALL = Checkpoint("pilot", Fingerprints({}, {}), BEGUN)
NAME = "checkpoint.json"


@pytest.fixture
def path(tmp_path):
    return tmp_path / NAME


@pytest.fixture
def two(path):
    """A newest checkpoint and the one before."""
    for checkpoint in (FIRST, FULL):
        write_checkpoint(path, checkpoint)
    return path


def assert_previous_is_used(path):
    with pytest.warns(CheckpointWarning, match=r"checkpoint\.json: .*going on from the one before"):
        assert load_checkpoint(path) == FIRST


# Damage


def test_every_flipped_byte_of_a_checkpoint_is_seen(path):
    write_checkpoint(path, SMALL)
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = content[place] ^ 1 << place % 8
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(path)


def test_every_truncation_of_a_checkpoint_is_seen(path):
    write_checkpoint(path, SMALL)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize("addition", [b" ", b"\n", b"\0", b"{}", b"\xff"])
def test_every_addition_to_a_checkpoint_is_seen(two, addition):
    content = two.read_bytes()
    for place in (0, len(content) // 2, len(content)):
        two.write_bytes(content[:place] + addition + content[place:])
        assert_previous_is_used(two)


def test_two_texts_exchanged_are_seen(two):
    two.write_bytes(two.read_bytes().replace(b'"v1"', b'"v9"', 1))
    assert_previous_is_used(two)


@pytest.mark.parametrize("step", range(0, 100, 9))
def test_the_previous_is_used_with_a_warning_wherever_the_damage_is(two, step):
    content = bytearray(two.read_bytes())
    content[len(content) * step // 100] ^= 0x10
    two.write_bytes(content)
    assert_previous_is_used(two)


def test_a_newest_that_is_gone_or_no_file_is_damage(two):
    two.unlink()
    assert_previous_is_used(two)
    two.mkdir()
    assert_previous_is_used(two)


def test_without_any_whole_checkpoint_nothing_is_begun_anew(two):
    for path in (two, previous_path(two)):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: is damaged.*\.prev: is damaged.*--fresh"):
        load_checkpoint(two)
    previous_path(two).unlink()
    with pytest.raises(CheckpointError, match=r"\.prev: could not be read"):
        load_checkpoint(two)
    two.unlink()
    previous_path(two).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: could not be read"):
        load_checkpoint(two)


@pytest.mark.filterwarnings("error")
def test_a_damaged_previous_does_no_harm_while_the_newest_is_whole(two):
    previous_path(two).write_bytes(b"\xff")
    assert load_checkpoint(two) == FULL


def test_a_damaged_newest_does_not_push_out_the_previous(two, monkeypatch):
    two.write_bytes(b"{}")
    real, written = harness.checkpoint.write_text_atomic, []

    def noted(path, text):
        written.append(path.name)
        real(path, text)

    monkeypatch.setattr(harness.checkpoint, "write_text_atomic", noted)
    write_checkpoint(two, SMALL)
    assert written == [NAME]
    assert load_checkpoint(two) == SMALL
    assert load_checkpoint(previous_path(two)) == FIRST


def test_writing_the_same_again_keeps_the_one_before(two):
    before = previous_path(two).read_bytes()
    write_checkpoint(two, FULL)
    assert previous_path(two).read_bytes() == before


# Kills

NEXT = dataclasses.replace(FULL, state=dataclasses.replace(FULL_STATE, step=2))


@pytest.fixture
def quick_syncs(monkeypatch):
    """A kill, unlike a power cut, loses nothing that was written: a sync is a moment that does nothing."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def sweep(template, action, states):
    """Kills an action at every moment. What is loaded is one of the states, ever later ones; called again,
    the action reaches the last, and the one before is kept."""
    reached = []
    for moment, place in killed_at_every_moment(template, action):
        loaded = load_checkpoint(place / NAME)
        assert loaded in states, f"killed at moment {moment}: neither old nor new"
        reached.append(states.index(loaded))
        action(place)
        assert load_checkpoint(place / NAME) == states[-1], moment
        assert load_checkpoint(previous_path(place / NAME)) == states[-2], moment
        remove_leftovers(place)
        assert temporaries(place) == [], moment
    assert reached == sorted(reached), "once it is there, it stays there"
    assert set(reached) == set(range(len(states))), "the kills missed a state"


@pytest.fixture
def folder(tmp_path):
    template = tmp_path / "run"
    template.mkdir()
    return template


@pytest.fixture
def with_two(folder):
    for checkpoint in (FIRST, FULL):
        write_checkpoint(folder / NAME, checkpoint)
    return folder


def write_next(place):
    write_checkpoint(place / NAME, NEXT)


def begin(place):
    for checkpoint in (FIRST, FULL):
        write_checkpoint(place / NAME, checkpoint)


@pytest.mark.filterwarnings("error")
def test_kill_9_at_every_moment_of_a_write_leaves_the_old_or_the_new(with_two, quick_syncs):
    sweep(with_two, write_next, [FULL, NEXT])


@pytest.mark.filterwarnings("error")
def test_kill_9_at_every_moment_of_the_first_writes_leaves_nothing_or_a_whole_one(folder, quick_syncs):
    sweep(folder, begin, [None, FIRST, FULL])


@pytest.mark.filterwarnings("error")
def test_the_sweep_notices_a_checkpoint_that_is_written_in_place(with_two, quick_syncs, monkeypatch):
    def in_place(path, text):
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(text)

    monkeypatch.setattr(harness.checkpoint, "write_text_atomic", in_place)
    with pytest.raises((AssertionError, CheckpointError, CheckpointWarning)):
        sweep(with_two, write_next, [FULL, NEXT])
