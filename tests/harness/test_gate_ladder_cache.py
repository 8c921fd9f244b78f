"""The baseline cache: whose answers it keeps, for how long, and what a kill leaves of it."""

import asyncio
import dataclasses
import signal
import sys

import pytest

from harness import baseline_cache
from harness.baseline_cache import BaselineAnswer, BaselineKey, is_baseline_side
from harness.gate_ladder import BaselineCache, agent_fingerprint, prompts_hash, skill_hash
from harness.log import HarnessLog, RunIds, open_for_reading

NAMES = RunIds("pilot")
BASE_RUN = NAMES.gate(1, 0, "order", "base", "0a1b2c3d")
KEY = BaselineKey("q1", "skill", "prompts", "model")
ANSWER = BaselineAnswer(correct=True, soft=0.25, source_run_id=BASE_RUN, epoch=1)

NO_BASELINES = {
    "baseline run": NAMES.baseline(),
    "step": NAMES.step(1, 0),
    "R": NAMES.evaluation(1, "R"),
    "R2": NAMES.evaluation(1, "R2"),
    "held-out": NAMES.evaluation(1, "holdout"),
    "momentum, old": NAMES.evaluation(1, "mom_old"),
    "momentum, new": NAMES.evaluation(1, "mom_new"),
    "comparison base": NAMES.comparison_base(1, "0a1b2c3d"),
    "final test": NAMES.final("baseline"),
    "calibration, candidate": NAMES.calibration("b"),
    "infer": NAMES.infer(),
    "eval": NAMES.evaluated("eval", "v1"),
    "candidate": NAMES.gate(1, 0, "order", "cand", "0a1b2c3d"),
    "candidate of a file with a misleading name": NAMES.gate(1, 0, "a_base_0a1b2c3d", "cand", "0a1b2c3d"),
    "nobody": "",
}


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


async def test_baseline_cache_content_addressed(log):
    cache = await BaselineCache.open(log, max_age=2)
    await cache.put({KEY: ANSWER})
    assert cache.get(BaselineKey("q1", "skill", "prompts", "model"), epoch=1) == ANSWER
    for part in ("question_id", "skill_hash", "prompts_hash", "model_fingerprint"):
        other = dataclasses.replace(KEY, **{part: "another"})
        assert cache.get(other, epoch=1) is None
        await cache.put({other: dataclasses.replace(ANSWER, correct=False)})
    assert cache.get(KEY, epoch=1) == ANSWER
    assert log.query("SELECT count(*) AS n FROM baseline_cache") == [{"n": 5}]


async def test_baseline_cache_disk_first(log, monkeypatch):
    cache = await BaselineCache.open(log, max_age=2)
    seen_while_writing = []
    write_rows = baseline_cache.write_rows

    async def watched(*args):
        await write_rows(*args)
        seen_while_writing.append(cache.get(KEY, epoch=1))

    async def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(baseline_cache, "write_rows", fails)
    with pytest.raises(OSError, match="disk full"):
        await cache.put({KEY: ANSWER})
    assert cache.get(KEY, epoch=1) is None  # not on the disk, so not in memory
    monkeypatch.setattr(baseline_cache, "write_rows", watched)
    await cache.put({KEY: ANSWER})
    assert seen_while_writing == [None]  # the disk had it before the memory did
    assert cache.get(KEY, epoch=1) == ANSWER


KILLED = """
import asyncio, os, signal, sys
from harness import baseline_cache
from harness.baseline_cache import BaselineAnswer, BaselineCache, BaselineKey
from harness.log import HarnessLog

db, moment, run_id = sys.argv[1:]
write_rows = baseline_cache.write_rows

async def killed(*args):
    if moment == "after":
        await write_rows(*args)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    log = HarnessLog(db, "pilot")
    cache = await BaselineCache.open(log, max_age=2)
    await cache.put({BaselineKey("q0", "skill", "prompts", "model"): BaselineAnswer(False, None, run_id, 1)})
    baseline_cache.write_rows = killed
    await cache.put({BaselineKey("q1", "skill", "prompts", "model"): BaselineAnswer(True, 0.25, run_id, 1)})

asyncio.run(main())
"""


@pytest.mark.parametrize(("moment", "expected"), [("before", None), ("after", ANSWER)])
async def test_a_kill_around_the_write_leaves_the_answer_on_the_disk_or_nothing(tmp_path, moment, expected):
    """Killed after the disk and before the memory, the next process finds the answer; before, it does not."""
    db = tmp_path / "harness.db"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(db), moment, BASE_RUN)
    assert await child.wait() == -signal.SIGKILL
    with HarnessLog(db, "pilot") as log:
        cache = await BaselineCache.open(log, max_age=2)
        assert cache.get(KEY, epoch=1) == expected
        assert cache.get(dataclasses.replace(KEY, question_id="q0"), epoch=1) == BaselineAnswer(
            False, None, BASE_RUN, 1
        )
        await cache.put({KEY: ANSWER})  # what the resumed gate does
        assert log.query("SELECT count(*) AS n FROM baseline_cache") == [{"n": 2}]


@pytest.mark.parametrize("run_id", NO_BASELINES.values(), ids=NO_BASELINES.keys())
async def test_no_row_that_orders_a_ladder_or_was_selected_enters_the_baseline_cache(log, run_id):
    cache = await BaselineCache.open(log, max_age=2)
    good = dataclasses.replace(KEY, question_id="q2")
    with pytest.raises(ValueError, match="may not serve as a baseline"):
        await cache.put({good: ANSWER, KEY: dataclasses.replace(ANSWER, source_run_id=run_id)})
    assert (cache.get(KEY, epoch=1), cache.get(good, epoch=1)) == (None, None)
    assert log.query("SELECT count(*) AS n FROM baseline_cache") == [{"n": 0}]


def test_the_baseline_side_of_every_gate_may_enter():
    for stem in ("order", "default-strategy", "object_counting", "x_cand_0a1b2c3d"):
        assert is_baseline_side(NAMES.gate(12, 3, stem, "base", "0a1b2c3d"))
        assert not is_baseline_side(NAMES.gate(12, 3, stem, "cand", "0a1b2c3d"))
    assert is_baseline_side(NAMES.calibration("a"))


async def test_a_missing_answer_is_not_kept_as_a_wrong_one(log):
    cache = await BaselineCache.open(log, max_age=2)
    with pytest.raises(ValueError, match="None is no answer"):
        await cache.put({KEY: dataclasses.replace(ANSWER, correct=None)})
    assert cache.get(KEY, epoch=1) is None


async def test_an_answer_older_than_max_age_epochs_is_a_miss_until_it_is_asked_again(log):
    cache = await BaselineCache.open(log, max_age=2)
    await cache.put({KEY: ANSWER})
    assert [cache.get(KEY, epoch=epoch) for epoch in (1, 2, 3, 4)] == [ANSWER, ANSWER, ANSWER, None]
    again = BaselineAnswer(False, None, NAMES.gate(4, 0, "order", "base", "0a1b2c3d"), epoch=4)
    await cache.put({KEY: again})
    for opened in (cache, await BaselineCache.open(log, max_age=2)):
        assert opened.get(KEY, epoch=6) == again
    assert (await BaselineCache.open(log, max_age=0)).get(KEY, epoch=5) is None


async def test_a_reopened_cache_keeps_false_none_and_zero_apart(log):
    cache = await BaselineCache.open(log, max_age=2)
    answers = {
        dataclasses.replace(KEY, question_id=name): BaselineAnswer(correct, soft, BASE_RUN, 1)
        for name, correct, soft in [("a", False, 0.0), ("b", False, None), ("c", True, 1.0)]
    }
    await cache.put(answers)
    reopened = await BaselineCache.open(log, max_age=2)
    assert {key: reopened.get(key, epoch=1) for key in answers} == answers


async def test_another_training_run_in_the_same_database_starts_with_an_empty_cache(log):
    await (await BaselineCache.open(log, max_age=2)).put({KEY: ANSWER})
    with log.for_run("second") as other:
        assert (await BaselineCache.open(other, max_age=2)).get(KEY, epoch=1) is None


async def test_putting_nothing_is_harmless(log):
    cache = await BaselineCache.open(log, max_age=2)
    await cache.put({})
    with open_for_reading(log.db_path) as connection:
        assert connection.execute("SELECT count(*) FROM baseline_cache").fetchone()[0] == 0


def test_skill_hash_ignores_line_ends_and_trailing_blanks_and_nothing_else():
    text = "# Order\n\n- Look after it.\n  - example"
    for same in (
        text.replace("\n", "\r\n"),
        text.replace("\n", "\r"),
        text + "\n\n",
        text.replace("it.", "it. \t"),
    ):
        assert skill_hash(same) == skill_hash(text)
    for other in (
        text.replace("  -", "-"),
        text.replace("\n\n", "\n"),
        text.lower(),
        text + "x",
        "\n" + text,
    ):
        assert skill_hash(other) != skill_hash(text)


def test_prompts_hash_sees_every_text_under_its_name():
    texts = {"system": "You answer.", "view_node_extract": "Extract.", "tools": "view_node(node_id)"}
    assert prompts_hash(texts) == prompts_hash(dict(reversed(texts.items())))
    for name in texts:
        assert prompts_hash({**texts, name: "changed"}) != prompts_hash(texts)
        assert prompts_hash({other: texts[other] for other in texts if other != name}) != prompts_hash(texts)
    assert prompts_hash({**texts, "system": texts["tools"], "tools": texts["system"]}) != prompts_hash(texts)


def test_agent_fingerprint_sees_every_part():
    parts = {"agent": "model-1 t=0", "max_steps": 15, "skill_mode": "auto", "grader": "choice"}

    def fingerprint(agent, **rules):
        return agent_fingerprint(agent, **rules)

    changed = {"agent": "model-1 t=1", "max_steps": 14, "skill_mode": "none", "grader": "text"}
    seen = {fingerprint(**parts), *(fingerprint(**{**parts, name: value}) for name, value in changed.items())}
    assert len(seen) == 5
