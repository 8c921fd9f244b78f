"""What a user may rely on when rows are written to the log of a run."""

import asyncio
import contextlib
import json
import sqlite3
import threading

import pytest

from core.evolution.protocols import RunLog
from harness.log import HarnessLog, LogError, RunIds, RunLogImpl, open_for_reading

SCORES = {"question_id": "TEXT NOT NULL", "score": "REAL"}


@pytest.fixture
def db(tmp_path):
    return tmp_path / "harness.db"


@contextlib.contextmanager
def log_with_scores(db, run_id="pilot", **more):
    with HarnessLog(db, run_id, **more) as log:
        log.create_table("scores", SCORES, ["run_id", "question_id"])
        yield log


def test_create_table_and_insert(db):
    with log_with_scores(db) as log:
        log.create_table("scores", SCORES, ["run_id", "question_id"])
        log.insert("scores", {"question_id": "q1", "score": 0})
        log.insert_many("scores", [{"question_id": "q2", "score": None}, {"question_id": "q3", "score": 1.5}])
        rows = log.query("SELECT * FROM scores ORDER BY question_id")
    assert [row["score"] for row in rows] == [0.0, None, 1.5]
    assert {row["run_id"] for row in rows} == {"pilot"}
    assert all(row["timestamp"] for row in rows)


def test_query_thread_safety(db):
    with log_with_scores(db) as log:
        failures = []

        def work(worker: int) -> None:
            try:
                for number in range(25):
                    log.insert("scores", {"question_id": f"q{worker}-{number}", "score": number})
                    mine = log.query(
                        "SELECT count(*) AS n FROM scores WHERE question_id GLOB ?", [f"q{worker}-*"]
                    )
                    assert mine == [{"n": number + 1}]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert log.query("SELECT count(*) AS n FROM scores") == [{"n": 200}]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "completed"),
        (ValueError, "failed"),
        (KeyboardInterrupt, "interrupted"),
        (asyncio.CancelledError, "interrupted"),
    ],
)
def test_context_manager_status(db, error, status):
    with contextlib.suppress(BaseException), HarnessLog(db, "pilot"):
        if error:
            raise error
    with open_for_reading(db) as connection:
        row = connection.execute("SELECT status, finished_at FROM _runs").fetchone()
    assert row["status"] == status
    assert row["finished_at"]


def test_insert_or_ignore_idempotent(db):
    with HarnessLog(db, "pilot", git_sha="abc", config_snapshot={"epochs": 3}):
        pass
    with HarnessLog(db, "pilot", git_sha="other", config_snapshot={"epochs": 4}) as log:
        rows = log.query("SELECT git_sha, config, status FROM _runs")
    assert rows == [{"git_sha": "abc", "config": '{"epochs": 3}', "status": "running"}]


def test_wal_mode(db):
    with HarnessLog(db, "pilot") as log:
        assert log.query("PRAGMA journal_mode") == [{"journal_mode": "wal"}]
        assert log.query("PRAGMA synchronous") == [{"synchronous": 2}]  # 2 is FULL


async def test_run_log_get_predictions(db):
    with HarnessLog(db, "pilot") as log:
        log.create_table("predictions", SCORES)
        log.insert_many("predictions", [{"question_id": f"q{n}", "score": n} for n in range(5)])
    run_log = RunLogImpl(db)
    assert isinstance(run_log, RunLog)
    assert [row["question_id"] for row in await run_log.get_predictions("pilot")] == [
        f"q{n}" for n in range(5)
    ]
    chosen = await run_log.get_predictions("pilot", question_ids=["q3", "q1", "q9"])
    assert {row["question_id"] for row in chosen} == {"q1", "q3"}
    assert await run_log.get_predictions("pilot", question_ids=[]) == []


async def test_run_log_get_traces(db):
    with HarnessLog(db, "pilot") as log:
        log.create_table("traces", {"question_id": "TEXT", "step": "INTEGER"})
        log.insert_many("traces", [{"question_id": "q1", "step": step} for step in range(3)])
    assert [row["step"] for row in await RunLogImpl(db).get_traces("pilot", question_ids=["q1"])] == [0, 1, 2]


async def test_run_log_readonly(db, tmp_path):
    with HarnessLog(db, "pilot"):
        pass
    assert await RunLogImpl(db).get_predictions("never-seen") == []
    with open_for_reading(db) as connection:
        assert connection.execute("SELECT count(*) FROM _runs").fetchone()[0] == 1
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM _runs")
    missing = tmp_path / "none.db"
    with pytest.raises(LogError, match=r"none\.db: there is no such database"):
        await RunLogImpl(missing).get_predictions("pilot")
    assert not missing.exists()


async def test_an_awaited_insert_is_visible_to_a_reader_at_once(db):
    with log_with_scores(db) as log, open_for_reading(db) as connection:
        for number in range(20):
            await log.insert_async("scores", {"question_id": f"q{number}", "score": number})
            assert connection.execute("SELECT count(*) FROM scores").fetchone()[0] == number + 1


async def test_a_prediction_and_its_traces_are_one_transaction(db):
    with log_with_scores(db) as log:
        log.create_table("traces", {"question_id": "TEXT", "step": "INTEGER NOT NULL"})
        with pytest.raises(sqlite3.IntegrityError):
            await log.write_async(
                {
                    "scores": [{"question_id": "q1", "score": 1}],
                    "traces": [{"question_id": "q1", "step": None}],
                }
            )
        assert log.query("SELECT count(*) AS n FROM scores") == [{"n": 0}]


async def test_one_bad_row_of_a_group_fails_alone(db):
    with log_with_scores(db) as log:
        names = [f"q{number}" for number in range(50)] + ["q7"]
        outcomes = await asyncio.gather(
            *[log._writer.submit_async(statement(name)) for name in names], return_exceptions=True
        )
        failed = [outcome for outcome in outcomes if outcome is not None]
        assert [type(error) for error in failed] == [sqlite3.IntegrityError]
        assert log.query("SELECT count(*) AS n FROM scores") == [{"n": 50}]


def statement(name):
    from harness.writer import insert_statement

    return insert_statement("scores", [{"run_id": "pilot", "question_id": name}])


async def test_a_cancelled_insert_does_not_disturb_the_others(db):
    with log_with_scores(db) as log:
        tasks = [
            asyncio.create_task(log.insert_async("scores", {"question_id": f"q{number}", "score": 0}))
            for number in range(30)
        ]
        await asyncio.sleep(0)
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [
            outcome
            for outcome in outcomes
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError)
        ] == []
        assert log.query("SELECT count(*) AS n FROM scores")[0]["n"] >= 29


def test_the_same_decision_again_overwrites_and_another_is_added(db):
    with HarnessLog(db, "pilot") as log:
        for value in (1, 2):
            log.log_event("accepted", {"P": value}, epoch=0, step=0, target="order.md")
        log.log_event("accepted", {"P": 3}, epoch=0, step=1, target="order.md")
        log.log_event("accepted", {"P": 4}, epoch=0, target="order.md")
        log.log_event("accepted", {"P": 5}, epoch=0, target="order.md")
        log.log_event("unsealed", {"by": "compare"})
        log.log_event("unsealed", {"by": "compare"})
        rows = log.query("SELECT event_type, payload FROM _events ORDER BY id")
    assert [json.loads(row["payload"]).get("P") for row in rows] == [2, 3, 5, None, None]


def test_runs_of_one_database_share_one_writer(db):
    with log_with_scores(db) as log:
        with log.for_run("pilot_e0_R") as evaluation:
            evaluation.insert("scores", {"question_id": "q1", "score": 1})
        log.insert("scores", {"question_id": "q1", "score": 0})
        runs = log.query("SELECT run_id, status FROM _runs ORDER BY run_id")
    assert runs == [{"run_id": "pilot", "status": "running"}, {"run_id": "pilot_e0_R", "status": "completed"}]


@pytest.mark.parametrize("name", ["", "1st", "a b", 'a"b', "a;b", "a" * 64, "a-b", "é"])
def test_names_that_are_no_identifiers_are_refused(db, name):
    with HarnessLog(db, "pilot") as log:
        with pytest.raises(ValueError, match="is not an identifier"):
            log.create_table(name, {"a": "TEXT"})
        with pytest.raises(ValueError, match="is not an identifier"):
            log.create_table("fine", {name: "TEXT"})


@pytest.mark.parametrize("text", ["'; DROP TABLE scores; --", "\ud83d", "\x00", "🎬 صباح", "x" * 3_000_000])
def test_any_text_survives_as_a_value(db, text):
    with log_with_scores(db) as log:
        log.insert("scores", {"question_id": text, "score": 1})
        stored = log.query("SELECT question_id FROM scores")[0]["question_id"]
    assert stored == text.encode("utf-8", "replace").decode("utf-8")


def test_a_full_disk_is_told_in_words_and_loses_nothing_acknowledged(db):
    with log_with_scores(db) as log:
        log.insert("scores", {"question_id": "q1", "score": 1})
        log.query("PRAGMA max_page_count = 20")  # SQLite's own limit answers exactly as a full disk does
        with pytest.raises(LogError, match=r"harness\.db: could not be written: database or disk is full"):
            log.insert("scores", {"question_id": "x" * 500_000, "score": 1})
        log.query("PRAGMA max_page_count = 100000")
        log.insert("scores", {"question_id": "q2", "score": 1})
    with open_for_reading(db) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchone()[0] == 2


def test_a_file_that_is_no_database_is_told_in_words(db):
    db.write_bytes(b"this is a text file, not a database" * 100)
    with pytest.raises(LogError, match="can not be opened for writing: file is not a database"):
        HarnessLog(db, "pilot")


@pytest.mark.parametrize("run", ["", "a_b", "a*b", "a b", "[a]", "a/b"])
def test_run_names_can_not_confuse_selections_by_pattern(run):
    with pytest.raises(ValueError, match="letters, digits and hyphens"):
        RunIds(run)
