"""A training run whose agent, judge and evolver are chat models behind servers on loopback.

Run as a program it trains in the folder given, and is killed at the moment given, by its name in `KILLED`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest import mock

sys.path.append(str(Path(__file__).parents[1] / "adapters"))

from cli_runs import environment
from fault_server import KEY, MODEL, FaultServer
from training_runs import make_config, quick_disk

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED
from core.types import Message
from harness import probation
from harness.config import RunConfig
from harness.from_config import KeptProvider
from harness.runner import Runner
from harness.training import Keeper

CONCURRENCY = 4
SIZES = {
    "epochs": 3, "batch_size": 12, "min_class": 2, "val_size": 16, "test_size": 10, "gate_max_questions": 20,
    "momentum_samples": 4, "evolve_targets": "skills+system",
}  # fmt: skip
SEED = 5


def make_world() -> SimulatedWorld:
    """Whether an answer is right hangs on the text alone, as behind a server that knows no rollouts; half of
    the questions have other luck under each text, so that gates have something to be wrong about."""
    return SimulatedWorld(
        SEED, 12, 88, task_types=("order", "content"), accuracy=0.35, churn=0.0, text_noise=0.5
    )


def replying(role) -> Callable:
    """A role of the world as the reply of a server."""
    return lambda body: role.reply([Message(one["role"], one["content"]) for one in body["messages"]])


@contextlib.asynccontextmanager
async def serving(world: SimulatedWorld) -> AsyncIterator[dict[str, FaultServer]]:
    """A server for each role, by the beginning of its variables, while the block lasts."""
    roles = {"AGENT": world.agent_llm(), "JUDGE": world.judge_llm(), "EVOLVE": world.evolver_llm(MIXED)}
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(FaultServer(reply=replying(role)))
            for name, role in roles.items()
        }


def variables(running: dict[str, FaultServer], **changes: str) -> dict[str, str]:
    """Where the endpoints are, as a process's environment says it."""
    named = {}
    for name, server in running.items():
        settings = {"MODEL": MODEL, "BASE_URL": server.base_url, "API_KEY": KEY}
        named |= {f"{name}_LLM_{setting}": value for setting, value in settings.items()}
    return {**named, **changes}


def prepare(folder: Path) -> None:
    """Questions, films, store and configuration of a run in a new folder."""
    world = make_world()
    config = make_config(folder, world, seed=SEED, concurrency=CONCURRENCY, **SIZES)
    trees = folder.parent / "trees"
    trees.mkdir()
    for video_id, film in world.films.items():
        (trees / f"{video_id}.json").write_text(film.tree().model_dump_json(), encoding="utf-8")
    content = {**vars(config), "trees_dir": str(trees)}
    (folder.parent / "config.json").write_text(json.dumps(content), encoding="utf-8")


async def train(folder: Path, running: dict[str, FaultServer], *, kill="", resume=False) -> int:
    """Trains in a process of its own; its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, str(folder), kill, "resume" if resume else ""),
        env=environment(**variables(running)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


# In the process of the run


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_after_calls(part_of_scope: str, calls: int) -> mock._patch:
    """Killed soon after so many calls of such scopes, when one more is begun: others are in flight."""
    real, left = KeptProvider.chat, [calls]

    async def chat(self, messages, **options):
        if part_of_scope in self._scope:
            left[0] -= 1
            if left[0] < 0:
                await asyncio.sleep(0.01)  # the others have sent their calls, and none has its reply yet
                _die()
        return await real(self, messages, **options)

    return mock.patch.object(KeptProvider, "chat", chat)


def _dies_after_step(number: int) -> mock._patch:
    """Killed when the checkpoint of a step has been written."""
    real = Keeper.save

    def save(self, state):
        state = real(self, state)
        if state.global_step == number:
            _die()
        return state

    return mock.patch.object(Keeper, "save", save)


def _dies_settling() -> mock._patch:
    """Killed when a probation was settled and acted upon, before anybody has been told."""
    real = probation.note

    async def note(parts, event_type, payload, **place):
        if event_type == "probation_settled" and payload["decision"] == "rolled_back":
            _die()
        await real(parts, event_type, payload, **place)

    return mock.patch.object(probation, "note", note)


KILLED = {
    "after step 1": lambda: _dies_after_step(1),
    "in a gate": lambda: _dies_after_calls("_cand_", 30),
    "in phase 1": lambda: _dies_after_calls("_e1_R/", 20),
    "in phase 4": _dies_settling,
    "in phase 6": lambda: _dies_after_calls("_mom_new/", 7),
    "in phase 8": lambda: _dies_after_calls("_R2/", 20),
}


def main(folder: Path, kill: str, resume: bool) -> None:
    config = RunConfig(**json.loads((folder.parent / "config.json").read_text("utf-8")))
    with quick_disk(), KILLED[kill]() if kill else contextlib.nullcontext():
        Runner.from_config(config).run(resume=resume)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], bool(sys.argv[3]))
