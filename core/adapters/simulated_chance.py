"""Chance that hangs on names alone: the same key and number give the same draw, in any order and process.

There is no generator whose state could depend on who asked first. Numbers come from SplitMix64 (Steele, Lea
and Flood, "Fast splittable pseudorandom number generators", 2014), whose output function is applied to
`key + (number + 1) * gamma`; keys are BLAKE2b digests of what they are for.
"""

import hashlib
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Item = TypeVar("Item")

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64 - 1
_UNIT = 2.0**-53
_NORMAL = NormalDist()


def key_of(*parts: str | int) -> int:
    """A 64-bit key for what the parts name. A number and its digits are the same part."""
    named = "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")


def uniform(key: int, number: int) -> float:
    """One draw from [0, 1)."""
    state = (key + (int(number) + 1) * _GAMMA) & _WORD  # a NumPy integer would overflow
    state = ((state ^ (state >> 30)) * _MIX_1) & _WORD
    state = ((state ^ (state >> 27)) * _MIX_2) & _WORD
    return ((state ^ (state >> 31)) >> 11) * _UNIT


def uniforms(key: int, numbers: Rows) -> Floats:
    """`uniform(key, number)` for every number, bit for bit."""
    state = np.uint64(key) + (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX_1)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX_2)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * _UNIT


def normal(*parts: str | int) -> float:
    """One draw from the standard normal distribution, for what the parts name."""
    # Half a step from both ends: 0 has no quantile.
    return _NORMAL.inv_cdf(uniform(key_of(*parts), 0) * (1 - _UNIT) + _UNIT / 2)


def choose(choices: Sequence[Item], *parts: str | int) -> Item:
    """One of the choices, each as likely as the others, for what the parts name."""
    return choices[int(uniform(key_of(*parts), 0) * len(choices))]


def shuffled(items: Sequence[Item], *parts: str | int) -> list[Item]:
    """The items in a drawn order, for what the parts name."""
    key = key_of(*parts)
    order = sorted(range(len(items)), key=lambda position: uniform(key, position))
    return [items[position] for position in order]


def share_drawn(shares: Sequence[float], *parts: str | int) -> int:
    """The position of one of the shares, which add up to 1, drawn as often as its share says."""
    left = uniform(key_of(*parts), 0)
    for position, share in enumerate(shares):
        if left < share:
            return position
        left -= share
    return len(shares) - 1
