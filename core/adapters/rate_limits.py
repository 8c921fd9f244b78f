"""Keeps calls under an endpoint's requests and tokens a minute."""

from aiolimiter import AsyncLimiter


class RateLimits:
    """Paces calls; 0 is no limit. Belongs to one event loop.

    Capacity is let out a second's worth at a time, so that no minute sees more than the limit and one such
    share. Tokens are known only after a call: what one used beyond (or below) what was expected of it is
    made up for by the calls that follow.
    """

    def __init__(self, requests_per_minute: int = 0, tokens_per_minute: int = 0) -> None:
        self._requests = _pacer(requests_per_minute)
        self._tokens = _pacer(tokens_per_minute)
        self._owed_tokens = 0

    async def admit(self, expected_tokens: int) -> None:
        """Waits until a call that is expected to use so many tokens may start."""
        if self._requests:
            await self._requests.acquire()
        if self._tokens:
            due = self._owed_tokens + expected_tokens
            self._owed_tokens = min(due, 0)
            await _acquire_in_shares(self._tokens, max(due, 0))

    def settle(self, expected_tokens: int, used_tokens: int) -> None:
        """Tells how many tokens an admitted call really used."""
        self._owed_tokens += used_tokens - expected_tokens


def _pacer(per_minute: int) -> AsyncLimiter | None:
    if per_minute == 0:
        return None
    share = max(1, per_minute // 60)
    return AsyncLimiter(share, 60 * share / per_minute)


async def _acquire_in_shares(limiter: AsyncLimiter, amount: float) -> None:
    while amount > 0:
        share = min(amount, limiter.max_rate)
        await limiter.acquire(share)
        amount -= share
