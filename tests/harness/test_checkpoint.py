"""A checkpoint comes back as it was, or tells why not."""

import dataclasses
import json
import os

import pytest
from checkpoints import BEGUN, CASE, FINGERPRINTS, FIRST, FULL, FULL_STATE, PROBATION, REJECTED, checkpoints
from hypothesis import given, settings

import core.files
import harness.checkpoint
from core.evolution.types import CaseSample, RejectedEdit, SystemCasePack
from harness.checkpoint import (
    CheckpointError,
    CheckpointWarning,
    Spent,
    TrainState,
    check_fingerprints,
    deserialize,
    fingerprints_of,
    load_checkpoint,
    previous_path,
    serialize,
    write_checkpoint,
)
from harness.config import ConfigError, RunConfig, field_facts
from harness.store import StoreError
from harness.validate import Probation, SnapshotRow
from harness.workspace import VersionPair


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.json"


def through_json(checkpoint):
    return deserialize(json.loads(json.dumps(serialize(checkpoint), allow_nan=False)))


def with_state(**changes):
    return dataclasses.replace(FIRST, state=dataclasses.replace(BEGUN, **changes))


# There and back


@settings(max_examples=80)
@given(checkpoints)
def test_serialize_deserialize_roundtrip(checkpoint):
    assert through_json(checkpoint) == checkpoint


@settings(max_examples=25)
@given(first=checkpoints, second=checkpoints)
def test_what_was_written_is_what_is_read(first, second, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "checkpoint.json"
    for checkpoint in (first, second, second):
        write_checkpoint(path, checkpoint)
        assert load_checkpoint(path) == checkpoint
    if first != second:
        assert load_checkpoint(previous_path(path)) == first


def test_the_full_example_differs_from_a_beginning_in_every_field():
    same = [
        field.name
        for field in dataclasses.fields(TrainState)
        if getattr(FULL_STATE, field.name) == getattr(BEGUN, field.name)
    ]
    assert same == ["baseline_skills_version", "baseline_prompts_version"]
    assert through_json(FULL) == FULL


def test_serialize_set_to_sorted_list():
    stored = serialize(FULL)["state"]["changed_task_types_this_epoch"]
    assert stored == ["content", "frame", "order"]
    back = through_json(FULL).state.changed_task_types_this_epoch
    assert (type(back), back) == (frozenset, {"order", "content", "frame"})


def test_equal_states_give_equal_bytes_whatever_the_order_of_a_set(path):
    for number, names in enumerate((["a", "b", "c"], ["c", "b", "a"])):
        write_checkpoint(
            path.with_name(f"{number}"), with_state(changed_task_types_this_epoch=frozenset(names))
        )
    assert path.with_name("0").read_bytes() == path.with_name("1").read_bytes()


def test_deserialize_nested_system_pack():
    pack = through_json(FULL).state.system_packs[0]
    assert type(pack) is SystemCasePack
    assert type(pack.failure_cases[0]) is CaseSample
    assert pack.failure_cases == (CASE,)
    assert type(pack.failure_cases[0].options) is tuple


def test_deserialize_nested_probation():
    probation = through_json(FULL).state.probations["order.md"]
    assert type(probation) is Probation
    assert type(probation.pending_edits[0]) is RejectedEdit
    assert type(probation.validation["q8"]) is SnapshotRow
    assert probation == PROBATION
    assert probation.pending_edits == (REJECTED,)


def test_a_state_is_frozen():
    for value in (FULL, FULL_STATE, FULL_STATE.best, FULL_STATE.spent):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "other")
    assert FULL_STATE.current == VersionPair("v3", "v2")


# Nothing is made up


def places(value, place=()):
    """The place of every key in nested dictionaries and lists, except in free mappings."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield (*place, name)
            yield from places(part, (*place, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places(part, (*place, number))


FREE = ("structural", "decision", "correctness", "gate_cooldown", "gate_epoch_observed", "probations")
FREE += ("validation", "diagnosis", "stats", "metrics", "trace", "failure_spans", "success_spans")


def in_free_mapping(place):
    """Whether the last part is a key of somebody's own, not a field."""
    holders = [part for part in place[:-1] if not isinstance(part, int)]
    return bool(holders) and (
        holders[-1] in FREE or any(part in ("stats", "metrics", "trace") for part in holders)
    )


FIELDS = [place for place in places(serialize(FULL)) if not in_free_mapping(place)]


def changed(place, change):
    """The stored full checkpoint with `change` applied to the dictionary that holds `place`."""
    stored = serialize(FULL)
    holder = stored
    for part in place[:-1]:
        holder = holder[part]
    change(holder, place[-1])
    return stored


def test_every_field_is_among_those_that_are_tried():
    tried = {place[-1] for place in FIELDS}
    kinds = (TrainState, Probation, SnapshotRow, RejectedEdit, CaseSample, Spent)
    assert {field.name for kind in kinds for field in dataclasses.fields(kind)} <= tried


@pytest.mark.parametrize("place", FIELDS, ids=lambda place: ".".join(map(str, place)))
def test_deserialize_missing_key_raises(place):
    stored = changed(place, lambda holder, name: holder.pop(name))
    with pytest.raises(KeyError, match=rf"\.{place[-1]} is missing"):
        deserialize(stored)


@pytest.mark.parametrize(
    "place", [(), ("state",), ("state", "spent"), ("state", "rejected_buffer", 0, "edit")]
)
def test_a_key_that_is_not_known_is_named(place):
    stored = changed((*place, "mood"), lambda holder, name: holder.update({name: "good"}))
    with pytest.raises(ValueError, match="mood is unknown"):
        deserialize(stored)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("state", "epoch"), "two"),
        (("state", "epoch"), "2"),
        (("state", "phase"), "lunch"),
        (("state", "correctness", "q1"), None),
        (("state", "best"), []),
        (("state", "batches", 0), "q1"),
        (("state", "rejected_buffer", 0, "edit", "op"), "rewrite"),
    ],
)
def test_a_value_of_another_kind_is_named(place, value):
    stored = changed(
        place,
        lambda holder, name: (
            holder.update({name: value}) if isinstance(holder, dict) else holder.__setitem__(name, value)
        ),
    )
    with pytest.raises(ValueError, match=place[1]):
        deserialize(stored)


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "lunch"},
        {"correctness": {"q1": None}},
        {"step": "one"},
        {"best": ("v1", "v1")},
        {"eval_prev_acc": float("nan")},
        {"spent": Spent(cost=float("inf"))},
        {"system_packs": (SystemCasePack({"odd": object()}, (), ()),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_state_that_could_not_be_read_back_is_not_written(path, changes):
    write_checkpoint(path, FULL)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: could not be written"):
        write_checkpoint(path, with_state(**changes))
    assert load_checkpoint(path) == FULL
    assert not previous_path(path).exists()


def test_half_a_character_of_a_reply_comes_back(path):
    checkpoint = with_state(
        tool_packs=(dataclasses.replace(FULL_STATE.tool_packs[0], stats={"x": "\ud83d é"}),)
    )
    write_checkpoint(path, checkpoint)
    assert load_checkpoint(path) == checkpoint
    assert "é" in path.read_text("utf-8")


def test_a_checkpoint_is_one_json_object_that_keeps_other_scripts(path):
    write_checkpoint(path, FULL)
    assert json.loads(path.read_text("utf-8"))["checkpoint"] == serialize(FULL)
    assert "华尔兹" in path.read_text("utf-8")


# The file


def test_write_checkpoint_atomic(path, monkeypatch):
    """The new file is complete and on disk before it takes the old one's place, in one move."""
    write_checkpoint(path, FIRST)
    happened = []
    real = {name: getattr(os, name) for name in ("replace", "fsync")}

    def replace(source, target):
        assert load_checkpoint(path) == FIRST
        assert str(source).endswith(".tmp")
        happened.append(("replace", os.path.basename(target)))
        real["replace"](source, target)

    def fsync(descriptor):
        happened.append(("fsync", ""))
        real["fsync"](descriptor)

    monkeypatch.setattr(core.files.os, "replace", replace)
    monkeypatch.setattr(core.files.os, "fsync", fsync)
    write_checkpoint(path, FULL)
    moves = [target for what, target in happened if what == "replace"]
    assert moves == ["checkpoint.json.prev", "checkpoint.json"]
    assert [what for what, _ in happened] == ["fsync", "replace", "fsync"] * 2
    assert sorted(path.parent.iterdir()) == [path, previous_path(path)]


def test_a_failed_write_leaves_the_old_one_and_names_the_path(path, monkeypatch):
    write_checkpoint(path, FIRST)

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(core.files.os, "replace", full)
    with pytest.raises(StoreError, match=r"checkpoint\.json.*No space left"):
        write_checkpoint(path, FULL)
    monkeypatch.undo()
    assert load_checkpoint(path) == FIRST
    assert list(path.parent.iterdir()) == [path]


def test_load_checkpoint_missing(path):
    assert load_checkpoint(path) is None
    assert load_checkpoint(path.parent / "no such folder" / path.name) is None


def test_a_file_of_another_program_version_is_refused_and_the_one_before_not_used(path):
    for checkpoint in (FIRST, FULL):
        write_checkpoint(path, checkpoint)
    stored = serialize(FULL)
    del stored["state"]["gate_cooldown"]
    seal = harness.checkpoint._sealed
    path.write_text(seal(json.dumps(stored)), "utf-8")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json.*another version.*gate_cooldown is missing"):
        load_checkpoint(path)


# Fingerprints of the configuration

CONFIG = RunConfig()


def fingerprints(config=CONFIG, agent="model-1", questions="0a1b"):
    return fingerprints_of(config, agent=agent, questions=questions)


def another(value):
    """A value of the same type that is not `value`."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    return 1 if value is None else value + 1


def fields_of(kind):
    return [name for name, fact in field_facts().items() if fact["fingerprint"] == kind]


def changed_config(name):
    values = {field: getattr(CONFIG, field) for field in field_facts()}
    return RunConfig(**{**values, name: another(values[name])})


def test_fingerprint_structural_vs_decision():
    made = fingerprints()
    assert set(made.structural) == {*fields_of("structural"), "agent_fingerprint", "questions_digest"}
    assert set(made.decision) == {*fields_of("decision"), "program_version"}
    assert {"seed", "split_seed", "batch_size", "questions", "gate_source"} <= set(made.structural)
    assert {"gate_alpha", "edit_budget_start", "epochs", "cooldown"} <= set(made.decision)


def test_fields_without_a_fingerprint_change_nothing():
    loose = RunConfig(workspace_dir="elsewhere", concurrency=64, max_rollouts=9, holdout_every=1)
    assert fingerprints(loose) == fingerprints()


@pytest.mark.parametrize("name", fields_of("structural"))
def test_check_fingerprint_structural_reject(name):
    with pytest.raises(ConfigError) as refusal:
        check_fingerprints(fingerprints(), fingerprints(changed_config(name)))
    [problem] = refusal.value.problems
    assert problem.startswith(f"{name}: was ")


@pytest.mark.parametrize("name", fields_of("decision"))
def test_check_fingerprint_decision_warn(name):
    with pytest.warns(CheckpointWarning, match=f"{name}: was "):
        [change] = check_fingerprints(fingerprints(), fingerprints(changed_config(name)))
    assert change.field == name
    assert json.loads(change.before) == getattr(CONFIG, name)
    assert json.loads(change.now) == another(getattr(CONFIG, name))


@pytest.mark.parametrize("changes", [{"agent": "model-2"}, {"questions": "ffff"}])
def test_another_agent_or_other_questions_are_refused(changes):
    with pytest.raises(ConfigError, match=r"agent_fingerprint|questions_digest"):
        check_fingerprints(fingerprints(), fingerprints(**changes))


def test_all_structural_differences_are_told_at_once():
    with pytest.raises(ConfigError) as refusal:
        check_fingerprints(fingerprints(), fingerprints(RunConfig(seed=1, batch_size=8, gate_alpha=0.1)))
    assert refusal.value.problems == ["seed: was 0, is 1", "batch_size: was 16, is 8"]


def test_a_field_that_came_or_went_with_another_program_version_is_a_difference():
    made = fingerprints()
    fewer = {name: value for name, value in made.structural.items() if name != "temperature"}
    before = dataclasses.replace(made, structural=fewer)
    with pytest.raises(ConfigError, match="temperature: was absent, is null"):
        check_fingerprints(before, made)
    with pytest.raises(ConfigError, match="temperature: was null, is absent"):
        check_fingerprints(made, before)


@pytest.mark.filterwarnings("error")
def test_the_same_configuration_passes_in_silence_after_a_round_trip(path):
    write_checkpoint(path, dataclasses.replace(FULL, fingerprints=fingerprints()))
    assert check_fingerprints(load_checkpoint(path).fingerprints, fingerprints()) == ()
    assert check_fingerprints(FINGERPRINTS, FINGERPRINTS) == ()
