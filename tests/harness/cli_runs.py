"""The command line as a user runs it, in processes of their own. Run as a program it is `harness` with the
agent and the proposer of a simulated world instead of real ones."""

import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED
from core.adapters.telemetry import NullTelemetry
from harness.cli import main
from harness.log import open_for_reading
from harness.runner import Runner

ROOT = Path(__file__).resolve().parents[2]
HARNESS = (sys.executable, "-c", "import sys; from harness.cli import main; sys.exit(main())")
SIMULATED = (sys.executable, str(Path(__file__)))
DELAY, STUBBORN = "SIMULATED_DELAY_S", "SIMULATED_STUBBORN"


def make_world() -> SimulatedWorld:
    return SimulatedWorld(4, n_videos=18, n_questions=150, task_types=("order", "content"), churn=0.1)


def write_data(folder: Path, world: SimulatedWorld) -> Path:
    """Questions and trees of a world as files in a folder, and its skills."""
    for name in ("trees", "skills"):
        (folder / name).mkdir(parents=True)
    rows = [dataclasses.asdict(question) for question in world.questions]
    (folder / "questions.json").write_text(json.dumps(rows), encoding="utf-8")
    for video_id, film in world.films.items():
        (folder / "trees" / f"{video_id}.json").write_text(film.tree().model_dump_json(), encoding="utf-8")
    for name, text in world.initial_skills().items():
        (folder / "skills" / name).write_text(text, encoding="utf-8")
    return folder


def data_flags(folder: Path) -> list[str]:
    return ["--questions", str(folder / "questions.json"), "--trees-dir", str(folder / "trees")]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without anything that configures a run."""
    named = ("HARNESS_", "AGENT_LLM_", "EVOLVE_LLM_", "JUDGE_LLM_", "VL_LLM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    return {**kept, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", **variables}


def run(
    arguments: Sequence[str],
    *,
    program: Sequence[str] = SIMULATED,
    cwd: Path,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return subprocess.run(
        [*program, *arguments],
        cwd=cwd,
        env=environment(**(variables or {})),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@contextlib.contextmanager
def running(arguments: Sequence[str], *, cwd: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on by itself, and not longer than the block."""
    with subprocess.Popen(
        [*SIMULATED, *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def query(db_path: Path, sql: str) -> list[tuple]:
    """Rows of a database that may not be there yet."""
    if not db_path.exists():
        return []
    with open_for_reading(db_path) as connection:
        return [tuple(row) for row in connection.execute(sql)]


def wait_for_rows(process: subprocess.Popen, db_path: Path, count: int) -> None:
    """Returns when a running command has answered so many questions."""
    has_table = "SELECT count(*) FROM sqlite_master WHERE name = 'predictions'"
    rows = "SELECT count(*) FROM predictions"
    while query(db_path, has_table) in ([], [(0,)]) or query(db_path, rows)[0][0] < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


class SlowAgent:
    """Takes its time before it answers, and may be too stubborn to be cancelled."""

    def __init__(self, agent, delay_s: float):
        self._agent, self._delay_s = agent, delay_s
        self.fingerprint, self.deterministic = agent.fingerprint, agent.deterministic

    def for_scope(self, scope: str) -> "SlowAgent":
        return SlowAgent(self._agent.for_scope(scope), self._delay_s)

    async def run(self, *arguments):
        try:
            await asyncio.sleep(self._delay_s)
        except asyncio.CancelledError:
            if STUBBORN not in os.environ:
                raise
            await asyncio.sleep(3600)
        return await self._agent.run(*arguments)


def build(config, *, executor) -> Runner:
    world, delay_s = make_world(), float(os.environ.get(DELAY, "0"))
    return Runner(
        config,
        telemetry=NullTelemetry(),
        tool_dispatch_fn=world.tools_for,
        agent_factory=lambda: SlowAgent(world.agent(), delay_s),
        proposer=world.proposer(MIXED),
        executor=executor,
    )


if __name__ == "__main__":
    sys.exit(main(build=build))
