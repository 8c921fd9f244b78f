"""`run_inference`: one row for each question whatever happens, never the same one twice."""

import asyncio
import dataclasses
import json

import pytest
from inference_runs import (
    SKILLS,
    MockAgent,
    MockModel,
    Texts,
    Tools,
    act,
    answer,
    infer,
    make_questions,
    rows_of,
    state_hash,
)

from core.adapters.simulated import SimulatedWorld
from core.agent.plugins import hookimpl
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.grading import Grade
from core.protocols import ProviderError, ToolError
from core.types import GeneratedQuestion, LoopResult
from harness.gate_ladder import agent_fingerprint, prompts_hash, skill_hash
from harness.inference import InferenceResult, aggregate_results
from harness.log import HarnessLog, LogError
from harness.rollout import to_text_field
from harness.workspace import VersionedPromptStore


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


async def test_run_inference_basic(log):
    questions = make_questions(6)
    result = await infer(log, questions, llm=MockModel())
    assert (result.total, result.correct, result.errors, result.accuracy) == (6, 6, 0, 1.0)
    assert {name: score.total for name, score in result.per_task_type.items()} == {"content": 3, "order": 3}
    assert result.token_usage == {"prompt_tokens": 6 * 200, "completion_tokens": 6 * 20}
    assert (result.steps_mean, result.stop_reason_counts, result.soft) == (2.0, {"finished": 6}, None)
    row = rows_of(log, "predictions")[0]
    assert (row["prediction"], row["correct"], row["score"], row["confidence"]) == ("A", 1, 1.0, 0.8)
    assert (row["evidence"], row["reasoning"], row["error"]) == ('["L3_001"]', "seen", None)
    first, second = [trace for trace in rows_of(log, "traces") if trace["question_id"] == "q0"]
    assert (first["tool"], json.loads(first["node_ids"])) == ("view_node", ["L3_001", "L3_002"])
    assert (second["step"], second["tool"], json.loads(second["plan"])) == (
        2,
        "submit_answer",
        {"next": "submit_answer"},
    )


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_run_inference_concurrency(log, concurrency):
    running = most = 0

    async def before(question):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await infer(log, make_questions(20), agent=MockAgent(before=before), concurrency=concurrency)
    # The first rollout goes alone; the others fill what the limit allows.
    assert most == min(concurrency, 19)


async def test_prediction_always_written(log):
    async def before(question):
        if question.question_id == "q1":
            raise ZeroDivisionError("a tool that crashes")
        if question.question_id == "q2":
            raise ProviderError("HTTP 500: busy")

    result = await infer(log, make_questions(4), agent=MockAgent(before=before))
    rows = {row["question_id"]: row for row in rows_of(log, "predictions")}
    assert [rows[name]["stop_reason"] for name in ("q0", "q1", "q2", "q3")] == [
        "finished",
        "error",
        "error",
        "finished",
    ]
    assert (rows["q1"]["correct"], rows["q1"]["error"]) == (None, "ZeroDivisionError: a tool that crashes")
    assert (rows["q2"]["correct"], rows["q2"]["error"]) == (None, "HTTP 500: busy")
    assert rows["q1"]["skill_hash"] == rows["q3"]["skill_hash"], "an error row says what was asked, too"
    assert (result.total, result.correct, result.errors, result.accuracy) == (4, 2, 2, 1.0)


def broken_parts():
    class BadTools(Tools):
        async def __call__(self, name, args):
            raise KeyError("films/v1.json")

    class BadGrader:
        def grade(self, question, prediction):
            raise ArithmeticError("no grade")

    class BadAgent(MockAgent):
        async def run(self, *arguments):
            return LoopResult(None, (), 0, None, None, "bored")

    def no_tools(question):
        raise ValueError("no tree for video 'v1'")

    return {
        "tools": {"llm": MockModel(), "tool_dispatch_fn": lambda question: BadTools()},
        "no tools": {"llm": MockModel(), "tool_dispatch_fn": no_tools},
        "grader": {"llm": MockModel(), "grader": BadGrader()},
        "agent": {"agent": BadAgent()},
        "factory of plugins": {"llm": MockModel(), "plugins_factory": lambda video_id, question_id: 1 / 0},
    }


@pytest.mark.parametrize("part", broken_parts())
async def test_prediction_always_written_whichever_part_breaks(log, part):
    result = await infer(log, make_questions(3), **broken_parts()[part])
    rows = rows_of(log, "predictions")
    assert [(row["stop_reason"], row["correct"], row["prediction"]) for row in rows] == [
        ("error", None, None)
    ] * 3
    assert all(row["error"] for row in rows)
    assert (result.errors, result.accuracy) == (3, None)


async def test_to_text_field():
    assert to_text_field({"node_ids": ["L3_001"], "text": "ein roter Bär"}) == (
        '{"node_ids": ["L3_001"], "text": "ein roter Bär"}'
    )
    assert to_text_field(["a", 1]) == to_text_field(("a", 1)) == '["a", 1]'
    assert [to_text_field(value) for value in ("[kept]", "", None, 3, 0.5)] == [
        "[kept]",
        "",
        None,
        "3",
        "0.5",
    ]


@pytest.mark.parametrize("run_id", ["", "  ", "\n"])
async def test_run_id_empty_raises(log, run_id):
    with pytest.raises(ValueError, match="run_id: is empty"):
        await infer(log, make_questions(1), llm=MockModel(), run_id=run_id)


async def test_no_questions_give_an_empty_result_without_asking_anybody(log):
    model = MockModel()
    result = await infer(log, [], llm=model)
    assert (result.total, result.accuracy, result.steps_mean, model.calls) == (0, None, None, 0)


async def test_aggregate_results_from_memory(log, monkeypatch):
    """What the result says does not hang on reading the database back after the rollouts."""
    asked = []
    query = HarnessLog.query

    def watched(self, sql, parameters=()):
        asked.append((sql, model.calls))
        return query(self, sql, parameters)

    model = MockModel()
    monkeypatch.setattr(HarnessLog, "query", watched)
    result = await infer(log, make_questions(5), llm=model)
    assert [calls for sql, calls in asked] == [0] * len(asked), "read after a rollout"
    assert result == aggregate_results("pilot_infer", result.predictions)
    assert [row.question_id for row in result.predictions] == [f"q{number}" for number in range(5)]


async def test_inference_result_frozen(log):
    result = await infer(log, make_questions(1), llm=MockModel())
    for field in dataclasses.fields(InferenceResult):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, field.name, None)


# Once and only once


async def test_a_second_call_answers_only_what_has_no_finished_row_and_counts_both(log):
    questions = make_questions(10)
    first = MockModel()
    await infer(log, questions[:6], llm=first)
    second = MockModel()
    result = await infer(log, questions, llm=second)
    assert (first.calls, second.calls) == (12, 8)
    assert (result.total, result.correct, result.rollouts) == (10, 10, 10)
    third = MockModel()
    assert strip(await infer(log, questions, llm=third)) == strip(result)
    assert third.calls == 0


def strip(result):
    """A result without latencies."""
    return dataclasses.replace(
        result, predictions=tuple(dataclasses.replace(row, latency_s=None) for row in result.predictions)
    )


async def test_errors_are_tried_again_and_leave_no_trace_of_the_failed_attempt(log):
    questions, broken = make_questions(4), {"q2"}

    class LateFailure(MockModel):
        async def chat(self, messages, **options):
            if "is 2?" in messages[1].content and broken and len(messages) > 6:
                raise ProviderError("connection reset")
            return await super().chat(messages, **options)

    look = act("view_node", node_id="root")
    failed = await infer(log, questions, llm=LateFailure(replies=[look, look, look, look, answer()]))
    assert (failed.errors, failed.stop_reason_counts) == (1, {"error": 1, "finished": 3})
    broken.clear()
    mended = await infer(log, questions, llm=MockModel())
    assert (mended.errors, mended.correct, mended.total) == (0, 4, 4)
    rows = rows_of(log, "predictions")
    assert len(rows) == 4
    assert next(row for row in rows if row["question_id"] == "q2")["error"] is None
    assert [trace["step"] for trace in rows_of(log, "traces") if trace["question_id"] == "q2"] == [1, 2]


async def test_finished_rows_are_loaded_once(log, monkeypatch):
    await infer(log, make_questions(8), llm=MockModel())
    reads = []
    query = HarnessLog.query
    monkeypatch.setattr(
        HarnessLog,
        "query",
        lambda self, sql, parameters=(): reads.append(sql) or query(self, sql, parameters),
    )
    await infer(log, make_questions(12), llm=MockModel())
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"skills": Texts({**SKILLS, "order.md": SKILLS["order.md"] + "Look thrice.\n"})}, "skill_hash"),
        ({"skill_mode": "none"}, "skill_hash"),
        ({"max_steps": 6}, "agent_fingerprint"),
        ({"decoding": {"temperature": 0.5}}, "agent_fingerprint"),
    ],
)
async def test_rows_that_another_version_made_are_never_taken_for_this_ones(log, changes, named):
    await infer(log, make_questions(4), llm=MockModel())
    model = MockModel()
    with pytest.raises(ValueError, match=rf"run pilot_infer: the row of question 'q\d' has another {named}"):
        await infer(log, make_questions(4), llm=model, **changes)
    assert model.calls == 0


async def test_an_edit_of_a_skill_that_no_asked_question_uses_is_no_reason_to_refuse(log):
    content = [question for question in make_questions(8) if question.task_type == "content"]
    await infer(log, content, llm=MockModel())
    edited = Texts({**SKILLS, "order.md": SKILLS["order.md"] + "Look thrice.\n"})
    assert (await infer(log, content, llm=MockModel(), skills=edited)).total == 4


async def test_a_question_that_is_there_twice_is_refused(log):
    with pytest.raises(ValueError, match="question 'q0' is there twice"):
        await infer(log, make_questions(2) + make_questions(1), llm=MockModel())


async def test_a_prediction_and_its_traces_are_one_transaction(log, monkeypatch):
    written = []
    write = HarnessLog.write_async

    async def watched(self, rows_by_table):
        written.append(rows_by_table)
        await write(self, rows_by_table)

    monkeypatch.setattr(HarnessLog, "write_async", watched)
    await infer(log, make_questions(9), llm=MockModel())
    for rows in written:
        steps = [trace["question_id"] for trace in rows["traces"]]
        assert sorted(steps) == sorted(2 * [row["question_id"] for row in rows["predictions"]])
    assert sum(len(rows["predictions"]) for rows in written) == 9


async def test_a_run_has_its_own_line_in_the_list_of_runs(log):
    await infer(log, make_questions(2), llm=MockModel(), run_id="pilot_e1_R")
    status = {row["run_id"]: row["status"] for row in log.query("SELECT run_id, status FROM _runs")}
    assert status == {"pilot": "running", "pilot_e1_R": "completed"}


# What is stored says who was asked what


async def test_every_row_carries_the_hashes_of_what_was_asked(log):
    await infer(log, make_questions(4), llm=MockModel(), decoding={"temperature": 0.0})
    prompts = {path.stem: path.read_text(encoding="utf-8") for path in DEFAULT_PROMPTS_DIR.glob("*.md")}
    rendered = {
        "order": "# Skill: order\n\nLook twice.",
        "content": "# Skill: default-strategy\n\nLook, then answer.",
    }
    agent = "AgentLoop/1 model=mock temperature=0.0 max_tokens=None max_retries=3"
    for row in rows_of(log, "predictions"):
        assert row["skill_hash"] == skill_hash(rendered[row["task_type"]])
        assert row["prompts_hash"] == prompts_hash({**prompts, "tools": Tools().describe()})
        assert row["agent_fingerprint"] == agent_fingerprint(
            agent, max_steps=5, skill_mode="auto", grader="ChoiceGrader()"
        )


async def test_the_prompt_holds_the_rendered_skill_and_manual_mode_offers_the_catalogue(log):
    seen = []

    async def before(messages):
        seen.append((messages[0].content, messages[-1].content))

    catalogue = {"maps.md": '---\nname: "maps"\ndescription: For maps.\n---\nNorth is up.\n'}
    read = [act("read_skill", name="maps"), answer()]
    result = await infer(
        log,
        make_questions(1),
        llm=MockModel(before, read),
        skills=Texts({**SKILLS, **catalogue}),
        skill_mode="manual",
    )
    assert result.correct == 1
    assert "Look twice." in seen[0][0]
    assert "- `maps`: For maps." in seen[0][0]
    assert "`read_skill(name)`" in seen[0][0]
    assert "North is up." in seen[1][1]
    no_skills = await infer(
        log, make_questions(1), llm=MockModel(before), skill_mode="none", run_id="pilot_none"
    )
    assert no_skills.total == 1
    assert "Look twice." not in seen[2][0]


async def test_in_manual_mode_a_change_of_a_skill_of_the_catalogue_is_another_version(log):
    def with_map(text):
        return Texts({**SKILLS, "maps.md": f'---\nname: "maps"\ndescription: For maps.\n---\n{text}\n'})

    for number, text in enumerate(("North is up.", "South is up.")):
        await infer(
            log,
            make_questions(1),
            llm=MockModel(),
            run_id=f"pilot_m{number}",
            skills=with_map(text),
            skill_mode="manual",
        )
        await infer(log, make_questions(1), llm=MockModel(), run_id=f"pilot_a{number}", skills=with_map(text))
    hashes = {row["run_id"]: row["skill_hash"] for row in rows_of(log, "predictions")}
    assert hashes["pilot_m0"] != hashes["pilot_m1"]
    assert hashes["pilot_a0"] == hashes["pilot_a1"]


async def test_answers_are_graded_by_their_kind_and_a_users_grader_takes_their_place(log):
    questions = [
        GeneratedQuestion("c", "v0", "order", "Which?", ("red", "blue"), "B"),
        GeneratedQuestion("t", "v0", "order", "Where?", (), "the old mill", answer_kind="text"),
        GeneratedQuestion("n", "v0", "order", "How many?", (), "12", answer_kind="number"),
    ]

    class Agent(MockAgent):
        async def run(self, question, *others):
            self.letter = {"c": "blue", "t": "Old mill!", "n": "about 12 boats"}[question.question_id]
            return await super().run(question, *others)

    class Strict:
        def grade(self, question, prediction):
            return Grade(prediction == question.answer, 0.25)

    by_kind = await infer(log, questions, agent=Agent(), concurrency=1)
    assert by_kind.correctness == {"c": True, "t": True, "n": True}
    strict = await infer(log, questions, agent=Agent(), concurrency=1, run_id="pilot_strict", grader=Strict())
    assert strict.correctness == {"c": False, "t": False, "n": False}
    fingerprints = {
        (row.question_id, row.agent_fingerprint) for row in (*by_kind.predictions, *strict.predictions)
    }
    assert len({fingerprint for _, fingerprint in fingerprints}) == 4, "each grader is another"


async def test_an_agent_that_ends_without_an_answer_is_wrong_and_not_missing(log):
    look = act("view_node", node_id="root")
    lost = await infer(log, make_questions(2), llm=MockModel(replies=[look] * 5))
    assert (lost.stop_reason_counts, lost.accuracy, lost.errors) == ({"budget_exceeded": 2}, 0.0, 0)
    mumbling = await infer(log, make_questions(2), llm=MockModel(replies=["hm"] * 5), run_id="pilot_hm")
    assert (mumbling.stop_reason_counts, mumbling.accuracy) == ({"parse_error": 2}, 0.0)
    assert {row["correct"] for row in rows_of(log, "predictions")} == {0}


async def test_a_rollout_over_its_deadline_is_wrong_and_its_steps_are_kept(log):
    async def before(messages):
        if "is 1?" in messages[1].content and len(messages) > 2:
            await asyncio.sleep(3600)

    result = await infer(log, make_questions(3), llm=MockModel(before), rollout_timeout_s=0.2)
    assert result.stop_reason_counts == {"finished": 2, "timeout": 1}
    assert (result.correctness["q1"], result.errors) == (False, 0)
    row = next(row for row in rows_of(log, "predictions") if row["question_id"] == "q1")
    assert (row["steps_used"], row["error"]) == (1, None)
    assert [trace["tool"] for trace in rows_of(log, "traces") if trace["question_id"] == "q1"] == [
        "view_node"
    ]


async def test_plugins_watch_each_rollout_and_their_flags_are_stored(log):
    class Counter:
        def __init__(self, video_id, question_id):
            self.where, self.flags = (video_id, question_id), {}

        @hookimpl
        def after_tool(self, tool):
            self.flags[f"used {tool}"] = {"by": self.where}

    await infer(log, make_questions(2), llm=MockModel(), plugins_factory=lambda *where: [Counter(*where)])
    flags = {(row["question_id"], row["flag"]): row["value"] for row in rows_of(log, "validation_flags")}
    assert flags["q1", "used view_node"] == '{"by": ["v1", "q1"]}'
    assert len(flags) == 4


async def test_without_traces_only_the_predictions_are_kept(log):
    await infer(log, make_questions(3), llm=MockModel(), keep_traces=False)
    assert (len(rows_of(log, "predictions")), rows_of(log, "traces")) == (3, [])


async def test_model_and_agent_are_told_which_rollout_they_serve(log):
    scopes = []

    class Scoped:
        def for_scope(self, scope):
            scopes.append(scope)
            return self

    class ScopedModel(Scoped, MockModel):
        pass

    class ScopedAgent(Scoped, MockAgent):
        pass

    await infer(log, make_questions(2), llm=ScopedModel(), concurrency=1)
    assert [scope for scope in scopes if scope] == ["pilot_infer/q0", "pilot_infer/q1"]
    scopes.clear()
    await infer(log, make_questions(2), agent=ScopedAgent(), concurrency=1, run_id="pilot_e1_R")
    assert [scope for scope in scopes if scope] == ["pilot_e1_R/q0", "pilot_e1_R/q1"]


async def test_without_a_model_an_agent_factory_is_needed(log):
    with pytest.raises(ValueError, match="llm: is None; give one, or an agent_factory"):
        await infer(log, make_questions(1))


async def test_lone_surrogates_and_odd_answers_can_be_stored(log):
    class Odd(MockAgent):
        async def run(self, question, *others):
            result = {
                "answer": ["A", {"\ud800": float("nan")}],
                "confidence": None,
                "evidence": {1: "🚗"},
                "reasoning": 5,
            }
            return LoopResult(result, (), 0, None, None, "finished")

    result = await infer(log, make_questions(1), agent=Odd())
    assert (result.correctness, result.errors) == ({"q0": False}, 0)


async def test_disk_errors_end_the_run_in_words_and_answered_rows_stay(log, monkeypatch):
    write, writes = HarnessLog.write_async, []

    async def full(self, rows_by_table):
        writes.append(rows_by_table)
        if len(writes) > 2:
            raise LogError("harness.db: could not be written: database or disk is full")
        await write(self, rows_by_table)

    monkeypatch.setattr(HarnessLog, "write_async", full)

    async def briefly(messages):
        await asyncio.sleep(0.001)

    model = MockModel(briefly)
    with pytest.raises(LogError, match="disk is full"):
        await infer(log, make_questions(500), llm=model, concurrency=2)
    assert model.calls < 1000, "it went on asking"
    kept = {row["question_id"] for rows in writes[:2] for row in rows["predictions"]}
    assert {row["question_id"] for row in rows_of(log, "predictions")} == kept
    monkeypatch.undo()
    again = MockModel()
    assert (await infer(log, make_questions(500), llm=again, concurrency=2)).total == 500
    assert again.calls == 2 * (500 - len(kept))


# The same at any concurrency


@pytest.mark.parametrize("player", ["agent", "chat"])
async def test_results_are_byte_identical_at_concurrency_1_7_and_64(tmp_path, player):
    world = SimulatedWorld(seed=11, n_videos=6, n_questions=70, task_types=("order", "content"), churn=0.2)
    who = {"llm": None, "agent_factory": world.agent} if player == "agent" else {"llm": world.agent_llm()}
    states, results = set(), []
    for concurrency in (1, 7, 64):
        with HarnessLog(tmp_path / f"{concurrency}.db", "pilot", synchronous="NORMAL") as log:
            result = await infer(
                log,
                list(world.questions),
                concurrency=concurrency,
                max_steps=15,
                tool_dispatch_fn=world.tools_for,
                skills=Texts(world.initial_skills()),
                prompts=VersionedPromptStore(DEFAULT_PROMPTS_DIR),
                **who,
            )
            results.append(strip(result))
            states.add(state_hash(log))
    assert len(states) == 1
    assert results[0] == results[1] == results[2]
    assert 0 < results[0].accuracy < 1


async def test_tool_errors_of_the_agent_are_its_own_affair(log):
    class Picky(Tools):
        async def __call__(self, name, args):
            if name == "view_node":
                raise ToolError("no such node")
            return await super().__call__(name, args)

    result = await infer(log, make_questions(2), llm=MockModel(), tool_dispatch_fn=lambda question: Picky())
    assert (result.correct, result.errors) == (2, 0)


# Durable, and never far behind


@pytest.fixture
def slow_disk(monkeypatch):
    """Every write takes a while before it reaches the database."""
    write = HarnessLog.write_async

    async def slowly(self, rows_by_table):
        await asyncio.sleep(0.02)
        await write(self, rows_by_table)

    monkeypatch.setattr(HarnessLog, "write_async", slowly)


@pytest.mark.usefixtures("slow_disk")
async def test_the_result_comes_after_the_last_row_is_on_the_disk(log):
    result = await infer(log, make_questions(7), agent=MockAgent(), concurrency=7)
    assert (result.total, len(rows_of(log, "predictions"))) == (7, 7)


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_answers_are_unsaved_than_run_at_once(log, concurrency):
    begun, furthest = 0, 0

    async def before(question):
        nonlocal begun, furthest
        begun += 1
        furthest = max(furthest, begun - len(rows_of(log, "predictions")))

    await infer(log, make_questions(30), agent=MockAgent(before=before), concurrency=concurrency)
    assert furthest <= 2 * concurrency
