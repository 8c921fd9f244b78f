"""Runs to diagnose: rows as the tables hold them, a log in memory, skills in memory."""

import json

from core.agent.traces import opened_nodes
from core.evolution.prompt_files import load_diagnose_prompts
from core.types import GeneratedQuestion, LLMResponse

RUN = "run_e0_s0"
PROMPTS = load_diagnose_prompts()


class Log:
    """A `RunLog` over rows."""

    def __init__(self, predictions, traces=()):
        self.predictions, self.traces = list(predictions), list(traces)

    async def get_predictions(self, run_id, *, question_ids=None):
        return self._rows(self.predictions, run_id, question_ids)

    async def get_traces(self, run_id, *, question_ids=None):
        return self._rows(self.traces, run_id, question_ids)

    def _rows(self, rows, run_id, question_ids):
        return [
            row
            for row in rows
            if row["run_id"] == run_id and (question_ids is None or row["question_id"] in question_ids)
        ]


class Texts:
    """A `SkillStore` over texts by file name."""

    def __init__(self, texts):
        self.texts = dict(texts)

    def read(self, name):
        return self.texts[name]

    def list(self):
        return sorted(self.texts)


class ScriptedLLM:
    """A chat model whose reply is `answer(messages)`; it keeps what it was asked."""

    model = "scripted"

    def __init__(self, answer, finish_reason="stop"):
        self.answer, self.finish_reason, self.asked = answer, finish_reason, []

    async def chat(self, messages, *, temperature=None, max_tokens=None, seed=None, json_schema=None):
        self.asked.append([message.content for message in messages])
        return LLMResponse(self.answer(messages), finish_reason=self.finish_reason)


def replies(*texts):
    """A model that gives these replies in turn."""
    turn = iter(texts)
    return ScriptedLLM(lambda messages: next(turn))


def make_question(question_id, task_type="order", source_nodes=("m3",)):
    return GeneratedQuestion(
        question_id=question_id,
        video_id="film-1",
        task_type=task_type,
        question=f"Which hat does the miller of {question_id} wear?",
        options=("A. a red one", "B. a blue one"),
        answer="A",
        source_nodes=source_nodes,
    )


def prediction_row(question, correct, **columns):
    """A row of `predictions`, with 0 and 1 for flags as SQLite gives them back."""
    return {
        "run_id": RUN,
        "question_id": question.question_id,
        "video_id": question.video_id,
        "task_type": question.task_type,
        "prediction": None if correct is None else ("A" if correct else "B"),
        "answer": question.answer,
        "correct": None if correct is None else int(correct),
        "confidence": 0.6,
        "stop_reason": "error" if correct is None else "finished",
        "steps_used": 3,
        "no_evidence": 0,
        "evidence": "",
        "reasoning": "it seemed so",
        **columns,
    }


def trace_row(question, step, tool, args=None, nodes=(), **columns):
    """A row of `traces`, with JSON text as SQLite gives it back. nodes: (id, level) of what was opened."""
    output = json.dumps({"nodes": [{"id": node_id, "level": level} for node_id, level in nodes]})
    return {
        "run_id": RUN,
        "question_id": question.question_id,
        "step": step,
        "tool": tool,
        "args": None if tool is None else json.dumps(args or {}),
        "node_ids": json.dumps([node_id for node_id, _ in nodes]),
        "output": output,
        "thought": "",
        "reflect": None,
        "plan": None,
        "raw": "what the model wrote",
        **columns,
    }


def skill_text(task_type, steps=("Search for the name.", "Read what comes next.")):
    front = ["---", f"name: {task_type}", "description: d", f"task_type: {task_type}", "---"]
    return "\n".join([*front, "", *(f"- {step}" for step in steps), ""])


DEFAULT_TEXT = "---\nname: default-strategy\ndescription: d\n---\n\n1. Look around.\n"
SKILLS = Texts({"order.md": skill_text("order"), "default-strategy.md": DEFAULT_TEXT})


def loop_rows(question, result):
    """The rows that a rollout of an agent leaves behind."""
    answer = result.result or {}
    row = prediction_row(
        question,
        answer.get("answer") == question.answer,
        prediction=answer.get("answer"),
        confidence=answer.get("confidence"),
        reasoning=answer.get("reasoning"),
        stop_reason=result.stop_reason,
        steps_used=result.steps_used,
    )
    traces = [
        trace_row(
            question,
            number,
            step.tool_call["tool"],
            dict(step.tool_call["args"]),
            node_ids=json.dumps(opened_nodes(step.tool_output)),
            output=step.tool_output,
            raw=step.raw_content,
        )
        for number, step in enumerate(result.steps, start=1)
    ]
    return row, traces
