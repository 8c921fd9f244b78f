"""What happens for each fault, counted in the server's log; and that no key comes out anywhere."""

import asyncio
import json
import logging
import traceback
from functools import partial
from urllib.parse import quote

import pytest
from aiohttp import web
from fault_server import FAULTS, KEY, MODEL, WHOLE, FaultServer, completion
from loguru import logger
from pydantic import SecretStr

from core.adapters.endpoint import Endpoint
from core.adapters.journal import Journal, JournaledProvider
from core.adapters.openai import OpenAIProvider
from core.adapters.telemetry import SqliteTelemetry
from core.protocols import ProviderError
from core.types import Message
from harness.log import HarnessLog

HELLO = [Message("user", "Hello")]

# fault: (is it tried again, words that the error has if it stays)
TABLE = {
    "408": (True, "HTTP 408: too slow in asking"),
    "409": (True, "HTTP 409: conflict"),
    "429": (True, "HTTP 429: rate limit reached"),
    "429 for hours": (False, "HTTP 429: quota used up (it asks to wait 7200 s)"),
    "500": (True, "HTTP 500: internal error"),
    "503": (True, "HTTP 503: overloaded"),
    "500 in no charset": (True, "the reply cannot be read"),
    "reset": (True, "connection failed"),
    "time-out": (True, "no reply within 0.2 s"),
    "drip": (True, "no reply within 0.2 s"),
    "cut short": (True, "connection failed"),
    "truncated JSON": (True, "the reply cannot be read"),
    "HTML": (True, "the reply cannot be read"),
    "empty choices": (True, "the reply has no choices"),
    "empty reply": (True, "the reply is empty"),
    "null reply": (True, "the reply is empty"),
    "400": (False, "HTTP 400: the prompt is too long"),
    "403": (False, "HTTP 403: key [API key] may not use this model"),
    "422": (False, "seed must be positive"),
}


NEVER_ANSWERED = ("time-out", "drip")


class Endpoints:
    """Makes endpoints that do not really sleep between attempts, and remembers how long they would have."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)

    def provider(self, server, *, model=MODEL, key=KEY, timeout_s=30, max_retries=2, **more):
        settings = {"timeout_s": timeout_s, "max_retries": max_retries, "sleep": self.sleep}
        return OpenAIProvider(
            Endpoint(model, server.base_url, SecretStr(key), **settings), role="agent", **more
        )


class Rows:
    def __init__(self):
        self.rows = []

    def record(self, call):
        self.rows.append(call)


@pytest.fixture
def endpoints():
    return Endpoints()


def test_the_table_has_every_fault_of_the_server():
    assert TABLE.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", [name for name, (again, _) in TABLE.items() if again])
async def test_a_passing_fault_costs_one_more_call_and_nothing_else(fault, endpoints):
    async with FaultServer([fault]) as server:
        provider = endpoints.provider(server, timeout_s=1.5 if fault in NEVER_ANSWERED else 30)
        hurt = await provider.chat(HELLO)
        unhurt = await provider.chat(HELLO)
        await provider.aclose()
    assert server.answered == [fault, "ok", "ok"]
    assert hurt.content == unhurt.content


@pytest.mark.parametrize(("fault", "again", "words"), [(name, *row) for name, row in TABLE.items()])
async def test_a_lasting_fault_ends_in_the_endpoints_words_after_the_stated_calls(
    fault, again, words, endpoints
):
    async with FaultServer([fault] * 9) as server:
        provider = endpoints.provider(server, max_retries=2, timeout_s=0.2 if fault in NEVER_ANSWERED else 30)
        with pytest.raises(ProviderError) as caught:
            await provider.chat(HELLO)
        await provider.aclose()
    assert server.answered == [fault] * (3 if again else 1)
    assert words in str(caught.value)
    assert f"{MODEL} at 127.0.0.1" in str(caught.value)
    assert ("gave up after 3 attempts" in str(caught.value)) == again


async def test_a_wrong_key_and_an_unknown_model_cost_one_call_each(endpoints):
    async with FaultServer() as server:
        wrong_key = endpoints.provider(server, key="sk-wrong-9876543210")
        with pytest.raises(ProviderError, match=r"401: Incorrect API key provided: \[API key\] \(check"):
            await wrong_key.chat(HELLO)
        unknown = endpoints.provider(server, model="no-such-model")
        with pytest.raises(ProviderError, match=r"404: The model `no-such-model` does not exist \(check"):
            await unknown.chat(HELLO)
        await wrong_key.aclose()
        await unknown.aclose()
    assert server.answered == ["401", "404"]


async def test_a_dead_server_is_told_by_its_cause(endpoints):
    async with FaultServer() as server:
        provider = endpoints.provider(server)
    with pytest.raises(ProviderError, match=r"connection failed: .*Connect"):
        await provider.chat(HELLO)
    await provider.aclose()


async def test_retry_after_is_waited_for_and_back_off_grows_from_call_to_call(endpoints):
    async with FaultServer(["429", "500", "503", "500", "503", "ok"]) as server:
        provider = endpoints.provider(server, max_retries=9)
        await provider.chat(HELLO)
        await provider.aclose()
    first, *others = endpoints.slept
    assert 7 <= first <= 8
    assert all(0 <= seconds <= most for seconds, most in zip(others, (2, 4, 8, 16), strict=True))


def answers(monkeypatch, body, **headers):
    """A call that the script names `odd` is answered with these bytes."""

    async def answer(request):
        return web.Response(body=body, headers={"Content-Type": "application/json", **headers})

    monkeypatch.setitem(FAULTS, "odd", answer)


@pytest.mark.parametrize("charset", ["utf-16", "hex", "rot13", "zlib", "idna", "nonsense", "latin-1"])
async def test_a_reply_is_read_as_utf_8_whatever_its_header_says(charset, endpoints, monkeypatch):
    body = json.dumps(completion("Schön 🎬"), ensure_ascii=False).encode()
    answers(monkeypatch, body, **{"Content-Type": f"application/json; charset={charset}"})
    async with FaultServer(["odd"]) as server:
        provider = endpoints.provider(server)
        assert (await provider.chat(HELLO)).content == "Schön 🎬"
        await provider.aclose()
    assert server.answered == ["odd"]


@pytest.mark.parametrize(
    "body", [b"\xef\xbb\xbf" + WHOLE.encode(), WHOLE.encode().replace(b"middle", b"\xff\xfe")]
)
async def test_a_byte_order_mark_or_a_broken_letter_does_not_cost_a_reply(body, endpoints, monkeypatch):
    answers(monkeypatch, body)
    async with FaultServer(["odd"]) as server:
        provider = endpoints.provider(server)
        assert (await provider.chat(HELLO)).content.startswith("a reply that is cut in the ")
        await provider.aclose()
    assert server.answered == ["odd"]


@pytest.mark.parametrize("concurrency", [1, 7, 64])
async def test_with_faults_in_three_of_ten_calls_every_reply_is_the_same_for_half_as_many_calls_more(
    concurrency, endpoints
):
    questions = [[Message("user", f"question {number}")] for number in range(200)]

    async def ask(server, rows):
        provider = endpoints.provider(server, max_retries=12, telemetry=rows)
        gate = asyncio.Semaphore(concurrency)

        async def one(messages):
            async with gate:
                return (await provider.chat(messages)).content

        contents = await asyncio.gather(*[one(messages) for messages in questions])
        await provider.aclose()
        return contents

    calm, stormy = Rows(), Rows()
    async with FaultServer() as sound, FaultServer(rate=0.3, seed=4) as failing:
        assert await ask(failing, stormy) == await ask(sound, calm)
    assert len(sound.calls) == len(calm.rows) == len(stormy.rows) == 200
    assert 200 < len(failing.calls) <= 300
    assert sum(call.attempts for call in stormy.rows) == len(failing.calls)


class Everything:
    """All that is logged, at the lowest level, with the values that loguru shows in tracebacks."""

    def __init__(self, caplog):
        self._caplog, self._lines = caplog, []
        caplog.set_level(logging.DEBUG)
        for name in ("openai", "httpx2", "aiohttp", "asyncio", "aiohttp.client", "aiohttp.internal"):
            caplog.set_level(logging.DEBUG, logger=name)
        self._sink = logger.add(self._lines.append, level=0, diagnose=True, backtrace=True)

    def close(self):
        logger.remove(self._sink)

    def text(self):
        return "".join(map(str, self._lines)) + self._caplog.text


@pytest.fixture
def everything(caplog):
    logged = Everything(caplog)
    yield logged
    logged.close()


@pytest.mark.parametrize("fault", [*FAULTS, "wrong key"])
async def test_no_key_in_any_log_row_or_exception(fault, endpoints, everything):
    key = KEY if fault in FAULTS else "sk-wrong-9876543210"
    rows = Rows()
    async with FaultServer([fault] * 9) as server:
        timeout_s = 0.2 if fault in NEVER_ANSWERED else 30
        provider = endpoints.provider(server, key=key, timeout_s=timeout_s, max_retries=1, telemetry=rows)
        try:
            await provider.chat(HELLO)
        except ProviderError as error:
            logger.exception("the call failed")
            logging.getLogger("test").exception("the call failed")
            shown = [str(error), repr(error), *traceback.format_exception(error), repr(error.__context__)]
        await provider.aclose()
    assert server.calls[0].key == key
    shown += [everything.text(), repr(rows.rows), repr(provider), repr(vars(provider))]
    assert "the call failed" in everything.text()
    assert key not in "".join(shown)


async def test_a_key_that_a_reply_repeats_is_cut_out(endpoints, everything):
    rows = Rows()
    async with FaultServer(reply=lambda body: f"Your key is {KEY}.") as server:
        provider = endpoints.provider(server, telemetry=rows)
        response = await provider.chat(HELLO)
        await provider.aclose()
    assert response.content == "Your key is [API key]."
    assert KEY not in repr(rows.rows) + everything.text()


ODD_KEY = 'sk-"SECRET\\/abc+='


@pytest.mark.parametrize(
    "written",
    [
        ODD_KEY,
        json.dumps(ODD_KEY)[1:-1],
        json.dumps(ODD_KEY)[1:-1].replace("/", "\\/"),
        quote(ODD_KEY, safe=""),
    ],
)
async def test_a_key_is_cut_out_however_it_is_written(written, endpoints, monkeypatch):
    answers(monkeypatch, json.dumps(completion(f"key {written}.")).encode())
    async with FaultServer(["odd"], key=ODD_KEY) as server:
        provider = endpoints.provider(server, key=ODD_KEY)
        assert (await provider.chat(HELLO)).content == "key [API key]."
        await provider.aclose()


async def test_no_key_in_the_bytes_of_database_and_journal(endpoints, tmp_path):
    with HarnessLog(tmp_path / "harness.db", "run") as log, Journal(tmp_path / "journal.db") as journal:
        telemetry = SqliteTelemetry(partial(log.insert_many, "llm_calls"))
        async with FaultServer(["403", "ok"], reply=lambda body: f"Your key is {KEY}.") as server:
            provider = endpoints.provider(server, telemetry=telemetry)
            journaled = JournaledProvider(provider, journal, "run/q1/agent")
            with pytest.raises(ProviderError):
                await journaled.chat(HELLO)
            await journaled.chat(HELLO)
            await provider.aclose()
        telemetry.close()
        written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert any(b"may not use this model" in content for content in written.values())
    assert any(b"Your key is" in content for content in written.values())
    assert not any(KEY.encode() in content for content in written.values())


async def test_every_attempt_is_paced_and_its_tokens_settled(endpoints, monkeypatch):
    paced = []

    class Pace:
        def __init__(self, requests_per_minute, tokens_per_minute):
            paced.append(("limits", requests_per_minute, tokens_per_minute))

        async def admit(self, expected_tokens):
            paced.append(("admit", expected_tokens))

        def settle(self, expected_tokens, used_tokens):
            paced.append(("settle", expected_tokens, used_tokens))

    monkeypatch.setattr("core.adapters.endpoint.RateLimits", Pace)
    async with FaultServer(["500", "ok"]) as server:
        limits = {"requests_per_minute": 60, "tokens_per_minute": 6000, "sleep": endpoints.sleep}
        provider = OpenAIProvider(Endpoint(MODEL, server.base_url, SecretStr(KEY), **limits), role="agent")
        await provider.chat([Message("user", "four" * 10)], max_tokens=50)
        await provider.aclose()
    assert paced == [("limits", 60, 6000), ("admit", 60), ("admit", 60), ("settle", 60, 120)]


async def test_the_placeholder_key_of_a_keyless_server_does_not_mangle_replies(endpoints):
    async with FaultServer(reply=lambda body: "none of them", key="none") as server:
        provider = endpoints.provider(server, key="none")
        response = await provider.chat(HELLO)
        await provider.aclose()
    assert response.content == "none of them"


# What makes settings unworkable; `{}` is the good value. The name of a test must not hold the key either.
SPOILT = {
    "no model": ("AGENT_LLM_MODEL", ""),
    "no address": ("AGENT_LLM_BASE_URL", ""),
    "no such protocol": ("AGENT_LLM_BASE_URL", "ftp://host"),
    "no ASCII": ("AGENT_LLM_API_KEY", "{}\u2026"),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_no_key_in_the_traceback_of_settings_that_cannot_work(spoilt, everything, monkeypatch):
    variable, change = SPOILT[spoilt]
    good = {"AGENT_LLM_MODEL": MODEL, "AGENT_LLM_BASE_URL": "http://127.0.0.1:9/v1", "AGENT_LLM_API_KEY": KEY}
    for name, value in good.items():
        monkeypatch.setenv(name, change.format(value) if name == variable else value)
    try:
        OpenAIProvider.from_environment("AGENT_LLM")
    except ValueError:
        logger.exception("the settings cannot work")
    assert "the settings cannot work" in everything.text()
    assert KEY not in everything.text()
