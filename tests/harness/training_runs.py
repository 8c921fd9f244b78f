"""Whole training runs on `SimulatedWorld`, and a canonical form of what they leave on disk."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import signal
import sqlite3
from pathlib import Path
from unittest import mock

from core.adapters.journal import Journal, JournaledProvider
from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED
from core.adapters.telemetry import NullTelemetry
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from harness import assembly
from harness.config import RunConfig
from harness.log import HarnessLog
from harness.runner import Runner
from harness.store import init_store

NOT_COMPARED = {
    "*": {"timestamp", "latency_s"},
    "_runs": {"started_at", "finished_at", "config", "git_sha"},
    "_events": {"id"},
    "llm_calls": {"id", "attempts"},
}
"""Columns that two equal runs may differ in: moments, durations, numbers of rows and of attempts, the configuration,
which names folders, and the commit, which may be another by then."""
NOT_COMPARED_IN_FILES = {"created_at"}

TASK_TYPES = ("order", "content")


def make_world(seed=4, **parameters):
    given = {"n_videos": 18, "n_questions": 150, "task_types": TASK_TYPES, "churn": 0.1, **parameters}
    return SimulatedWorld(seed, **given)


def make_config(folder: Path, world, **changes) -> RunConfig:
    """Questions and a store in `folder`, and the configuration of a small run of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [dataclasses.asdict(question) for question in world.questions]
    (folder / "questions.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "skills").mkdir()
    for name, text in world.initial_skills().items():
        (folder / "skills" / name).write_text(text, encoding="utf-8")
    init_store(folder / "store", folder / "skills", DEFAULT_PROMPTS_DIR)
    given = {
        "workspace_dir": str(folder / "experiment"),
        "store_dir": str(folder / "store"),
        "questions": str(folder / "questions.json"),
        "trees_dir": "simulated",
        "run_id": "sim",
        "epochs": 2,
        "n_task_types": len(TASK_TYPES),
        "test_size": 24,
        "val_size": 32,
        "batch_size": 20,
        "edit_budget_start": 1,
        "edit_budget_end": 1,
        "gate_max_questions": 30,
        **changes,
    }
    return RunConfig(**given)


def make_runner(config: RunConfig, world, *, agent=None, family=MIXED, **parts) -> Runner:
    """A runner of the world's own agent and proposer, or of others."""
    given = {
        "telemetry": NullTelemetry(),
        "tool_dispatch_fn": world.tools_for,
        "agent_factory": world.agent if agent is None else agent,
        "proposer": world.proposer(family),
        **parts,
    }
    return Runner(config, **given)


@contextlib.contextmanager
def quick_disk():
    """Inside, nobody waits for the disk: only a power cut, not a kill, could lose something."""
    quick_log = functools.partial(HarnessLog, synchronous="NORMAL")
    with mock.patch("os.fsync", return_value=None), mock.patch.object(assembly, "HarnessLog", quick_log):
        yield


class WatchedAgent:
    """The world's agent; `before(scope)` is called before each rollout."""

    def __init__(self, agent, before, scope=""):
        self._agent, self._before, self._scope = agent, before, scope
        self.fingerprint, self.deterministic = agent.fingerprint, agent.deterministic

    def for_scope(self, scope):
        return WatchedAgent(self._agent.for_scope(scope), self._before, scope)

    async def run(self, *arguments, **options):
        self._before(self._scope)
        return await self._agent.run(*arguments, **options)


def watched(world, before):
    """A factory of watched agents."""
    return lambda: WatchedAgent(world.agent(), before)


class Asked:
    """Keeps the scopes of all rollouts in a file, so that those of a killed process are counted too.

    kill_at: part of a scope; kill_after: rollouts of such scopes that are let through before the process is
    killed.
    """

    def __init__(self, path: Path, kill_at="", kill_after=0):
        self.path, self.kill_at, self.left = path, kill_at, kill_after

    def __call__(self, scope):
        if self.kill_at and self.kill_at in scope:
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{scope}\n")

    def scopes(self):
        return self.path.read_text("utf-8").splitlines() if self.path.exists() else []


class KeptModel:
    """A chat model whose calls go through a journal; those that reach it are noted in a file, by scope."""

    def __init__(self, llm, folder: Path, scope=""):
        self.model, self._llm, self._folder, self._scope = llm.model, llm, folder, scope

    def for_scope(self, scope):
        kept = KeptModel(self._llm, self._folder, scope)
        return JournaledProvider(kept, Journal(self._folder / "journal.db"), scope)

    async def chat(self, messages, **options):
        with (self._folder / "calls.txt").open("a", encoding="utf-8") as file:
            file.write(f"{self._scope}\n")
        return await self._llm.chat(messages, **options)


# A canonical form


def canonical_table(connection, table: str, folder: Path) -> list[str]:
    """A table's rows as sorted JSON, without the columns that are not compared and the folder's name."""
    left_out = NOT_COMPARED["*"] | NOT_COMPARED.get(table, set())
    cursor = connection.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    rows = (dict(zip(names, row, strict=True)) for row in cursor)
    kept = ({name: value for name, value in row.items() if name not in left_out} for row in rows)
    return sorted(json.dumps(row).replace(str(folder), "") for row in kept)


def tables_of(connection) -> list[str]:
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(sql)]


def canonical_tables(folder: Path) -> dict[str, list[str]]:
    """Every table of a run's database in canonical form."""
    with sqlite3.connect(folder / "experiment" / "harness.db") as connection:
        return {table: canonical_table(connection, table, folder) for table in tables_of(connection)}


def without(value, names):
    """A JSON value without the keys that are not compared."""
    if isinstance(value, dict):
        return {name: without(part, names) for name, part in value.items() if name not in names}
    return [without(part, names) for part in value] if isinstance(value, list) else value


def canonical_files(folder: Path) -> dict[str, str]:
    """Every file of store and workspace but databases, locks and the checkpoint before the last."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.name.startswith((".", "harness.db")) or path.suffix == ".prev":
            continue
        text = path.read_text("utf-8").replace(str(folder), "")
        if path.name == "checkpoint.json":
            text = json.dumps(without_seal(text), sort_keys=True)
        elif path.suffix == ".json":
            text = json.dumps(without(json.loads(text), NOT_COMPARED_IN_FILES), sort_keys=True)
        files[name] = text
    return files


def without_seal(text):
    """The state and the run of a checkpoint; its fingerprints name folders."""
    content = json.loads(text)["checkpoint"]
    return {name: content[name] for name in ("run_id", "state")}


def canonical_state(folder: Path) -> dict:
    """All that a run of `folder` has left on disk."""
    return {
        "files": canonical_files(folder),
        "tables": canonical_tables(folder),
    }


def canonical_hash(state: dict) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def differences(one: dict, other: dict) -> list[str]:
    """Names of files and tables that differ, for a message that helps."""
    found = []
    for kind in ("files", "tables"):
        names = one[kind].keys() | other[kind].keys()
        found += sorted(f"{kind} {name}" for name in names if one[kind].get(name) != other[kind].get(name))
    return found


def query(folder: Path, sql: str, *parameters):
    with sqlite3.connect(folder / "experiment" / "harness.db") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, parameters)]
