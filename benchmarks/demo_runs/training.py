"""One training run of one arm: its configuration, its runner, and what came of it."""

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.demo_runs.arms import Arm, SealedExecutor, strict_greater
from benchmarks.demo_runs.measuring import measured
from benchmarks.demo_runs.shuffled import ShuffledProposer, stand_ins
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.evolution.catalogue import RandomProposer, load_catalogue
from core.evolution.protocols import Proposer
from core.questions import load_benchmark
from harness.config import ConfigError, RunConfig
from harness.parts import derived_seed
from harness.pools import Pools, build_pools, cut_of
from harness.runner import Runner
from harness.store import init_store

SKILLS = Path("data/demo/skills")
EPOCHS_OF_A_CONTROL = 10
"""More than it can make: its rollouts end it."""
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One run. max_rollouts: where it stops, 0: nowhere. split_seed: of the pools' cut."""

    arm: Arm
    seed: int
    split_seed: int
    max_rollouts: int = 0

    @property
    def name(self) -> str:
        return f"{self.arm.name}-{self.seed}"


def config_of(demo: RunConfig, task: Task, folder: Path) -> RunConfig:
    """The demo's configuration, changed for a task. folder: where the run's own folder is."""
    changes: dict[str, Any] = {
        "workspace_dir": str(folder / task.name / "workspace"),
        "store_dir": str(folder / task.name / "store"),
        "run_id": task.name,
        "workers": 1,
        "seed": task.seed,
        "split_seed": task.split_seed,
        "max_rollouts": task.max_rollouts,
        "probation": demo.probation and task.arm.gated,
    }
    if task.arm.control:
        changes |= {"epochs": EPOCHS_OF_A_CONTROL, "early_stop_patience": 0, "holdout_every": 0}
    return dataclasses.replace(demo, **changes)


def settings_of(config: RunConfig) -> str:
    """A digest of all that a run's result depends on, but for the code and the model."""
    places = ("workspace_dir", "store_dir", "workers")
    told = {name: value for name, value in dataclasses.asdict(config).items() if name not in places}
    digest = hashlib.sha256(repr(sorted(told.items())).encode())
    read = [Path(config.catalogue)]
    for folder in (Path(config.questions), Path(config.trees_dir), SKILLS):
        read += sorted(path for path in folder.rglob("*") if path.is_file()) or [folder]
    for path in read:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def pools_of(config: RunConfig) -> Pools:
    """The pools that a run of this configuration has. Raises `ConfigError` when they can not be cut."""
    return build_pools(load_benchmark(config.questions), cut_of(config))


def fresh_split_seeds(demo: RunConfig, n: int) -> list[int]:
    """The first `n` seeds from 1, without the demo's own, with which the pools get their questions.

    Raises `ValueError` when there are too few below 1,000.
    """
    found: list[int] = []
    for seed in (seed for seed in range(1, 1000) if seed != demo.split_seed):
        if len(found) == n:
            break
        with contextlib.suppress(ConfigError):
            pools_of(dataclasses.replace(demo, split_seed=seed))
            found.append(seed)
    if len(found) < n:
        raise ValueError(
            f"split_seed: {len(found)} of {n} cuts give the pools their questions; lower the sizes"
        )
    return found


def proposer_for(arm: Arm, config: RunConfig, ranked: Proposer, pools: Pools) -> Proposer:
    """Who proposes in an arm. ranked: who does in the demo."""
    if arm.signals == "none":
        return RandomProposer(load_catalogue(Path(config.catalogue)))
    if arm.signals == "own":
        return ranked
    return ShuffledProposer(ranked, stand_ins(pools.diagnosis, derived_seed(config.seed, "stand-ins")))


def runner_for(arm: Arm, config: RunConfig) -> Runner:
    """The demo's runner with the arm's proposer and gate, and the test pool closed for a control."""
    runner, pools = Runner.from_config(config, variables={}), pools_of(config)
    changes: dict[str, Any] = {"proposer": proposer_for(arm, config, runner.players.proposer, pools)}
    if not arm.gated:
        changes["gate"] = strict_greater
    if arm.control:
        changes["executor"] = SealedExecutor(frozenset(question.question_id for question in pools.test))
    runner.players = dataclasses.replace(runner.players, **changes)
    return runner


async def train(arm: Arm, config: RunConfig) -> Row:
    """Trains from the beginning, in a store and workspace that are not there yet; what came of it."""
    init_store(Path(config.store_dir), SKILLS, DEFAULT_PROMPTS_DIR)
    runner = runner_for(arm, config)
    with contextlib.redirect_stdout(io.StringIO()):  # each run would print its plan
        result = await runner.train()
    return await measured(runner, result)


def run_task(demo: RunConfig, task: Task, folder: Path, facts: Mapping[str, str]) -> Row:
    """The row of one run, begun anew: what a broken-off one left goes (its scores are kept by content)."""
    config = config_of(demo, task, folder)
    shutil.rmtree(folder / task.name, ignore_errors=True)
    began = time.monotonic()
    row = asyncio.run(train(task.arm, config))
    named = {"arm": task.arm.name, "seed": task.seed, "split_seed": task.split_seed}
    seconds = round(time.monotonic() - began)
    return {**named, **facts, "settings": settings_of(config), "seconds": seconds, **row}
