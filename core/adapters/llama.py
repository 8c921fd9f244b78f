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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from core.adapters.llama_rows import BLOCK, SEGMENT, padded_rows, round_up, row_period
from core.adapters.llama_weights import Array, LlamaShape, LlamaWeights

Integers = NDArray[np.int64]

CACHE_TOKENS = 2400


@dataclass(frozen=True, slots=True)
class Request:
    """Token numbers of a context, at least one, and of the continuations to score after it."""

    context: Sequence[int]
    continuations: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A context's tokens but the last; keys and values are (layers, kv heads, tokens, head width)."""

    tokens: tuple[int, ...]
    keys: Array
    values: Array


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that go through the layers side by side and see the prefix up to `position`, then themselves.

    Either a block of the prefix itself, whose keys and values are stored there (`targets` is empty), or a
    continuation: the context's last token and the continuation's tokens but the last, which predict
    `targets`, the continuation's tokens.
    """

    prefix: Prefix
    position: int
    tokens: Sequence[int]
    targets: Sequence[int] = ()


class LlamaModel:
    """Scores continuations of contexts.

    The keys and values of the contexts last used are kept, up to `cache_tokens` tokens in all.
    """

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, *, cache_tokens: int = CACHE_TOKENS):
        self.shape = shape
        self._weights = weights
        self._period = row_period(weights)
        self._cache_tokens = cache_tokens
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def check(self, request: Request) -> None:
        """Raise `ValueError` for an empty continuation and for more tokens than the model can read."""
        for number, continuation in enumerate(request.continuations, 1):
            if not continuation:
                raise ValueError(f"continuation {number} of {len(request.continuations)} is empty")
            total = len(request.context) + len(continuation)
            if total > self.shape.max_tokens:
                raise ValueError(
                    f"the context has {len(request.context)} tokens and continuation {number} has "
                    f"{len(continuation)}, together more than the {self.shape.max_tokens} that the model "
                    "reads: shorten the context"
                )

    def score(self, requests: Sequence[Request]) -> list[list[float]]:
        """For each continuation, the sum of log P(token | everything before it) over its tokens.

        All requests go through the layers together; that changes no bit of a score. Raises as `check`.
        """
        for request in requests:
            self.check(request)
        pieces: list[Piece] = []
        prefixes: dict[tuple[int, ...], Prefix] = {}
        for request in requests:
            tokens = tuple(request.context[:-1])
            if tokens not in prefixes:
                prefixes[tokens], known = self._start_prefix(tokens)
                pieces += _prefix_pieces(prefixes[tokens], known)
            pieces += _continuation_pieces(prefixes[tokens], request)
        scores = iter([score for batch in _batches(pieces, self._period) for score in self._run(batch)])
        self._remember(prefixes)
        return [[next(scores) for _ in request.continuations] for request in requests]

    def _start_prefix(self, tokens: tuple[int, ...]) -> tuple[Prefix, int]:
        """A prefix filled in as far as the cache reaches, and the number of tokens that this is."""
        if tokens in self._prefixes:
            return self._prefixes[tokens], len(tokens)
        shape = self.shape
        size = (shape.layers, shape.kv_heads, len(tokens), shape.head_width)
        prefix = Prefix(tokens, np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32))
        shared = {key: _common_length(key, tokens) // BLOCK * BLOCK for key in self._prefixes}
        source = max(shared, key=lambda key: shared[key], default=())
        known = shared.get(source, 0)
        if known > 0:
            self._prefixes.move_to_end(source)
            prefix.keys[:, :, :known] = self._prefixes[source].keys[:, :, :known]
            prefix.values[:, :, :known] = self._prefixes[source].values[:, :, :known]
        return prefix, known

    def _remember(self, prefixes: Mapping[tuple[int, ...], Prefix]) -> None:
        for tokens, prefix in prefixes.items():
            self._prefixes[tokens] = prefix
            self._prefixes.move_to_end(tokens)
        while sum(map(len, self._prefixes)) > self._cache_tokens:
            self._prefixes.popitem(last=False)

    def _run(self, batch: Sequence[Piece]) -> list[float]:
        """Send pieces through the layers: fills in their prefixes, and returns the continuations' scores."""
        spans = _spans(batch, self._period)
        rows = padded_rows(spans[-1].stop, self._period)
        tokens, positions, targets = np.zeros((3, rows), dtype=np.int64)
        for piece, span in zip(batch, spans, strict=True):
            tokens[span] = piece.tokens
            positions[span] = piece.position + np.arange(len(piece.tokens))
            targets[span] = piece.targets or 0
        hidden = self._run_layers(tokens, positions, list(zip(batch, spans, strict=True)))
        scored = [span for piece, span in zip(batch, spans, strict=True) if piece.targets]
        if not scored:
            return []
        first = scored[0].start
        hidden = _normalised(hidden[first:], self._weights.output_norm, self.shape.epsilon)
        log_probabilities = _log_probabilities(hidden, targets[first:], self._weights.embedding, self._period)
        return [float(log_probabilities[span.start - first : span.stop - first].sum()) for span in scored]

    def _run_layers(
        self, tokens: Integers, positions: Integers, pieces: Sequence[tuple[Piece, slice]]
    ) -> Array:
        """Hidden states (rows, width) after the last layer; a piece comes with its rows."""
        shape, weights = self.shape, self._weights
        cosine, sine = _rotation(shape, positions)
        state = weights.embedding[tokens]
        for layer in range(shape.layers):
            projected = _normalised(state, weights.attention_norm[layer], shape.epsilon)
            projected = projected @ weights.query_key_value[layer]
            heads = projected.reshape(len(tokens), -1, shape.head_width)
            turned = shape.heads + shape.kv_heads
            _rotate(heads[:, :turned], cosine, sine)
            gathered = _attend(
                layer, pieces, heads[:, : shape.heads], heads[:, shape.heads : turned], heads[:, turned:]
            )
            state += gathered @ weights.attention_output[layer]
            gate_up = _normalised(state, weights.feed_forward_norm[layer], shape.epsilon)
            state += _gated(gate_up @ weights.gate_up[layer]) @ weights.down[layer]
        return state


def _prefix_pieces(prefix: Prefix, known: int) -> list[Piece]:
    starts = range(known, len(prefix.tokens), BLOCK)
    return [Piece(prefix, start, prefix.tokens[start : start + BLOCK]) for start in starts]


def _continuation_pieces(prefix: Prefix, request: Request) -> list[Piece]:
    last = request.context[-1]
    return [
        Piece(prefix, len(prefix.tokens), [last, *continuation[:-1]], targets=continuation)
        for continuation in request.continuations
    ]


def _batches(pieces: Sequence[Piece], period: int) -> list[list[Piece]]:
    """Consecutive pieces of at most `SEGMENT` rows together; a longer one goes alone."""
    batches: list[list[Piece]] = []
    stop = 0
    for piece in pieces:
        start = round_up(stop, period)
        stop = start + len(piece.tokens)
        if batches and stop <= SEGMENT:
            batches[-1].append(piece)
        else:
            batches.append([piece])
            stop = len(piece.tokens)
    return batches


def _spans(batch: Sequence[Piece], period: int) -> list[slice]:
    """The rows of each piece: right after the one before, from a multiple of the period."""
    spans: list[slice] = []
    for piece in batch:
        start = round_up(spans[-1].stop, period) if spans else 0
        spans.append(slice(start, start + len(piece.tokens)))
    return spans


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


def _rotation(shape: LlamaShape, positions: Integers) -> tuple[Array, Array]:
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


def _attend(
    layer: int, pieces: Sequence[tuple[Piece, slice]], query: Array, key: Array, value: Array
) -> Array:
    """What each row gathers from the values, (rows, heads * head width).

    `query`, `key` and `value` are (rows, heads or kv heads, head width).
    """
    gathered = np.zeros((len(query), query.shape[1] * query.shape[2]), dtype=np.float32)
    for piece, span in pieces:
        keys, values = piece.prefix.keys[layer], piece.prefix.values[layer]
        if not piece.targets:
            positions = slice(piece.position, piece.position + len(piece.tokens))
            keys[:, positions] = key[span].swapaxes(0, 1)
            values[:, positions] = value[span].swapaxes(0, 1)
        gathered[span] = _attend_after(
            query[span], key[span], value[span], keys[:, : piece.position], values[:, : piece.position]
        )
    return gathered


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


def _log_probabilities(
    hidden: Array, targets: Integers, embedding: Array, period: int
) -> NDArray[np.float64]:
    """log P(target) of each row, in slices of rows that bound the memory of the logits."""
    parts = []
    for start in range(0, len(hidden), BLOCK):
        part = hidden[start : start + BLOCK]
        padded = np.zeros((padded_rows(len(part), period), hidden.shape[1]), dtype=np.float32)
        padded[: len(part)] = part
        logits = (padded @ embedding.T)[: len(part)]
        logits -= logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(logits, targets[start : start + BLOCK, None], axis=-1)[:, 0]
        np.exp(logits, out=logits)
        parts.append(chosen.astype(np.float64) - np.log(logits.sum(axis=-1, dtype=np.float64)))
    return np.concatenate(parts)
