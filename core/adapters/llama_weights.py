"""What a Llama model consists of: its sizes and its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


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
class LlamaWeights:
    """All weights. Those of the layers are stacked, so that they lie in few large pieces of memory.

    `embedding` (vocabulary, width) is also the output matrix; a layer's matrix is (inputs, outputs). The
    columns of `query_key_value` are those of all query heads, all key heads and all value heads; the two
    halves of a query or key head are the pairs that the rotary embedding turns, and queries are divided
    by the root of the head's width. `gate_up` holds the gate's columns, then the others.
    """

    embedding: Array
    attention_norm: Array
    query_key_value: Array
    attention_output: Array
    feed_forward_norm: Array
    gate_up: Array
    down: Array
    output_norm: Array
