"""Questions, films and what happens in a rollout: there is something to find, and it is the truth."""

import json
import math
from collections import Counter

import pytest
from simulated_worlds import TEXT, answers, is_right, make_world

from core.adapters.simulated_agent import FAILURE_SHARES
from core.agent.loop import AgentLoop
from core.agent.plugins import hookimpl
from core.agent.skills import read_skills
from core.agent.traces import opened_nodes
from core.protocols import ToolError
from core.questions.duplicates import near_duplicates


async def rollouts(world, text=TEXT):
    return await answers(lambda _: world.agent(), world.questions, text, tools_for=world.tools_for)


def opened(result):
    return {node_id for step in result.steps for node_id in opened_nodes(step.tool_output)}


async def test_the_source_is_opened_except_in_search_failures():
    world = make_world(n_questions=200)
    for question, result in zip(world.questions, await rollouts(world), strict=True):
        failure = None if is_right(question, result) else world.failure_of(question.question_id)
        lost = failure is not None and failure.error_type == "search_failure"
        assert opened(result)
        assert set(question.source_nodes).isdisjoint(opened(result)) == lost


async def test_a_failed_rollout_says_in_its_trace_why_and_a_right_one_says_so():
    world = make_world(n_questions=200)
    for question, result in zip(world.questions, await rollouts(world), strict=True):
        failure = world.failure_of(question.question_id)
        reason = result.result["reasoning"]
        assert reason.startswith("[simulated ")
        assert (failure.error_type in reason) == (not is_right(question, result))
        assert (failure.reasoning_kind is None) == (failure.error_type != "reasoning_failure")


def test_questions_fail_for_the_stated_reasons_in_the_stated_shares():
    world = make_world(n_questions=1000, n_videos=20)
    found = Counter(world.failure_of(question.question_id).error_type for question in world.questions)
    assert sum(FAILURE_SHARES.values()) == pytest.approx(1)
    for error_type, share in FAILURE_SHARES.items():
        assert abs(found[error_type] / 1000 - share) <= 4 * math.sqrt(share * (1 - share) / 1000)


def test_no_two_questions_are_alike_and_each_has_its_moment():
    world = make_world(n_questions=150)
    assert len({question.question for question in world.questions}) == 150
    assert not near_duplicates(world.questions)
    sources = [(question.video_id, *question.source_nodes) for question in world.questions]
    assert len(set(sources)) == 150
    for question in world.questions:
        card = world.films[question.video_id].tree().nodes[question.source_nodes[0]].card
        thing = question.options["ABCD".index(question.answer)].removeprefix("the ")
        assert thing in card
        assert sum(option.removeprefix("the ") in card for option in question.options) == 1


def test_types_clusters_and_films_are_dealt_evenly():
    world = make_world(n_questions=61, task_types=("a", "b", "c"))
    for part in ("task_type", "video_id"):
        counts = Counter(getattr(place, part) for place in world.places)
        assert max(counts.values()) - min(counts.values()) <= 2
    for task_type in world.task_types:
        counts = Counter(place.cluster for place in world.places if place.task_type == task_type)
        assert max(counts.values()) - min(counts.values()) <= 1
    assert world.clusters == {
        question.question_id: place.cluster
        for question, place in zip(world.questions, world.places, strict=True)
    }


def test_a_question_names_its_cluster_and_says_that_it_is_simulated():
    world = make_world()
    for question, place in zip(world.questions, world.places, strict=True):
        assert question.question.startswith(f"Simulated {place.cluster} question: ")


def test_initial_skills_are_ordinary_skill_files_without_rules():
    world = make_world()
    skills = read_skills(world.initial_skills())
    for task_type in (*world.task_types, "a type without a file"):
        assert world.true_accuracy(
            lambda _, task_type=task_type: skills.text_for(task_type)
        ) == pytest.approx(world.true_accuracy(lambda _: ""))


async def test_tools_answer_and_refuse_as_those_of_any_film():
    world = make_world()
    question = world.questions[0]
    tools = world.tools_for(question)
    assert "search_similar" in tools.describe()
    once, again = [
        await tools("view_node", {"node_id": "root", "question": "What is there?"}) for _ in range(2)
    ]
    assert once == again
    assert [node["level"] for node in json.loads(once)["nodes"]] == [1, 1]
    with pytest.raises(ToolError, match="no node 'm99'"):
        await tools("view_node", {"node_id": "m99", "question": "What is there?"})
    with pytest.raises(ToolError, match="submit_answer"):
        await tools("submit_answer", {"answer": ["a", "list"], "confidence": 0.5})


async def test_with_one_step_left_the_chat_model_hands_its_answer_in():
    world = make_world()
    agent = AgentLoop(world.agent_llm(), max_steps=2)
    full = await answers(lambda _: world.agent(), world.questions, TEXT, tools_for=world.tools_for)
    short = await answers(lambda _: agent, world.questions, TEXT, tools_for=world.tools_for)
    assert {result.stop_reason for result in short} == {"finished"}
    assert {result.steps_used for result in short} == {2}
    assert [result.result for result in short] == [result.result for result in full]


class Watcher:
    def __init__(self):
        self.seen = []

    @hookimpl
    def before_step(self, step_number):
        self.seen.append(("before", step_number))

    @hookimpl
    def after_tool(self, tool):
        self.seen.append(("tool", tool))
        return "a hint"

    @hookimpl
    def after_step(self, step_number):
        self.seen.append(("after", step_number))

    @hookimpl
    def on_finish(self, result):
        self.seen.append(("finished", result.result["answer"]))


async def test_plugins_see_the_same_of_both_agents():
    world = make_world()
    question = world.questions[0]
    seen = []
    for agent in (world.agent(), AgentLoop(world.agent_llm(), max_steps=5)):
        watcher = Watcher()
        user = f"Question: {question.question}"
        await agent.run(question, TEXT, user, world.tools_for(question), [watcher])
        seen.append(watcher.seen)
    assert seen[0] == seen[1]
    assert seen[0][-1][0] == "finished"
