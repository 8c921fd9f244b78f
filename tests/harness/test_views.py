"""The views: frames that say what the tables say, pictures that show what the frames say."""

import asyncio
import math
import sqlite3

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from recorded_run import PARAMS, record_run

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateVerdict, PairResult
from harness.log import HarnessLog
from harness.observation import (
    GatePlace,
    read_dual_metric,
    read_gate_evidence,
    read_holdout_eval,
    read_quadrant_pairs,
    read_shadow_gate,
    write_dual_metric,
    write_gate_evidence,
    write_holdout_eval,
    write_quadrant_pairs,
)
from harness.summary import GATE, verdict_of
from harness.views import (
    VERDICTS,
    Z,
    dual_metric_frame,
    gate_evidence_frame,
    holdout_eval_frame,
    plot_dual_metric,
    plot_gate_evidence,
    plot_holdout,
    plot_quadrants,
    plot_shadow_gates,
    quadrant_pairs_frame,
    shadow_accepts,
    shadow_gate_frame,
    skill_diff,
    wilson_interval,
)

matplotlib.use("Agg")

VIEWS = {
    "dual_metric": (read_dual_metric, dual_metric_frame, plot_dual_metric),
    "gate_evidence": (read_gate_evidence, gate_evidence_frame, plot_gate_evidence),
    "quadrant_pairs": (read_quadrant_pairs, quadrant_pairs_frame, plot_quadrants),
    "shadow_gate": (read_shadow_gate, shadow_gate_frame, plot_shadow_gates),
    "holdout_eval": (read_holdout_eval, holdout_eval_frame, plot_holdout),
}
PAIR = {"skills_version": "v1", "prompts_version": "v1"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The database of a whole simulated run."""
    return asyncio.run(record_run(tmp_path_factory.mktemp("recorded")))


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


def rows(db, sql):
    with sqlite3.connect(db) as connection:
        return connection.execute(sql).fetchall()


def texts(axis):
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("name", VIEWS)
def test_a_frame_is_its_table_with_typed_columns_added(recorded, name):
    read, frame_of, _ = VIEWS[name]
    table, frame = read(recorded, "sim"), frame_of(recorded, "sim")
    assert len(frame) == len(table) > 0
    pd.testing.assert_frame_equal(frame[list(table)], table)
    assert set(frame) > set(table)
    for column in frame:
        assert isinstance(frame[column].dtype, pd.ArrowDtype | pd.CategoricalDtype), column


@pytest.mark.parametrize("name", VIEWS)
def test_an_empty_frame_has_the_columns_and_types_of_a_full_one(recorded, name):
    _, frame_of, _ = VIEWS[name]
    full, empty = frame_of(recorded), frame_of(recorded, "nobody")
    assert empty.empty
    assert list(empty) == list(full)
    kinds = [dict(frame.dtypes[frame.dtypes != "category"]) for frame in (full, empty)]
    assert {name: kinds[1].get(name) for name in kinds[0]} == kinds[0]


@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_is_drawn_on_the_axis_given_and_returned(recorded, name):
    _, frame_of, plot = VIEWS[name]
    figure, axes = plt.subplots(1, 2)
    assert plot(frame_of(recorded, "sim"), axes[1]) is axes[1]
    assert not axes[0].has_data()
    assert axes[1].has_data()
    figure.canvas.draw()


@pytest.mark.parametrize("name", VIEWS)
def test_without_an_axis_a_picture_makes_its_own(recorded, name):
    _, frame_of, plot = VIEWS[name]
    axis = plot(frame_of(recorded, "sim"))
    assert axis.figure.axes == [axis]
    axis.figure.canvas.draw()


@pytest.mark.parametrize("name", VIEWS)
def test_a_run_just_begun_has_every_view(tmp_path, name):
    _, frame_of, plot = VIEWS[name]
    with HarnessLog(tmp_path / "harness.db", "new"):
        axis = plot(frame_of(tmp_path / "harness.db"))
    assert len(texts(axis)) == 1
    axis.figure.canvas.draw()


@pytest.mark.parametrize("name", VIEWS)
def test_two_runs_do_not_share_a_picture(recorded, name):
    _, frame_of, plot = VIEWS[name]
    frame = frame_of(recorded, "sim")
    both = pd.concat([frame, frame.assign(run_id="other")])
    with pytest.raises(ValueError, match="holds the runs other, sim; draw one"):
        plot(both)


@pytest.mark.parametrize("name", VIEWS)
def test_a_part_of_a_frame_is_drawn_as_well(recorded, name):
    _, frame_of, plot = VIEWS[name]
    frame = frame_of(recorded, "sim")
    plot(frame[frame["epoch"] == frame["epoch"].max()]).figure.canvas.draw()


# Intervals


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilsons_ends_are_the_shares_from_which_the_observed_one_is_z_standard_errors_away(counts):
    right, n = counts
    share = right / n
    low, high = wilson_interval(share, n)
    assert 0 <= low <= share <= high <= 1
    for end in (low, high):
        assert math.isclose((share - end) ** 2, Z**2 * end * (1 - end) / n, abs_tol=1e-12)


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilsons_interval_mirrors_with_the_share(n, share):
    low, high = wilson_interval(share, n)
    mirrored = wilson_interval(1 - share, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(("share", "n"), [(None, 80), (0.5, 0), (None, 0)])
def test_without_answers_there_is_no_interval(share, n):
    assert wilson_interval(share, n) == (None, None)


# dual_metric


def test_the_best_evaluation_is_the_one_that_the_last_change_names(recorded):
    ((payload,),) = rows(
        recorded,
        "SELECT payload ->> 'run_id' FROM _events WHERE event_type = 'best_changed' ORDER BY id DESC LIMIT 1",
    )
    frame = dual_metric_frame(recorded, "sim")
    best = frame[frame["best"]]
    assert [f"sim_e{row.epoch}_{row.phase}" for row in best.itertuples()] == [payload]


async def test_the_first_best_is_the_baseline(tmp_path):
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new") as log:
        for epoch, phase in [(0, "baseline"), (1, "R")]:
            await write_dual_metric(
                log, epoch=epoch, phase=phase, n=10, hard=0.5, soft=None, mixed_weight=0.5, **PAIR
            )
    assert dual_metric_frame(db)["best"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("source", "label"),
    [("diagnosis", "validation accuracy"), ("diagnosis+validation", "selection accuracy (optimistic)")],
)
async def test_an_accuracy_that_gates_selected_on_is_called_optimistic(tmp_path, source, label):
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new", config_snapshot={"gate_source": source}) as log:
        await write_dual_metric(log, epoch=1, phase="R", n=10, hard=0.5, soft=None, mixed_weight=0.5, **PAIR)
    assert plot_dual_metric(dual_metric_frame(db)).get_ylabel() == label


async def test_unknown_scores_are_gaps_and_not_zeros(tmp_path):
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new") as log:
        for epoch, hard, soft, n in [(0, 0.5, None, 40), (1, None, None, 0), (2, 0.0, 0.8, 40)]:
            phase = "R" if epoch else "baseline"
            await write_dual_metric(
                log, epoch=epoch, phase=phase, n=n, hard=hard, soft=soft, mixed_weight=0.5, **PAIR
            )
    frame = dual_metric_frame(db)
    assert frame["hard_low"].isna().tolist() == [False, True, False]
    axis = plot_dual_metric(frame)
    axis.figure.canvas.draw()
    lines = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert [math.isnan(value) for value in lines["soft"]] == [True, True, False]


# Gates


def test_every_verdict_in_the_frame_is_what_the_gate_decides_on_the_stored_pairs(recorded):
    evidence, pairs = gate_evidence_frame(recorded, "sim"), quadrant_pairs_frame(recorded, "sim")
    assert evidence["last"].sum() == len(
        rows(recorded, "SELECT 1 FROM _events WHERE event_type LIKE '%ed' AND step IS NOT NULL")
    )
    for key, gate in evidence.groupby(GATE, observed=True):
        own = pairs.set_index(GATE).loc[[key]]
        columns = [
            "question_id",
            "base_correct",
            "cand_correct",
            "base_soft",
            "cand_soft",
            "weight",
            "is_probe",
        ]
        blocks = [
            [PairResult(*values) for values in block[columns].to_numpy(object, na_value=None).tolist()]
            for _, block in own.groupby("block")
        ]
        for row, seen in zip(gate.to_dict("records"), range(1, len(blocks) + 1), strict=True):
            is_last = sum(map(len, blocks[:seen])) == row["planned"]
            again = gate_decision(
                GateEvidence.from_blocks(row["planned"], blocks[:seen]), PARAMS, is_last_block=is_last
            )
            assert verdict_of(row) == again
            assert row["explanation"] == again.explain()


def test_each_gate_is_a_line_in_the_colour_of_its_verdict(recorded):
    frame = gate_evidence_frame(recorded, "sim")
    axis = plot_gate_evidence(frame)
    drawn = [line for line in axis.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 2]
    drawn = [to_hex(line.get_color()).upper() for line in drawn if line.get_xdata()[0] == 0]
    wanted = [VERDICTS[verdict][1].upper() for verdict in frame.loc[frame["last"], "verdict"]]
    assert sorted(drawn) == sorted(wanted)


async def test_gates_without_a_test_or_an_end_are_drawn_too(tmp_path):
    db = tmp_path / "harness.db"
    aborted = GateVerdict("REJECT", "infra_abort", 30, 10, 6, 1, 0, 1, 1, 0, 0.6, 0.05)
    undecided = GateVerdict(
        "CONTINUE", "undecided", 30, 10, 0, 2, 1, 3, 1, 0, 0.6, 0.05, None, 0.6, 0.5, 0.0, 0.4, 3, 1.1
    )
    with HarnessLog(db, "new") as log:
        for step, verdict in enumerate([aborted, undecided]):
            place = GatePlace(1, step, "order.md", "0a1b2c3d")
            await write_gate_evidence(log, place, block=0, verdict=verdict, rollouts=20, cached=0)
    frame = gate_evidence_frame(db)
    assert frame["verdict"].tolist() == ["aborted", "CONTINUE"]
    assert "no test took place" in frame["explanation"].iloc[0]
    axis = plot_gate_evidence(frame)
    axis.figure.canvas.draw()
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels[:2] == ["aborted: too many errors (1)", "undecided so far (1)"]


# Pairs and shadows


def test_cells_of_the_quadrants_add_up_to_the_stored_pairs(recorded):
    frame = quadrant_pairs_frame(recorded, "sim")
    axis = plot_quadrants(frame)
    improved = sum(int(text.split()[0]) for text in texts(axis))
    assert improved == (frame["quadrant"] == "improved").sum()
    cells = frame.groupby(["task_type", "is_probe", "epoch", "step"], observed=True).ngroups
    assert len(texts(axis)) == cells
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["content", "content, probes", "order", "order, probes"]


async def test_missing_answers_show_in_their_cell(tmp_path):
    db = tmp_path / "harness.db"
    names = ["q1", "q2", "q3"]
    with HarnessLog(db, "new") as log:
        await write_quadrant_pairs(
            log,
            GatePlace(1, 0, "order.md", "0a1b2c3d"),
            block=0,
            pairs=[PairResult("q1", None, True), PairResult("q2", False, True), PairResult("q3", True, True)],
            task_types=dict.fromkeys(names, "order"),
            p_hats=dict.fromkeys(names, 0.5),
            base_run_ids=dict.fromkeys(names, "base"),
            cand_run_id="cand",
        )
    assert texts(plot_quadrants(quadrant_pairs_frame(db))) == ["+1 \N{MINUS SIGN}0\n=1/0\n?1"]


def test_the_deciding_gate_stands_beside_its_shadows(recorded):
    accepts = shadow_accepts(shadow_gate_frame(recorded, "sim"))
    evidence = gate_evidence_frame(recorded, "sim")
    verdicts = evidence[evidence["last"]].set_index(GATE)["verdict"]
    assert accepts["deciding gate"].to_dict() == verdicts.str.startswith("ACCEPT").to_dict()


def test_agreement_is_mutual_and_complete_with_oneself(recorded):
    axis = plot_shadow_gates(shadow_gate_frame(recorded, "sim"))
    (image,) = axis.images
    shares = image.get_array()
    assert (shares == shares.T).all()
    assert (shares.diagonal() == 1).all()


# Held-out questions


def test_the_final_test_is_marked_in_the_held_out_evaluations(recorded):
    frame = holdout_eval_frame(recorded, "sim")
    assert frame["final"].tolist() == ["initial", "best"]
    labels = [text.get_text() for text in plot_holdout(frame).get_legend().get_texts()]
    assert [label.partition(" (")[0] for label in labels] == ["final test, initial", "final test, best"]


async def test_evaluations_during_training_are_not_the_final_test(tmp_path):
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new") as log:
        for epoch, n, correct in [(1, 40, 20), (2, 0, 0)]:
            await write_holdout_eval(log, epoch=epoch, pool="test", n=n, correct=correct, **PAIR)
    frame = holdout_eval_frame(db)
    assert frame["final"].isna().all()
    assert frame["low"].isna().tolist() == [False, True]
    plot_holdout(frame).figure.canvas.draw()


def test_a_pool_that_nobody_asked_is_said_to_be_sealed(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "new"):
        axis = plot_holdout(holdout_eval_frame(tmp_path / "harness.db"))
    assert texts(axis) == ["sealed: no held-out question has been answered"]


# Text


def test_a_difference_is_found_from_the_database_as_from_the_store(recorded):
    by_database = skill_diff(recorded, "v1", "v2")
    assert by_database == skill_diff(recorded.parent / "store", "v1", "v2")
    added = [line for line in str(by_database).splitlines() if line.startswith("+-")]
    assert added
    assert all("simulated effect" in line for line in added)
