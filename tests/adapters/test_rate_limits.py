"""Pacing, on a clock that stands still while anybody works and jumps when everybody waits."""

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from core.adapters.rate_limits import RateLimits


class JumpingClock(asyncio.SelectorEventLoop):
    """An event loop whose timers are due at once, in their order."""

    _now = 0.0

    def time(self):
        return self._now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when()) + 1e-6  # timers fire a little late
        super()._run_once()


def admission_times(calls, *, concurrency, **limits):
    """When each call was admitted, in seconds; a call is (expected tokens, used tokens, duration)."""

    async def run():
        pace, times, waiting = RateLimits(**limits), [], iter(calls)

        async def worker():
            for expected, used, duration in waiting:
                await pace.admit(expected)
                times.append((asyncio.get_running_loop().time(), used))
                await asyncio.sleep(duration)
                pace.settle(expected, used)

        await asyncio.gather(*[worker() for _ in range(concurrency)])
        return times

    with asyncio.Runner(loop_factory=JumpingClock) as runner:
        return runner.run(run())


call_lists = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.floats(0, 20)), min_size=1, max_size=60
)


@settings(max_examples=60)
@given(call_lists, st.integers(1, 16), st.integers(1, 300))
def test_no_minute_sees_more_requests_than_the_limit_and_one_seconds_share(calls, concurrency, limit):
    times = [time for time, _ in admission_times(calls, concurrency=concurrency, requests_per_minute=limit)]
    most = limit + max(1, limit // 60)
    for first, last in itertools.combinations(range(len(times)), 2):
        if times[last] - times[first] < 60:
            assert last - first + 1 <= most


@settings(max_examples=60)
@given(call_lists, st.integers(6_000, 600_000))
def test_tokens_used_stay_under_the_limit_but_for_the_call_in_flight(calls, limit):
    used_before = 0
    for time, used in admission_times(calls, concurrency=1, tokens_per_minute=limit):
        assert used_before <= time * limit / 60 + limit // 60
        used_before += used


def test_without_limits_nobody_waits():
    times = admission_times([(5000, 5000, 0.0)] * 50, concurrency=4)
    assert {time for time, _ in times} == {0.0}


def test_a_call_larger_than_a_minute_is_admitted_after_its_time():
    (first, _), (second, _) = admission_times(
        [(0, 3000, 0.0), (0, 0, 0.0)], concurrency=1, tokens_per_minute=600
    )
    assert first == 0
    assert 295 <= second <= 300
