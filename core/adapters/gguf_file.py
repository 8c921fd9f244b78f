"""Reads a Llama model with its tokenizer from a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from tokenizers import Tokenizer, models, pre_tokenizers

from core.adapters.llama import Array, LlamaLayer, LlamaShape, LlamaWeights

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

SLICE_ROWS = 256


def read_gguf(path: Path) -> tuple[LlamaShape, LlamaWeights, Tokenizer]:
    """Sizes, dequantised weights (float32) and tokenizer of the model in a GGUF file.

    Raises `ValueError` naming the file for anything but a Llama model with tied embeddings and a
    byte-level BPE tokenizer.
    """
    try:
        reader = GGUFReader(path)
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
    return LlamaWeights(
        embedding=_matrix(tensors["token_embd.weight"]),
        layers=tuple(_read_layer(tensors, f"blk.{number}.", shape) for number in range(shape.layers)),
        output_norm=_matrix(tensors["output_norm.weight"]),
    )


def _read_layer(tensors: Mapping[str, ReaderTensor], prefix: str, shape: LlamaShape) -> LlamaLayer:
    def matrix(name: str) -> Array:
        return _matrix(tensors[f"{prefix}{name}.weight"])

    query = _halves_from_pairs(matrix("attn_q"), shape.heads) / np.float32(np.sqrt(shape.head_width))
    key = _halves_from_pairs(matrix("attn_k"), shape.kv_heads)
    return LlamaLayer(
        attention_norm=matrix("attn_norm"),
        query_key_value=_columns(query, key, matrix("attn_v")),
        attention_output=_columns(matrix("attn_output")),
        feed_forward_norm=matrix("ffn_norm"),
        gate_up=_columns(matrix("ffn_gate"), matrix("ffn_up")),
        down=_columns(matrix("ffn_down")),
    )


def _matrix(tensor: ReaderTensor) -> Array:
    """Dequantised values, (outputs, inputs), in slices of rows that bound the memory of intermediates.

    A slice is handed to the dequantiser as one long row, since that works row by row in Python.
    """
    result = np.empty([int(length) for length in reversed(tensor.shape)], dtype=np.float32)
    for start in range(0, len(result), SLICE_ROWS):
        rows = slice(start, start + SLICE_ROWS)
        values = dequantize(np.asarray(tensor.data[rows]).reshape(1, -1), tensor.tensor_type)
        result[rows] = values.reshape(result[rows].shape)
    return result


def _halves_from_pairs(matrix: Array, heads: int) -> Array:
    """GGUF files put the two numbers that the rotary embedding turns side by side; we want them in halves."""
    outputs, inputs = matrix.shape
    return matrix.reshape(heads, -1, 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)


def _columns(*matrices: Array) -> Array:
    """Matrices (outputs, inputs) joined into one of shape (inputs, outputs), contiguous."""
    return np.ascontiguousarray(np.concatenate(matrices).T)
