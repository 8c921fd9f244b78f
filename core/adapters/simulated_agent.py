"""What a simulated agent does in a rollout, and the agent that does it without a chat in between.

Whether an answer is right is the response model's to say. Everything else about a rollout is a script, fixed
for each question and outcome, so that a diagnosis finds in the trace what the world knows to be true:

* right: it searches, opens the node that holds the answer, hands the answer in
* `search_failure`: it opens other nodes of the film and never the one that holds the answer
* `extraction_failure`: it opens that node, but asks it for the wrong thing and gets too little out of it
* `reasoning_failure`: it has read what it needed and still concludes wrongly, in one of four ways
* `mixed`: it opens that node, and what it read there was not enough

Calls and handed-in answers say in words, marked as simulated, what goes wrong: see `failure_mark`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from core.adapters.simulated_chance import choose, key_of, share_drawn, uniform
from core.adapters.simulated_model import Draw, ResponseModel
from core.adapters.simulated_questions import Film
from core.agent.plugins import Plugins
from core.agent.submission import SUBMIT, read_submission
from core.evolution.types import ErrorType, ReasoningKind
from core.protocols import ToolDispatcher
from core.tree.search import SearchIndex
from core.tree.tools import TreeTools
from core.types import GeneratedQuestion, LoopResult, Step, lettered_options

FAILURE_SHARES: Mapping[ErrorType, float] = {
    "search_failure": 0.50,
    "extraction_failure": 0.15,
    "reasoning_failure": 0.25,
    "mixed": 0.10,
}
"""Of all questions: why they fail when they fail."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a question fails when it fails. `reasoning_kind` is there for a `reasoning_failure` alone."""

    error_type: ErrorType
    reasoning_kind: ReasoningKind | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One tool call."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """The calls of a rollout before the answer is handed in, and the answer as `submit_answer` takes it."""

    turns: tuple[Turn, ...]
    submission: Mapping[str, Any]


def failure_mark(failure: Failure) -> str:
    """How a trace says what goes wrong: `[simulated reasoning_failure, evidence_misread]`."""
    return f"[simulated {', '.join(filter(None, (failure.error_type, failure.reasoning_kind)))}]"


class Scripts:
    """The scripts of all questions, written when first asked for."""

    def __init__(self, seed: int, questions: Sequence[GeneratedQuestion], films: Mapping[str, Film]) -> None:
        self._seed = seed
        self._questions = questions
        self._films = films
        self._rows = {question.question_id: row for row, question in enumerate(questions)}
        self._asked = {question.question: row for row, question in enumerate(questions)}
        self._written: dict[tuple[int, bool], Script] = {}

    def row_of(self, question_id: str) -> int:
        """The row of a question. Raises `ValueError` for a question of another world."""
        if question_id not in self._rows:
            raise ValueError(f"question {question_id!r} is none of this simulated world's {len(self._rows)}")
        return self._rows[question_id]

    def row_asked(self, text: str) -> int:
        """The row of the question that is worded so. Raises `ValueError` when there is none."""
        if text not in self._asked:
            raise ValueError(f"no question of this simulated world reads {text!r}")
        return self._asked[text]

    def source_nodes(self, row: int) -> tuple[str, ...]:
        """The nodes that hold the question's answer."""
        return self._questions[row].source_nodes

    def failure_of(self, row: int) -> Failure:
        """Why the question fails when it fails; the same in every rollout."""
        position = share_drawn(list(FAILURE_SHARES.values()), self._seed, "failure", row)
        error_type = list(FAILURE_SHARES)[position]
        if error_type != "reasoning_failure":
            return Failure(error_type)
        return Failure(error_type, choose(get_args(ReasoningKind), self._seed, "reasoning kind", row))

    def script(self, row: int, correct: bool) -> Script:
        """What happens in a rollout of the question that ends right, or wrong."""
        if (row, correct) not in self._written:
            self._written[row, correct] = self._write(row, correct)
        return self._written[row, correct]

    def _write(self, row: int, correct: bool) -> Script:
        question, film = self._questions[row], self._films[self._questions[row].video_id]
        source = film.sources[row]
        failure = None if correct else self.failure_of(row)
        lost = failure is not None and failure.error_type == "search_failure"
        elsewhere = [node_id for node_id in film.moments if node_id != source]
        first = choose(elsewhere, self._seed, "first look", row) if lost else source
        opened = choose(elsewhere, self._seed, "second look", row) if lost else source
        wanted = question.question
        if failure is not None and failure.error_type == "extraction_failure":
            wanted = f"What else is there to see? {failure_mark(failure)}"
        query = film.moments[first].words
        turns = (
            Turn("search_similar", {"query": query, "question": wanted, "k": 1, "level": 3}),
            Turn("view_node", {"node_id": opened, "question": wanted}),
        )
        submission = {
            "answer": question.answer if correct else self._wrong_answer(row, question),
            "confidence": self._confidence(row, correct),
            "evidence": opened,
            "reasoning": "[simulated success]" if failure is None else failure_mark(failure),
        }
        return Script(turns, read_submission(submission, question))

    def _wrong_answer(self, row: int, question: GeneratedQuestion) -> str:
        others = [letter for letter in lettered_options(question.options) if letter != question.answer]
        return choose(others, self._seed, "wrong answer", row)

    def _confidence(self, row: int, correct: bool) -> float:
        low, high = (0.4, 0.98) if correct else (0.2, 0.9)
        return round(low + (high - low) * uniform(key_of(self._seed, "confidence", row), int(correct)), 2)


class SimulatedTools:
    """A film's tools (`TreeTools`), which remember what they answered: the film never changes."""

    def __init__(self, film: Film) -> None:
        tree = film.tree()
        self._tools = TreeTools(tree, index=SearchIndex(tree))
        self._description = self._tools.describe()
        self._answers: dict[tuple[str, tuple[tuple[str, Any], ...]], str] = {}

    def describe(self) -> str:
        """The available tools as a Markdown list."""
        return self._description

    async def __call__(self, name: str, args: Mapping[str, Any]) -> str:
        """The tool's answer as JSON. Raises `ToolError` as `TreeTools` does."""
        key = (name, tuple(args.items()))
        try:
            known = self._answers.get(key)
        except TypeError:  # an argument that can not be hashed, such as a list
            return await self._tools(name, args)
        if known is None:
            known = self._answers[key] = await self._tools(name, args)
        return known


class SimulatedAgent:
    """An `Agent` that plays the scripts itself: what `AgentLoop` with the simulated model does, without the
    chat.

    `draw` names the rollout: a number or the scope it serves. The same question, system prompt and draw
    always give the same rollout. The whole system prompt is the text whose rules count.
    """

    def __init__(self, model: str, responses: ResponseModel, scripts: Scripts, draw: Draw = 0) -> None:
        self.fingerprint = f"SimulatedAgent/1 model={model}"
        self.deterministic = responses.redrawn == 0
        self._model = model
        self._responses = responses
        self._scripts = scripts
        self._draw = draw

    def for_scope(self, scope: str) -> "SimulatedAgent":
        """The same agent, its rollouts drawn for `scope` (such as run and question id)."""
        return SimulatedAgent(self._model, self._responses, self._scripts, scope)

    async def run(
        self,
        question: GeneratedQuestion,
        system_prompt: str,
        user_prompt: str,
        tools: ToolDispatcher,
        plugins: Sequence[object] = (),
    ) -> LoopResult:
        """One rollout. The question is taken as it is, so `user_prompt` is not read."""
        row = self._scripts.row_of(question.question_id)
        correct = self._responses.is_correct(row, system_prompt, self._draw)
        script = self._scripts.script(row, correct)
        hooks = Plugins(plugins, question)
        steps: list[Step] = []
        for number, turn in enumerate((*script.turns, Turn(SUBMIT, script.submission)), start=1):
            hooks.before_step(number)
            output = await tools(turn.tool, turn.args)
            # Hints are for agents that read; this one plays a script.
            hooks.after_tool(number, turn.tool, turn.args, output)
            steps.append(
                Step(
                    tool_call={"tool": turn.tool, "args": turn.args},
                    tool_output=output,
                    raw_content="simulated",
                )
            )
            hooks.after_step(number, steps[-1])
        result = LoopResult(script.submission, tuple(steps), len(steps), None, None, "finished")
        hooks.on_finish(result)
        return result
