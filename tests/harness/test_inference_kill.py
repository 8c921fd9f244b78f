"""Inference killed with SIGKILL again and again: no prediction lost or doubled, no finished rollout repeated.

Calls are counted by the model's side: a file to which each call is appended before it is answered.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from inference_runs import MockModel, infer, make_questions, rows_of, state_hash
from killed import ended_well, in_child

from harness.log import HarnessLog, open_for_reading

QUESTIONS, CONCURRENCY, TURNS, KILLS = 60, 5, 2, 25
SEED = 20261130


def answer_all(db: Path, calls: Path) -> None:
    """Answers what is not answered yet; checks that the result counts what earlier lives did, too."""
    heard_of = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def hear(messages):
        number = messages[1].content.split("is ")[1].split("?")[0]
        os.write(heard_of, f"{number}\n".encode())
        await asyncio.sleep(0.002)

    async def main():
        with HarnessLog(db, "pilot") as log:
            result = await infer(log, make_questions(QUESTIONS), llm=MockModel(hear), concurrency=CONCURRENCY)
        assert (result.total, result.correct, result.errors, result.rollouts) == (
            QUESTIONS,
            QUESTIONS,
            0,
            QUESTIONS,
        )

    asyncio.run(main())


def calls_in(path: Path) -> list[str]:
    """The question of each call that the model's side has heard."""
    return [f"q{line}" for line in path.read_text().split()] if path.exists() else []


def saved_in(db: Path) -> list[str]:
    """The questions that have a row."""
    if not db.exists():
        return []
    with open_for_reading(db) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'predictions'"
        ).fetchone()
        if not tables[0]:
            return []
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = connection.execute(
            "SELECT question_id, (SELECT count(*) FROM traces WHERE traces.run_id = p.run_id"
            " AND traces.question_id = p.question_id) AS steps FROM predictions AS p"
        ).fetchall()
    assert {steps for _, steps in rows} <= {TURNS}, "a prediction without its trace"
    return [question_id for question_id, _ in rows]


def killed_after(db: Path, calls: Path, more_calls: int) -> None:
    """Starts a process that answers, and kills it once the model's side has heard so many more calls."""
    heard = len(calls_in(calls))
    child = in_child(lambda: answer_all(db, calls))
    # A life that has nothing left to ask ends by itself.
    while len(calls_in(calls)) < heard + more_calls and not os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    ended_well(child)


def test_kill_9_in_the_middle_of_an_inference_loses_and_doubles_nothing(tmp_path):
    assert ended_well(
        in_child(lambda: answer_all(tmp_path / "undisturbed.db", tmp_path / "undisturbed.calls"))
    )

    db, calls = tmp_path / "harness.db", tmp_path / "calls"
    moments = random.Random(SEED)
    for kill in range(KILLS):
        context = f"kill {kill} of seed {SEED}"
        saved, heard = set(saved_in(db)), len(calls_in(calls))
        killed_after(db, calls, moments.randint(1, 9))
        again = saved & set(calls_in(calls)[heard:])
        assert not again, f"{context}: {again} had a row and were asked again"
        assert saved <= set(saved_in(db)), f"{context}: a row is lost"
        assert len(saved_in(db)) == len(set(saved_in(db))), f"{context}: a row is there twice"

    assert ended_well(in_child(lambda: answer_all(db, calls)))
    heard = Counter(calls_in(calls))
    assert set(heard) == {f"q{number}" for number in range(QUESTIONS)}
    # Lost are at most the calls of the rollouts that ran, and of those that were not saved yet.
    assert heard.total() - TURNS * QUESTIONS <= KILLS * 2 * CONCURRENCY * TURNS
    assert heard.total() > TURNS * QUESTIONS, "no kill hit anything"
    with HarnessLog(db, "pilot") as log, HarnessLog(tmp_path / "undisturbed.db", "pilot") as other:
        assert len(rows_of(log, "predictions")) == QUESTIONS
        assert state_hash(log) == state_hash(other), "another end state than the undisturbed run's"
