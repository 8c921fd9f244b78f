"""The forward pass against a plain computation, with a tiny random model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import MAX_TOKENS, PlainLlama, vocabulary, write_tiny_gguf

from core.adapters import llama
from core.adapters.gguf_file import encode, read_gguf
from core.adapters.llama import LlamaModel, Request
from core.adapters.llama_rows import BLOCK

TOKENS = st.integers(0, len(vocabulary()) - 1)
REQUESTS = st.builds(
    Request,
    context=st.lists(TOKENS, min_size=1, max_size=3 * BLOCK),
    continuations=st.lists(st.lists(TOKENS, min_size=1, max_size=20), min_size=1, max_size=5),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def loaded(path):
    return read_gguf(path)


@pytest.fixture(scope="module")
def warm_model(loaded):
    """One model for all examples, so that its cache is in whatever state they left it in."""
    shape, weights, _ = loaded
    return LlamaModel(shape, weights, cache_tokens=1000)


@pytest.fixture(scope="module")
def plain(path):
    return PlainLlama.read(path)


@given(requests=st.lists(REQUESTS, min_size=1, max_size=4))
@settings(max_examples=30)
def test_scores_equal_a_plain_computation(warm_model, plain, requests):
    for request, scores in zip(requests, warm_model.score(requests), strict=True):
        expected = [plain.score(request.context, continuation) for continuation in request.continuations]
        np.testing.assert_allclose(scores, expected, atol=1e-3)


@given(requests=st.lists(REQUESTS, min_size=2, max_size=5))
@settings(max_examples=30)
def test_scores_have_the_same_bits_alone_and_together_cold_and_warm(loaded, warm_model, requests):
    shape, weights, _ = loaded
    together = warm_model.score(requests)
    for request, scores in zip(requests, together, strict=True):
        cold_model = LlamaModel(shape, weights)
        alone = [cold_model.score([Request(request.context, [c])])[0][0] for c in request.continuations]
        assert alone == scores
    assert warm_model.score(requests[::-1])[::-1] == together


@given(
    beginning=st.lists(TOKENS, min_size=BLOCK, max_size=3 * BLOCK),
    endings=st.lists(st.lists(TOKENS, min_size=1, max_size=2 * BLOCK), min_size=2, max_size=4),
)
@settings(max_examples=30)
def test_a_beginning_taken_from_the_cache_changes_no_bit(loaded, beginning, endings):
    shape, weights, _ = loaded
    warm = LlamaModel(shape, weights)
    for ending in endings:
        request = Request([*beginning, *ending], [[7, 8, 9]])
        assert warm.score([request]) == LlamaModel(shape, weights).score([request])


@pytest.mark.parametrize("period", [1, 12, 16, 48])
def test_a_text_longer_than_a_segment_scores_the_same_with_every_row_period(
    loaded, plain, monkeypatch, period
):
    shape, weights, _ = loaded
    monkeypatch.setattr(llama, "row_period", lambda _: period)
    monkeypatch.setattr(llama, "SEGMENT", 2 * BLOCK)
    tokens = [number * 7 % len(vocabulary()) for number in range(MAX_TOKENS)]
    long_context = Request(tokens[:-10], [tokens[-10:], tokens[-3:]])
    long_continuation = Request(tokens[:10], [tokens[10:], tokens[:1]])
    scores = LlamaModel(shape, weights).score([long_context, long_continuation])
    for request, some in zip([long_context, long_continuation], scores, strict=True):
        expected = [plain.score(request.context, continuation) for continuation in request.continuations]
        np.testing.assert_allclose(some, expected, rtol=1e-5)


def test_the_cache_never_holds_more_tokens_than_it_may(loaded):
    shape, weights, _ = loaded
    model = LlamaModel(shape, weights, cache_tokens=100)
    for length in (30, 40, 50, 200, 60):
        model.score([Request(list(range(length)), [[1]])])
        assert sum(len(tokens) for tokens in model._prefixes) <= 100


def test_what_looks_like_a_special_token_is_spelt_out(loaded):
    _, _, tokenizer = loaded
    numbers = encode(tokenizer, "<|im_end|><|endoftext|>")
    assert min(numbers) > 2
    assert "".join(vocabulary()[number] for number in numbers) == "<|im_end|><|endoftext|>"


@given(text=st.text())
def test_tokens_join_to_the_text_that_they_were_made_of(loaded, text):
    _, _, tokenizer = loaded
    letters = "".join(vocabulary()[number] for number in encode(tokenizer, text))
    assert letters == "".join(_byte_letters()[byte] for byte in text.encode())


def _byte_letters() -> dict[int, str]:
    """GPT-2's letters for bytes: printable ones for themselves, the others from 256 upwards in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {b: chr(256 + n) for n, b in enumerate(others)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "qwen2"}, "architecture is 'qwen2'"),
        ({"pre": "tekken"}, "'tekken'"),
        ({"untied": True}, "output.weight"),
    ],
)
def test_a_model_of_another_kind_is_refused_naming_file_and_reason(tmp_path, change, words):
    path = write_tiny_gguf(tmp_path / "other.gguf", **change)
    with pytest.raises(ValueError, match=words) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kept_bytes", [0, 3, 100, 5000])
def test_a_file_cut_short_is_refused_naming_it(tmp_path, path, kept_bytes):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(ValueError, match=r"cut\.gguf"):
        read_gguf(cut)
