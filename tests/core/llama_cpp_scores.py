"""The same scores by llama.cpp, through `cyllama`, for a cross-check."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cyllama.llama import llama_cpp
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

from core.adapters.gguf_file import encode, read_gguf
from core.adapters.local_worker import START_TOKEN

llama_cpp.disable_logging()


class LlamaCpp:
    """llama.cpp on one thread, given token numbers; it computes the logits of the last token alone."""

    def __init__(self, path: Path, *, vocabulary: int, max_tokens: int = 2048):
        class Model(llama_cpp.LlamaModel):
            n_vocab = vocabulary  # `get_logits` reads this attribute, which the class lacks

        settings = llama_cpp.LlamaContextParams()
        settings.n_ctx = settings.n_batch = max_tokens
        settings.type_k = settings.type_v = 0  # float32 in place of float16
        settings.flash_attn_type = 0  # off: it rounds to float16
        settings.n_threads = settings.n_threads_batch = 1
        self._context = llama_cpp.LlamaContext(Model(str(path), llama_cpp.LlamaModelParams()), settings)

    def score(self, context: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        self._context.kv_cache_clear()
        first = self._feed(context, 0)
        scores = []
        for continuation in continuations:
            rows = [first]
            for number, token in enumerate(continuation[:-1]):
                rows.append(self._feed([token], len(context) + number))
            scores.append(sum(row[token] for row, token in zip(rows, continuation, strict=True)))
            self._context.memory_seq_rm(0, len(context), -1)
        return scores

    def _feed(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """log P of every token after these."""
        batch = llama_cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        for number, token in enumerate(tokens):
            batch.add(token, position + number, [0], number == len(tokens) - 1)
        self._context.decode(batch)
        logits = np.asarray(self._context.get_logits(), dtype=np.float64)
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())


def llama_cpp_scores(path: Path, calls: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
    """Scores of calls as `LocalScorer.score` takes them, with the same tokens."""
    _, weights, tokenizer = read_gguf(path)
    other = LlamaCpp(path, vocabulary=len(weights.embedding))
    return [
        other.score([START_TOKEN, *encode(tokenizer, context)], [encode(tokenizer, c) for c in continuations])
        for context, continuations in calls
    ]


def choices_of(scores: Sequence[Sequence[float]]) -> list[int]:
    return [int(np.argmax(options)) for options in scores]


def write_float32(source: Path, target: Path) -> Path:
    """The same model with all weights dequantised."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
