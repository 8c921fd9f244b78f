"""Versions, seeds and atomic writes, as those who use them may rely on."""

import contextlib
import dataclasses
import errno
import json
import os
import re
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed import ended_well, in_child, temporaries

import harness.store
from core.files import connect_read_only
from harness.log import HarnessLog, LogError, open_for_reading
from harness.store import (
    MANIFEST,
    POOLS,
    RUN_DB,
    Lineage,
    SeedMeta,
    StoreError,
    VersionMeta,
    _parse_version,
    advance_version,
    check_name,
    content_hash,
    extract_run_db,
    in_one_piece,
    init_seed,
    init_store,
    lineage_of,
    list_seeds,
    list_versions,
    next_version,
    promote_to_seed,
    read_files,
    read_json,
    read_meta,
    read_seed,
    read_version,
    run_row,
    write_files,
    write_json_atomic,
    write_text_atomic,
)

SKILLS = {"order.md": "- première 次\r\n".encode(), "default-strategy.md": b"- Look around.\n"}
ACCEPT = VersionMeta(source="accept", parent="v1", trigger_run="pilot_e1_s0", description="order.md")


@pytest.fixture
def skills(tmp_path):
    write_files(tmp_path / "my-skills", SKILLS)
    return tmp_path / "my-skills"


@pytest.fixture
def store(tmp_path, skills):
    write_files(tmp_path / "my-prompts", {"system.md": b"You answer.\n"})
    init_store(tmp_path / "store", skills, tmp_path / "my-prompts")
    return tmp_path / "store"


@pytest.fixture
def workspace(tmp_path):
    """What promotion needs of a workspace: manifest, pools, and an evaluation run of v1 with a row."""
    folder = tmp_path / "pilot"
    folder.mkdir()
    write_json_atomic(folder / MANIFEST, {"seed": None})
    write_pools(folder, split_seed=7, test=["t1"], validation=["b", "a"], diagnosis=["c"])
    add_run(folder, "pilot_eval_v1", "v1", "v1", "questions")
    return folder


def write_pools(workspace, split_seed, **ids):
    texts = {name: f"text of {name}" for pool in ids.values() for name in pool}
    write_json_atomic(workspace / POOLS, {"cut": {"split_seed": split_seed}, "texts": texts, **ids})


def seen(*ids):
    """The two first fields of the lineage of questions that `write_pools` wrote."""
    return ids, tuple(f"text of {name}" for name in ids)


def add_run(workspace, run_id, skills_version, prompts_version, questions_ref):
    with HarnessLog(workspace / RUN_DB, run_id) as log:
        log.create_table(
            "predictions", {"question_id": "TEXT NOT NULL", "correct": "INTEGER"}, ["run_id", "question_id"]
        )
        log.insert_many(
            "predictions", [{"question_id": "a", "correct": None}, {"question_id": "b", "correct": 0}]
        )
        log.set_run_versions(run_id, skills_version, prompts_version, questions_ref)


def promote(store, workspace, version="v1", run="pilot_eval_v1", name="after-pilot"):
    return promote_to_seed(store, workspace, version, run, name)


# ---- atomic writes


@given(st.text(st.characters(codec="utf-8")))
def test_text_comes_back_byte_for_byte_as_utf8(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "text.md"
    write_text_atomic(path, text)
    assert path.read_bytes() == text.encode("utf-8")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_json_comes_back_as_it_went_in_and_is_valid_utf8(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json_atomic(path, value)
    assert json.loads(path.read_bytes().decode("utf-8")) == value


def test_json_keeps_non_ascii_characters_readable(tmp_path):
    write_json_atomic(tmp_path / "value.json", {"été": "次 🎬"})
    assert '"été": "次 🎬"' in (tmp_path / "value.json").read_text("utf-8")


@pytest.mark.parametrize("value", [float("nan"), {"x": float("inf")}, {1, 2}, {"when": object()}, b"bytes"])
def test_what_is_not_json_is_refused_by_name_and_the_old_file_stands(tmp_path, value):
    path = tmp_path / "value.json"
    write_json_atomic(path, {"old": 1})
    with pytest.raises(StoreError, match=r"value\.json: could not be written as JSON"):
        write_json_atomic(path, value)
    assert json.loads(path.read_text("utf-8")) == {"old": 1}


def test_json_nested_too_deeply_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match=r"deep\.json: .*nested too deeply"):
        read_json(tmp_path / "deep.json")
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(StoreError, match=r"value\.json: could not be written as JSON"):
        write_json_atomic(tmp_path / "value.json", nested)


def test_who_only_looks_can_not_change_a_database(tmp_path):
    with HarnessLog(tmp_path / "h.db", "pilot"):
        pass
    with contextlib.closing(connect_read_only(tmp_path / "h.db")) as connection:
        assert connection.execute("SELECT run_id FROM _runs").fetchall() == [("pilot",)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM _runs")
    with pytest.raises(sqlite3.OperationalError):
        connect_read_only(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_failed_write_names_path_and_reason_keeps_the_old_file_and_leaves_nothing(
    tmp_path, monkeypatch, call, error
):
    path = tmp_path / "manifest.json"
    write_json_atomic(path, {"old": 1})

    def fail(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(
        StoreError, match=rf"manifest\.json: could not be written: {re.escape(os.strerror(error))}"
    ):
        write_json_atomic(path, {"new": 1})
    assert json.loads(path.read_text("utf-8")) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_content_is_synced_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []

    def watched(name, real, subject):
        monkeypatch.setattr(
            os, name, lambda *arguments: (calls.append((name, subject(*arguments))), real(*arguments))[1]
        )

    watched("fsync", os.fsync, lambda descriptor: os.fstat(descriptor).st_ino)
    watched("replace", os.replace, lambda _, target: target.name)
    write_text_atomic(tmp_path / "order.md", "text")
    file, folder = (tmp_path / "order.md").stat().st_ino, tmp_path.stat().st_ino
    assert calls == [("fsync", file), ("replace", "order.md"), ("fsync", folder)]


def test_a_whole_folder_is_synced_file_by_file_before_its_rename(tmp_path, monkeypatch):
    synced, at_rename = set(), set()
    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.add(os.fstat(descriptor).st_ino), real_fsync(descriptor))
    )
    monkeypatch.setattr(os, "replace", lambda *names: (at_rename.update(synced), real_replace(*names)))
    with in_one_piece(tmp_path / "whole") as temporary:
        write_files(temporary, {"a.md": b"1", "deep/er/b.md": b"2"})
    everything = {path.stat().st_ino for path in [tmp_path / "whole", *(tmp_path / "whole").rglob("*")]}
    assert everything <= at_rename
    assert tmp_path.stat().st_ino in synced - at_rename


def test_writers_of_one_file_never_meet_and_readers_never_see_half(tmp_path):
    path = tmp_path / "shared.json"
    write_json_atomic(path, ["x"] * 1000)

    def write_often():
        for number in range(40):
            write_json_atomic(path, [f"{os.getpid()}-{number}"] * 1000)

    children = [in_child(write_often) for _ in range(3)]
    threads = [threading.Thread(target=write_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(set(json.loads(path.read_text("utf-8")))) == 1
    assert all(ended_well(child) for child in children)
    assert len(set(json.loads(path.read_text("utf-8")))) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["shared.json"]


ANOTHER_WAY = re.compile(
    r"os\.(replace|rename)\(|\.write_(text|bytes)\(|json\.dump\(|open\([^)]*[\"'][wxa]b?[\"']"
)


def test_the_package_has_one_way_to_write_a_file():
    modules = sorted(Path(harness.store.__file__).parent.glob("*.py"))
    others = {path.name for path in modules if ANOTHER_WAY.search(path.read_text("utf-8"))}
    assert others == {"store.py", "validate.py", "init.py"}  # into folders that are temporary as a whole
    assert not [path.name for path in modules if "os.replace(" in path.read_text("utf-8")]


# ---- versions


def test_parse_version():
    assert [_parse_version(version) for version in ["v1", "v2", "v10"]] == [1, 2, 10]


@pytest.mark.parametrize(
    "bad", ["", "1", "v", "v0", "v01", "V1", "v1 ", "v1\n", "v-1", "v1.0", "v１", "../v1", "v1/.."]
)
def test_parse_version_refuses_what_is_not_exactly_a_version(bad):
    with pytest.raises(ValueError, match="version"):
        _parse_version(bad)


@given(st.lists(st.integers(1, 2000), unique=True, max_size=12))
def test_list_versions_numeric_sort(tmp_path_factory, numbers):
    store = tmp_path_factory.mktemp("store")
    for number in numbers:
        (store / "skills" / f"v{number}").mkdir(parents=True)
    (store / "skills" / "notes").mkdir(parents=True)
    assert list_versions(store, "skills") == [f"v{number}" for number in sorted(numbers)]
    assert next_version(store, "skills") == f"v{max(numbers, default=0) + 1}"


def test_next_version(store, skills):
    assert next_version(store, "skills") == "v2"
    for _ in range(9):
        advance_version(store, "skills", skills, ACCEPT)
    assert next_version(store, "skills") == "v11"
    assert next_version(store, "prompts") == "v2"


def test_advance_version(store, skills):
    (skills / "order.md").write_bytes(b"- new\n")
    assert advance_version(store, "skills", skills, ACCEPT, key="k") == "v2"
    assert read_version(store, "skills", "v2") == {**SKILLS, "order.md": b"- new\n"}
    meta = read_meta(store, "skills", "v2")
    assert dataclasses.replace(meta, content_hash="", created_at="") == dataclasses.replace(
        ACCEPT, version="v2", key="k"
    )
    assert meta.created_at


def test_a_version_does_not_change_with_its_source_or_its_successors(store, skills):
    (skills / "order.md").write_bytes(b"- new\n")
    advance_version(store, "skills", skills, ACCEPT)
    assert read_version(store, "skills", "v1") == SKILLS
    assert (
        advance_version(store, "skills", store / "skills" / "v1", VersionMeta(source="rollback", parent="v2"))
        == "v3"
    )
    assert read_version(store, "skills", "v3") == SKILLS


def test_a_version_changed_by_hand_is_noticed(store):
    (store / "skills" / "v1" / "order.md").write_bytes(b"- changed\n")
    with pytest.raises(StoreError, match="was changed after it was made"):
        read_version(store, "skills", "v1")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.md", fullmatch=True), st.binary(max_size=30), max_size=5
    )
)
def test_a_version_holds_exactly_the_files_of_its_source(tmp_path_factory, files):
    here = tmp_path_factory.mktemp("round")
    write_files(here / "source", files)
    assert read_files(here / "source") == files
    assert content_hash(read_files(here / "source")) == content_hash(files)


def test_the_same_key_gives_the_version_that_exists_even_without_its_source(store, skills, tmp_path):
    assert advance_version(store, "skills", skills, ACCEPT, key="pilot/1/0/accept/order.md") == "v2"
    assert advance_version(store, "skills", skills, ACCEPT, key="pilot/1/1/accept/order.md") == "v3"
    assert (
        advance_version(store, "skills", tmp_path / "gone", ACCEPT, key="pilot/1/0/accept/order.md") == "v2"
    )
    assert list_versions(store, "skills") == ["v1", "v2", "v3"]


def test_keys_of_skills_and_prompts_are_apart(store, skills):
    assert advance_version(store, "skills", skills, ACCEPT, key="k") == "v2"
    assert advance_version(store, "prompts", skills, ACCEPT, key="k") == "v2"
    assert list_versions(store, "prompts") == ["v1", "v2"]


def test_the_key_alone_decides_which_version_is_meant(store, skills):
    advance_version(store, "skills", skills, ACCEPT, key="k")
    (skills / "order.md").write_bytes(b"- something else\n")
    assert advance_version(store, "skills", skills, ACCEPT, key="k") == "v2"
    assert read_version(store, "skills", "v2") == SKILLS


def test_a_file_that_is_called_like_a_version_is_none(store, skills):
    (store / "skills" / "v7").write_text("notes")
    assert list_versions(store, "skills") == ["v1"]
    assert advance_version(store, "skills", skills, ACCEPT) == "v2"


def test_a_source_with_notes_of_its_own_is_refused_rather_than_cut_short(store, skills):
    (skills / "meta.json").write_text('{"author": "me"}')
    with pytest.raises(StoreError, match=r"my-skills/meta\.json: .*rename your file"):
        advance_version(store, "skills", skills, ACCEPT)
    assert list_versions(store, "skills") == ["v1"]


def test_paths_may_be_text(store, skills, workspace, tmp_path):
    assert advance_version(str(store), "skills", str(skills), ACCEPT) == "v2"
    assert list_versions(str(store), "skills") == ["v1", "v2"]
    assert read_version(str(store), "skills", "v2") == SKILLS
    seed = promote(str(store), str(workspace))
    assert read_seed(str(store), "after-pilot") == seed
    init_store(str(tmp_path / "other"), str(skills), str(tmp_path / "my-prompts"))
    assert read_json(str(tmp_path / "other" / "skills" / "v1" / "meta.json"))["source"] == "init"


def test_a_parent_that_does_not_exist_is_refused(store, skills):
    with pytest.raises(StoreError, match="has no skills v7; it has v1"):
        advance_version(store, "skills", skills, dataclasses.replace(ACCEPT, parent="v7"))
    assert list_versions(store, "skills") == ["v1"]


def test_processes_racing_for_the_next_version_never_take_the_same(store, skills, tmp_path):
    each = 6

    def take(name):
        taken = [advance_version(store, "skills", skills, VersionMeta(source=name)) for _ in range(each)]
        write_json_atomic(tmp_path / f"{name}.json", taken)

    names = ["first", "second", "third"]
    children = [in_child(lambda name=name: take(name)) for name in names]
    assert all(ended_well(child) for child in children)
    taken = {name: json.loads((tmp_path / f"{name}.json").read_text("utf-8")) for name in names}
    assert sorted(_parse_version(version) for versions in taken.values() for version in versions) == list(
        range(2, 2 + len(names) * each)
    )
    assert all(
        read_meta(store, "skills", version).source == name for name in names for version in taken[name]
    )
    assert all(read_version(store, "skills", version) == SKILLS for version in list_versions(store, "skills"))


def test_processes_racing_with_one_key_get_one_version(store, skills, tmp_path):
    def take(number):
        write_text_atomic(
            tmp_path / f"taken-{number}", advance_version(store, "skills", skills, ACCEPT, key="k")
        )

    children = [in_child(lambda number=number: take(number)) for number in range(4)]
    assert all(ended_well(child) for child in children)
    assert {path.read_text("utf-8") for path in tmp_path.glob("taken-*")} == {"v2"}
    assert list_versions(store, "skills") == ["v1", "v2"]


def test_threads_racing_for_the_next_version_never_take_the_same(store, skills):
    taken = []
    threads = [
        threading.Thread(target=lambda: taken.append(advance_version(store, "skills", skills, ACCEPT)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(_parse_version, taken)) == list(range(2, 10))


def test_stale_temporaries_are_no_versions_and_go_away(store, skills):
    stale = store / "skills" / f".v2.{'a' * 32}.tmp"
    write_files(stale, {"order.md": b"half"})
    assert list_versions(store, "skills") == ["v1"]
    assert advance_version(store, "skills", skills, ACCEPT) == "v2"
    assert temporaries(store) == []


def test_a_failed_version_leaves_nothing(store, skills, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device"):
        advance_version(store, "skills", skills, ACCEPT)
    assert list_versions(store, "skills") == ["v1"]
    assert temporaries(store) == []


def test_init_store(store, skills, tmp_path):
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    init_store(store, skills, tmp_path / "my-prompts")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert read_version(store, "skills", "v1") == SKILLS
    assert read_meta(store, "prompts", "v1").parent is None
    with pytest.raises(StoreError, match="began with other prompts"):
        init_store(store, skills, skills)


def test_without_a_store_the_error_says_how_to_make_one(tmp_path, skills):
    for call in [
        lambda: list_versions(tmp_path / "none", "skills"),
        lambda: advance_version(tmp_path / "none", "skills", skills, ACCEPT),
    ]:
        with pytest.raises(StoreError, match=r"none.*harness init"):
            call()
    assert not (tmp_path / "none").exists()


# ---- names and links


ESCAPES = [
    "..",
    ".",
    "",
    "../v1",
    "a/b",
    "a\\b",
    "/etc",
    "..\\v1",
    "v1/../../x",
    "a..b",
    "a\0b",
    "a\nb",
    "-rf",
    ".hidden",
]


@pytest.mark.parametrize("name", ESCAPES)
def test_a_seed_name_never_leads_out_of_the_store(store, workspace, name):
    with pytest.raises(ValueError, match="seed"):
        promote(store, workspace, name=name)
    with pytest.raises(ValueError, match="seed"):
        read_seed(store, name)
    assert list_seeds(store) == []


@pytest.mark.parametrize("version", [*ESCAPES, "v1/", "v0"])
def test_a_version_name_never_leads_out_of_the_store(store, version):
    with pytest.raises(ValueError, match="version"):
        read_version(store, "skills", version)


def test_a_resource_type_never_leads_out_of_the_store(store, skills):
    with pytest.raises(ValueError, match="is none of skills, prompts"):
        advance_version(store, "../skills", skills, ACCEPT)


@pytest.mark.parametrize("name", ["x" * 151, "日" * 51, "é" * 76])
def test_a_name_too_long_for_a_folder_is_refused_by_its_bytes(store, name):
    with pytest.raises(ValueError, match="use at most 150"):
        read_seed(store, name)
    assert check_name("seed", "日" * 50) == "日" * 50


@given(st.text(max_size=200))
def test_a_checked_name_is_one_folder_below(name):
    try:
        check_name("seed", name)
    except ValueError:
        return
    assert os.path.normpath(f"root/{name}") == f"root/{name}"
    assert not {"/", "\\", "\0", "\n"} & set(name)
    assert not name.startswith(".")


@pytest.mark.parametrize("target", ["elsewhere", "elsewhere/secret.md"])
def test_a_link_in_a_source_is_refused(store, skills, tmp_path, target):
    write_files(tmp_path / "elsewhere", {"secret.md": b"secret"})
    (skills / "link.md").symlink_to(tmp_path / target)
    with pytest.raises(StoreError, match=r"link\.md: is a link"):
        advance_version(store, "skills", skills, ACCEPT)
    assert list_versions(store, "skills") == ["v1"]


def test_a_pipe_in_a_source_is_refused(store, skills):
    os.mkfifo(skills / "pipe.md")
    with pytest.raises(StoreError, match="neither a file nor a folder"):
        advance_version(store, "skills", skills, ACCEPT)


def test_a_version_or_seed_that_is_a_link_out_of_the_store_is_refused(store, skills, tmp_path):
    (store / "skills" / "v2").symlink_to(skills)
    (store / "seeds" / "away").symlink_to(skills)
    with pytest.raises(StoreError, match="leads out of"):
        read_version(store, "skills", "v2")
    with pytest.raises(StoreError, match="leads out of"):
        read_seed(store, "away")


def test_a_store_folder_that_is_a_link_out_of_the_store_is_refused(store, skills, tmp_path):
    (store / "skills").rename(tmp_path / "moved")
    (store / "skills").symlink_to(tmp_path / "moved")
    with pytest.raises(StoreError, match="leads out of"):
        advance_version(store, "skills", skills, ACCEPT)


def test_a_damaged_meta_is_named(store):
    (store / "skills" / "v1" / "meta.json").write_text('{"source": ')
    with pytest.raises(StoreError, match=r"v1/meta\.json: is not JSON"):
        read_meta(store, "skills", "v1")
    (store / "skills" / "v1" / "meta.json").write_text('{"colour": "red"}')
    with pytest.raises(StoreError, match=r"v1/meta\.json: was not written by this store"):
        read_meta(store, "skills", "v1")


# ---- rows of a run


def test_extract_run_db_preserves_pk(workspace, tmp_path):
    add_run(workspace, "pilot_eval_v2", "v2", "v1", "questions")
    extract_run_db(workspace / RUN_DB, ["pilot_eval_v2"], tmp_path / "copy.db")
    with open_for_reading(workspace / RUN_DB) as source, open_for_reading(tmp_path / "copy.db") as copy:
        schema = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        assert list(map(tuple, copy.execute(schema))) == list(map(tuple, source.execute(schema)))
        for table in ["_runs", "_events", "llm_calls", "predictions"]:
            wanted = f"SELECT * FROM {table} WHERE run_id = 'pilot_eval_v2'"
            assert list(map(tuple, copy.execute(f"SELECT * FROM {table}"))) == list(
                map(tuple, source.execute(wanted))
            )
    with sqlite3.connect(tmp_path / "copy.db") as copy, pytest.raises(sqlite3.IntegrityError):
        copy.execute("INSERT INTO predictions (run_id, question_id) VALUES ('pilot_eval_v2', 'a')")


def test_extract_run_db_keeps_null_apart_from_zero(workspace, tmp_path):
    extract_run_db(workspace / RUN_DB, ["pilot_eval_v1"], tmp_path / "copy.db")
    with open_for_reading(tmp_path / "copy.db") as copy:
        assert dict(copy.execute("SELECT question_id, correct FROM predictions").fetchall()) == {
            "a": None,
            "b": 0,
        }


def test_extract_run_db_while_others_write_sees_one_moment(workspace, tmp_path):
    with HarnessLog(workspace / RUN_DB, "busy") as log:
        log.insert_many("predictions", [{"question_id": "a", "correct": 1}])
        extract_run_db(workspace / RUN_DB, ["busy"], tmp_path / "copy.db")
    assert run_row(tmp_path / "copy.db", "busy")["status"] == "running"


def test_extract_run_db_of_an_unknown_run_or_database_says_so_and_makes_nothing(workspace, tmp_path):
    with pytest.raises(StoreError, match="has no run nobody"):
        extract_run_db(workspace / RUN_DB, ["pilot_eval_v1", "nobody"], tmp_path / "copy.db")
    with pytest.raises(LogError, match="no such database"):
        extract_run_db(tmp_path / "none.db", ["pilot_eval_v1"], tmp_path / "copy.db")
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match=r"broken\.db: could not be read"):
        extract_run_db(tmp_path / "broken.db", ["pilot_eval_v1"], tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    assert temporaries(tmp_path) == []


# ---- seeds


def test_init_seed(store, workspace):
    meta = SeedMeta(
        skills_version="v1", prompts_version="v1", questions_ref="questions", eval_run_id="pilot_eval_v1"
    )
    lineage = Lineage(*seen("a", "é"), 0, ("first",))
    files = {"pools_path": workspace / POOLS, "db_path": workspace / RUN_DB}
    seed = init_seed(store, "pilot", meta, lineage, **files)
    assert seed == read_seed(store, "pilot") == init_seed(store, "pilot", meta, lineage, **files)
    assert (seed.name, seed.folder, seed.lineage) == ("pilot", store / "seeds" / "pilot", lineage)
    assert dataclasses.replace(seed.meta, created_at="") == meta
    assert seed.pools_path.read_bytes() == (workspace / POOLS).read_bytes()
    assert run_row(seed.db_path, "pilot_eval_v1")["skills_version"] == "v1"
    with pytest.raises(StoreError, match="is another seed"):
        init_seed(store, "pilot", meta, Lineage(*seen("b"), 0), **files)
    with pytest.raises(dataclasses.FrozenInstanceError):
        seed.name = "other"


def test_list_seeds(store, workspace):
    assert list_seeds(store) == []
    for name in ["b", "a"]:
        promote(store, workspace, name=name)
    (store / "seeds" / f".c.{'a' * 32}.tmp").mkdir()
    assert list_seeds(store) == ["a", "b"]


def test_read_seed_not_found(store, workspace):
    with pytest.raises(StoreError, match="has no seed 'nobody'; it has none"):
        read_seed(store, "nobody")
    promote(store, workspace)
    with pytest.raises(StoreError, match="has no seed 'nobody'; it has after-pilot"):
        read_seed(store, "nobody")


@pytest.mark.parametrize("file", ["seed.json", "lineage.json"])
def test_a_damaged_seed_is_named(store, workspace, file):
    seed = promote(store, workspace)
    for broken in ['{"half": ', '{"colour": "red"}', "[1]"]:
        (seed.folder / file).write_text(broken)
        with pytest.raises(StoreError, match=file):
            read_seed(store, "after-pilot")


def test_promotion_takes_versions_pools_rows_and_lineage_along(store, workspace):
    seed = promote(store, workspace)
    assert (seed.meta.skills_version, seed.meta.prompts_version) == ("v1", "v1")
    assert seed.lineage == Lineage(*seen("a", "b", "c"), 7)
    assert promote(store, workspace) == seed


def test_what_a_parent_was_trained_on_is_inherited(store, workspace):
    promote(store, workspace)
    write_json_atomic(workspace / MANIFEST, {"seed": "after-pilot"})
    write_pools(workspace, split_seed=8, test=["a-test"], validation=["d"], diagnosis=["c", "e"])
    second = promote(store, workspace, name="second")
    assert second.lineage == Lineage(*seen("a", "b", "c", "d", "e"), 8, ("after-pilot",))
    write_json_atomic(workspace / MANIFEST, {"seed": "second"})
    assert promote(store, workspace, name="third").lineage.parents == ("after-pilot", "second")


def test_another_question_under_a_trained_id_hides_neither_of_the_two(store, workspace):
    promote(store, workspace)
    write_json_atomic(workspace / MANIFEST, {"seed": "after-pilot"})
    pools = json.loads((workspace / POOLS).read_text("utf-8"))
    write_json_atomic(workspace / POOLS, {**pools, "texts": {**pools["texts"], "a": "another text"}})
    second = promote(store, workspace, name="second")
    assert {"text of a", "another text"} < set(second.lineage.trained_texts)


@pytest.mark.parametrize("manifest", [{}, [], None, "seed"])
def test_a_manifest_without_a_seed_field_is_named(store, workspace, manifest):
    write_json_atomic(workspace / MANIFEST, manifest)
    with pytest.raises(StoreError, match=r"manifest\.json: is not a manifest"):
        lineage_of(store, workspace)


def test_an_evaluation_that_failed_or_answered_nothing_is_no_seed(store, workspace):
    with contextlib.suppress(RuntimeError), HarnessLog(workspace / RUN_DB, "failed") as log:
        log.set_run_versions("failed", "v1", "v1", "questions")
        log.insert_many("predictions", [{"question_id": "a", "correct": 1}])
        raise RuntimeError("no endpoint")
    with HarnessLog(workspace / RUN_DB, "empty") as log:
        log.set_run_versions("empty", "v1", "v1", "questions")
    with pytest.raises(StoreError, match="run failed: is failed, not completed"):
        promote(store, workspace, run="failed")
    with pytest.raises(StoreError, match="run empty: has no predictions"):
        promote(store, workspace, run="empty")
    assert list_seeds(store) == []


def test_a_lost_parent_is_an_error_and_not_an_empty_lineage(store, workspace):
    write_json_atomic(workspace / MANIFEST, {"seed": "lost"})
    with pytest.raises(StoreError, match="has no seed 'lost'"):
        promote(store, workspace)
    (workspace / MANIFEST).unlink()
    with pytest.raises(StoreError, match=r"manifest\.json: could not be read"):
        promote(store, workspace)


def test_promote_to_seed_version_mismatch(store, skills, workspace):
    advance_version(store, "skills", skills, ACCEPT)
    with pytest.raises(StoreError, match="measured skills v1, not v2"):
        promote(store, workspace, version="v2")
    assert list_seeds(store) == []


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ((None, "v1", "questions"), "recorded no skills_version"),
        (("v1", None, "questions"), "recorded no prompts_version"),
        (("v1", "v1", None), "recorded no questions_ref"),
    ],
)
def test_promote_to_seed_null_version(store, workspace, versions, problem):
    (workspace / RUN_DB).unlink()
    add_run(workspace, "pilot_eval_v1", *versions)
    with pytest.raises(StoreError, match=problem):
        promote(store, workspace)
    assert list_seeds(store) == []
    assert temporaries(store) == []


def test_promote_to_seed_versions_missing_from_the_store(store, workspace):
    add_run(workspace, "run-skills", "v5", "v1", "questions")
    add_run(workspace, "run-prompts", "v1", "v5", "questions")
    with pytest.raises(StoreError, match="has no skills v5"):
        promote(store, workspace, version="v5", run="run-skills")
    with pytest.raises(StoreError, match="has no prompts v5"):
        promote(store, workspace, run="run-prompts")
    with pytest.raises(StoreError, match="has no run nobody"):
        promote(store, workspace, run="nobody")


def test_promotion_removes_its_temporary_database_when_it_fails(store, workspace, monkeypatch):
    real = sqlite3.connect

    class Full(sqlite3.Connection):
        def executemany(self, *_):
            raise sqlite3.OperationalError("database or disk is full")

    def connect(database, *arguments, **options):
        readonly = "mode=ro" in str(database)
        return real(database, *arguments, **options, **({} if readonly else {"factory": Full}))

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(StoreError, match="disk is full"):
        promote(store, workspace)
    assert list_seeds(store) == []
    assert temporaries(store) == []


def test_promotion_without_pools_is_refused(store, workspace):
    (workspace / POOLS).unlink()
    with pytest.raises(StoreError, match=r"pools\.json: could not be read"):
        promote(store, workspace)
    for broken in [
        [],
        {"validation": ["a"]},
        {"cut": {"split_seed": 0}, "validation": [{"id": "a"}], "diagnosis": [], "texts": {}},
        {"cut": {"split_seed": 0}, "validation": ["a"], "diagnosis": []},
        {"cut": {"split_seed": 0}, "validation": ["a"], "diagnosis": [], "texts": {"b": "text of b"}},
    ]:
        write_json_atomic(workspace / POOLS, broken)
        with pytest.raises(StoreError, match=r"pools\.json: is not a file of pools"):
            promote(store, workspace)
    assert list_seeds(store) == []
