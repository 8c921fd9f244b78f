"""Tables and frames: what the declaration says holds for every row, written or read."""

import dataclasses
import math
import random
import sqlite3

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.evolution.types import QuestionMetrics, SpanMetrics
from core.types import Prediction
from harness.frames import BATCH_ROWS, read_frame
from harness.log import HarnessLog
from harness.tables import (
    OBSERVATION_TABLES,
    PREDICTIONS,
    QUESTION_METRICS,
    ROLLOUT_TABLES,
    SPAN_EVALUATIONS,
    TRACES,
    Table,
    create_tables,
    fits,
    write_rows,
)

EVERY_KIND = Table(
    "every_kind",
    ("name",),
    {"name": "text", "label": "label", "count": "count", "number": "number", "flag": "flag", "large": "text"},
    payload=frozenset({"large"}),
)


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


def values(frame: pd.DataFrame, name: str) -> list:
    return frame[name].to_numpy(dtype=object, na_value=None).tolist()


text = st.text(st.characters(codec="utf-8"), max_size=12)
rows_of_every_kind = st.lists(
    st.fixed_dictionaries(
        {
            "label": st.none() | text,
            "count": st.none() | st.integers(-(2**63), 2**63 - 1),
            "number": st.none() | st.floats(allow_nan=False),
            "flag": st.none() | st.booleans(),
            "large": st.none() | text,
        }
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(rows_of_every_kind)
async def test_what_is_written_is_read_back_in_every_kind(tmp_path_factory, rows):
    named = [{"name": f"é{i}", **row} for i, row in enumerate(rows)]
    with HarnessLog(tmp_path_factory.mktemp("kinds") / "harness.db", "pilot", synchronous="NORMAL") as log:
        await create_tables(log, [EVERY_KIND])
        await write_rows(log, EVERY_KIND, named)
        frame = read_frame(log.db_path, EVERY_KIND, payload=["large"])
    for name in EVERY_KIND.columns:
        assert values(frame, name) == [row[name] for row in named]


async def test_a_frame_of_many_batches_holds_every_row_in_order_with_its_labels(log):
    generator = random.Random(5)
    n_rows = 2 * BATCH_ROWS + 1
    rows = [
        {
            "name": f"{i:05d}",
            "label": generator.choice([None, "a", "b", f"only {i // 1000}"]),
            "count": i,
            "number": None if i % 3 == 0 else i / 7,
            "flag": [None, True, False][i % 3],
            "large": "x" * 100,
        }
        for i in range(n_rows)
    ]
    await write_rows(log, EVERY_KIND, rows)
    frame = read_frame(log.db_path, EVERY_KIND)
    assert list(frame) == ["run_id", "timestamp", "name", "label", "count", "number", "flag"]
    for name in ("name", "label", "count", "number", "flag"):
        assert values(frame, name) == [row[name] for row in rows]
    assert set(frame["label"].cat.categories) == {row["label"] for row in rows} - {None}


async def test_types_are_those_of_the_declaration_even_when_everything_is_missing(log):
    row = dict.fromkeys(EVERY_KIND.columns)
    await write_rows(log, EVERY_KIND, [{**row, "name": "nothing known"}])
    frame = read_frame(log.db_path, EVERY_KIND)
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "run_id": "category",
        "timestamp": "timestamp[ms, tz=UTC][pyarrow]",
        "name": "string[pyarrow]",
        "label": "category",
        "count": "int64[pyarrow]",
        "number": "double[pyarrow]",
        "flag": "bool[pyarrow]",
    }
    assert frame[["label", "count", "number", "flag"]].isna().all(axis=None)


async def test_the_payload_is_not_even_selected_unless_it_is_asked_for(log):
    await write_rows(log, EVERY_KIND, [{**dict.fromkeys(EVERY_KIND.columns), "name": "q", "large": "long"}])
    assert "large" not in read_frame(log.db_path, EVERY_KIND)
    assert values(read_frame(log.db_path, EVERY_KIND, payload={"large"}), "large") == ["long"]
    with pytest.raises(ValueError, match="no payload column huge; there are: large"):
        read_frame(log.db_path, EVERY_KIND, payload=["huge"])
    # The payload's column is gone from the database, and the frame without it does not notice.
    with sqlite3.connect(log.db_path) as connection:
        connection.execute("ALTER TABLE every_kind DROP COLUMN large")
    assert len(read_frame(log.db_path, EVERY_KIND)) == 1


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("count", "three"),
        ("count", 0.5),
        ("number", "high"),
        ("flag", "yes"),
        ("flag", 0.5),
        ("timestamp", "noon"),
    ],
)
async def test_a_stored_value_that_does_not_fit_is_told_with_table_and_column(log, column, stored):
    await create_tables(log, [EVERY_KIND])
    log.insert("every_kind", {"name": "q", column: stored})
    with pytest.raises(
        ValueError, match=rf"harness\.db: table every_kind, column {column}: a stored value is not a"
    ):
        read_frame(log.db_path, EVERY_KIND)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("count", np.int64(3)),
        ("count", True),
        ("count", 0.5),
        ("number", "0.5"),
        ("flag", 1),
        ("flag", np.True_),
        ("label", 7),
    ],
)
async def test_a_value_of_another_kind_is_refused_before_it_is_written(log, column, value):
    good = {**dict.fromkeys(EVERY_KIND.columns), "name": "good"}
    await write_rows(log, EVERY_KIND, [])
    with pytest.raises(ValueError, match=rf"table every_kind, row \{{'name': 'bad'\}}: column {column}:"):
        await write_rows(log, EVERY_KIND, [good, {**good, "name": "bad", column: value}])
    assert log.query("SELECT count(*) AS n FROM every_kind") == [{"n": 0}]


async def test_all_problems_of_a_row_are_told_at_once(log):
    with pytest.raises(ValueError, match="every_kind") as told:
        await write_rows(
            log, EVERY_KIND, [{"name": "q", "lable": "a", "count": "3", "number": 1.0, "flag": None}]
        )
    for problem in (
        "column label is missing",
        "column large is missing",
        "no column lable",
        "column count: '3'",
    ):
        assert problem in str(told.value)


async def test_nan_is_missing_and_lists_become_json(log):
    row = {**dict.fromkeys(EVERY_KIND.columns), "name": ["a", "é"], "number": math.nan}
    await write_rows(log, EVERY_KIND, [row])
    frame = read_frame(log.db_path, EVERY_KIND)
    assert values(frame, "number") == [None]
    assert values(frame, "name") == ['["a", "é"]']


@given(st.sampled_from(["text", "label", "count", "number", "flag", "moment"]))
def test_none_fits_every_kind(kind):
    assert fits(kind, None)


def test_every_value_of_core_has_its_column():
    for table, value_class in [
        (PREDICTIONS, Prediction),
        (QUESTION_METRICS, QuestionMetrics),
        (SPAN_EVALUATIONS, SpanMetrics),
    ]:
        assert table.columns.keys() == {field.name for field in dataclasses.fields(value_class)} - {"run_id"}


def test_every_table_is_sound():
    tables = (*ROLLOUT_TABLES, *OBSERVATION_TABLES)
    assert len({table.name for table in tables}) == len(tables) == 10
    for table in tables:
        assert set(table.key) <= table.columns.keys()
        assert table.payload <= table.columns.keys() - set(table.key)


async def test_predictions_and_traces_can_be_written_as_one_unit_and_read_typed(log):
    prediction = dataclasses.asdict(
        Prediction("pilot_e1_s0", "q1", "film", "order", "A", evidence="e" * 1000)
    )
    trace = {**dict.fromkeys(TRACES.columns), "question_id": "q1", "step": 0, "node_ids": ["s1", "s2"]}
    await create_tables(log, ROLLOUT_TABLES)
    await log.write_async({"predictions": [prediction], "traces": [trace]})
    predictions = read_frame(log.db_path, PREDICTIONS, run_id="pilot_e1_s0")
    assert values(predictions, "correct") == [None]
    assert values(predictions, "steps_used") == [0]
    assert values(predictions, "no_evidence") == [False]
    assert "evidence" not in predictions
    assert values(read_frame(log.db_path, TRACES), "node_ids") == ['["s1", "s2"]']
