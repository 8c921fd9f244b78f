"""A tiny random Llama GGUF file, and a plain computation of what it must answer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize
from tokenizers.pre_tokenizers import ByteLevel

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, MAX_TOKENS = 2, 64, 96, 4, 2, 512
ROPE_BASE, EPSILON = 10_000.0, 1e-5
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "a t"]


def vocabulary() -> list[str]:
    return [*SPECIALS, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]


def write_tiny_gguf(
    path: Path, *, seed: int = 0, architecture: str = "llama", pre: str = "smollm", untied: bool = False
) -> Path:
    """Random weights, some of them quantised as in the real file."""
    tokens, draw = vocabulary(), np.random.default_rng(seed)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(MAX_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    control = [TokenType.CONTROL] * len(SPECIALS)
    writer.add_token_types(control + [TokenType.NORMAL] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges(MERGES)

    def add(name: str, *size: int, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> None:
        values = draw.standard_normal(size, dtype=np.float32) / np.float32(np.sqrt(size[-1]))
        if len(size) == 1:
            values = 1 + values
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)

    add("token_embd", len(tokens), WIDTH, kind=GGMLQuantizationType.Q8_0)
    add("output_norm", WIDTH)
    if untied:
        add("output", len(tokens), WIDTH)
    kv_width = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm", WIDTH)
        add(f"blk.{layer}.attn_q", WIDTH, WIDTH, kind=GGMLQuantizationType.Q4_1)
        add(f"blk.{layer}.attn_k", kv_width, WIDTH)
        add(f"blk.{layer}.attn_v", kv_width, WIDTH)
        add(f"blk.{layer}.attn_output", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_norm", WIDTH)
        add(f"blk.{layer}.ffn_gate", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_up", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_down", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass
class PlainLlama:
    """The Llama equations in float64, the whole text at once: no cache, no batches, no stacked weights."""

    weights: dict[str, np.ndarray]

    @classmethod
    def read(cls, path: Path) -> "PlainLlama":
        tensors = GGUFReader(path).tensors
        return cls({t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in tensors})

    def score(self, context: list[int], continuation: list[int]) -> float:
        log_probabilities = self._log_probabilities([*context, *continuation])
        places = range(len(context), len(context) + len(continuation))
        return sum(log_probabilities[place - 1, [*context, *continuation][place]] for place in places)

    def _log_probabilities(self, tokens: list[int]) -> np.ndarray:
        embedding = self.weights["token_embd.weight"]
        state = embedding[tokens]
        for layer in range(LAYERS):
            state = state + self._attention(layer, self._norm(state, f"blk.{layer}.attn_norm"))
            state = state + self._feed_forward(layer, self._norm(state, f"blk.{layer}.ffn_norm"))
        logits = self._norm(state, "output_norm") @ embedding.T
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def _norm(self, state: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((state**2).mean(axis=1, keepdims=True) + EPSILON)
        return state / scale * self.weights[f"{name}.weight"]

    def _attention(self, layer: int, state: np.ndarray) -> np.ndarray:
        names = ("attn_q", "attn_k", "attn_v")
        query, key, value = (state @ self.weights[f"blk.{layer}.{name}.weight"].T for name in names)
        size = WIDTH // HEADS
        outputs = []
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            one_query = _turned(query[:, head * size : (head + 1) * size])
            one_key = _turned(key[:, shared * size : (shared + 1) * size])
            scores = one_query @ one_key.T / np.sqrt(size)
            scores[np.triu_indices(len(state), k=1)] = -np.inf
            chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            outputs.append(chances @ value[:, shared * size : (shared + 1) * size])
        return np.concatenate(outputs, axis=1) @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def _feed_forward(self, layer: int, state: np.ndarray) -> np.ndarray:
        names = ("ffn_gate", "ffn_up", "ffn_down")
        gate, up, down = (self.weights[f"blk.{layer}.{name}.weight"] for name in names)
        gated = state @ gate.T
        return (gated / (1 + np.exp(-gated)) * (state @ up.T)) @ down.T


def _turned(head: np.ndarray) -> np.ndarray:
    """Neighbouring numbers are a complex number each, turned by an angle that grows with the position."""
    size = head.shape[1]
    angles = np.outer(np.arange(len(head)), ROPE_BASE ** -(np.arange(0, size, 2) / size))
    turned = (head[:, 0::2] + 1j * head[:, 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=2).reshape(head.shape)
