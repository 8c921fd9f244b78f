"""Question, text and draw decide a rollout, in any order, at any concurrency, by either agent."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_worlds import TEXT, answers, is_right, make_world

from core.adapters.simulated_chance import key_of, uniform, uniforms
from core.agent.loop import AgentLoop
from core.agent.prompts import PromptDirectory, system_prompt, user_prompt
from core.agent.skills import read_skills
from core.protocols import Agent, LLMProvider, ToolDispatcher

WORLD = make_world(churn=0.2, text_noise=0.1)
DIRECT, LOOP = "direct", "loop"


def agent_for_draw(world, kind, draw):
    return world.agent(draw) if kind == DIRECT else AgentLoop(world.agent_llm(draw), max_steps=5)


def as_bytes(results):
    return json.dumps([dataclasses.asdict(result) for result in results]).encode()


@pytest.mark.parametrize("kind", [DIRECT, LOOP])
async def test_results_are_byte_identical_at_concurrency_1_7_and_64(kind):
    agents = [agent_for_draw(WORLD, kind, 3) for _ in range(3)]
    runs = [
        await answers(
            lambda _, agent=agent: agent,
            WORLD.questions,
            TEXT,
            tools_for=WORLD.tools_for,
            concurrency=concurrency,
        )
        for agent, concurrency in zip(agents, (1, 7, 64), strict=True)
    ]
    first, *others = map(as_bytes, runs)
    assert all(other == first for other in others)


async def test_the_agent_the_chat_model_in_the_loop_and_the_fast_path_agree_on_every_question():
    texts = {"no rules": "", "rules": TEXT}
    for draw, text in enumerate(texts.values()):
        expected = WORLD.correct(WORLD.responses.rows, text, draw)
        for kind in (DIRECT, LOOP):
            agent = agent_for_draw(WORLD, kind, draw)
            results = await answers(
                lambda _, agent=agent: agent, WORLD.questions, text, tools_for=WORLD.tools_for
            )
            assert [*map(is_right, WORLD.questions, results)] == expected.tolist()


async def test_both_agents_make_the_same_calls_and_hand_in_the_same_answers():
    direct, loop = [
        await answers(
            lambda _, kind=kind: agent_for_draw(WORLD, kind, 0),
            WORLD.questions,
            TEXT,
            tools_for=WORLD.tools_for,
        )
        for kind in (DIRECT, LOOP)
    ]
    for one, other in zip(direct, loop, strict=True):
        assert (one.result, one.stop_reason, one.steps_used) == (
            other.result,
            other.stop_reason,
            other.steps_used,
        )
        assert [(step.tool_call, step.tool_output) for step in one.steps] == [
            (step.tool_call, step.tool_output) for step in other.steps
        ]


async def test_the_whole_prompt_of_a_real_run_leads_to_the_same_answers_in_both_agents():
    skills = read_skills({**WORLD.initial_skills(), "advice.md": _always_skill(TEXT)})
    prompts = PromptDirectory()
    for question in WORLD.questions[:20]:
        tools = WORLD.tools_for(question)
        system = system_prompt(prompts, tools, skills, question.task_type)
        found = [
            await agent_for_draw(WORLD, kind, 1).run(question, system, user_prompt(question), tools)
            for kind in (DIRECT, LOOP)
        ]
        right = WORLD.correct(WORLD.rows_of([question.question_id]), system, 1)[0]
        assert [is_right(question, result) for result in found] == [right, right]


def _always_skill(body):
    return f"---\nname: advice\ndescription: Rules for all.\nalways: true\n---\n{body}\n"


def test_two_arms_with_the_same_text_agree_on_every_question():
    arms = [make_world(churn=0.2), make_world(churn=0.2)]
    for draw in range(20):
        one, other = (world.correct(world.responses.rows, TEXT, draw) for world in arms)
        assert np.array_equal(one, other)


def test_two_draws_and_two_texts_are_rolled_out_independently():
    world = make_world(n_questions=300, churn=0.3)
    rows = world.responses.rows
    first = world.correct(rows, TEXT, 0)
    assert (first != world.correct(rows, TEXT, 1)).any()
    assert (first != world.correct(rows, f"{TEXT}\n\nMore prose.", 0)).any()


def test_line_ends_and_trailing_blanks_make_no_other_text():
    rows = WORLD.responses.rows
    written_elsewhere = TEXT.replace("\n", "  \r\n") + "\r\n"
    assert np.array_equal(WORLD.correct(rows, TEXT, 0), WORLD.correct(rows, written_elsewhere, 0))


@given(order=st.permutations(range(60)), draw=st.integers(0, 5) | st.text(), size=st.integers(0, 60))
def test_a_questions_answer_does_not_hang_on_what_else_is_asked(order, draw, size):
    rows = np.array(order[:size], dtype=np.intp)
    alone = [WORLD.responses.is_correct(row, TEXT, draw) for row in rows]
    assert WORLD.correct(rows, TEXT, draw).tolist() == alone
    assert np.array_equal(
        WORLD.correct(WORLD.responses.rows, TEXT, draw)[rows], WORLD.correct(rows, TEXT, draw)
    )


def test_another_process_comes_to_the_same_answers():
    program = (
        "from simulated_worlds import TEXT, make_world\n"
        "world = make_world(churn=0.2, text_noise=0.1)\n"
        "print(world.model, world.questions[17], world.correct(world.responses.rows, TEXT, 'r').tolist())"
    )
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parents[1]}", "PYTHONHASHSEED": "99"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    expected = [WORLD.model, WORLD.questions[17], WORLD.correct(WORLD.responses.rows, TEXT, "r").tolist()]
    assert told.stdout.decode().strip() == " ".join(map(str, expected))


def test_over_many_scopes_a_question_is_right_as_often_as_stated():
    world = make_world(churn=0.3)
    rows, scopes = world.responses.rows, [f"run_e1_s{step}" for step in range(2000)]
    shares = np.mean([world.correct(rows, TEXT, scope) for scope in scopes], axis=0)
    chances = world.chance_right(rows, TEXT)
    assert (np.abs(shares - chances) <= 4.5 * np.sqrt(chances * (1 - chances) / len(scopes))).all()


async def test_agent_and_chat_model_answer_for_the_scope_they_are_given():
    world = make_world(churn=0.3)
    scopes = {question.question_id: f"baseline/{question.question_id}" for question in world.questions}
    expected = [
        bool(world.correct(world.rows_of([question_id]), TEXT, scope)[0])
        for question_id, scope in scopes.items()
    ]
    agents = {
        DIRECT: lambda question: world.agent().for_scope(scopes[question.question_id]),
        LOOP: lambda question: AgentLoop(
            world.agent_llm().for_scope(scopes[question.question_id]), max_steps=5
        ),
    }
    for agent_for in agents.values():
        results = await answers(agent_for, world.questions, TEXT, tools_for=world.tools_for)
        assert [*map(is_right, world.questions, results)] == expected


def test_only_an_agent_without_churn_calls_itself_deterministic():
    assert make_world(churn=0.0).agent().deterministic
    assert not make_world(churn=0.1).agent().deterministic


def test_worlds_of_other_arguments_have_other_model_ids_and_all_say_simulated():
    models = [make_world(**other).model for other in ({}, {"seed": 8}, {"churn": 0.2}, {"n_questions": 61})]
    assert len(set(models)) == len(models)
    for world in (make_world(),):
        named = [world.agent().fingerprint, world.agent_llm().model, world.judge_llm().model]
        assert all("simulated-" in name for name in named)


def test_the_parts_satisfy_the_protocols():
    assert isinstance(WORLD.agent(), Agent)
    assert isinstance(WORLD.agent_llm(), LLMProvider)
    assert isinstance(WORLD.judge_llm(), LLMProvider)
    assert isinstance(WORLD.tools_for(WORLD.questions[0]), ToolDispatcher)


@given(key=st.integers(0, 2**64 - 1), numbers=st.lists(st.integers(0, 2**40), min_size=1))
def test_the_array_of_draws_is_the_draws_bit_for_bit(key, numbers):
    drawn = uniforms(key, np.array(numbers))
    assert drawn.tolist() == [uniform(key, number) for number in numbers]
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_draws_are_those_of_the_published_generator():
    # The first outputs of SplitMix64 seeded with 1234567, as published with reference implementations.
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    drawn = [uniform(1234567, number) for number in range(3)]
    assert drawn == [(output >> 11) * 2.0**-53 for output in published]


def test_draws_are_spread_evenly_and_keys_do_not_resemble_each_other():
    numbers = np.arange(20_000)
    one, other = uniforms(key_of("a", 1), numbers), uniforms(key_of("a", 2), numbers)
    error = 1 / np.sqrt(12 * len(numbers))
    assert abs(one.mean() - 0.5) < 4 * error
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(numbers))


async def test_a_question_of_another_world_is_refused():
    other = make_world(seed=8, n_questions=61).questions[60]
    with pytest.raises(ValueError, match="sim-0060"):
        await WORLD.agent().run(other, "", "", WORLD.tools_for(WORLD.questions[0]))
    with pytest.raises(ValueError, match="sim-0060"):
        WORLD.rows_of([other.question_id])
    with pytest.raises(ValueError, match="no question of this simulated world"):
        await AgentLoop(WORLD.agent_llm(), max_steps=3).run(
            other, "", user_prompt(other), WORLD.tools_for(WORLD.questions[0])
        )
