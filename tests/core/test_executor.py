"""The reference executor: order of starting, results as they finish, and nothing left behind."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.executor import AsyncioExecutor
from core.protocols import Executor


async def collect(fn, items, concurrency):
    return [outcome async for outcome in AsyncioExecutor().run(fn, items, concurrency=concurrency)]


def other_tasks():
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_it_is_an_executor():
    assert isinstance(AsyncioExecutor(), Executor)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8), st.sets(st.integers(0, 29)))
def test_every_item_has_one_outcome_and_failures_hide_none(pauses, concurrency, failing):
    async def fn(index):
        for _ in range(pauses[index]):
            await asyncio.sleep(0)
        if index in failing:
            raise KeyError(index)
        return index * 10

    outcomes = asyncio.run(collect(fn, range(len(pauses)), concurrency))
    assert sorted(index for index, _ in outcomes) == list(range(len(pauses)))
    for index, result in outcomes:
        if index in failing:
            assert isinstance(result, KeyError)
            assert result.args == (index,)
        else:
            assert result == index * 10


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8))
def test_items_start_in_list_order_and_never_more_than_the_bound_at_once(pauses, concurrency):
    started, running, most = [], 0, 0

    async def fn(index):
        nonlocal running, most
        started.append(index)
        running += 1
        most = max(most, running)
        for _ in range(pauses[index]):
            await asyncio.sleep(0)
        running -= 1

    asyncio.run(collect(fn, range(len(pauses)), concurrency))
    assert started == list(range(len(pauses)))
    assert most <= concurrency


async def test_the_bound_is_used_in_full():
    everybody_in = asyncio.Barrier(7)  # opens only when seven items wait at once

    async def fn(item):
        async with asyncio.timeout(30):
            await everybody_in.wait()
        return item

    assert len(await collect(fn, range(14), 7)) == 14


async def test_results_come_as_they_finish_and_not_in_list_order():
    turns = {name: asyncio.Event() for name in "abc"}

    async def fn(name):
        await turns[name].wait()
        return name

    async with aclosing(AsyncioExecutor().run(fn, "abc", concurrency=3)) as outcomes:
        for name in "cab":
            turns[name].set()
            assert await anext(outcomes) == ("abc".index(name), name)


async def test_a_result_is_handed_over_while_others_still_run():
    release = asyncio.Event()

    async def fn(item):
        if item == "slow":
            await release.wait()
        return item

    async with aclosing(AsyncioExecutor().run(fn, ["slow", "quick"], concurrency=2)) as outcomes:
        assert await anext(outcomes) == (1, "quick")
        release.set()
        assert await anext(outcomes) == (0, "slow")


async def test_no_items_no_outcomes():
    assert await collect(None, [], 3) == []


@pytest.mark.parametrize("concurrency", [0, -1])
async def test_a_bound_below_one_is_refused(concurrency):
    with pytest.raises(ValueError, match=f"concurrency: {concurrency}"):
        await collect(None, [1], concurrency)


class Hanging:
    """A function for items of which each waits until it is cancelled; `busy` is set when so many wait."""

    def __init__(self, at_once):
        self.at_once, self.busy, self.started, self.ended = at_once, asyncio.Event(), [], []

    async def __call__(self, item):
        self.started.append(item)
        if len(self.started) == self.at_once:
            self.busy.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(item)


async def test_who_stops_listening_leaves_no_task_and_starts_no_item():
    hang = Hanging(at_once=4)

    async def fn(item):
        return item if item == 0 else await hang(item)

    async with aclosing(AsyncioExecutor().run(fn, range(10), concurrency=4)) as outcomes:
        assert await anext(outcomes) == (0, 0)
        await hang.busy.wait()
    assert other_tasks() == set()
    assert (hang.started, sorted(hang.ended)) == ([1, 2, 3, 4], [1, 2, 3, 4])


async def test_a_cancelled_run_leaves_no_task_and_starts_no_item():
    hang = Hanging(at_once=4)
    run = asyncio.create_task(collect(hang, range(10), 4))
    await hang.busy.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert other_tasks() == set()
    assert (hang.started, sorted(hang.ended)) == ([0, 1, 2, 3], [0, 1, 2, 3])


async def test_an_item_that_answers_its_cancellation_with_an_error_lets_no_other_start():
    hang, late = Hanging(at_once=2), []

    async def fn(item):
        if run.cancelling():
            late.append(item)
            return
        try:
            await hang(item)
        except asyncio.CancelledError:
            raise ConnectionError("dropped") from None  # as client libraries do

    run = asyncio.create_task(collect(fn, range(10), 2))
    await hang.busy.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert late == []
    assert other_tasks() == set()


async def test_an_interrupt_within_an_item_ends_the_run():
    class Interrupt(BaseException):
        pass

    async def fn(item):
        if item == 2:
            raise Interrupt
        await asyncio.Event().wait()

    with pytest.raises(Interrupt):
        await collect(fn, range(5), 3)
    assert other_tasks() == set()


async def test_ten_thousand_items_cost_few_tasks():
    most = 0

    async def fn(item):
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        return item

    outcomes = await collect(fn, range(10_000), 256)
    assert sorted(outcomes) == [(item, item) for item in range(10_000)]
    assert most < 300
