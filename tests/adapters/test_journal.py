"""The journal: what was answered once is not asked again, and nothing else is replayed."""

import asyncio
import contextlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.adapters.journal import EntryKey, Journal, JournaledProvider, JournaledVision, JournalError
from core.protocols import LLMProvider, ProviderError, VLMProvider
from core.types import LLMResponse, Message


class Numbering:
    """Answers each call with a number of its own, so that a reply tells which call it came from."""

    model = "numbering"

    def __init__(self):
        self.asked = []

    async def chat(self, messages, **options):
        self.asked.append(messages[-1].content)
        await asyncio.sleep(0)
        return LLMResponse(
            f"{messages[-1].content} #{len(self.asked)}", prompt_tokens=0, finish_reason="stop"
        )

    async def describe(self, images, prompt):
        return await self.chat([Message("user", prompt)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


async def ask(provider, text, **options):
    return await provider.chat([Message("user", text)], **options)


async def ask_all(path, model, texts, scope="run/q1/agent"):
    with Journal(path) as journal:
        provider = JournaledProvider(model, journal, scope)
        return [await ask(provider, text) for text in texts]


async def test_after_a_restart_every_reply_comes_back_as_it_was_and_nobody_is_asked(path):
    model = Numbering()
    first = await ask_all(path, model, ["a", "b", "a"])
    again = await ask_all(path, model, ["a", "b", "a"])
    assert again == first
    assert [response.content for response in first] == ["a #1", "b #2", "a #3"]
    assert model.asked == ["a", "b", "a"]


async def test_only_what_is_new_is_asked_after_a_restart(path):
    model = Numbering()
    await ask_all(path, model, ["a", "b"])
    await ask_all(path, model, ["a", "b", "c"])
    assert model.asked == ["a", "b", "c"]


async def test_a_changed_request_is_not_replayed_and_what_did_not_change_is(path):
    model = Numbering()
    await ask_all(path, model, ["a", "b", "c"])
    contents = [response.content for response in await ask_all(path, model, ["a", "B", "c"])]
    assert contents == ["a #1", "B #4", "c #3"]


@pytest.mark.parametrize(
    "changed",
    [{"temperature": 0.0}, {"seed": 0}, {"max_tokens": 1}, {"json_schema": {"type": "object"}}],
)
async def test_other_options_are_another_request(path, changed):
    model = Numbering()
    with Journal(path) as journal:
        await ask(JournaledProvider(model, journal, "s"), "a")
        await ask(JournaledProvider(model, journal, "s"), "a", **changed)
        await ask(JournaledProvider(model, journal, "s"), "a")
    assert model.asked == ["a", "a"]


async def test_another_model_and_another_scope_are_asked_themselves(path):
    first, second = Numbering(), Numbering()
    second.model = "other"
    await ask_all(path, first, ["a"], scope="run/q1/agent")
    await ask_all(path, first, ["a"], scope="run/q2/agent")
    await ask_all(path, second, ["a"], scope="run/q1/agent")
    assert (first.asked, second.asked) == (["a", "a"], ["a"])


@settings(max_examples=25)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(0, 12))
def test_stopping_anywhere_changes_neither_replies_nor_calls(tmp_path_factory, texts, stop):
    async def run():
        path, model = tmp_path_factory.mktemp("journal") / "journal.db", Numbering()
        await ask_all(path, model, texts[:stop])
        replies = await ask_all(path, model, texts)
        return [reply.content for reply in replies], model.asked

    replies, asked = asyncio.run(run())
    assert asked == texts
    assert replies == [f"{text} #{number}" for number, text in enumerate(texts, 1)]


async def test_calls_of_one_scope_may_run_at_once_and_in_another_order_next_time(path):
    model, texts = Numbering(), [f"text {number % 20}" for number in range(60)]

    async def all_at_once(journal, order):
        provider = JournaledProvider(model, journal, "s")
        return [reply.content for reply in await asyncio.gather(*[ask(provider, text) for text in order])]

    with Journal(path) as journal:
        first = await all_at_once(journal, texts)
        again = await all_at_once(journal, texts[::-1])
    assert len(model.asked) == 60
    assert sorted(again) == sorted(first)


async def test_a_call_that_failed_is_asked_again_and_leaves_no_gap(path):
    class FailsFirst(Numbering):
        async def chat(self, messages, **options):
            reply = await super().chat(messages, **options)
            if len(self.asked) == 1:
                raise ProviderError("overloaded")
            return reply

    model = FailsFirst()
    with Journal(path) as journal:
        provider = JournaledProvider(model, journal, "s")
        with pytest.raises(ProviderError):
            await ask(provider, "a")
        kept = await ask(provider, "a")
    assert await ask_all(path, model, ["a"], scope="s") == [kept]
    assert len(model.asked) == 2


@settings(max_examples=40)
@given(st.text(), st.text(), st.none() | st.integers(0), st.floats(0, 1e6))
def test_any_reply_is_kept_as_it_is(tmp_path_factory, content, scope, tokens, latency_s):
    response = LLMResponse(content, content, tokens, tokens, "m", latency_s, "stop")
    key = EntryKey(scope, 0, "hash")

    async def run():
        with Journal(tmp_path_factory.mktemp("journal") / "journal.db") as journal:
            await journal.keep(key, response)
            return journal.find(key)

    assert asyncio.run(run()) == response


async def test_half_a_character_in_a_reply_is_kept_too(path):
    with Journal(path) as journal:
        await journal.keep(EntryKey("s", 0, "hash"), LLMResponse("half \ud83c"))
        assert journal.find(EntryKey("s", 0, "hash")).content == "half \ud83c"


async def test_images_are_part_of_what_was_asked(path, tmp_path):
    model, frame = Numbering(), tmp_path / "frame.jpg"
    with Journal(path) as journal:
        for content in (b"one", b"one", b"two"):
            frame.write_bytes(content)
            await JournaledVision(model, journal, "s").describe([frame], "What is there?")
    assert len(model.asked) == 2


async def test_a_reply_whose_taker_was_cancelled_is_on_disk_after_closing(path):
    key, journal = EntryKey("s", 0, "hash"), Journal(path)
    taking = asyncio.create_task(journal.keep(key, LLMResponse("paid for")))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    journal.close()
    journal.close()
    with Journal(path) as journal:
        assert journal.find(key) == LLMResponse("paid for")


async def test_no_reply_counts_as_kept_when_the_file_cannot_be_written(path):
    with Journal(path) as journal:
        blocker = sqlite3.connect(path)
        journal._connection.execute("PRAGMA busy_timeout = 0")
        blocker.execute("BEGIN IMMEDIATE")
        keys = [EntryKey("s", number, "hash") for number in range(3)]
        taken = await asyncio.gather(
            *[journal.keep(key, LLMResponse("reply")) for key in keys], return_exceptions=True
        )
        assert [type(outcome) for outcome in taken] == [JournalError] * 3
        assert [journal.find(key) for key in keys] == [None] * 3
        blocker.close()


@pytest.mark.parametrize("reply", ["{bad", "[1]", '{"words": "of another version"}', "null"])
async def test_a_reply_that_is_damaged_is_named_with_its_file(path, reply):
    key = EntryKey("run/q1/agent", 0, "hash")
    with Journal(path) as journal:
        await journal.keep(key, LLMResponse("whole"))
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE replies SET reply = ?", (reply,))
        with pytest.raises(JournalError, match=r"journal\.db: the reply kept for 'run/q1/agent' is damaged"):
            journal.find(key)


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 100, None])
def test_a_file_that_cannot_be_a_journal_is_named(path, content):
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(JournalError, match=r"journal\.db: the journal cannot be opened"):
        Journal(path)


def test_the_journaled_providers_are_what_the_protocols_ask_for(path):
    with Journal(path) as journal:
        assert isinstance(JournaledProvider(Numbering(), journal, "s"), LLMProvider)
        assert isinstance(JournaledVision(Numbering(), journal, "s"), VLMProvider)
