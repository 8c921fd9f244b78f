"""Worlds, texts with rules, and rollouts of them."""

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_rules import Rule, render_rule
from core.executor import AsyncioExecutor


def make_world(seed=7, n_videos=6, n_questions=60, task_types=("order", "content"), **parameters):
    return SimulatedWorld(seed, n_videos, n_questions, task_types, **parameters)


RULES = (
    Rule("order", "look twice.", 0.8),
    Rule("content-2", "read slowly.", -0.5),
    Rule("every", "go back once.", 0.3, "easy"),
)
TEXT = "\n".join(["Prose that means nothing.", "", *map(render_rule, RULES)])


def no_rules(task_type):
    return ""


async def answers(agent_for, questions, text, *, tools_for, concurrency=7):
    """One rollout of each question by `agent_for(question)`, in their order."""

    async def rollout(question):
        user = f"Question: {question.question}\n\nOptions: ..."
        return await agent_for(question).run(question, text, user, tools_for(question))

    results = [None] * len(questions)
    async for index, result in AsyncioExecutor().run(rollout, questions, concurrency=concurrency):
        if isinstance(result, Exception):
            raise result
        results[index] = result
    return results


def is_right(question, result):
    return result.result["answer"] == question.answer
