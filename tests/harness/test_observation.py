"""Five tables and two reports: what is written is what is read, and nothing else is touched."""

import dataclasses
import json
import os

import pandas as pd
import pytest

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, GateVerdict, PairResult
from core.evolution.shadow import SHADOW_GATES, shadow_verdicts
from harness.log import HarnessLog, LogError, open_for_reading
from harness.observation import (
    EpochReport,
    FileReport,
    GatePlace,
    StepReport,
    mixed_score,
    read_dual_metric,
    read_gate_evidence,
    read_holdout_eval,
    read_quadrant_pairs,
    read_shadow_gate,
    write_dual_metric,
    write_epoch_report,
    write_gate_evidence,
    write_holdout_eval,
    write_quadrant_pairs,
    write_shadow_gate,
    write_step_report,
)
from harness.store import StoreError
from harness.tables import OBSERVATION_TABLES, create_tables

PLACE = GatePlace(epoch=2, step=1, target_file="order.md", candidate_hash="0a1b2c3d")
VERSIONS = {"skills_version": "v2", "prompts_version": "v1"}
PAIRS = [
    PairResult("q1", False, True, 0.0, None, weight=3),
    PairResult("q2", True, False, is_probe=True),
    PairResult("q3", True, True, 1.0, 0.5),
    PairResult("q4", False, False),
    PairResult("q5", True, None),
]
NAMES = [pair.question_id for pair in PAIRS]
READERS = (read_dual_metric, read_shadow_gate, read_holdout_eval, read_gate_evidence, read_quadrant_pairs)


def verdict_on(pairs, **params) -> GateVerdict:
    evidence = GateEvidence.from_blocks(len(pairs), [pairs], [pair.weight for pair in pairs])
    return gate_decision(evidence, GateParams(**params), is_last_block=True)


async def write_pairs(log: HarnessLog, pairs=PAIRS, **changed) -> None:
    facts = {
        "block": 0,
        "task_types": dict.fromkeys(NAMES, "order"),
        "p_hats": {name: i / 10 for i, name in enumerate(NAMES)},
        "base_run_ids": dict.fromkeys(NAMES, "pilot_e1_s0_gate_order_base_11112222"),
        "cand_run_id": "pilot_e2_s1_gate_order_cand_0a1b2c3d",
    }
    await write_quadrant_pairs(log, PLACE, pairs=pairs, **{**facts, **changed})


async def write_everything(log: HarnessLog) -> None:
    await write_dual_metric(log, epoch=1, phase="R", n=80, hard=0.5, soft=None, mixed_weight=0.5, **VERSIONS)
    await write_holdout_eval(log, epoch=3, pool="test", n=80, correct=40, **VERSIONS)
    await write_gate_evidence(log, PLACE, block=0, verdict=verdict_on(PAIRS), rollouts=10, cached=0)
    verdicts = shadow_verdicts(GateEvidence.from_blocks(5, [PAIRS], [3, 1, 1, 1, 1]))
    await write_shadow_gate(log, PLACE, verdicts=verdicts, accepted=True)
    await write_pairs(log)


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


def plain(frame: pd.DataFrame) -> list[dict]:
    """The frame as rows of plain values, `None` where missing, without the moment of writing."""
    columns = {
        name: frame[name].to_numpy(dtype=object, na_value=None) for name in frame if name != "timestamp"
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# Tables


async def test_write_read_dual_metric(log):
    await write_dual_metric(
        log, epoch=0, phase="baseline", n=80, hard=0.4, soft=0.6, mixed_weight=0.25, **VERSIONS
    )
    await write_dual_metric(log, epoch=1, phase="R", n=79, hard=0.0, soft=None, mixed_weight=0.25, **VERSIONS)
    common = {"run_id": "pilot", **VERSIONS, "mixed_weight": 0.25}
    assert plain(read_dual_metric(log.db_path)) == [
        {
            **common,
            "epoch": 0,
            "phase": "baseline",
            "n": 80,
            "hard": 0.4,
            "soft": 0.6,
            "mixed": pytest.approx(0.45),
        },
        {**common, "epoch": 1, "phase": "R", "n": 79, "hard": 0.0, "soft": None, "mixed": None},
    ]


async def test_an_unknown_phase_is_refused(log):
    with pytest.raises(ValueError, match="phase: 'R3' is none of baseline, R, R2, final"):
        await write_dual_metric(
            log, epoch=1, phase="R3", n=1, hard=1.0, soft=None, mixed_weight=0.5, **VERSIONS
        )


async def test_write_read_shadow_gate(log):
    verdicts = shadow_verdicts(GateEvidence.from_blocks(5, [PAIRS], [3, 1, 1, 1, 1]))
    await write_shadow_gate(log, PLACE, verdicts=verdicts, accepted=False)
    rows = plain(read_shadow_gate(log.db_path))
    assert [row["gate"] for row in rows] == list(SHADOW_GATES)
    assert rows == [
        {
            "run_id": "pilot",
            **dataclasses.asdict(PLACE),
            "gate": verdict.gate,
            "decision": "accept" if verdict.accept else "reject",
            "statistic": verdict.statistic,
            "n_pairs": verdict.n_pairs,
            "agrees": not verdict.accept,
        }
        for verdict in verdicts
    ]


async def test_write_read_holdout_eval(log):
    await write_holdout_eval(log, epoch=3, pool="test", n=80, correct=0, soft=0.0, **VERSIONS)
    await write_holdout_eval(
        log, epoch=3, pool="test", n=0, correct=0, skills_version="v9", prompts_version="v1"
    )
    first, second = plain(read_holdout_eval(log.db_path))
    assert (first["accuracy"], first["soft"], first["n"], first["correct"]) == (0.0, 0.0, 80, 0)
    assert (second["accuracy"], second["soft"], second["skills_version"]) == (None, None, "v9")


async def test_write_read_gate_evidence(log):
    verdict = verdict_on(PAIRS)
    await write_gate_evidence(log, PLACE, block=3, verdict=verdict, rollouts=12, cached=4)
    (row,) = plain(read_gate_evidence(log.db_path))
    for field in dataclasses.fields(GateVerdict):
        assert row[field.name] == getattr(verdict, field.name), field.name
    assert (row["block"], row["n_pairs"], row["infra"], row["verdict"]) == (3, 4, 1, verdict.decision)
    assert (row["rollouts"], row["cached"]) == (12, 4)


async def test_an_infrastructure_abort_is_reported_as_aborted_and_not_as_rejected(log):
    pairs = [PairResult(f"q{i}", True, None) for i in range(12)]
    await write_gate_evidence(log, PLACE, block=0, verdict=verdict_on(pairs), rollouts=24, cached=0)
    (row,) = plain(read_gate_evidence(log.db_path))
    assert (row["verdict"], row["reason"], row["n_pairs"], row["infra"]) == ("aborted", "infra_abort", 0, 12)
    assert (row["probability"], row["threshold"], row["e_value"]) == (None, None, None)


async def test_write_read_quadrant_pairs(log):
    await write_pairs(log)
    rows = plain(read_quadrant_pairs(log.db_path))
    assert [row["quadrant"] for row in rows] == [
        "improved",
        "regressed",
        "both_right",
        "both_wrong",
        "missing",
    ]
    for row, pair in zip(rows, PAIRS, strict=True):
        assert (row["base_correct"], row["cand_correct"]) == (pair.base, pair.cand)
        assert (row["base_soft"], row["cand_soft"]) == (pair.base_soft, pair.cand_soft)
        assert (row["is_probe"], row["weight"]) == (pair.is_probe, pair.weight)
    assert [row["p_hat"] for row in rows] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert {row["task_type"] for row in rows} == {"order"}


async def test_a_gate_can_be_decided_again_from_its_rows(log):
    await write_pairs(log)
    names = ["question_id", "base_correct", "cand_correct", "base_soft", "cand_soft", "weight", "is_probe"]
    again = [PairResult(*(row[name] for name in names)) for row in plain(read_quadrant_pairs(log.db_path))]
    assert verdict_on(again) == verdict_on(PAIRS)
    soft = {"metric": "soft", "min_discordant_provisional": 1}
    assert verdict_on(again, **soft) == verdict_on(PAIRS, **soft)


async def test_a_question_without_facts_is_told_by_name_and_nothing_is_written(log):
    await create_tables(log, OBSERVATION_TABLES)
    with pytest.raises(KeyError, match="q3"):
        await write_pairs(log, p_hats=dict.fromkeys(["q1", "q2"], 0.5))
    assert len(read_quadrant_pairs(log.db_path)) == 0


# Habits


async def test_null_not_zero_for_soft(log):
    await write_everything(log)
    with open_for_reading(log.db_path) as connection:
        assert (
            tuple(connection.execute("SELECT typeof(soft), typeof(mixed) FROM dual_metric").fetchone())
            == ("null",) * 2
        )
        assert connection.execute("SELECT typeof(soft) FROM holdout_eval").fetchone()[0] == "null"
        soft = connection.execute(
            "SELECT question_id, typeof(base_soft), typeof(cand_soft) FROM quadrant_pairs"
        )
        assert [tuple(row) for row in soft][:2] == [("q1", "real", "null"), ("q2", "null", "null")]
    frame = read_dual_metric(log.db_path)
    assert frame["soft"].isna().all()
    assert mixed_score(0.5, 0.0, 0.5) == 0.25
    assert mixed_score(None, 0.0, 0.5) is None


async def test_bools_are_stored_as_0_and_1_and_read_as_bools(log):
    await write_everything(log)
    with open_for_reading(log.db_path) as connection:
        stored = connection.execute(
            "SELECT is_probe, base_correct, cand_correct FROM quadrant_pairs ORDER BY question_id"
        )
        assert [tuple(row) for row in stored] == [(0, 0, 1), (1, 1, 0), (0, 1, 1), (0, 0, 0), (0, 1, None)]
    frame = read_quadrant_pairs(log.db_path)
    assert {str(frame[name].dtype) for name in ("is_probe", "base_correct", "cand_correct")} == {
        "bool[pyarrow]"
    }


async def test_read_only_connection(log, tmp_path):
    await write_everything(log)
    runs = log.query("SELECT * FROM _runs")
    files = sorted(os.listdir(tmp_path))
    for read in READERS:
        assert len(read(log.db_path)) > 0
    assert log.query("SELECT * FROM _runs") == runs
    assert sorted(os.listdir(tmp_path)) == files
    for read in READERS:
        with pytest.raises(LogError, match="there is no such database"):
            read(tmp_path / "none.db")
    assert sorted(os.listdir(tmp_path)) == files


async def test_writing_everything_again_changes_nothing_but_the_moment(log):
    await write_everything(log)
    before = [plain(read(log.db_path)) for read in READERS]
    await write_everything(log)
    assert [plain(read(log.db_path)) for read in READERS] == before


async def test_a_corrected_row_takes_the_place_of_the_old_one(log):
    await write_everything(log)
    await write_pairs(log, [dataclasses.replace(PAIRS[4], cand=True)])
    assert [row["quadrant"] for row in plain(read_quadrant_pairs(log.db_path))][4:] == ["both_right"]


async def test_creating_the_tables_is_idempotent_and_their_keys_begin_with_the_run(log):
    for _ in range(2):
        await create_tables(log, OBSERVATION_TABLES)
    for table in OBSERVATION_TABLES:
        columns = log.query(f"SELECT name, pk, \"notnull\" FROM pragma_table_info('{table.name}')")
        key = {row["name"]: row for row in columns if row["pk"]}
        assert tuple(sorted(key, key=lambda name: key[name]["pk"])) == table.primary_key
        assert table.primary_key[0] == "run_id"
        assert all(row["notnull"] for row in key.values())


async def test_runs_in_one_database_are_kept_apart(log):
    await write_everything(log)
    with log.for_run("second") as second:
        await write_everything(second)
    for read in READERS:
        both, one = read(log.db_path), read(log.db_path, "second")
        assert len(both) == 2 * len(one) > 0
        assert set(one["run_id"]) == {"second"}


async def test_types_come_from_the_declaration_and_not_from_the_rows(log):
    empty = [read(log.db_path).dtypes for read in READERS]  # no table is there yet
    await write_everything(log)
    for read, before in zip(READERS, empty, strict=True):
        after = read(log.db_path).dtypes
        assert [str(kind) for kind in after] == [str(kind) for kind in before]
        assert after.index.equals(before.index)
        assert not any(str(kind) == "object" for kind in after)


# Reports

SKIPPED = FileReport("counting.md", ("counting",), "skipped", "insufficient_evidence")
STEP = StepReport("pilot", 2, 1, 9, edit_budget=3, n=16, correct=4, errors=0, files=())
EPOCH = EpochReport(
    run_id="pilot",
    epoch=2,
    skills_version="v4",
    prompts_version="v2",
    hard=0.5,
    soft=None,
    mixed=None,
    r2_hard=None,
    accepted=1,
    rejected=2,
    skipped=3,
    aborted=0,
    kept=("order.md",),
    rolled_back=("counting.md", "größe.md"),
    system_action="updated",
    tool_action="none",
    best_changed=False,
    best_skills_version="v2",
    best_prompts_version="v1",
    steps_since_best=5,
)


def test_write_step_report(tmp_path):
    verdict = verdict_on(PAIRS)
    gated = FileReport(
        "order.md", ("order",), "rejected", verdict.reason, 2, None, verdict, rollouts=10, cached=0
    )
    path = write_step_report(tmp_path / "runs", dataclasses.replace(STEP, files=(gated, SKIPPED)))
    assert path == tmp_path / "runs" / "pilot" / "reports" / "step_e2_s1.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert (written["epoch"], written["step"], written["global_step"], written["accuracy"]) == (2, 1, 9, 0.25)
    order, counting = written["files"]
    for field in dataclasses.fields(GateVerdict):
        assert order[f"gate_{field.name}"] == getattr(verdict, field.name)
    assert order["gate_explanation"] == verdict.explain()
    assert (order["rollouts"], order["cached"], order["edits"]) == (10, 0, 2)
    assert order.keys() == counting.keys()


def test_write_step_report_skipped_null_fields(tmp_path):
    path = write_step_report(tmp_path, dataclasses.replace(STEP, files=(SKIPPED,)))
    (written,) = json.loads(path.read_text(encoding="utf-8"))["files"]
    gate = {name: value for name, value in written.items() if name.startswith("gate_")}
    assert gate.keys() >= {f"gate_{field.name}" for field in dataclasses.fields(GateVerdict)}
    assert set(gate.values()) == {None}
    assert (written["rollouts"], written["cached"], written["result_version"]) == (None, None, None)
    assert (written["outcome"], written["reason"]) == ("skipped", "insufficient_evidence")


def test_a_step_whose_rollouts_all_broke_down_has_no_accuracy(tmp_path):
    path = write_step_report(tmp_path, dataclasses.replace(STEP, n=3, correct=0, errors=3))
    assert json.loads(path.read_text())["accuracy"] is None
    path = write_step_report(tmp_path, dataclasses.replace(STEP, n=3, correct=0, errors=2))
    assert json.loads(path.read_text())["accuracy"] == 0.0


def test_write_epoch_report(tmp_path):
    path = write_epoch_report(tmp_path, EPOCH)
    assert path == tmp_path / "pilot" / "reports" / "epoch_e2.json"
    assert "größe.md" in path.read_text(encoding="utf-8")
    as_json = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(EPOCH).items()
    }
    assert json.loads(path.read_text(encoding="utf-8")) == as_json


@pytest.mark.parametrize("name", ["system_action", "tool_action"])
def test_a_prompt_action_is_one_of_three_words(name):
    for word in ("updated", "reverted", "none"):
        assert getattr(dataclasses.replace(EPOCH, **{name: word}), name) == word
    for other in ("kept", "", None, "Updated"):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(EPOCH, **{name: other})


def test_a_report_written_again_has_the_same_bytes_and_leaves_nothing_beside_it(tmp_path):
    first = write_epoch_report(tmp_path, EPOCH).read_bytes()
    assert write_epoch_report(tmp_path, EPOCH).read_bytes() == first
    assert os.listdir(tmp_path / "pilot" / "reports") == ["epoch_e2.json"]


def test_a_report_that_can_not_be_replaced_leaves_the_old_one_whole(tmp_path, monkeypatch):
    path = write_step_report(tmp_path, STEP)
    before = path.read_bytes()

    def refuses(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuses)
    with pytest.raises(StoreError, match="No space left"):
        write_step_report(tmp_path, dataclasses.replace(STEP, correct=9))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("run_id", ["../else", "a/b", "", "a_b", ".."])
def test_a_report_never_leaves_its_folder(tmp_path, run_id):
    with pytest.raises(ValueError, match="run name"):
        write_step_report(tmp_path / "runs", dataclasses.replace(STEP, run_id=run_id))
    with pytest.raises(ValueError, match="run name"):
        write_epoch_report(tmp_path / "runs", dataclasses.replace(EPOCH, run_id=run_id))
    assert not (tmp_path / "else").exists()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"n": 5, "correct": 9}, "correct = 9: impossible for n = 5"),
        ({"n": 5, "correct": -1}, "correct = -1"),
        ({"pool": "tset"}, "pool: 'tset' is none of test, validation"),
        ({"soft": 1.5}, r"soft: 1\.5 is not in \[0, 1\]"),
    ],
)
async def test_an_impossible_held_out_evaluation_is_not_stored(tmp_path, changed, named):
    good = {"epoch": 3, "pool": "test", "n": 80, "correct": 40, **VERSIONS}
    with HarnessLog(tmp_path / "harness.db", "pilot") as log:
        with pytest.raises(ValueError, match=named):
            await write_holdout_eval(log, **{**good, **changed})
        await write_holdout_eval(log, **good)
    assert len(read_holdout_eval(tmp_path / "harness.db")) == 1


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"hard": 7.5}, r"hard: 7\.5"),
        ({"soft": -0.1}, r"soft: -0\.1"),
        ({"mixed_weight": 2}, "mixed_weight: 2"),
        ({"n": -1}, "impossible for n = -1"),
        ({"hard": float("nan")}, "hard: nan"),
    ],
)
async def test_an_impossible_metric_is_not_stored(tmp_path, changed, named):
    good = {"epoch": 1, "phase": "R", "n": 8, "hard": 0.5, "soft": None, "mixed_weight": 0.5, **VERSIONS}
    with HarnessLog(tmp_path / "harness.db", "pilot") as log:
        with pytest.raises(ValueError, match=named):
            await write_dual_metric(log, **{**good, **changed})
        await write_dual_metric(log, **good)
    assert len(read_dual_metric(tmp_path / "harness.db")) == 1


def test_impossible_reports_can_not_be_made():
    with pytest.raises(ValueError, match="errors = 12: impossible for n = 10"):
        dataclasses.replace(STEP, n=10, correct=0, errors=12)
    with pytest.raises(ValueError, match="outcome: 'acepted' is none of accepted"):
        dataclasses.replace(SKIPPED, outcome="acepted")


def test_a_report_that_finds_a_file_in_place_of_its_folder_says_so(tmp_path):
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(StoreError, match=r"runs/pilot/reports: could not be made: Not a directory"):
        write_step_report(tmp_path / "runs", STEP)
    assert write_step_report(str(tmp_path / "text"), STEP).is_file()
