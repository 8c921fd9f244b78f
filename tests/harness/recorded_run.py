"""A small training run on `SimulatedWorld`, written down as the runner writes one: for tests of who reads.

The edits are drawn, the gates judged by the real `gate_decision`, probations settled by the real rule, and
every version stands in a store. Everything in it is simulated. The same seed gives the same run.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_edits import MIXED, EditMaker
from core.evolution.comparison import settle_probation
from core.evolution.edits import EditKey, apply_edits
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, GateVerdict, PairResult
from core.evolution.shadow import shadow_verdicts
from harness.log import HarnessLog, RunIds
from harness.observation import (
    GatePlace,
    reported,
    write_dual_metric,
    write_gate_evidence,
    write_holdout_eval,
    write_quadrant_pairs,
    write_shadow_gate,
)
from harness.store import VersionMeta, advance_version, init_store
from harness.tables import PREDICTIONS, write_rows

PARAMS = GateParams(block=10, max_questions=30)
TASK_TYPES = ("order", "content")
Answers = Mapping[str, bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Pools:
    """Question ids, none in two pools."""

    test: tuple[str, ...]
    validation: tuple[str, ...]
    diagnosis: tuple[str, ...]


@dataclasses.dataclass(slots=True)
class Recording:
    """A run that is being written down, and where."""

    log: HarnessLog
    world: SimulatedWorld
    pools: Pools
    store: Path
    skills: dict[str, str]
    version: str = "v1"
    best: str = "v1"
    measured: dict[str, Answers] = dataclasses.field(default_factory=dict)
    on_probation: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    tried: set[EditKey] = dataclasses.field(default_factory=set)

    @property
    def ids(self) -> RunIds:
        return RunIds(self.log.run_id)


async def record_run(
    folder: Path, *, seed: int = 3, epochs: int = 2, steps: int = 3, run: str = "sim"
) -> Path:
    """Records a whole run in `folder/harness.db`, its versions in `folder/store`; returns the database."""
    db = folder / "harness.db"
    with open_log(db, folder, run=run) as log:
        recording = await begin(log, folder, seed=seed)
        for epoch in range(1, epochs + 1):
            for step in range(steps):
                await record_step(recording, epoch, step)
            await record_epoch_end(recording, epoch)
        await record_final_test(recording, epochs)
    return db


def open_log(db: Path, folder: Path, *, run: str = "sim") -> HarnessLog:
    config = {
        "questions": "simulated questions", "store_dir": str(folder / "store"), "agent": "openai",
        "proposer": "llm", "epochs": 2, "probation": True, "seed": 3, "split_seed": 0,
        **{f"gate_{name}": value for name, value in dataclasses.asdict(PARAMS).items()},
    }  # fmt: skip
    return HarnessLog(db, run, git_sha="0123abcd", config_snapshot=config, synchronous="NORMAL")


async def begin(log: HarnessLog, folder: Path, *, seed: int) -> Recording:
    """Store and baseline: what a run has before its first step."""
    world = SimulatedWorld(seed, 18, 252, TASK_TYPES, churn=0.1)
    ids = [question.question_id for question in world.questions]
    pools = Pools(tuple(ids[:60]), tuple(ids[60:120]), tuple(ids[120:]))
    skills = world.initial_skills()
    for name, files in {
        "skills": skills,
        "prompts": {"system.md": "Answer the simulated question.\n"},
    }.items():
        (folder / name).mkdir()
        write_texts(folder / name, files)
    init_store(folder / "store", folder / "skills", folder / "prompts")
    recording = Recording(log, world, pools, folder / "store", skills)
    answers = await roll_out(recording, recording.ids.baseline(), (*pools.validation, *pools.diagnosis))
    recording.measured["v1"] = {name: answers[name] for name in pools.validation}
    await write_metric(recording, 0, "baseline", recording.measured["v1"])
    return recording


async def roll_out(
    recording: Recording, run_id: str, question_ids: Iterable[str], skills: Mapping[str, str] | None = None
) -> dict[str, bool]:
    """Answers by the world's own draws, each written as a prediction and as a call of the agent."""
    names = list(question_ids)
    by_id = {question.question_id: question for question in recording.world.questions}
    answers: dict[str, bool] = {}
    for task_type in TASK_TYPES:
        members = [name for name in names if by_id[name].task_type == task_type]
        text = (recording.skills if skills is None else skills)[f"{task_type}.md"]
        right = recording.world.correct(recording.world.rows_of(members), text, run_id)
        answers |= dict(zip(members, map(bool, right), strict=True))
    rows = [
        {
            **dict.fromkeys(PREDICTIONS.columns),
            "question_id": name,
            "video_id": by_id[name].video_id,
            "task_type": by_id[name].task_type,
            "correct": answers[name],
            "stop_reason": "submitted",
            "prompt_tokens": 900,
            "completion_tokens": 60,
        }
        for name in names
    ]
    run_log = recording.log.for_run(run_id)
    with run_log:
        await write_rows(run_log, PREDICTIONS, rows)
    return {name: answers[name] for name in names}


async def record_step(recording: Recording, epoch: int, step: int) -> None:
    """A batch, a call of the evolver, and one gate for each skill file."""
    random = np.random.default_rng([17, epoch, step])
    batch = random.choice(recording.pools.diagnosis, 16, replace=False)
    await roll_out(recording, recording.ids.step(epoch, step), map(str, batch))
    for task_type in TASK_TYPES:
        note_call(recording, "evolver", f"e{epoch}_s{step}_{task_type}", 4_000, 300)
        maker = EditMaker(recording.world.responses, MIXED, 5)
        draw, before = f"{epoch} {step}", recording.skills[f"{task_type}.md"]
        edit = maker.make(before, served=[task_type], clusters=[], tried=recording.tried, draw=draw)
        await record_gate(recording, epoch, step, task_type, apply_edits(before, [edit], budget=1).text)


async def record_gate(recording: Recording, epoch: int, step: int, task_type: str, edited: str) -> None:
    """One gate, block by block, and what followed from it."""
    name = f"{task_type}.md"
    place = GatePlace(epoch, step, name, hashlib.sha256(edited.encode()).hexdigest())
    types = {question.question_id: question.task_type for question in recording.world.questions}
    ladder = [other for other in recording.pools.diagnosis if types[other] == task_type]
    ladder = ladder[: PARAMS.max_questions]
    candidate = {**recording.skills, name: edited}
    run_ids = {
        side: recording.ids.gate(epoch, step, task_type, side, place.candidate_hash[:8])
        for side in ("base", "cand")
    }
    blocks: list[list[PairResult]] = []
    verdict = None
    for block, start in enumerate(range(0, len(ladder), PARAMS.block)):
        asked = ladder[start : start + PARAMS.block]
        base = await roll_out(recording, run_ids["base"], asked)
        cand = await roll_out(recording, run_ids["cand"], asked, candidate)
        probes = set(ladder[-PARAMS.n_probes :])
        blocks.append([PairResult(q, base[q], cand[q], is_probe=q in probes) for q in asked])
        evidence = GateEvidence.from_blocks(len(ladder), blocks)
        is_last = start + PARAMS.block >= len(ladder)
        verdict = gate_decision(evidence, PARAMS, is_last_block=is_last)
        rollouts = 2 * evidence.attempts
        await write_gate_evidence(
            recording.log, place, block=block, verdict=verdict, rollouts=rollouts, cached=0
        )
        await write_quadrant_pairs(
            recording.log,
            place,
            block=block,
            pairs=blocks[-1],
            task_types=dict.fromkeys(asked, task_type),
            p_hats=dict.fromkeys(asked, 0.5),
            base_run_ids=dict.fromkeys(asked, run_ids["base"]),
            cand_run_id=run_ids["cand"],
        )
        if verdict.decision != "CONTINUE":
            break
    await write_shadow_gate(
        recording.log, place, verdicts=shadow_verdicts(evidence), accepted=verdict.accepted
    )
    conclude_gate(recording, place, verdict, candidate)


def conclude_gate(
    recording: Recording, place: GatePlace, verdict: GateVerdict, candidate: dict[str, str]
) -> None:
    event = "accepted" if verdict.accepted else "rejected"
    served = {"task_types": [place.target_file.removesuffix(".md")], "on_probation": True}
    decision = {**dataclasses.asdict(verdict), "decision": reported(verdict), **served}
    at = {"epoch": place.epoch, "step": place.step, "target": place.target_file}
    recording.log.log_event(event, decision, **at)
    if verdict.accepted:
        before = (recording.version, recording.skills[place.target_file])
        recording.on_probation.setdefault(place.target_file, before)
        new_version(recording, candidate, f"accept e{place.epoch} s{place.step} {place.target_file}")


def new_version(recording: Recording, skills: dict[str, str], key: str) -> None:
    source = recording.store.parent / "copies" / key.replace(" ", "-")
    source.mkdir(parents=True)
    write_texts(source, skills)
    meta = VersionMeta(source=key.split()[0], parent=recording.version, trigger_run=recording.log.run_id)
    recording.version = advance_version(recording.store, "skills", source, meta, key=key)
    recording.skills = dict(skills)


async def record_epoch_end(recording: Recording, epoch: int) -> None:
    """R, the probations, best; R2 where a file went back."""
    measured = await roll_out(recording, recording.ids.evaluation(epoch, "R"), recording.pools.validation)
    await write_metric(recording, epoch, "R", measured)
    types = {question.question_id: question.task_type for question in recording.world.questions}
    version, rolled_back = recording.version, False
    for target, (base_version, text) in sorted(recording.on_probation.items()):
        base = recording.measured.get(base_version, recording.measured[recording.best])
        ids = [name for name in measured if f"{types[name]}.md" == target]
        settlement = settle_probation([PairResult(q, base[q], measured[q]) for q in ids], PARAMS)
        decision = dataclasses.asdict(settlement)
        recording.log.log_event("probation_settled", decision, epoch=epoch, phase="probation", target=target)
        if settlement.decision == "rolled_back":
            rolled_back = True
            new_version(recording, {**recording.skills, target: text}, f"rollback e{epoch} {target}")
    recording.on_probation.clear()
    recording.measured[version] = measured
    if not rolled_back and sum(measured.values()) > sum(recording.measured[recording.best].values()):
        recording.best = version
        run_id = recording.ids.evaluation(epoch, "R")
        best = {"skills": version, "prompts": "v1", "run_id": run_id, "reason": "more right answers"}
        recording.log.log_event("best_changed", best, epoch=epoch, phase="best")
    if rolled_back:
        again = await roll_out(recording, recording.ids.evaluation(epoch, "R2"), recording.pools.validation)
        await write_metric(recording, epoch, "R2", again)


async def record_final_test(recording: Recording, epochs: int) -> None:
    """Best and the initial pair on the test pool."""
    for side, version in (("baseline", "v1"), ("best", recording.best)):
        run_id = recording.ids.final(side)
        folder = recording.store / "skills" / version
        skills = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
        answers = await roll_out(recording, run_id, recording.pools.test, skills)
        recording.log.set_run_versions(run_id, version, "v1", "simulated questions")
        pair = {"skills_version": version, "prompts_version": "v1"}
        right = sum(answers.values())
        await write_holdout_eval(
            recording.log, epoch=epochs, pool="test", n=len(answers), correct=right, **pair
        )


async def write_metric(recording: Recording, epoch: int, phase: str, answers: Answers) -> None:
    await write_dual_metric(
        recording.log,
        epoch=epoch,
        phase=phase,
        skills_version=recording.version,
        prompts_version="v1",
        n=len(answers),
        hard=sum(answers.values()) / len(answers),
        soft=None,
        mixed_weight=0.5,
    )


def note_call(recording: Recording, role: str, scope: str, prompt: int, completion: int) -> None:
    row = {
        "role": role, "scope": scope, "request_hash": scope, "model": recording.world.model,
        "prompt_tokens": prompt, "completion_tokens": completion, "latency_s": 0.1, "attempts": 1,
        "error": "", "cost": 0.002,
    }  # fmt: skip
    recording.log.insert("llm_calls", row)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
