"""Telemetry: rows of `llm_calls`, prices, and a disk that is full."""

import dataclasses
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.adapters.telemetry import NullTelemetry, SqliteTelemetry, cost_of
from core.protocols import TelemetryRecorder
from core.types import LLMCall
from harness.log import HarnessLog

CALL = LLMCall("agent", "run_baseline/q1/agent", "hash", "big", 1_000_000, 500_000, 1.5, 2, "")
PRICES = {"big": (2.0, 8.0), "gift": (0.0, 0.0)}


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "run") as log:
        yield log


def test_a_call_becomes_a_row_with_every_field(log):
    telemetry = SqliteTelemetry(partial(log.insert_many, "llm_calls"), PRICES)
    telemetry.record(CALL)
    telemetry.flush()
    (row,) = log.query("SELECT * FROM llm_calls")
    assert row["run_id"] == "run"
    expected = {**dataclasses.asdict(CALL), "cost": 2.0 + 4.0}
    assert {name: row[name] for name in expected} == expected
    telemetry.close()


def test_calls_from_many_threads_are_all_kept_in_the_order_of_each(log):
    telemetry = SqliteTelemetry(partial(log.insert_many, "llm_calls"))

    def some(thread):
        for number in range(300):
            telemetry.record(dataclasses.replace(CALL, scope=f"{thread}", attempts=number))

    threads = [threading.Thread(target=some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.close()
    for number in range(4):
        rows = log.query("SELECT attempts FROM llm_calls WHERE scope = ? ORDER BY id", (f"{number}",))
        assert [row["attempts"] for row in rows] == list(range(300))


def test_recording_does_not_wait_for_the_disk():
    disk_is_ready, written = threading.Event(), []

    def write_rows(rows):
        disk_is_ready.wait()
        written.extend(rows)

    telemetry = SqliteTelemetry(write_rows)
    for _ in range(2000):
        telemetry.record(CALL)
    assert written == []
    disk_is_ready.set()
    telemetry.flush()
    assert len(written) == 2000
    telemetry.close()


def test_a_disk_that_is_full_is_told_and_not_written_to_again():
    tries, writing, may_fail = [], threading.Event(), threading.Event()

    def write_rows(rows):
        tries.append(len(rows))
        writing.set()
        may_fail.wait()
        raise OSError("disk full")

    telemetry = SqliteTelemetry(write_rows)
    telemetry.record(CALL)
    writing.wait()
    telemetry.record(CALL)
    may_fail.set()
    for tell in (telemetry.flush, lambda: telemetry.record(CALL), telemetry.close):
        with pytest.raises(OSError, match="disk full"):
            tell()
    assert tries == [1]


def test_closed_telemetry_refuses_and_closes_twice():
    telemetry = SqliteTelemetry(lambda rows: None)
    telemetry.close()
    telemetry.close()
    with pytest.raises(RuntimeError, match="closed"):
        telemetry.record(CALL)


def test_what_is_not_known_costs_none_and_what_is_free_costs_zero():
    assert cost_of(CALL, {}) is None
    assert cost_of(dataclasses.replace(CALL, completion_tokens=None), PRICES) is None
    assert cost_of(dataclasses.replace(CALL, model="gift"), PRICES) == 0
    assert cost_of(dataclasses.replace(CALL, prompt_tokens=0, completion_tokens=0), PRICES) == 0


def test_a_cost_that_the_call_brings_is_kept(log):
    telemetry = SqliteTelemetry(partial(log.insert_many, "llm_calls"), PRICES)
    telemetry.record(dataclasses.replace(CALL, cost=0.0))
    telemetry.close()
    assert [row["cost"] for row in log.query("SELECT cost FROM llm_calls")] == [0.0]


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1000), st.floats(0, 1000))
def test_cost_is_the_sum_of_what_prompt_and_reply_cost_alone(prompt, reply, prompt_price, reply_price):
    prices = {"big": (prompt_price, reply_price)}
    both, prompt_only, reply_only = [
        cost_of(dataclasses.replace(CALL, prompt_tokens=counts[0], completion_tokens=counts[1]), prices)
        for counts in ((prompt, reply), (prompt, 0), (0, reply))
    ]
    assert both == pytest.approx(prompt_only + reply_only)


def test_both_recorders_are_what_the_protocol_asks_for():
    telemetry = SqliteTelemetry(lambda rows: None)
    assert isinstance(telemetry, TelemetryRecorder)
    assert isinstance(NullTelemetry(), TelemetryRecorder)
    NullTelemetry().record(CALL)
    telemetry.close()
