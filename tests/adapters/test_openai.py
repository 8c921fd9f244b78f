"""The client against a real HTTP server on loopback, whose log says what was asked."""

import asyncio
import base64

import pytest
from fault_server import KEY, MODEL, FaultServer
from pydantic import SecretStr

from core.adapters.chat_request import request_hash
from core.adapters.endpoint import Endpoint
from core.adapters.openai import PREFIX_ROLES, OpenAIProvider, OpenAIVision
from core.protocols import LLMProvider, ProviderError, VLMProvider
from core.types import Message

HELLO = [Message("system", "Be brief."), Message("user", "Hello")]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Recorder:
    def __init__(self):
        self.calls = []

    def record(self, call):
        self.calls.append(call)


def provider_for(server, **more):
    return OpenAIProvider(Endpoint(MODEL, server.base_url, SecretStr(KEY)), role="agent", **more)


def environment(prefix, base_url="http://127.0.0.1:9/v1"):
    return {f"{prefix}_MODEL": MODEL, f"{prefix}_BASE_URL": base_url, f"{prefix}_API_KEY": KEY}


async def test_a_reply_comes_back_with_what_the_endpoint_counted():
    async with FaultServer(reply=lambda body: "Hi.") as server:
        provider = provider_for(server)
        response = await provider.chat(HELLO)
        await provider.aclose()
    assert (response.content, response.finish_reason) == ("Hi.", "stop")
    assert (response.prompt_tokens, response.completion_tokens) == (100, 20)
    assert response.latency_s > 0


async def test_only_given_options_are_sent_and_zero_is_given():
    async with FaultServer() as server:
        provider = provider_for(server)
        await provider.chat(HELLO)
        await provider.chat(HELLO, temperature=0, max_tokens=0, seed=0, json_schema={"type": "object"})
        await provider.aclose()
    bare, full = [dict(call.body) for call in server.calls]
    assert bare == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    }
    schema = full.pop("response_format")
    assert full == {**bare, "temperature": 0, "max_tokens": 0, "seed": 0}
    assert schema["json_schema"]["schema"] == {"type": "object"}


@pytest.mark.parametrize(
    "text", ["emoji 🎬", "עברית", "half a character \ud83c", "line\r\nbreak", "x" * 500_000]
)
async def test_any_text_reaches_the_endpoint(text):
    async with FaultServer() as server:
        provider = provider_for(server)
        await provider.chat([Message("user", text)])
        await provider.aclose()
    assert server.calls[0].body["messages"][0]["content"] == text.encode("utf-8", "replace").decode("utf-8")


async def test_each_call_leaves_one_record_under_its_role_and_scope():
    recorder = Recorder()
    async with FaultServer(["ok", "500", "ok"]) as server:

        async def at_once(seconds):
            pass

        endpoint = Endpoint(MODEL, server.base_url, SecretStr(KEY), sleep=at_once)
        provider = OpenAIProvider(endpoint, role="judge", telemetry=recorder)
        await provider.for_scope("run_baseline/q1").chat(HELLO)
        await provider.for_scope("run_baseline/q2").chat(HELLO)
        await provider.aclose()
    first, second = recorder.calls
    assert [(call.role, call.scope, call.attempts, call.error) for call in recorder.calls] == [
        ("judge", "run_baseline/q1", 1, ""),
        ("judge", "run_baseline/q2", 2, ""),
    ]
    assert (first.model, first.prompt_tokens, first.completion_tokens) == (MODEL, 100, 20)
    assert first.request_hash == second.request_hash == request_hash(server.calls[0].body)


async def test_a_refused_call_is_recorded_with_the_endpoints_words():
    recorder = Recorder()
    async with FaultServer(["400"]) as server:
        provider = provider_for(server, telemetry=recorder)
        with pytest.raises(ProviderError, match="the prompt is too long"):
            await provider.chat(HELLO)
        await provider.aclose()
    assert [(call.attempts, call.prompt_tokens) for call in recorder.calls] == [(1, None)]
    assert "the prompt is too long" in recorder.calls[0].error


async def test_tokens_of_unusable_replies_are_counted_too():
    recorder = Recorder()
    async with FaultServer(["empty reply", "ok"]) as server:

        async def at_once(seconds):
            pass

        endpoint = Endpoint(MODEL, server.base_url, SecretStr(KEY), sleep=at_once)
        provider = OpenAIProvider(endpoint, role="agent", telemetry=recorder)
        response = await provider.chat(HELLO)
        await provider.aclose()
    assert response.prompt_tokens == 100
    assert (recorder.calls[0].prompt_tokens, recorder.calls[0].completion_tokens) == (200, 40)


async def test_a_cancelled_call_stops_and_is_recorded():
    recorder = Recorder()
    async with FaultServer(["time-out"]) as server:
        provider = provider_for(server, telemetry=recorder)
        task = asyncio.create_task(provider.chat(HELLO))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.aclose()
    assert [(call.attempts, call.error) for call in recorder.calls] == [(1, "interrupted")]


@pytest.mark.parametrize("closed_between", [True, False])
def test_a_provider_can_be_used_in_one_event_loop_after_another(closed_between):
    server, providers = FaultServer(), []

    async def session(close):
        async with server:
            if not providers:
                providers.append(provider_for(server))
            content = (await providers[0].chat(HELLO)).content
            if close:
                await providers[0].aclose()
            return content

    assert asyncio.run(session(closed_between)) == asyncio.run(session(True))
    assert server.answered == ["ok", "ok"]


async def test_images_are_sent_as_data_with_their_type(tmp_path):
    frame = tmp_path / "frame.png"
    frame.write_bytes(PIXEL)
    async with FaultServer(reply=lambda body: "A red dot.") as server:
        vision = OpenAIVision(Endpoint(MODEL, server.base_url, SecretStr(KEY)), role="vlm")
        response = await vision.describe([frame, frame], "What is there?")
        await vision.aclose()
    assert response.content == "A red dot."
    text, *pictures = server.calls[0].body["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is there?"}
    encoded = base64.b64encode(PIXEL).decode()
    assert [part["image_url"]["url"] for part in pictures] == [f"data:image/png;base64,{encoded}"] * 2


@pytest.mark.parametrize(("name", "error"), [("notes.txt", ValueError), ("gone.jpg", FileNotFoundError)])
async def test_an_image_that_cannot_be_sent_is_named(tmp_path, name, error):
    (tmp_path / "notes.txt").write_text("no image")
    vision = OpenAIVision(Endpoint(MODEL, "http://127.0.0.1:9/v1", SecretStr(KEY)), role="vlm")
    with pytest.raises(error, match=name):
        await vision.describe([tmp_path / name], "What is there?")


def test_the_providers_are_what_the_protocols_ask_for():
    endpoint = Endpoint(MODEL, "http://127.0.0.1:9/v1", SecretStr(KEY))
    assert isinstance(OpenAIProvider(endpoint, role="agent"), LLMProvider)
    assert isinstance(OpenAIVision(endpoint, role="vlm"), VLMProvider)


@pytest.mark.parametrize(("prefix", "role"), PREFIX_ROLES.items())
async def test_the_environment_tells_endpoint_and_role(prefix, role):
    recorder = Recorder()
    async with FaultServer() as server:
        variables = environment(prefix, server.base_url)
        provider = OpenAIProvider.from_environment(prefix, telemetry=recorder, environment=variables)
        await provider.chat(HELLO)
        await provider.aclose()
    assert server.answered == ["ok"]
    assert recorder.calls[0].role == role


@pytest.mark.parametrize("name", ["MODEL", "BASE_URL", "API_KEY"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_variable_is_named(name, value):
    variables = environment("JUDGE_LLM")
    if value is None:
        del variables[f"JUDGE_LLM_{name}"]
    else:
        variables[f"JUDGE_LLM_{name}"] = value
    with pytest.raises(ValueError, match=f"not set: JUDGE_LLM_{name}"):
        OpenAIProvider.from_environment("JUDGE_LLM", environment=variables)


@pytest.mark.parametrize(
    "base_url",
    [
        "127.0.0.1:8000/v1",
        "ftp://host/v1",
        "https:///v1",
        "https://me:word@host/v1",
        "http://127.0.0.1:abc/v1",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:0/v1",
        "http://127.0.0.1:1\n/v1",
        "http://a host/v1",
        "http://[::1/v1",
        "http://.../v1",
        f"http://{'a' * 64}/v1",
        f"http://{'a.' * 150}a/v1",
    ],
)
def test_a_base_url_that_cannot_work_is_refused_without_repeating_it(base_url):
    with pytest.raises(ValueError, match=r"AGENT_LLM.*base URL") as caught:
        OpenAIProvider.from_environment("AGENT_LLM", environment=environment("AGENT_LLM", base_url))
    assert base_url not in str(caught.value)


@pytest.mark.parametrize(
    "base_url",
    ["http://localhost:8000/v1", "http://[::1]:80", "https://model_server/v1", "http://höst.invalid/v1"],
)
def test_a_base_url_that_can_work_is_taken(base_url):
    assert Endpoint(MODEL, base_url, SecretStr(KEY)).host in base_url


@pytest.mark.parametrize(
    "setting",
    [
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"max_retries": -1},
        {"requests_per_minute": -1},
        {"tokens_per_minute": -5},
    ],
)
def test_a_setting_that_cannot_work_is_named(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"AGENT_LLM.*{name}"):
        OpenAIProvider.from_environment("AGENT_LLM", environment=environment("AGENT_LLM"), **setting)


@pytest.mark.parametrize("key", ["sk-ключ-0123456789", "sk-first\nsecond-0123"])
def test_a_key_that_no_header_can_hold_is_refused_without_repeating_it(key):
    with pytest.raises(ValueError, match=r"AGENT_LLM.*API key") as caught:
        OpenAIProvider.from_environment(
            "AGENT_LLM", environment={**environment("AGENT_LLM"), "AGENT_LLM_API_KEY": key}
        )
    assert key not in str(caught.value)


def test_an_unknown_prefix_is_refused():
    with pytest.raises(ValueError, match="AGENT_LLM, JUDGE_LLM, EVOLVE_LLM, VL_LLM"):
        OpenAIProvider.from_environment("OTHER", environment={})


async def test_variables_meant_for_openai_itself_are_not_sent_elsewhere(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-0123456789")
    async with FaultServer() as server:
        provider = provider_for(server)
        await provider.chat(HELLO)
        await provider.aclose()
    sent = server.calls[0]
    assert sent.key == KEY
    assert "org-secret" not in sent.headers.values()
