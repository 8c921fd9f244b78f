"""Faults by rate and seed: they cost attempts and nothing else, until a call has used up its retries."""

import asyncio
from types import SimpleNamespace

import pytest
from simulated_worlds import TEXT, answers, make_world

from core.adapters.attempts import failure_of_status
from core.adapters.faults import FAULTS, FaultyProvider, failure_of
from core.agent.loop import AgentLoop
from core.protocols import LLMProvider, ProviderError
from core.types import LLMResponse, Message

ASKED = [Message("user", "Well?")]


class Echo:
    model = "echo"

    def __init__(self):
        self.calls = []

    async def chat(self, messages, **options):
        await asyncio.sleep(0)
        self.calls.append((messages, options))
        return LLMResponse(messages[-1].content)


def asked(number):
    return [Message("user", f"Question {number}?")]


async def failing_calls(provider, numbers):
    """Which of the calls failed for good."""
    outcomes = await asyncio.gather(*(provider.chat(asked(n)) for n in numbers), return_exceptions=True)
    assert all(isinstance(outcome, LLMResponse | ProviderError) for outcome in outcomes)
    return {n for n, outcome in zip(numbers, outcomes, strict=True) if isinstance(outcome, ProviderError)}


async def test_without_faults_a_call_passes_through_untouched():
    echo = Echo()
    provider = FaultyProvider(echo, rate=0.0, seed=1)
    options = {"temperature": 0.5, "max_tokens": 7, "seed": 0, "json_schema": {"type": "object"}}
    response = await provider.chat(ASKED, **options)
    assert response.content == "Well?"
    assert echo.calls == [(ASKED, options)]
    assert (provider.count.calls, provider.count.attempts) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "status"), [("rate_limited", 429), ("server_error", 500), ("unavailable", 503)]
)
def test_a_status_is_told_as_the_adapter_tells_it(fault, status):
    response = SimpleNamespace(headers={"retry-after": "1"})
    error = SimpleNamespace(status_code=status, body={"message": f"simulated {fault}"}, response=response)
    told = failure_of_status(error)
    assert (failure_of(fault).words, failure_of(fault).transient) == (told.words, told.transient)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_dead_provider_is_given_up_after_its_retries_in_the_words_of_the_adapter(fault):
    echo = Echo()
    provider = FaultyProvider(echo, rate=1.0, seed=1, faults=[fault], max_retries=3)
    with pytest.raises(ProviderError) as raised:
        await provider.chat(ASKED)
    assert failure_of(fault).transient
    assert failure_of(fault).words in str(raised.value)
    assert "gave up after 4 attempts" in str(raised.value)
    assert "simulated" in str(raised.value)
    assert echo.calls == []
    assert provider.count.faults == {fault: 4}


async def test_faults_in_30_percent_of_attempts_leave_the_rollouts_as_they_were():
    world = make_world(churn=0.2)
    plain = AgentLoop(world.agent_llm(), max_steps=5)
    faulty = FaultyProvider(world.agent_llm(), rate=0.3, seed=5, max_retries=20)
    with_faults = AgentLoop(faulty, max_steps=5)
    expected, found = [
        await answers(lambda _, agent=agent: agent, world.questions, TEXT, tools_for=world.tools_for)
        for agent in (plain, with_faults)
    ]
    assert found == expected
    assert faulty.count.calls < faulty.count.attempts <= 1.5 * faulty.count.calls
    assert set(faulty.count.faults) == set(FAULTS)
    assert sum(faulty.count.faults.values()) == faulty.count.attempts - faulty.count.calls


async def test_a_call_that_is_given_up_ends_its_rollout_as_an_error():
    world = make_world()
    agent = AgentLoop(FaultyProvider(world.agent_llm(), rate=1.0, seed=1), max_steps=5)
    results = await answers(lambda _: agent, world.questions[:3], TEXT, tools_for=world.tools_for)
    assert {result.stop_reason for result in results} == {"error"}


async def test_which_calls_fail_hangs_on_seed_and_request_and_not_on_order_or_company():
    numbers = list(range(200))
    make = lambda seed: FaultyProvider(Echo(), rate=0.5, seed=seed, max_retries=0)  # noqa: E731
    failed = await failing_calls(make(1), numbers)
    assert 0 < len(failed) < len(numbers)
    assert await failing_calls(make(1), numbers[::-1]) == failed
    assert await failing_calls(make(1), numbers[:50]) == {n for n in failed if n < 50}
    assert await failing_calls(make(2), numbers) != failed


async def test_asking_the_same_again_is_another_call_and_scopes_have_faults_of_their_own():
    provider = FaultyProvider(Echo(), rate=0.5, seed=1, max_retries=0)
    by_repetition = [bool(await failing_calls(provider, [0])) for _ in range(50)]
    scoped = [bool(await failing_calls(provider.for_scope(f"s{n}"), [0])) for n in range(50)]
    again = [bool(await failing_calls(provider.for_scope(f"s{n}"), [0])) for n in range(50)]
    assert set(by_repetition) == set(scoped) == {True, False}
    assert again == scoped
    assert provider.count.calls == 150


async def test_the_model_inside_is_asked_for_the_same_scope():
    world = make_world(churn=0.3)
    inside, outside = world.agent_llm(), FaultyProvider(world.agent_llm(), rate=0.0, seed=1)
    question = world.questions[0]
    for scope in map(str, range(30)):
        results = [
            await AgentLoop(llm.for_scope(scope), max_steps=5).run(
                question, TEXT, f"Question: {question.question}", world.tools_for(question)
            )
            for llm in (inside, outside)
        ]
        assert results[0] == results[1]


def test_it_is_a_provider_and_refuses_what_it_cannot_do():
    assert isinstance(FaultyProvider(Echo(), rate=0.1, seed=1), LLMProvider)
    with pytest.raises(ValueError, match="rate"):
        FaultyProvider(Echo(), rate=1.1, seed=1)
    with pytest.raises(ValueError, match="faults"):
        FaultyProvider(Echo(), rate=0.1, seed=1, faults=["earthquake"])
