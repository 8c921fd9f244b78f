"""What came of a training run, read from its database, its store and its result."""

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.demo_runs.intent import lines_kept
from core.evolution.catalogue import load_catalogue
from harness.final_test import FinalTest, TrainResult
from harness.observation import read_dual_metric
from harness.runner import Runner
from harness.store import list_versions, read_version
from harness.summary import gates_frame, purpose_of, select

ACCEPTED = ("kept", "rolled back", "on probation")
_ROLLOUTS = "SELECT run_id FROM predictions WHERE run_id GLOB ? AND source_run_id IS NULL"


async def measured(runner: Runner, result: TrainResult) -> dict[str, Any]:
    """A run's figures; accuracies are of validation unless they say `test`.

    in_force: of the skills that training ended with, before the best were delivered, so that an arm without a
    gate is measured as it is. best: of the best by the loop's own choice, which is made on these questions.
    kept: accepted edits that were not taken back; unsettled: those of them whose probation had not ended.
    """
    config, db_path = runner.config, runner.workspace_dir / "harness.db"
    versions = list_versions(runner.store_dir, "skills")  # only accepts and rollbacks make one
    first, last = (_texts(runner.store_dir, version) for version in (versions[0], versions[-1]))
    rollouts = _training_rollouts(db_path, result.run_id)
    evaluations = read_dual_metric(db_path, result.run_id)
    in_force = await runner.eval(versions[-1], "validation")
    fates = Counter(gates_frame(db_path, result.run_id)["fate"])
    return {
        "status": result.status,
        "rollouts": rollouts,
        "epochs": result.epochs,
        "steps": result.steps,
        "validation_questions": in_force.total,
        "by_epoch": [
            {"epoch": int(row.epoch), "phase": row.phase, "accuracy": round(row.hard, 4)}
            for row in evaluations.itertuples()
            if row.phase in ("baseline", "R", "R2")
        ],
        "before": round(evaluations.loc[evaluations["phase"] == "baseline", "hard"].iloc[0], 4),
        "in_force": round(in_force.accuracy, 4),
        "best": round(result.best.acc, 4),
        "gates": sum(fates.values()),
        "accepted": sum(fates[fate] for fate in ACCEPTED),
        "kept": fates["kept"] + fates["on probation"],
        "unsettled": fates["on probation"],
        "lines": lines_kept(first, last, load_catalogue(Path(config.catalogue))),
        "test": None if result.final is None else _tested(result.final),
    }


def _texts(store_dir: Path, version: str) -> dict[str, str]:
    files = read_version(store_dir, "skills", version)
    return {name: content.decode("utf-8-sig") for name, content in files.items()}


def _training_rollouts(db_path: Path, run_id: str) -> int:
    rows = select(db_path, "predictions", _ROLLOUTS, (f"{run_id}_*",))
    return sum(purpose_of(row["run_id"]) != "test" for row in rows)


def _tested(final: FinalTest) -> dict[str, Any]:
    found = final.comparison
    return {
        "before": round(final.first_score.accuracy, 4),
        "after": round(final.best_score.accuracy, 4),
        "difference": round(found.difference, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "questions": found.n,
        "films": found.groups,
    }
