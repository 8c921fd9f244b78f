"""A client killed with SIGKILL again and again: no finished call is repeated, by the server's log."""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from fault_server import KEY, MODEL, FaultServer

CLIENT = """
import asyncio, sys
from pydantic import SecretStr
from core.adapters.endpoint import Endpoint
from core.adapters.journal import Journal, JournaledProvider
from core.adapters.openai import OpenAIProvider
from core.types import Message

async def converse(provider, question):
    messages = [Message("user", f"{question} turn 0")]
    for turn in range(1, 6):
        reply = (await provider.chat(messages, temperature=0)).content
        print(f"{question} turn {turn - 1}: {reply}", flush=True)
        messages += [Message("assistant", reply), Message("user", f"{question} turn {turn}")]

async def main(base_url, journal_path):
    endpoint = Endpoint(MODEL, base_url, SecretStr(KEY))
    with Journal(journal_path) as journal:
        provider = OpenAIProvider(endpoint, role="agent")
        questions = [f"question {number}" for number in range(6)]
        await asyncio.gather(*[
            converse(JournaledProvider(provider, journal, f"run/{question}/agent"), question)
            for question in questions
        ])
        await provider.aclose()
"""


async def life(server, journal_path, *, kill_after=None):
    """Runs the client, killed once it has told of so many replies; returns all it told, and its exit code."""
    program = f"MODEL, KEY = {MODEL!r}, {KEY!r}\n{CLIENT}\nasyncio.run(main(*sys.argv[1:]))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, server.base_url, str(journal_path),
        stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    told = []
    async for line in process.stdout:
        told.append(line.decode().strip())
        if len(told) == kill_after:
            process.kill()
    return told, await process.wait()


async def test_a_client_killed_anywhere_repeats_no_finished_call_and_ends_with_the_same_replies(tmp_path):
    seed = 11
    draw = random.Random(seed)
    async with FaultServer(delay_s=0.02) as server:
        undisturbed, code = await life(server, tmp_path / "undisturbed.db")
        assert code == 0
        calls_of_one_run = len(server.calls)
        server.calls.clear()
        finished: set[str] = set()
        kills = 0
        for extra in (draw.randint(1, 8), draw.randint(1, 8), None):
            kill_after = None if extra is None else len(finished) + extra
            before = Counter(call.body["messages"][-1]["content"] for call in server.calls)
            told, code = await life(server, tmp_path / "killed.db", kill_after=kill_after)
            after = Counter(call.body["messages"][-1]["content"] for call in server.calls)
            kills += code == -9
            repeated = [turn for turn in finished if after[turn] > before[turn]]
            assert not repeated, f"seed {seed}: asked again: {repeated}"
            finished |= {line.split(":")[0] for line in told}
    assert kills == 2
    assert code == 0
    assert sorted(told) == sorted(undisturbed)
    assert calls_of_one_run == 30
    assert calls_of_one_run <= len(server.calls) <= calls_of_one_run + 6 * kills
