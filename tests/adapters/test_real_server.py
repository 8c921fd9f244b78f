"""The client against a real OpenAI-compatible server (llama.cpp) with the embedded model, on loopback."""

import asyncio
import json

import pytest
from pydantic import SecretStr

from core.adapters.endpoint import Endpoint
from core.adapters.journal import Journal, JournaledProvider
from core.adapters.model_fetch import ModelFetchError, find_model
from core.adapters.openai import OpenAIProvider
from core.protocols import ProviderError
from core.types import Message

KEY = "sk-loopback-0123456789"
MODEL = "embedded"
QUESTION = [Message("user", "Name a colour of the sky in one word.")]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base_url():
    xllamacpp = pytest.importorskip(
        "xllamacpp", reason="xllamacpp, the server of this test, is not installed"
    )
    try:
        model = find_model()
    except ModelFetchError as error:
        pytest.skip(f"no embedded model: {error}")
    params = xllamacpp.CommonParams()
    params.model.path = str(model.path)
    params.model_alias = {MODEL}
    params.api_keys = [KEY]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx, params.n_parallel = 4096, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = (
        1  # threads that spin starve busy machines
    )
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
async def provider(base_url):
    provider = OpenAIProvider(Endpoint(MODEL, base_url, SecretStr(KEY)), role="agent")
    yield provider
    await provider.aclose()


async def test_a_real_model_replies_and_its_server_counts(provider):
    response = await provider.chat(QUESTION, temperature=0, max_tokens=16, seed=1)
    assert response.content.strip()
    assert response.prompt_tokens > 0
    assert 0 < response.completion_tokens <= 16
    assert response.finish_reason in ("stop", "length")


async def test_calls_at_once_are_all_answered(provider):
    words = [[Message("user", f"Say the word {word} and nothing else.")] for word in ("red", "blue", "green")]
    replies = await asyncio.gather(*[provider.chat(ask, temperature=0, max_tokens=8) for ask in words])
    assert all(reply.content.strip() for reply in replies)
    assert len({reply.content for reply in replies}) > 1


async def test_the_length_limit_is_told(provider):
    response = await provider.chat([Message("user", "Count from 1 to 100.")], temperature=0, max_tokens=5)
    assert (response.finish_reason, response.completion_tokens) == ("length", 5)


async def test_a_json_schema_binds_the_reply(provider):
    schema = {
        "type": "object",
        "properties": {"letter": {"enum": ["A", "B"]}},
        "required": ["letter"],
        "additionalProperties": False,
    }
    ask = [Message("user", "Is the sky blue? A: yes, B: no. Answer with a letter.")]
    response = await provider.chat(ask, temperature=0, max_tokens=40, json_schema=schema)
    assert json.loads(response.content)["letter"] in ("A", "B")


async def test_a_wrong_key_is_refused_in_the_servers_words_and_does_not_come_out(base_url):
    provider = OpenAIProvider(Endpoint(MODEL, base_url, SecretStr("sk-wrong-9876543210")), role="agent")
    with pytest.raises(ProviderError, match=r"HTTP 401: .*API [Kk]ey") as caught:
        await provider.chat(QUESTION)
    await provider.aclose()
    assert "sk-wrong" not in str(caught.value)


async def test_a_prompt_longer_than_the_context_is_refused_and_not_tried_again(provider):
    with pytest.raises(ProviderError, match=r"HTTP 400: .*context") as caught:
        await provider.chat([Message("user", "word " * 20_000)], max_tokens=4)
    assert "gave up" not in str(caught.value)


async def test_a_journaled_reply_of_a_real_model_is_replayed_without_the_server(provider, tmp_path):
    with Journal(tmp_path / "journal.db") as journal:
        first = await JournaledProvider(provider, journal, "s").chat(QUESTION, temperature=1.0, max_tokens=16)
        unreachable = OpenAIProvider(
            Endpoint(MODEL, "http://127.0.0.1:9/v1", SecretStr(KEY), max_retries=0), role="agent"
        )
        again = await JournaledProvider(unreachable, journal, "s").chat(
            QUESTION, temperature=1.0, max_tokens=16
        )
        assert again == first
        await unreachable.aclose()
