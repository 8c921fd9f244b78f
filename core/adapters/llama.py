"""The forward pass of a Llama model in NumPy: exact log-probabilities of given continuations.

A score has the same bits whether its continuation comes alone or in a batch, in whatever order, with a
cold or a warm cache and in whatever process of one machine:

* a matrix product gives a row other bits depending on the row's place in the batch. `row_period` finds
  how often these places repeat, and every text starts at a multiple of that period
* attention is computed text by text and in blocks of `BLOCK` positions counted from the start of the
  text, so that its shapes follow from the text alone
* the cache hands out whole blocks, or a context that is the very same
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

BLOCK = 48
"""Positions that attend together; a multiple of every period that `row_period` may find."""

SEGMENT = 10 * BLOCK
"""Rows that go through the layers together, which bounds the memory of a long context."""

MINIMUM_ROWS = 24
"""Fewer rows than this take another path through some BLAS libraries, with other bits."""

PERIODS = (1, 2, 4, 8, 12, 16, 24, 48)
CACHE_TOKENS = 2400


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The sizes of a Llama model, as its GGUF file states them.

    `width` is the length of a hidden state, `hidden` that of the feed-forward layer, `head_width` that of
    one attention head; `heads / kv_heads` query heads share a key head. `rope_base` is the base of the
    rotary frequencies and `max_tokens` the longest text.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    epsilon: float
    rope_base: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """Weights of one layer; a matrix has the shape (inputs, outputs).

    The columns of `query_key_value` are those of all query heads, all key heads and all value heads. The
    two halves of a query or key head are the pairs that the rotary embedding turns, and queries are
    scaled by the root of the head's width. `gate_up` holds the gate's columns, then the others.
    """

    attention_norm: Array
    query_key_value: Array
    attention_output: Array
    feed_forward_norm: Array
    gate_up: Array
    down: Array


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights; `embedding` (vocabulary, width) is also the output matrix."""

    embedding: Array
    layers: tuple[LlamaLayer, ...]
    output_norm: Array


@dataclass(frozen=True, slots=True)
class Prefix:
    """A context's tokens with their keys and values, both (layers, kv heads, tokens, head width)."""

    tokens: tuple[int, ...]
    keys: Array
    values: Array


class LlamaModel:
    """Scores continuations of a context; both are token numbers.

    The keys and values of the contexts last used are kept, up to `cache_tokens` tokens in all.
    """

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, *, cache_tokens: int = CACHE_TOKENS):
        self.shape = shape
        self._weights = weights
        self._period = row_period(weights)
        self._cache_tokens = cache_tokens
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def score(self, context: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """The sum of log P(token | everything before it) over each continuation's tokens.

        `context` has at least one token. Raises `ValueError` for an empty continuation and for a context
        that is longer, with one of its continuations, than the model can read.
        """
        self._check_lengths(context, continuations)
        prefix = self._prefix(tuple(context[:-1]))
        scores: list[float] = []
        for group in _groups(continuations, self._period):
            scores += self._score_group(prefix, context[-1], group)
        return scores

    def _check_lengths(self, context: Sequence[int], continuations: Sequence[Sequence[int]]) -> None:
        for number, continuation in enumerate(continuations, 1):
            if not continuation:
                raise ValueError(f"continuation {number} of {len(continuations)} is empty")
            total = len(context) + len(continuation)
            if total > self.shape.max_tokens:
                raise ValueError(
                    f"context ({len(context)} tokens) and continuation {number} ({len(continuation)} tokens) "
                    f"have {total} tokens together; the model reads at most {self.shape.max_tokens}: "
                    "shorten the context"
                )

    def _score_group(self, prefix: Prefix, last: int, continuations: Sequence[Sequence[int]]) -> list[float]:
        """Each continuation is fed as the context's last token and its own tokens but the last."""
        starts = _starts(continuations, self._period)
        rows = _padded_rows(starts[-1] + len(continuations[-1]), self._period)
        tokens = np.zeros(rows, dtype=np.int64)
        positions = np.zeros(rows, dtype=np.int64)
        spans = [slice(start, start + len(c)) for start, c in zip(starts, continuations, strict=True)]
        for span, continuation in zip(spans, continuations, strict=True):
            tokens[span] = [last, *continuation[:-1]]
            positions[span] = len(prefix.tokens) + np.arange(len(continuation))

        def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
            mixed = np.zeros((rows, self.shape.heads * self.shape.head_width), dtype=np.float32)
            for span in spans:
                mixed[span] = _attend_after(
                    query[span], key[span], value[span], prefix.keys[layer], prefix.values[layer]
                )
            return mixed

        hidden = self._run_layers(tokens, positions, attend)
        hidden = _normalised(hidden, self._weights.output_norm, self.shape.epsilon)
        targets = np.zeros(rows, dtype=np.int64)
        for span, continuation in zip(spans, continuations, strict=True):
            targets[span] = continuation
        log_probabilities = _log_probabilities(hidden, targets, self._weights.embedding)
        return [float(log_probabilities[span].sum()) for span in spans]

    def _prefix(self, tokens: tuple[int, ...]) -> Prefix:
        """The prefix of these tokens, from the cache as far as that reaches."""
        if tokens in self._prefixes:
            self._prefixes.move_to_end(tokens)
            return self._prefixes[tokens]
        prefix, known = self._started_prefix(tokens)
        for start in range(known, len(tokens), SEGMENT):
            self._extend(prefix, start, min(start + SEGMENT, len(tokens)))
        self._remember(prefix)
        return prefix

    def _started_prefix(self, tokens: tuple[int, ...]) -> tuple[Prefix, int]:
        """A prefix with the whole blocks that the cache holds filled in, and how many tokens these are."""
        shape = self.shape
        size = (shape.layers, shape.kv_heads, len(tokens), shape.head_width)
        prefix = Prefix(tokens, np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32))
        shared = {key: _common_length(key, tokens) // BLOCK * BLOCK for key in self._prefixes}
        best = max(shared, key=lambda key: shared[key], default=None)
        if best is None or shared[best] == 0:
            return prefix, 0
        known = shared[best]
        self._prefixes.move_to_end(best)
        prefix.keys[:, :, :known] = self._prefixes[best].keys[:, :, :known]
        prefix.values[:, :, :known] = self._prefixes[best].values[:, :, :known]
        return prefix, known

    def _remember(self, prefix: Prefix) -> None:
        self._prefixes[prefix.tokens] = prefix
        while sum(map(len, self._prefixes)) > self._cache_tokens:
            self._prefixes.popitem(last=False)

    def _extend(self, prefix: Prefix, start: int, stop: int) -> None:
        """Fill in the keys and values of the positions from `start`, a multiple of `BLOCK`, to `stop`."""
        count = stop - start
        rows = _padded_rows(count, self._period)
        tokens = np.zeros(rows, dtype=np.int64)
        tokens[:count] = prefix.tokens[start:stop]

        def attend(layer: int, query: Array, key: Array, value: Array) -> Array:
            keys, values = prefix.keys[layer], prefix.values[layer]
            keys[:, start:stop] = key[:count].swapaxes(0, 1)
            values[:, start:stop] = value[:count].swapaxes(0, 1)
            mixed = np.zeros((rows, self.shape.heads * self.shape.head_width), dtype=np.float32)
            for first in range(0, count, BLOCK):
                block = slice(first, min(first + BLOCK, count))
                before = start + first
                mixed[block] = _attend_after(
                    query[block], key[block], value[block], keys[:, :before], values[:, :before]
                )
            return mixed

        self._run_layers(tokens, start + np.arange(rows), attend)

    def _run_layers(self, tokens: NDArray[np.int64], positions: NDArray[np.int64], attend) -> Array:
        """Hidden states (rows, width) after the last layer.

        `attend(layer, query, key, value)` takes arrays (rows, heads, head width) and returns what each row
        has gathered from the values, (rows, heads * head width).
        """
        shape = self.shape
        cosine, sine = _rotation(shape, positions)
        state = self._weights.embedding[tokens]
        for number, layer in enumerate(self._weights.layers):
            projected = _normalised(state, layer.attention_norm, shape.epsilon) @ layer.query_key_value
            heads = projected.reshape(len(tokens), -1, shape.head_width)
            turned = shape.heads + shape.kv_heads
            _rotate(heads[:, :turned], cosine, sine)
            query, key, value = heads[:, : shape.heads], heads[:, shape.heads : turned], heads[:, turned:]
            state += attend(number, query, key, value) @ layer.attention_output
            gate_up = _normalised(state, layer.feed_forward_norm, shape.epsilon) @ layer.gate_up
            state += _gated(gate_up) @ layer.down
        return state


def row_period(weights: LlamaWeights) -> int:
    """The smallest period after which a row's place in a batch does not change its bits.

    A product of many copies of one row shows which places are alike. Raises `RuntimeError` when even
    `BLOCK` rows apart the bits differ.
    """
    layer = weights.layers[0]
    counts = (*range(MINIMUM_ROWS, BLOCK + 1), 2 * BLOCK, SEGMENT)
    few_counts = (MINIMUM_ROWS, MINIMUM_ROWS + 1, MINIMUM_ROWS + 2, 36, BLOCK)
    products = [
        [_copies_product(matrix, rows) for rows in counts]
        for matrix in (layer.query_key_value, layer.attention_output, layer.gate_up, layer.down)
    ] + [[_copies_product(weights.embedding.T, rows) for rows in few_counts]]
    for period in PERIODS:
        if all(_repeats(products_of_one, period) for products_of_one in products):
            return period
    raise RuntimeError(f"this machine's matrix products do not repeat their bits within {BLOCK} rows")


def _copies_product(matrix: Array, rows: int) -> Array:
    row = np.random.default_rng(0).standard_normal(matrix.shape[0], dtype=np.float32)
    return np.tile(row, (rows, 1)) @ matrix


def _repeats(products: list[Array], period: int) -> bool:
    """Whether rows `period` apart are the same in these products, and in all of them alike."""
    fitting = [
        product.reshape(-1, period, product.shape[1]) for product in products if len(product) % period == 0
    ]
    return all(bool((product == fitting[0][0]).all()) for product in fitting)


def _groups(continuations: Sequence[Sequence[int]], period: int) -> list[list[Sequence[int]]]:
    """Consecutive continuations of at most `SEGMENT` rows together; a longer one goes alone."""
    groups: list[list[Sequence[int]]] = []
    for continuation in continuations:
        if groups and _starts([*groups[-1], continuation], period)[-1] + len(continuation) <= SEGMENT:
            groups[-1].append(continuation)
        else:
            groups.append([continuation])
    return groups


def _starts(continuations: Sequence[Sequence[int]], period: int) -> list[int]:
    """The row where each continuation starts: right after the one before, at a multiple of the period."""
    starts = [0]
    for continuation in continuations[:-1]:
        starts.append(_round_up(starts[-1] + len(continuation), period))
    return starts


def _padded_rows(rows: int, period: int) -> int:
    return _round_up(max(rows, MINIMUM_ROWS), period)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _common_length(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for length, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return length
    return min(len(first), len(second))


def _normalised(state: Array, weight: Array, epsilon: float) -> Array:
    """RMSNorm (Zhang and Sennrich 2019): each row over its root mean square, times the weight."""
    scale = np.mean(state * state, axis=-1, keepdims=True)
    scale += np.float32(epsilon)
    np.sqrt(scale, out=scale)
    result = state / scale
    result *= weight
    return result


def _gated(gate_up: Array) -> Array:
    """SwiGLU (Shazeer 2020): silu(gate) * up, for the two halves of the columns."""
    gate, up = np.split(gate_up, 2, axis=-1)
    result = np.negative(gate)
    with np.errstate(over="ignore"):  # exp(-gate) = inf is right: the gate is shut
        np.exp(result, out=result)
    result += 1
    np.divide(gate, result, out=result)
    result *= up
    return result


def _rotation(shape: LlamaShape, positions: NDArray[np.int64]) -> tuple[Array, Array]:
    """Cosine and sine (rows, 1, head width / 2) of the rotary embedding (Su et al. 2021)."""
    exponents = np.arange(0, shape.head_width, 2) / shape.head_width
    angles = positions[:, None, None] * shape.rope_base**-exponents
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotate(heads: Array, cosine: Array, sine: Array) -> None:
    """Turn the pairs made of a head's two halves, in place."""
    first, second = np.split(heads, 2, axis=-1)
    turned = first * cosine - second * sine
    second[...] = second * cosine + first * sine
    first[...] = turned


def _attend_after(query: Array, key: Array, value: Array, old_keys: Array, old_values: Array) -> Array:
    """Causal attention of a run of tokens over what came before it and over itself.

    `query`, `key`, `value` are (tokens, heads or kv heads, head width), the old ones (kv heads, tokens
    before, head width). Returns (tokens, heads * head width).
    """
    tokens, heads, head_width = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(tokens, kv_heads, -1, head_width).transpose(1, 2, 0, 3)
    grouped = grouped.reshape(kv_heads, -1, head_width)
    own_scores = grouped @ key.transpose(1, 2, 0)
    own_scores.reshape(kv_heads, -1, tokens, tokens)[...] += _causal_mask(tokens)
    scores = np.concatenate([grouped @ old_keys.swapaxes(1, 2), own_scores], axis=-1)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    before = old_keys.shape[1]
    mixed = scores[..., :before] @ old_values + scores[..., before:] @ value.swapaxes(0, 1)
    mixed /= scores.sum(axis=-1, keepdims=True)
    mixed = mixed.reshape(kv_heads, -1, tokens, head_width).transpose(2, 0, 1, 3)
    return mixed.reshape(tokens, heads * head_width)


@cache
def _causal_mask(tokens: int) -> Array:
    return np.triu(np.full((tokens, tokens), -np.inf, dtype=np.float32), k=1)


def _log_probabilities(hidden: Array, targets: NDArray[np.int64], embedding: Array) -> NDArray[np.float64]:
    """log P(target) of each row, in slices of rows that bound the memory of the logits."""
    parts = []
    for start in range(0, len(hidden), BLOCK):
        part = hidden[start : start + BLOCK]
        padded = np.zeros((max(len(part), MINIMUM_ROWS), hidden.shape[1]), dtype=np.float32)
        padded[: len(part)] = part
        logits = (padded @ embedding.T)[: len(part)]
        logits -= logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(logits, targets[start : start + BLOCK, None], axis=-1)[:, 0]
        np.exp(logits, out=logits)
        parts.append(chosen.astype(np.float64) - np.log(logits.sum(axis=-1, dtype=np.float64)))
    return np.concatenate(parts)
