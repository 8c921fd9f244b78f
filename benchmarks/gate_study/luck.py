"""`expected_null_accepts` beside the truth: what it says of a run, and runs of worthless edits alone."""

from benchmarks.gate_study.arms import DEFAULT
from benchmarks.gate_study.families import FAMILIES
from benchmarks.gate_study.run import run
from benchmarks.gate_study.state import RunState
from benchmarks.gate_study.world import Setting
from core.adapters.simulated_edits import EditFamily, EditKind
from core.evolution.planning import expected_null_accepts

DRAWS = 200


def worthless(edits: EditFamily) -> EditFamily:
    """A family of nothing but its worthless edits."""
    null = next(kind for kind in edits if kind.name == "null")
    return (EditKind("null", 1.0, null.rules),)


def luck_of(task: tuple[str, int]) -> dict:
    """For one world: what the formula expects of the gates that the default arm held there (`told`), what
    became of as many worthless edits (`true`), and what the formula says of those (`told_of_null`)."""
    family, seed = task
    setting = Setting(FAMILIES[family], seed)
    only_null = run(Setting(FAMILIES[family], seed, worthless(FAMILIES[family].edits)), DEFAULT)
    told, told_of_null = (_expected(state, seed) for state in (run(setting, DEFAULT), only_null))
    true = {"accepted": only_null.counts["null_accepted"], "kept": len(only_null.kept)}
    return {"family": family, "seed": seed} | {
        f"{name}_{stage}": figures[stage]
        for name, figures in (("told", told), ("true", true), ("told_of_null", told_of_null))
        for stage in ("accepted", "kept")
    }


def _expected(state: RunState, seed: int) -> dict[str, float]:
    expected = expected_null_accepts(state.held, DEFAULT.params_in_force, draws=DRAWS, seed=seed)
    return {"accepted": expected.accepted, "kept": expected.kept}
