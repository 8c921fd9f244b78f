"""Reads a Llama model with its tokenizer from a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers

from core.adapters.llama_weights import Array, LlamaShape, LlamaWeights

PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
}
"""By the name that GGUF files give under `tokenizer.ggml.pre`."""

SLICE_ROWS = 128


class _QuickReader(GGUFReader):
    """A `GGUFReader` over a plain view of the file: slices of a memory map make it four times slower."""

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        self._data = np.asarray(mapped)


def read_gguf(path: Path) -> tuple[LlamaShape, LlamaWeights, Tokenizer]:
    """Sizes, dequantised weights (float32) and tokenizer of the model in a GGUF file.

    Raises `ValueError` naming the file for anything but a Llama model with tied embeddings and a
    byte-level BPE tokenizer.
    """
    try:
        reader = _QuickReader(path)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is not a readable GGUF file ({error})") from error
    try:
        shape = _read_shape(reader)
        tokenizer = _read_tokenizer(reader)
        weights = _read_weights({tensor.name: tensor for tensor in reader.tensors}, shape)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be used as the embedded model: {error}") from error
    return shape, weights, tokenizer


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token numbers of a text. What looks like a special token is spelt out as characters."""
    return tokenizer.encode(text, add_special_tokens=False).ids


def _field(reader: GGUFReader, name: str):
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"the field {name} is missing")
    return field.contents()


def _read_shape(reader: GGUFReader) -> LlamaShape:
    architecture = _field(reader, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"its architecture is {architecture!r}, not 'llama'")
    heads = _field(reader, "llama.attention.head_count")
    width = _field(reader, "llama.embedding_length")
    return LlamaShape(
        layers=_field(reader, "llama.block_count"),
        width=width,
        hidden=_field(reader, "llama.feed_forward_length"),
        heads=heads,
        kv_heads=_field(reader, "llama.attention.head_count_kv"),
        head_width=width // heads,
        epsilon=_field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_base=_field(reader, "llama.rope.freq_base"),
        max_tokens=_field(reader, "llama.context_length"),
    )


def _read_tokenizer(reader: GGUFReader) -> Tokenizer:
    kind, pre = _field(reader, "tokenizer.ggml.model"), _field(reader, "tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise ValueError(f"its tokenizer is {kind!r} with {pre!r}; known: 'gpt2' with {[*PRE_TOKENIZERS]}")
    vocabulary = {token: number for number, token in enumerate(_field(reader, "tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ", 1)) for merge in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    return tokenizer


def _read_weights(tensors: Mapping[str, ReaderTensor], shape: LlamaShape) -> LlamaWeights:
    if "output.weight" in tensors:
        raise ValueError("it has an output matrix of its own (output.weight) instead of tied embeddings")
    query_columns, key_columns = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    query_key_columns = query_columns + key_columns

    def stacked(*size: int) -> Array:
        return np.empty((shape.layers, *size), dtype=np.float32)

    weights = LlamaWeights(
        embedding=_values(tensors["token_embd.weight"]),
        attention_norm=stacked(shape.width),
        query_key_value=stacked(shape.width, query_key_columns + key_columns),
        attention_output=stacked(query_columns, shape.width),
        feed_forward_norm=stacked(shape.width),
        gate_up=stacked(shape.width, 2 * shape.hidden),
        down=stacked(shape.hidden, shape.width),
        output_norm=_values(tensors["output_norm.weight"]),
    )
    for layer in range(shape.layers):

        def tensor(name: str, layer: int = layer) -> ReaderTensor:
            return tensors[f"blk.{layer}.{name}.weight"]

        query = _halves_from_pairs(_values(tensor("attn_q")), shape.heads)
        query /= np.float32(np.sqrt(shape.head_width))
        key = _halves_from_pairs(_values(tensor("attn_k")), shape.kv_heads)
        weights.query_key_value[layer, :, :query_columns] = query.T
        weights.query_key_value[layer, :, query_columns:query_key_columns] = key.T
        _fill(weights.query_key_value[layer, :, query_key_columns:].T, tensor("attn_v"))
        _fill(weights.attention_output[layer].T, tensor("attn_output"))
        _fill(weights.gate_up[layer, :, : shape.hidden].T, tensor("ffn_gate"))
        _fill(weights.gate_up[layer, :, shape.hidden :].T, tensor("ffn_up"))
        _fill(weights.down[layer].T, tensor("ffn_down"))
        _fill(weights.attention_norm[layer], tensor("attn_norm"))
        _fill(weights.feed_forward_norm[layer], tensor("ffn_norm"))
    return weights


def _values(tensor: ReaderTensor) -> Array:
    """Dequantised values, (outputs, inputs)."""
    result = np.empty([int(length) for length in reversed(tensor.shape)], dtype=np.float32)
    _fill(result, tensor)
    return result


def _fill(target: Array, tensor: ReaderTensor) -> None:
    """Write the dequantised values to `target` (outputs, inputs), in slices of rows that stay in the cache.

    A slice is handed to the dequantiser as one long row, since that works row by row in Python.
    """
    for start in range(0, len(target), SLICE_ROWS):
        rows = slice(start, start + SLICE_ROWS)
        values = dequantize(tensor.data[rows].reshape(1, -1), tensor.tensor_type)
        target[rows] = values.reshape(target[rows].shape)


def _halves_from_pairs(matrix: Array, heads: int) -> Array:
    """GGUF files put the two numbers that the rotary embedding turns side by side; we want them in halves."""
    outputs, inputs = matrix.shape
    return matrix.reshape(heads, -1, 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)
