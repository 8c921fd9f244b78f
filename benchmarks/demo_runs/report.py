"""The figures of the runs, with standard errors over seeds, and which part of the gain is whose."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

from benchmarks.demo_runs.arms import ARMS, LOOP
from benchmarks.demo_runs.training import Row

Figure = tuple[float, float | None]
"""A mean and its standard error; `None` for the error of a single value."""
Runs = Mapping[int, Row]
"""Rows of one arm by seed."""

PARTS = {
    "the gate's": ("loop", "strict", "proposals alike, gate and probation against strict greater"),
    "the proposer's": ("loop", "random", "gate alike, ranked by failing cases against random"),
    "the signals'": (
        "loop",
        "shuffled",
        "gate and ranking alike; others' signals may mislead more than none",
    ),
    "the gate's, on random proposals": ("random", "neither", "proposals alike, gate against strict greater"),
    "the proposer's, without a gate": ("strict", "neither", "no gate in either, ranked against random"),
}
"""Whose part -> the arm that has it, the arm that lacks it, and what else is alike."""


def mean_and_error(values: Sequence[float]) -> Figure:
    """The mean of independent values and its standard error."""
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def by_arm(rows: Sequence[Row]) -> dict[str, Runs]:
    """Arm -> seed -> row, in the order of the arms, without those that have no rows."""
    found = {name: {row["seed"]: row for row in rows if row["arm"] == name} for name in ARMS}
    return {name: runs for name, runs in found.items() if runs}


def gain(row: Row, outcome: str) -> float:
    """Points of validation accuracy gained. outcome: `in_force` or `best`."""
    return 100 * (row[outcome] - row["before"])


def intended(row: Row, intent: str) -> int:
    """How many lines of an intent training brought and kept."""
    return sum(line["intent"] == intent for line in row["lines"])


def difference(having: Runs, lacking: Runs) -> Figure:
    """Mean difference in gain (in force), paired by seed: the same split, the same first batches."""
    seeds = sorted(having.keys() & lacking.keys())
    return mean_and_error(
        [gain(having[seed], "in_force") - gain(lacking[seed], "in_force") for seed in seeds]
    )


def shown(figure: Figure, digits: int = 1) -> str:
    """`+3.2 ± 0.8`."""
    mean, error = figure
    return f"{mean:+.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


COLUMNS: Mapping[str, Callable[[Row], float]] = {
    "gain in force": lambda row: gain(row, "in_force"),
    "gain of best": lambda row: gain(row, "best"),
    "rollouts": lambda row: row["rollouts"],
    "gates": lambda row: row["gates"],
    "accepted": lambda row: row["accepted"],
    "kept": lambda row: row["kept"],
    "unsettled": lambda row: row["unsettled"],
    "useful": lambda row: intended(row, "useful"),
    "nonsense": lambda row: intended(row, "nonsense"),
    "remade": lambda row: intended(row, "remade"),
}

NOTES = """\
Gains are points of validation accuracy; ± is one standard error over seeds. In force: the skills that training
ended with. Best: those that the loop chose at the end of an epoch; a control ends within one, so its best may
lag behind. Best is chosen, and probation settled, on these very questions: both flatter the arms with a gate.
Accepted, kept, unsettled (kept so far: training ended before their probation did): edits. Useful, nonsense:
lines brought and kept that the catalogue's author meant so, by intent, unmeasured; remade: lines whose tactic
was swapped, which nobody intended."""


def report(rows: Sequence[Row]) -> str:
    """All figures as text for a person."""
    arms = by_arm(rows)
    if not arms:
        return "no runs yet"
    parts = [_table(arms), NOTES, _whose(arms), _epochs(arms), _tests(arms)]
    codes = sorted({row["code"] for row in rows})
    parts.append(f"Code: {', '.join(codes)}.{' These are not one version.' if len(codes) > 1 else ''}")
    return "\n\n".join(part for part in parts if part)


def _table(arms: Mapping[str, Runs]) -> str:
    lines = [f"{'':10}{'runs':>5}{'gained':>8}" + "".join(f"{name:>15}" for name in COLUMNS)]
    for name, runs in arms.items():
        rows = list(runs.values())
        gained = sum(gain(row, "in_force") > 0 for row in rows)
        figures = (shown(mean_and_error([column(row) for row in rows])) for column in COLUMNS.values())
        lines.append(
            f"{name:10}{len(rows):>5}{gained:>8}" + "".join(f"{one.lstrip('+'):>15}" for one in figures)
        )
    told = [f"{name}: {ARMS[name].about}" for name in arms]
    return "\n".join([*lines, "", *told])


def _whose(arms: Mapping[str, Runs]) -> str:
    told = []
    for whose, (having, lacking, alike) in PARTS.items():
        if arms.get(having, {}).keys() & arms.get(lacking, {}).keys():
            points = shown(difference(arms[having], arms[lacking]))
            told.append(f"  {whose}: {points} ({having} - {lacking}: {alike})")
    if "neither" in arms:
        points = shown(mean_and_error([gain(row, "in_force") for row in arms["neither"].values()]))
        told.append(f"  neither's: {points} (the gain of neither: what the catalogue and luck bring)")
    heading = "Whose part of the gain in force, in points: the difference of two arms, paired by seed"
    return "\n".join([heading, *told]) if told else ""


def _epochs(arms: Mapping[str, Runs]) -> str:
    runs = {name: arms[name] for name in (LOOP.name, "resplit") if name in arms}
    lines = ["Validation by epoch, % (R: before probations ended, R2: after a rollback)"] if runs else []
    for name, of_arm in runs.items():
        for seed, row in sorted(of_arm.items()):
            told = ", ".join(f"{_place(one)} {100 * one['accuracy']:.1f}" for one in row["by_epoch"])
            lines.append(f"  {name} {seed} (split {row['split_seed']}): {told}")
    return "\n".join(lines)


def _place(evaluation: Mapping) -> str:
    return f"epoch {evaluation['epoch']} {evaluation['phase']}" if evaluation["epoch"] else "before"


def _tests(arms: Mapping[str, Runs]) -> str:
    lines = []
    for name, runs in arms.items():
        tested = {seed: row["test"] for seed, row in sorted(runs.items()) if row["test"] is not None}
        if not tested:
            continue
        label = "re-split, not unseen" if ARMS[name].fresh_split else "the same films in every run"
        lines.append(f"Test, {name} ({label}): accuracy before and after, %, and the difference in points")
        lines += [f"  {seed}: {_tested(one)}" for seed, one in tested.items()]
        gains = [100 * one["difference"] for one in tested.values()]
        above = sum(one["low"] > 0 for one in tested.values())
        lines.append(
            f"  mean {shown(mean_and_error(gains))}, gained {sum(one > 0 for one in gains)} of {len(gains)},"
            f" interval above 0 in {above}"
        )
    return "\n".join(lines)


def _tested(test: Mapping) -> str:
    before, after, gained, low, high = (
        100 * test[name] for name in ("before", "after", "difference", "low", "high")
    )
    asked = f"{test['questions']} questions, {test['films']} films"
    return f"{before:.1f} -> {after:.1f}, {gained:+.1f} ({low:+.1f} to {high:+.1f}; {asked})"
