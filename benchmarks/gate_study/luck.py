"""`expected_null_accepts` beside the truth: what it says of a run, and runs of worthless edits alone."""

from benchmarks.gate_study.arms import ARMS, Arm
from benchmarks.gate_study.families import FAMILIES
from benchmarks.gate_study.run import batches_of, run, take_step
from benchmarks.gate_study.state import RunState, begin
from benchmarks.gate_study.world import Setting
from core.adapters.simulated_edits import EditFamily, EditKind
from core.evolution.planning import expected_null_accepts

DRAWS = 200


def worthless(edits: EditFamily) -> EditFamily:
    """A family of nothing but its worthless edits."""
    null = next(kind for kind in edits if kind.name == "null")
    return (EditKind("null", 1.0, null.rules),)


def luck_of(task: tuple[str, str, int]) -> dict:
    """For one arm in one world: what the formula expects of the gates that were held there (`told`), what
    became of as many worthless edits (`true`), and what the formula says of those (`told_of_null`).

    `first_told` and `first_true` are the same for the gates of the first step alone, when no text in force
    was chosen by a gate yet.
    """
    arm_name, family, seed = task
    arm, world = ARMS[arm_name], FAMILIES[family]
    null_world = Setting(world, seed, worthless(world.edits))
    first, only_null = _first_step(null_world, arm), run(null_world, arm)
    states = {"told": run(Setting(world, seed), arm), "told_of_null": only_null}
    figures = {name: _expected(state, seed) for name, state in states.items()}
    figures["true"] = {"accepted": only_null.counts["null_accepted"], "kept": len(only_null.kept)}
    figures["first"] = {
        "told": _expected(first, seed)["accepted"],
        "true": first.counts["null_accepted"],
        "gates": len(first.held),
    }
    named = {f"{name}_{stage}": value for name, stages in figures.items() for stage, value in stages.items()}
    return {"arm": arm_name, "family": family, "seed": seed, **named}


def _first_step(setting: Setting, arm: Arm) -> RunState:
    state = begin(setting, arm)
    take_step(state, 0, 0, next(batches_of(state, 0)))
    return state


def _expected(state: RunState, seed: int) -> dict[str, float]:
    expected = expected_null_accepts(state.held, state.arm.params_in_force, draws=DRAWS, seed=seed)
    return {"accepted": expected.accepted, "kept": expected.kept}
