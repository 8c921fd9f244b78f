"""Workspaces: manifests, copies, pointers and the lock, as those who use them may rely on."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed import temporaries

from core.evolution.protocols import PromptStore, SkillStore
from core.questions.duplicates import question_digest
from core.types import GeneratedQuestion
from harness.log import HarnessLog
from harness.pools import Cut, build_pools, save_pools
from harness.store import (
    MANIFEST,
    POOLS,
    RUN_DB,
    StoreError,
    VersionMeta,
    advance_version,
    init_store,
    list_versions,
    promote_to_seed,
    read_files,
    read_version,
    write_files,
    write_json_atomic,
)
from harness.workspace import (
    Manifest,
    VersionedPromptStore,
    VersionedSkillStore,
    VersionPair,
    WorkspaceLocked,
    archive_workspace,
    copy_version,
    init_workspace,
    init_workspace_from_seed,
    load_manifest,
    record_run,
    resolve_paths,
    update_best,
    update_manifest,
    use_versions,
    workspace_lock,
)

V1, V2 = VersionPair("v1", "v1"), VersionPair("v2", "v1")


@pytest.fixture
def store(tmp_path):
    """A store with two versions of the skills and one of the prompts."""
    write_files(tmp_path / "skills", {"order.md": b"- old\n", "default-strategy.md": b"- Look.\n"})
    write_files(tmp_path / "prompts", {"system.md": b"You answer.\n"})
    init_store(tmp_path / "store", tmp_path / "skills", tmp_path / "prompts")
    (tmp_path / "skills" / "order.md").write_bytes(b"- new\n")
    advance_version(
        tmp_path / "store", "skills", tmp_path / "skills", VersionMeta(source="accept", parent="v1")
    )
    return tmp_path / "store"


@pytest.fixture
def questions(tmp_path):
    (tmp_path / "questions.jsonl").write_text("")
    return str(tmp_path / "questions.jsonl")


@pytest.fixture
def workspace(tmp_path, store, questions):
    init_workspace(tmp_path / "pilot", store, V1, questions)
    return tmp_path / "pilot"


def evaluate(workspace, run_id):
    """An evaluation run of v2 and v1 with one answer."""
    with HarnessLog(workspace / RUN_DB, run_id) as log:
        log.create_table("predictions", {"question_id": "TEXT NOT NULL"}, ["run_id", "question_id"])
        log.insert("predictions", {"question_id": "validation"})
        log.set_run_versions(run_id, "v2", "v1", "questions")


@pytest.fixture
def seed(workspace, store):
    """A seed promoted from the workspace."""
    ids = {pool: [pool] for pool in ("test", "validation", "diagnosis")}
    texts = {pool: f"text of {pool}" for pool in ids}
    write_json_atomic(workspace / POOLS, {"cut": {"split_seed": 7}, "texts": texts, **ids})
    evaluate(workspace, "pilot_eval_v2")
    return promote_to_seed(store, workspace, "v2", "pilot_eval_v2", "after-pilot")


def test_resolved_paths_frozen(workspace, store):
    paths = resolve_paths(workspace, store)
    for field in dataclasses.fields(paths):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(paths, field.name, workspace)


def test_every_path_but_the_store_lies_in_the_workspace(workspace, store):
    paths = resolve_paths(workspace, store)
    inside = {field.name: getattr(paths, field.name) for field in dataclasses.fields(paths)}
    assert inside.pop("store_dir") == store
    assert inside.pop("workspace_dir") == workspace
    assert all(path.is_relative_to(workspace) for path in inside.values())
    assert len(set(inside.values())) == len(inside)


def test_init_workspace(workspace, store, questions):
    assert load_manifest(workspace) == Manifest(questions, seed=None, current=V1, best=None, runs=())
    paths = resolve_paths(workspace, store)
    assert read_files(paths.skills_dir) == read_version(store, "skills", "v1")
    assert read_files(paths.prompts_dir) == read_version(store, "prompts", "v1")
    assert paths.runs_dir.is_dir()


def test_init_workspace_makes_the_folders_above_it(tmp_path, store, questions):
    init_workspace(tmp_path / "many" / "experiments" / "pilot", store, V1, questions)
    assert load_manifest(tmp_path / "many" / "experiments" / "pilot").current == V1


def test_init_workspace_never_touches_one_that_exists(workspace, store, questions):
    record_run(workspace, "pilot_baseline")
    with pytest.raises(StoreError, match="pilot: exists"):
        init_workspace(workspace, store, V2, questions)
    assert load_manifest(workspace).runs == ("pilot_baseline",)
    assert load_manifest(workspace).current == V1


@pytest.mark.parametrize("pair", [VersionPair("v9", "v1"), VersionPair("v1", "v9")])
def test_init_workspace_with_a_version_that_does_not_exist_makes_nothing(tmp_path, store, questions, pair):
    with pytest.raises(StoreError, match="v9"):
        init_workspace(tmp_path / "other", store, pair, questions)
    assert not (tmp_path / "other").exists()
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize("version", ["../v1", "..", "v1/../v2", "/etc", ""])
def test_a_version_name_never_leads_out_of_the_workspace(workspace, store, version):
    with pytest.raises(ValueError, match="version"):
        use_versions(workspace, store, VersionPair(version, "v1"))
    with pytest.raises(StoreError):
        update_best(workspace, VersionPair(f"../../{version}", "v1"))
    assert load_manifest(workspace).current == V1


def test_a_manifest_that_points_out_of_the_workspace_is_refused(workspace, store):
    stored = json.loads((workspace / MANIFEST).read_text("utf-8"))
    stored["current"]["skills"] = "../../store/skills/v1"
    write_json_atomic(workspace / MANIFEST, stored)
    with pytest.raises(StoreError, match=r"manifest\.json: is not a manifest: .*current: version"):
        resolve_paths(workspace, store)


def test_a_link_in_place_of_a_copy_is_refused(workspace, store, tmp_path):
    shutil.rmtree(workspace / "skills" / "v1")
    (workspace / "skills" / "v1").symlink_to(tmp_path / "skills")
    with pytest.raises(StoreError, match="leads out of"):
        copy_version(workspace, store, "skills", "v1")


def test_init_workspace_from_seed(tmp_path, store, seed, questions):
    second = tmp_path / "second"
    init_workspace_from_seed(second, store, "after-pilot", questions)
    assert load_manifest(second) == Manifest(questions, seed="after-pilot", current=V2)
    assert read_files(resolve_paths(second, store).skills_dir) == read_version(store, "skills", "v2")


def test_init_workspace_from_seed_missing_questions(tmp_path, store, seed):
    with pytest.raises(StoreError, match=r"none\.jsonl: there are no such questions"):
        init_workspace_from_seed(
            tmp_path / "new" / "second", store, "after-pilot", str(tmp_path / "none.jsonl")
        )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("questions_ref", ["", "  ", None])
def test_init_workspace_without_a_path_to_questions_makes_nothing(tmp_path, store, questions_ref):
    with pytest.raises(StoreError, match="questions_ref: a path is expected"):
        init_workspace(tmp_path / "new" / "pilot", store, V1, questions_ref)
    assert not (tmp_path / "new").exists()


def test_paths_may_be_text(tmp_path, store, questions):
    pilot = str(tmp_path / "pilot")
    with workspace_lock(pilot):
        init_workspace(pilot, str(store), V1, questions)
    use_versions(pilot, str(store), V2)
    update_best(pilot, V2)
    assert record_run(pilot, "pilot_baseline").is_dir()
    paths = resolve_paths(pilot, str(store))
    assert paths == resolve_paths(Path(pilot), store)
    assert VersionedSkillStore(str(paths.skills_dir)).list() == ["default-strategy.md", "order.md"]
    assert archive_workspace(pilot).is_dir()


def test_init_workspace_from_a_seed_that_does_not_exist(tmp_path, store, questions):
    with pytest.raises(StoreError, match="has no seed 'nobody'"):
        init_workspace_from_seed(tmp_path / "second", store, "nobody", questions)
    assert not (tmp_path / "second").exists()


def test_a_chain_of_experiments_hands_on_what_was_trained(tmp_path, store, seed, questions):
    second = tmp_path / "second"
    init_workspace_from_seed(second, store, "after-pilot", questions)
    pools = {"texts": {"new": "text of new"}, "test": [], "validation": [], "diagnosis": ["new"]}
    write_json_atomic(second / POOLS, {"cut": {"split_seed": 8}, **pools})
    evaluate(second, "second_eval_v2")
    lineage = promote_to_seed(store, second, "v2", "second_eval_v2", "after-second").lineage
    assert lineage.trained_ids == ("diagnosis", "new", "validation")
    assert lineage.parents == ("after-pilot",)


def test_promotion_counts_as_seen_what_the_pools_put_into_validation_and_diagnosis(workspace, store):
    words = [
        "baker",
        "ladder",
        "violin",
        "harbour",
        "glacier",
        "lantern",
        "compass",
        "orchard",
        "pigeon",
        "tunnel",
    ]
    questions = [
        GeneratedQuestion(
            f"q{i}", f"film{i}", "order", f"What follows the {word} {word[::-1]}?", (word, "none"), "A"
        )
        for i, word in enumerate(words)
    ]
    pools = build_pools(questions, Cut(test_size=3, val_size=3, split_seed=5))
    save_pools(pools, workspace / POOLS)
    evaluate(workspace, "pilot_eval_v2")
    lineage = promote_to_seed(store, workspace, "v2", "pilot_eval_v2", "after-pilot").lineage
    ids = pools.ids()
    assert set(lineage.trained_ids) == {*ids["validation"], *ids["diagnosis"]}
    assert len(lineage.trained_ids) == len(words) - len(ids["test"])
    assert set(lineage.trained_texts) == {*map(question_digest, pools.validation + pools.diagnosis)}
    assert lineage.split_seed == 5


VERSIONS = st.integers(1, 999).map("v{}".format)
PAIRS = st.builds(VersionPair, VERSIONS, VERSIONS)
MANIFESTS = st.builds(
    Manifest,
    st.text().filter(str.strip),
    st.none() | st.text(),
    PAIRS,
    st.none() | PAIRS,
    st.lists(st.text(), max_size=4).map(tuple),
)


@given(MANIFESTS)
def test_load_manifest(tmp_path_factory, manifest):
    folder = tmp_path_factory.getbasetemp()
    write_json_atomic(folder / MANIFEST, dataclasses.asdict(manifest))
    assert load_manifest(folder) == manifest


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"current": 1}', '{"seed": null}', '{"current": {"skills": "v1"}}']
)
def test_a_broken_manifest_is_named(workspace, text):
    (workspace / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match=r"pilot/manifest\.json"):
        load_manifest(workspace)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"best": "v2"}, "best: a VersionPair"),
        ({"current": None}, "current: a VersionPair"),
        ({"current": VersionPair("v1", None)}, "current: version None"),
        ({"best": VersionPair("", "")}, "best: version ''"),
        ({"best": VersionPair("../runs", "v1")}, r"best: version '\.\./runs'"),
        ({"current": VersionPair("v55", "v1")}, "skills v55 was never in force here"),
        ({"current": VersionPair("v1", "v66")}, "prompts v66 was never in force here"),
        ({"questions_ref": " "}, "questions_ref"),
        ({"runs": "abc"}, "runs"),
        ({"runs": (1,)}, "runs"),
        ({"seed": 5}, "seed"),
    ],
)
def test_a_manifest_that_could_not_be_read_again_is_never_written(workspace, store, change, named):
    before = (workspace / MANIFEST).read_bytes()
    with pytest.raises(StoreError, match=named):
        update_manifest(workspace, **change)
    assert (workspace / MANIFEST).read_bytes() == before


def test_a_best_that_is_no_version_is_refused(workspace):
    with pytest.raises(StoreError, match="best: version ''"):
        update_best(workspace, VersionPair("", ""))


def test_load_manifest_without_a_workspace(tmp_path):
    with pytest.raises(StoreError, match=r"none/manifest\.json: could not be read: No such file"):
        load_manifest(tmp_path / "none")


def test_update_manifest_changes_the_named_fields_alone(workspace):
    before = load_manifest(workspace)
    assert update_manifest(workspace, questions_ref="été") == dataclasses.replace(before, questions_ref="été")
    assert load_manifest(workspace).questions_ref == "été"
    assert "été" in (workspace / MANIFEST).read_text("utf-8")


def test_update_manifest_invalid_key(workspace):
    before = (workspace / MANIFEST).read_bytes()
    with pytest.raises(KeyError, match="has no field 'curent'"):
        update_manifest(workspace, questions_ref="other", curent=V2)
    assert (workspace / MANIFEST).read_bytes() == before


def test_record_run_idempotent(workspace):
    first = record_run(workspace, "pilot_baseline")
    record_run(workspace, "pilot_e1_s0")
    (first / "report.json").write_text("{}")
    before = (workspace / MANIFEST).read_bytes(), (workspace / MANIFEST).stat().st_mtime_ns
    assert record_run(workspace, "pilot_baseline") == first == workspace / "runs" / "pilot_baseline"
    assert ((workspace / MANIFEST).read_bytes(), (workspace / MANIFEST).stat().st_mtime_ns) == before
    assert load_manifest(workspace).runs == ("pilot_baseline", "pilot_e1_s0")
    assert (first / "report.json").exists()


def test_record_run_with_a_folder_that_exists_already(workspace):
    (workspace / "runs" / "pilot_baseline").mkdir()
    record_run(workspace, "pilot_baseline")
    assert load_manifest(workspace).runs == ("pilot_baseline",)


@pytest.mark.parametrize("run_id", ["", "..", "../x", "a/b", ".hidden"])
def test_a_run_id_never_leads_out_of_the_workspace(workspace, run_id):
    with pytest.raises(ValueError, match="run"):
        record_run(workspace, run_id)
    assert load_manifest(workspace).runs == ()


def test_update_best_independent_of_current(workspace, store):
    use_versions(workspace, store, V2)
    update_best(workspace, V1)
    assert (load_manifest(workspace).current, load_manifest(workspace).best) == (V2, V1)
    update_best(workspace, V2)
    use_versions(workspace, store, V1)
    assert (load_manifest(workspace).current, load_manifest(workspace).best) == (V1, V2)


def test_best_must_have_been_in_force(workspace):
    with pytest.raises(StoreError, match="skills v2 was never in force"):
        update_best(workspace, V2)
    assert load_manifest(workspace).best is None


def test_using_a_version_twice_changes_nothing(workspace, store):
    use_versions(workspace, store, V2)
    before = {path: path.stat().st_mtime_ns for path in (workspace / "skills").rglob("*")}
    assert use_versions(workspace, store, V2).current == V2
    assert {path: path.stat().st_mtime_ns for path in (workspace / "skills").rglob("*")} == before


def test_copies_belong_to_the_workspace(workspace, store):
    copy = resolve_paths(workspace, store).skills_dir / "order.md"
    copy.write_bytes(b"- changed in the workspace\n")
    assert read_version(store, "skills", "v1")["order.md"] == b"- old\n"
    with pytest.raises(StoreError, match="is not what the store has"):
        use_versions(workspace, store, V1)


def test_the_store_may_grow_without_any_effect_on_a_workspace(workspace, store, tmp_path):
    before = resolve_paths(workspace, store)
    advance_version(store, "skills", tmp_path / "skills", VersionMeta(source="accept", parent="v2"))
    assert list_versions(store, "skills") == ["v1", "v2", "v3"]
    assert resolve_paths(workspace, store) == before


def test_archive_workspace(workspace, store, questions):
    record_run(workspace, "pilot_baseline")
    kept = read_files(workspace)
    archived = archive_workspace(workspace)
    assert not workspace.exists()
    assert read_files(archived) == kept
    assert re.fullmatch(r"pilot-\d{8}T\d{6}\.\d{6}Z", archived.name)
    init_workspace(workspace, store, V2, questions)
    assert archive_workspace(workspace) != archived
    with pytest.raises(StoreError, match="could not be archived"):
        archive_workspace(workspace)


# ---- stores for evolution


def test_versioned_skill_store_read(workspace, store):
    skills = VersionedSkillStore(resolve_paths(workspace, store).skills_dir)
    assert skills.read("order.md") == "- old\n"
    with pytest.raises(KeyError, match=r"has no file 'none\.md'"):
        skills.read("none.md")


def test_versioned_skill_store_list(workspace, store):
    assert VersionedSkillStore(resolve_paths(workspace, store).skills_dir).list() == [
        "default-strategy.md",
        "order.md",
    ]
    assert VersionedSkillStore(store / "skills" / "v1").list() == ["default-strategy.md", "order.md"]


def test_a_folder_that_is_not_there_is_an_error_and_not_an_empty_store(tmp_path):
    with pytest.raises(StoreError, match="typo: there is no such folder"):
        VersionedSkillStore(tmp_path / "typo").list()
    with pytest.raises(StoreError, match="typo: there is no such folder"):
        VersionedPromptStore(tmp_path / "typo").read("system.md")


def test_versioned_prompt_store(workspace, store):
    prompts = VersionedPromptStore(resolve_paths(workspace, store).prompts_dir)
    assert prompts.list() == ["system.md"]
    assert prompts.read("system.md") == "You answer.\n"


def test_skill_store_protocol_compliance(tmp_path):
    assert isinstance(VersionedSkillStore(tmp_path), SkillStore)
    assert isinstance(VersionedPromptStore(tmp_path), PromptStore)


@pytest.mark.parametrize("name", ["../secret.md", "..", "", "link.md", "deep/x.md"])
def test_a_store_reads_nothing_but_its_own_files(tmp_path, name):
    write_files(tmp_path / "v1", {"order.md": b"", "deep/x.md": b""})
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "v1" / "link.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(KeyError):
        VersionedSkillStore(tmp_path / "v1").read(name)
    assert VersionedSkillStore(tmp_path / "v1").list() == ["order.md"]


def test_text_is_read_as_utf8_with_or_without_bom_and_carriage_returns(tmp_path):
    write_files(tmp_path / "v1", {"bom.md": "\ufeffété\r\n次\r\n".encode(), "broken.md": b"\xff\xfe"})
    store = VersionedSkillStore(tmp_path / "v1")
    assert store.read("bom.md") == "été\n次\n"
    with pytest.raises(StoreError, match=r"broken\.md: could not be read"):
        store.read("broken.md")


# ---- one process at a time

HOLDER = """
import sys, time
from pathlib import Path
from harness.workspace import workspace_lock
with workspace_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(workspace):
    """Another process that works in the workspace."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(workspace)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_with_the_pid_of_the_holder(workspace, holder):
    with (
        pytest.raises(WorkspaceLocked, match=rf"pilot: process {holder.pid} works here"),
        workspace_lock(workspace),
    ):
        pytest.fail("two processes in one workspace")
    assert holder.poll() is None


def test_being_refused_does_not_free_the_lock(workspace, holder):
    for _ in range(3):
        with pytest.raises(WorkspaceLocked, match=str(holder.pid)), workspace_lock(workspace):
            pytest.fail("two processes in one workspace")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_is_free_as_soon_as_its_holder_dies(workspace, holder, how):
    holder.send_signal(how)
    holder.wait()
    with workspace_lock(workspace):
        record_run(workspace, "pilot_baseline")
    assert [path.name for path in workspace.parent.glob(".pilot.*")] == [".pilot.lock"]


@pytest.mark.parametrize("spelling", [".", "../pilot", "../link-to-pilot"])
def test_other_spellings_of_a_workspace_are_the_same_workspace(workspace, holder, monkeypatch, spelling):
    workspace.with_name("link-to-pilot").symlink_to(workspace)
    monkeypatch.chdir(workspace)
    with pytest.raises(WorkspaceLocked, match=str(holder.pid)), workspace_lock(Path(spelling)):
        pytest.fail("two processes in one workspace")


def test_the_lock_holds_while_a_workspace_is_archived_and_begun_anew(workspace, store, questions):
    with workspace_lock(workspace):
        archive_workspace(workspace)
        init_workspace(workspace, store, V1, questions)
        with pytest.raises(WorkspaceLocked, match=f"process {os.getpid()}"), workspace_lock(workspace):
            pytest.fail("two users of one workspace")


def test_the_lock_does_not_make_the_workspace(tmp_path):
    with workspace_lock(tmp_path / "new" / "pilot"):
        assert not (tmp_path / "new" / "pilot").exists()


def test_the_lock_is_free_after_an_error(workspace):
    with pytest.raises(RuntimeError, match="broken"), workspace_lock(workspace):
        raise RuntimeError("broken")
    with workspace_lock(workspace):
        pass


def test_stale_temporaries_are_harmless_and_go_away_with_the_next_lock(workspace, store):
    stale = [
        workspace.with_name(f".pilot.{'a' * 32}.tmp"),
        workspace / f".manifest.json.{'b' * 32}.tmp",
        workspace / "skills" / f".v2.{'c' * 32}.tmp",
        workspace / "runs" / f".x.{'d' * 32}.tmp",
    ]
    for path in stale:
        write_files(path, {"half.md": b"half"})
    neighbour = workspace.with_name(f".neighbour.{'e' * 32}.tmp")
    neighbour.mkdir()
    use_versions(workspace, store, V2)
    with workspace_lock(workspace):
        assert temporaries(workspace.parent) == [neighbour]
    assert json.loads((workspace / MANIFEST).read_text("utf-8"))["current"] == {
        "skills": "v2",
        "prompts": "v1",
    }
