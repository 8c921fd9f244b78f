"""Runs for the tests: questions and stores in memory, agents and models from a script, states to compare."""

import hashlib
import json

from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.types import GeneratedQuestion, LLMResponse, LoopResult, Step
from harness.inference import run_inference
from harness.workspace import VersionedPromptStore

# What differs between two runs of the same thing; everything else must not.
LEFT_OUT = {"timestamp", "latency_s"}
RUN_TABLES = ("predictions", "traces", "validation_flags")


class Texts:
    """A store of texts by file name."""

    def __init__(self, texts):
        self.texts = dict(texts)

    def list(self):
        return sorted(self.texts)

    def read(self, name):
        return self.texts[name]


SKILLS = {
    "default-strategy.md": '---\nname: "default-strategy"\ndescription: For all.\n---\nLook, then answer.\n',
    "order.md": '---\nname: "order"\ndescription: For order.\ntask_type: order\n---\nLook twice.\n',
}


def make_questions(count, *, first=0):
    """Questions q0, q1 ...; two task types in turn, five videos, the right answer is A."""
    return [
        GeneratedQuestion(
            f"q{number}", f"v{number % 5}", ("order", "content")[number % 2], f"Which one is {number}?",
            ("red", "blue"), "A",
        )
        for number in range(first, first + count)
    ]  # fmt: skip


class Tools:
    """Two nodes for every call."""

    def describe(self):
        return "- `view_node(node_id)`: a node."

    async def __call__(self, name, args):
        return json.dumps({"nodes": [{"id": "L3_001", "card": "red"}, {"id": "L3_002", "card": "blue"}]})


def act(tool, **args):
    """A model's reply."""
    return json.dumps(
        {"reflect": {"known": "little"}, "plan": {"next": tool}, "action": {"tool": tool, "args": args}}
    )


def answer(letter="A", **more):
    submitted = {"answer": letter, "confidence": 0.8, "evidence": ["L3_001"], "reasoning": "seen", **more}
    return act("submit_answer", **submitted)


class MockModel:
    """Views a node, then answers A. `before` is awaited before each reply, with the conversation."""

    model = "mock"

    def __init__(self, before=None, replies=None):
        self.before, self.calls = before, 0
        self.replies = replies or [act("view_node", node_id="root"), answer()]

    async def chat(self, messages, **options):
        self.calls += 1
        turn = len(messages) // 2 - 1
        if self.before is not None:
            await self.before(messages)
        return LLMResponse(self.replies[turn], prompt_tokens=100, completion_tokens=10)


class MockAgent:
    """An agent that answers with `letter`; `before` is awaited first and may raise."""

    fingerprint, deterministic = "MockAgent/1", False

    def __init__(self, letter="A", before=None):
        self.letter, self.before = letter, before

    async def run(self, question, system_prompt, user_prompt, tools, plugins=()):
        if self.before is not None:
            await self.before(question)
        output = await tools("view_node", {"node_id": "root"})
        step = Step(tool_call={"tool": "view_node", "args": {"node_id": "root"}}, tool_output=output)
        result = {"answer": self.letter, "confidence": 0.5, "evidence": "", "reasoning": ""}
        return LoopResult(result, (step,), 1, None, None, "finished")


def infer(log, questions, *, llm=None, agent=None, run_id="pilot_infer", **changes):
    """`run_inference` with everything that a test does not care about."""
    arguments = {
        "llm": llm,
        "agent_factory": None if agent is None else (lambda: agent),
        "tool_dispatch_fn": lambda question: Tools(),
        "log": log,
        "run_id": run_id,
        "concurrency": 4,
        "max_steps": 5,
        "skill_mode": "auto",
        "skills": Texts(SKILLS),
        "prompts": VersionedPromptStore(DEFAULT_PROMPTS_DIR),
    }
    return run_inference(questions, **{**arguments, **changes})


def rows_of(log, table, run_id=None):
    """The rows of a table in the order of their keys, without what may differ between equal runs."""
    rows = log.query(f"SELECT * FROM {table}")
    kept = [{name: value for name, value in row.items() if name not in LEFT_OUT} for row in rows]
    wanted = [row for row in kept if run_id is None or row["run_id"] == run_id]
    return sorted(
        wanted, key=lambda row: (row["run_id"], row["question_id"], row.get("step"), row.get("flag"))
    )


def state_hash(log, tables=RUN_TABLES, run_id=None):
    """A hash of all rows of the tables: equal for runs that ended in the same state."""
    state = {table: rows_of(log, table, run_id) for table in tables}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
