"""Means and standard errors of the study's cells, as committed JSON and as tables.

A difference is to the default arm in the same worlds, so its standard error is that of pairs. A share (of
worthless edits that were accepted, or kept) is a ratio of sums over runs. Over all families each seed counts
once, with its mean over families, because families of one seed share their world's questions.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.gate_study.arms import ARMS, DEFAULT
from benchmarks.gate_study.families import FAMILIES, SEEDS
from benchmarks.gate_study.study import Row, read_rows

ALL = "all families"
MEASURED = ("gain", "delivered", "null_kept", "harmful_kept", "helpful_kept", "spent", "gates")
MEASURED_OF_SLOW = ("slow_null_kept", "slow_harmful_kept", "slow_helpful_kept")
"""Edits of the system prompt, where an arm has any."""
SHARES = {f"null_{stage}_share": (f"null_{stage}", "null_proposed") for stage in ("accepted", "kept")}

SLOW_REFERENCE = "slow_tau 0.6"
"""The one with which those are compared that edit the system prompt; all others with the default."""

Figure = list[float]
"""A mean and its standard error."""
Cell = tuple[str, str]
"""Family and arm."""
Runs = Mapping[int, Row]
"""Rows by seed."""


def mean_and_error(values: Sequence[float]) -> Figure:
    """The mean of independent values and its standard error; 0 for a single value."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [round(fmean(values), 3), round(error, 3)]


def ratio_and_error(parts: Sequence[float], wholes: Sequence[float]) -> Figure:
    """sum(parts) / sum(wholes) over independent runs, and its standard error (linearised)."""
    if sum(wholes) == 0:
        return [0.0, 0.0]
    ratio = sum(parts) / sum(wholes)
    residuals = [part - ratio * whole for part, whole in zip(parts, wholes, strict=True)]
    error = math.sqrt(sum(residual**2 for residual in residuals)) / sum(wholes)
    return [round(ratio, 4), round(error, 4)]


def cells_of(rows: Iterable[Row], half: str) -> list[dict]:
    """One cell for every family and arm that has rows, then one for every arm over all families that the
    default arm ran in."""
    by_cell: dict[Cell, Runs] = defaultdict(dict)
    for row in rows:
        by_cell[row["family"], row["arm"]][row["seed"]] = row
    for arm in ARMS:
        by_cell |= _over_families(by_cell, arm)
    return [
        {"half": half, "family": family, "arm": arm, **_figures(arm, family, by_cell)}
        for family in [*FAMILIES, ALL]
        for arm in ARMS
        if (family, arm) in by_cell
    ]


def _over_families(by_cell: Mapping[Cell, Runs], arm: str) -> dict[Cell, Runs]:
    """Seed -> the mean row over families, for seeds that ran in every family."""
    ran = [family for family in FAMILIES if (family, DEFAULT.name) in by_cell]
    per_family = [by_cell.get((family, arm), {}) for family in ran]
    seeds = set.intersection(*(set(runs) for runs in per_family)) if ran else set()
    means = {seed: _mean_row([runs[seed] for runs in per_family]) for seed in sorted(seeds)}
    return {(ALL, arm): means} if means else {}


def _mean_row(rows: Sequence[Row]) -> Row:
    numbers = [name for name, value in rows[0].items() if not isinstance(value, str)]
    return {name: fmean(row[name] for row in rows) for name in numbers}


def _figures(arm: str, family: str, by_cell: Mapping[Cell, Runs]) -> dict:
    runs = by_cell[family, arm]
    rows, slow = list(runs.values()), ARMS[arm].slow_edits
    figures: dict = {"runs": len(rows)}
    for name in [*MEASURED, *(MEASURED_OF_SLOW if slow else ())]:
        figures[name] = mean_and_error([row[name] for row in rows])
    for name, (part, whole) in SHARES.items():
        figures[name] = ratio_and_error([row[part] for row in rows], [row[whole] for row in rows])
    others = by_cell.get((family, SLOW_REFERENCE if slow else DEFAULT.name), {})
    both = sorted(runs.keys() & others.keys())
    for name in ("gain", "delivered"):
        if both:
            figures[f"{name}_to"] = mean_and_error([runs[seed][name] - others[seed][name] for seed in both])
    return figures


def luck_cells(rows: Iterable[Row]) -> list[dict]:
    """For every arm and family: the formula's expectation, the truth, and how far off it is, in edits of a
    run."""
    by_cell: dict[Cell, list[Row]] = defaultdict(list)
    for row in rows:
        by_cell[row["family"], row["arm"]].append(row)
    return [
        {"family": family, "arm": arm, **_luck_figures(by_cell[family, arm])}
        for arm in ARMS
        for family in FAMILIES
        if (family, arm) in by_cell
    ]


def _luck_figures(rows: Sequence[Row]) -> dict:
    figures: dict = {"runs": len(rows)}
    for stage in ("accepted", "kept"):
        for source in ("told", "told_of_null", "true"):
            figures[f"{source}_{stage}"] = mean_and_error([row[f"{source}_{stage}"] for row in rows])
        off = [row[f"told_{stage}"] - row[f"true_{stage}"] for row in rows]
        figures[f"off_{stage}"] = mean_and_error(off)
    gates = [row["first_gates"] for row in rows]
    for source in ("told", "true"):
        figures[f"first_{source}_share"] = ratio_and_error([row[f"first_{source}"] for row in rows], gates)
    return figures


def report(rows: Path, out: Path) -> None:
    """Reads what was run, writes the results and prints them."""
    cells = [cell for half in SEEDS for cell in cells_of(read_rows(rows / f"{half}.jsonl"), half)]
    luck = luck_cells(read_rows(rows / "luck.jsonl"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_compact({"default": DEFAULT.name, "cells": cells, "luck": luck}), encoding="utf-8")
    for half in SEEDS:
        for family in [*FAMILIES, ALL]:
            print_cells(f"{half} seeds, {family}", _of(cells, half, family))
    print_luck(luck)


def _of(cells: Iterable[dict], half: str, family: str) -> list[dict]:
    return [cell for cell in cells if cell["half"] == half and cell["family"] == family]


def _compact(results: Mapping) -> str:
    """JSON with one cell a line."""
    parts = []
    for name, value in results.items():
        lines = (
            ",\n".join(json.dumps(one, separators=(",", ":")) for one in value)
            if isinstance(value, list)
            else ""
        )
        parts.append(f'"{name}": [\n{lines}\n]' if isinstance(value, list) else f'"{name}": "{value}"')
    return "{\n" + ",\n".join(parts) + "\n}\n"


COLUMNS = {
    "gain": "net gain", "delivered": "delivered", "null_kept": "null kept",
    "harmful_kept": "harmful kept", "helpful_kept": "helpful kept", "null_accepted_share": "null accepted",
    "null_kept_share": "null outlived", "spent": "rollouts", "gates": "gates",
}  # fmt: skip


def print_cells(title: str, cells: Sequence[Mapping]) -> None:
    """A table of cells: gains in points, counts a run, shares of 1; each with its standard error."""
    if not cells:
        return
    heads = [*COLUMNS.values(), "to default"]
    print(f"\n{title}\n{'':45}{'runs':>5}" + "".join(f"{head:>16}" for head in heads))
    for cell in cells:
        shown = [_shown(cell[name], name) for name in COLUMNS]
        shown.append(_shown(cell.get("gain_to")))
        print(f"{cell['arm']:45}{cell['runs']:>5}" + "".join(f"{one:>16}" for one in shown))


def print_luck(cells: Sequence[Mapping]) -> None:
    """The formula beside the truth, in edits of a run; of the first step's gates, as shares."""
    names = ("told_accepted", "true_accepted", "off_accepted", "told_kept", "true_kept", "off_kept")
    names += ("first_told_share", "first_true_share")
    print(f"\nHad every edit been worthless\n{'':52}{'runs':>5}" + "".join(f"{name:>18}" for name in names))
    for cell in cells:
        print(
            f"{cell['arm'] + ': ' + cell['family']:53}{cell['runs']:>5}"
            + "".join(f"{_shown(cell[name], name):>18}" for name in names)
        )


def _shown(figure: Figure | None, name: str = "") -> str:
    if figure is None:
        return ""
    digits = 3 if name.endswith("share") else 0 if name == "spent" else 2
    return f"{figure[0]:.{digits}f} ± {figure[1]:.{digits}f}"
