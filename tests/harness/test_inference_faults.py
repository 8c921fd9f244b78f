"""What `run_inference` does when a provider is dead or flaky, when it is cancelled, and at which executor."""

import asyncio

import pytest
from inference_runs import MockAgent, MockModel, Texts, infer, make_questions, rows_of, state_hash

from core.adapters.faults import FaultyProvider
from core.adapters.simulated import SimulatedWorld
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.protocols import ProviderError
from harness.log import HarnessLog
from harness.workspace import VersionedPromptStore


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


class DyingModel(MockModel):
    """Works for `works` calls; then every call fails with the provider's words."""

    def __init__(self, works=0):
        super().__init__()
        self.works = works

    async def chat(self, messages, **options):
        await asyncio.sleep(0.001)
        if self.calls >= self.works:
            self.calls += 1
            raise ProviderError("mock at localhost: HTTP 401: wrong key (check the API key)")
        return await super().chat(messages, **options)


@pytest.mark.parametrize("concurrency", [1, 64])
async def test_a_dead_provider_costs_one_call_and_scores_nothing(log, concurrency):
    model = DyingModel()
    with pytest.raises(ProviderError, match=r"HTTP 401: wrong key \(check the API key\)"):
        await infer(log, make_questions(100), llm=model, concurrency=concurrency)
    assert model.calls == 1
    assert [(row["stop_reason"], row["correct"]) for row in rows_of(log, "predictions")] == [("error", None)]
    assert log.query("SELECT status FROM _runs WHERE run_id = 'pilot_infer'") == [{"status": "failed"}]


async def test_a_run_that_the_provider_ended_is_resumed_where_it_stopped(log):
    dying = DyingModel(works=20)
    with pytest.raises(ProviderError, match="HTTP 401"):
        await infer(log, make_questions(40), llm=dying, concurrency=4)
    scored = {row["question_id"] for row in rows_of(log, "predictions") if row["correct"] is not None}
    assert 0 < len(scored) <= 10
    # Three failures in a row, and whatever else was running when the third one came.
    assert dying.calls <= 20 + 3 + 4
    model = MockModel()
    result = await infer(log, make_questions(40), llm=model)
    assert (result.total, result.correct, result.errors) == (40, 40, 0)
    assert model.calls == 2 * (40 - len(scored))


async def test_the_others_wait_until_the_first_call_is_answered(log):
    order = []

    class Watched(MockModel):
        async def chat(self, messages, **options):
            order.append(("asked", messages[1].content))
            await asyncio.sleep(0.01)
            response = await super().chat(messages, **options)
            order.append(("answered", messages[1].content))
            return response

    await infer(log, make_questions(10), llm=Watched(), concurrency=10)
    assert order[0][0] == "asked"
    assert order[1] == ("answered", order[0][1]), "somebody else was asked before the first answer"
    # Then all at once: the first rollout's second call is only one of ten.
    assert [kind for kind, _ in order[2:11]].count("asked") == 9


async def test_two_failures_in_a_row_are_bad_luck_and_three_the_end(log):
    async def unlucky(question):
        if question.question_id in failing:
            raise ProviderError("HTTP 503: busy")

    failing = {"q2", "q3", "q5", "q6", "q8"}
    result = await infer(log, make_questions(12), agent=MockAgent(before=unlucky), concurrency=1)
    assert (result.errors, result.correct) == (5, 7)
    failing = {"q2", "q3", "q4"}
    with pytest.raises(ProviderError, match="HTTP 503: busy"):
        await infer(
            log, make_questions(12), agent=MockAgent(before=unlucky), concurrency=1, run_id="pilot_three"
        )
    assert [row["question_id"] for row in rows_of(log, "predictions", "pilot_three")] == [
        "q0",
        "q1",
        "q2",
        "q3",
        "q4",
    ]


async def test_crashes_that_are_not_the_providers_do_not_end_the_run(log):
    async def crash(question):
        raise OSError("no such film")

    result = await infer(log, make_questions(9), agent=MockAgent(before=crash))
    assert (result.errors, result.total) == (9, 9)


async def test_an_agent_of_a_users_own_goes_first_alone_to_its_end(log):
    finished = []

    class Slow(MockAgent):
        async def run(self, question, *others):
            started_after = len(finished)
            await asyncio.sleep(0.002)
            finished.append((question.question_id, started_after))
            return await super().run(question, *others)

    await infer(log, make_questions(8), agent=Slow(), concurrency=8)
    assert finished[0] == ("q0", 0)
    assert all(started_after >= 1 for _, started_after in finished[1:])


async def test_30_percent_faults_give_the_same_scores(tmp_path):
    world = SimulatedWorld(seed=4, n_videos=5, n_questions=60, task_types=("order", "content"), churn=0.2)
    states = set()
    for rate in (0.0, 0.3):
        llm = FaultyProvider(world.agent_llm(), rate=rate, seed=1)
        with HarnessLog(tmp_path / f"{rate}.db", "pilot", synchronous="NORMAL") as log:
            result = await infer(
                log,
                list(world.questions),
                llm=llm,
                max_steps=15,
                tool_dispatch_fn=world.tools_for,
                skills=Texts(world.initial_skills()),
                prompts=VersionedPromptStore(DEFAULT_PROMPTS_DIR),
            )
            assert (result.errors, result.total) == (0, 60)
            states.add(state_hash(log))
        assert llm.count.attempts <= 1.5 * llm.count.calls
    assert llm.count.faults.total() > 20
    assert len(states) == 1


# Cancelling


class Cancelling(MockModel):
    """Cancels a task when its n-th call comes."""

    def __init__(self, at):
        super().__init__()
        self.at, self.task, self.asked, self.begun = at, None, set(), 0

    async def chat(self, messages, **options):
        self.asked.add(messages[1].content)
        self.begun += 1
        if self.begun == self.at:
            self.task.cancel()
        await asyncio.sleep(0.001)
        return await super().chat(messages, **options)


@pytest.mark.parametrize("at", [1, 2, 5, 14, 31, 39])
async def test_cancelling_starts_nothing_new_and_saves_what_was_answered(log, at):
    model = Cancelling(at)
    model.task = asyncio.create_task(infer(log, make_questions(20), llm=model, concurrency=3))
    await asyncio.wait([model.task])
    assert model.task.cancelled()
    # At the cancellation at most three rollouts were running; of the others nobody heard.
    assert len(model.asked) <= (at + 1) // 2 + 3
    rows = rows_of(log, "predictions")
    assert {row["stop_reason"] for row in rows} <= {"finished"}
    assert len(rows) >= (at - 1) // 2 - 3
    traces = [trace["question_id"] for trace in rows_of(log, "traces")]
    assert sorted(traces) == sorted(2 * [row["question_id"] for row in rows])
    assert log.query("SELECT status FROM _runs WHERE run_id = 'pilot_infer'") == [{"status": "interrupted"}]
    again = MockModel()
    assert (await infer(log, make_questions(20), llm=again)).correct == 20
    assert again.calls == 2 * (20 - len(rows))


async def test_a_rollout_that_has_just_ended_when_the_run_is_cancelled_is_saved(log):
    """Its result waits in the executor's queue, and nobody has looked at it yet."""
    ended = []

    class Ending(MockAgent):
        async def run(self, question, *others):
            result = await super().run(question, *others)
            ended.append(question.question_id)
            if len(ended) == 4:
                task.cancel()
            return result

    task = asyncio.create_task(infer(log, make_questions(30), agent=Ending(), concurrency=2))
    await asyncio.wait([task])
    assert task.cancelled()
    assert {row["question_id"] for row in rows_of(log, "predictions")} == set(ended)


async def test_a_second_cancellation_does_not_wait_for_rollouts_that_ignore_the_first(log):
    stubborn = asyncio.Event()

    class Stubborn(MockAgent):
        async def run(self, question, *others):
            if question.question_id == "q1":
                stubborn.set()
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    await asyncio.sleep(3600)
            return await super().run(question, *others)

    task = asyncio.create_task(infer(log, make_questions(3), agent=Stubborn(), concurrency=2))
    await stubborn.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.05)
    assert not done, "the first cancellation waits"
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    assert done
    assert task.cancelled()


# Executors


class BackwardsExecutor:
    """Another executor: from the last item to the first, one at a time, an error as a result."""

    async def run(self, fn, items, *, concurrency):
        for index in reversed(range(len(items))):
            try:
                result = await fn(items[index])
            except Exception as error:
                result = error
            yield index, result


async def test_any_executor_gives_the_same_rows(tmp_path):
    states, results = set(), []
    for executor in (None, BackwardsExecutor()):
        with HarnessLog(tmp_path / f"{executor}.db", "pilot", synchronous="NORMAL") as log:
            result = await infer(log, make_questions(12), llm=MockModel(), executor=executor)
            results.append([row.question_id for row in result.predictions])
            states.add(state_hash(log))
    assert len(states) == 1
    assert results[0] == results[1] == [f"q{number}" for number in range(12)]


@pytest.mark.parametrize("concurrency", [0, -3])
async def test_concurrency_must_be_positive(log, concurrency):
    with pytest.raises(ValueError, match=f"concurrency: {concurrency} is not positive"):
        await infer(log, make_questions(2), llm=MockModel(), concurrency=concurrency)


# Deterministic agents


def deterministic_agent(calls):
    class Deterministic(MockAgent):
        deterministic = True

        async def run(self, question, *others):
            calls.append(question.question_id)
            return await super().run(question, *others)

    return Deterministic()


async def test_rows_of_a_deterministic_agent_are_copied_with_their_traces_and_say_from_where(log):
    calls = []
    agent = deterministic_agent(calls)
    first = await infer(log, make_questions(5), agent=agent, run_id="pilot_baseline")
    second = await infer(log, make_questions(8), agent=agent, run_id="pilot_e1_R")
    assert sorted(calls) == [f"q{number}" for number in range(8)]
    assert (first.rollouts, first.copied, second.rollouts, second.copied) == (5, 0, 3, 5)
    sources = {row["question_id"]: row["source_run_id"] for row in rows_of(log, "predictions", "pilot_e1_R")}
    assert sources == {f"q{number}": "pilot_baseline" if number < 5 else None for number in range(8)}
    traced = [{name: row[name] for name in row if name != "run_id"} for row in rows_of(log, "traces")]
    assert len(traced) == 13
    original, copy = [row for row in traced if row["question_id"] == "q0"]
    assert original == copy
    third = await infer(log, make_questions(8), agent=agent, run_id="pilot_e2_R")
    assert {row.source_run_id for row in third.predictions} == {"pilot_baseline", "pilot_e1_R"}, (
        "copies of copies"
    )
    again = await infer(log, make_questions(8), agent=agent, run_id="pilot_e1_R")
    assert (again.rollouts, again.copied, len(calls)) == (3, 5, 8)


@pytest.mark.parametrize("changed", ["skills", "max_steps"])
async def test_rows_of_other_hashes_are_not_copied(log, changed):
    calls = []
    await infer(log, make_questions(4), agent=deterministic_agent(calls), run_id="pilot_baseline")
    skills = Texts({"default-strategy.md": '---\nname: "x"\ndescription: y\n---\nOther.\n'})
    other = {"skills": skills} if changed == "skills" else {"max_steps": 6}
    result = await infer(
        log, make_questions(4), agent=deterministic_agent(calls), run_id="pilot_e1_R", **other
    )
    assert (result.copied, len(calls)) == (0, 8)


async def test_errors_of_a_deterministic_agent_are_not_copied(log):
    async def crash(question):
        raise OSError("no such film")

    broken = deterministic_agent([])
    broken.before = crash
    await infer(log, make_questions(3), agent=broken, run_id="pilot_baseline")
    result = await infer(log, make_questions(3), agent=deterministic_agent([]), run_id="pilot_e1_R")
    assert (result.copied, result.correct) == (0, 3)


async def test_rows_of_an_agent_that_is_not_deterministic_are_never_copied(log):
    await infer(log, make_questions(4), agent=MockAgent(), run_id="pilot_baseline")
    result = await infer(log, make_questions(4), agent=MockAgent(), run_id="pilot_e1_R")
    assert (result.copied, result.rollouts) == (0, 4)
