"""Simulated chat models: the agent, the judge and the evolver of a `SimulatedWorld`, each an `LLMProvider`.

They read their conversation and nothing else, so a reply hangs neither on when it was asked for nor on what
was asked before. Token counts are a quarter of the characters.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.adapters.simulated_agent import Scripts, Turn
from core.adapters.simulated_edits import EditMaker
from core.adapters.simulated_model import Draw, ResponseModel
from core.adapters.simulated_rules import EVERY
from core.agent.submission import SUBMIT
from core.evolution.edits import EditKey, edit_key
from core.evolution.types import Edit
from core.text_hash import skill_hash
from core.types import LLMResponse, Message

CHARACTERS_PER_TOKEN = 4
EDITS_PROPOSED = 2

_QUESTION = re.compile(r"^Question: (.*)$", re.MULTILINE)
_RESULT = "Result of "
_LAST_STEP = "Steps left: 1."
_MARK = re.compile(r"\[simulated (\w+)(?:, (\w+))?\]")
_ASKED = re.compile(r"Simulated [\w -]+? question: [^?\n]+\?")
_CLUSTER = re.compile(r"Simulated ([\w][\w -]*?) question:")


class _SimulatedModel:
    """What the roles share: `chat` around a `reply` to the conversation."""

    def __init__(self, model: str) -> None:
        self.model = model

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> LLMResponse:
        """The role's next turn. Decoding options change nothing."""
        await asyncio.sleep(0)  # lets others run meanwhile, as a real call would
        content = self.reply(messages)
        return LLMResponse(
            content,
            prompt_tokens=sum(len(message.content) for message in messages) // CHARACTERS_PER_TOKEN,
            completion_tokens=len(content) // CHARACTERS_PER_TOKEN,
            model=self.model,
            finish_reason="stop",
        )

    def reply(self, messages: Sequence[Message]) -> str:
        raise NotImplementedError


class SimulatedChat(_SimulatedModel):
    """Plays the scripts of a world's questions in the JSON actions of `AgentLoop`.

    The first message is the text whose rules count, the second asks the question. With one step left it hands
    its answer in. `draw`: see `SimulatedAgent`.
    """

    def __init__(self, model: str, responses: ResponseModel, scripts: Scripts, draw: Draw) -> None:
        super().__init__(model)
        self._responses = responses
        self._scripts = scripts
        self._draw = draw

    def for_scope(self, scope: str) -> "SimulatedChat":
        """The same model, its rollouts drawn for `scope` (such as run and question id)."""
        return SimulatedChat(self.model, self._responses, self._scripts, scope)

    def reply(self, messages: Sequence[Message]) -> str:
        """The next action. Raises `ValueError` for a conversation about no question of this world."""
        system, asked, *later = messages
        match = _QUESTION.search(asked.content)
        if match is None:
            raise ValueError(f"{self.model}: the user's message asks no question")
        row = self._scripts.row_asked(match[1])
        script = self._scripts.script(row, self._responses.is_correct(row, system.content, self._draw))
        turns = (*script.turns, Turn(SUBMIT, script.submission))
        done = sum(message.role == "user" and message.content.startswith(_RESULT) for message in later)
        in_a_hurry = bool(later) and _LAST_STEP in later[-1].content
        turn = turns[-1] if in_a_hurry else turns[min(done, len(turns) - 1)]
        note = {"note": f"simulated turn {done + 1}"}
        return json.dumps({"reflect": note, "plan": note, "action": {"tool": turn.tool, "args": turn.args}})


class SimulatedJudge(_SimulatedModel):
    """Judges what a conversation shows of a rollout, by the marks that the simulated agent leaves in its
    trace.

    Every reply is one JSON object with all that a judge is ever asked for, under the names that it has in
    `SpanMetrics`, `QuestionMetrics` and `ErrorAttribution`; who asked takes what it wanted.
    """

    def __init__(self, model: str, scripts: Scripts) -> None:
        super().__init__(model)
        self._scripts = scripts

    def reply(self, messages: Sequence[Message]) -> str:
        """The verdicts. Without a mark all is well."""
        shown = _shown(messages)
        error_type, reasoning_kind = next(iter(_MARK.findall(shown)), ("success", ""))
        poor = error_type == "extraction_failure"
        verdicts = {
            "completeness": 0.2 if poor else 1.0,
            "hallucination": 0.0,
            "missed_tags": ["simulated detail"] if poor else [],
            "hallucinated_tags": [],
            "missed_nodes": self._sources(shown) if error_type == "search_failure" else [],
            "skill_adherence": {},
            "confirmation_bias": False,
            "evidence_sufficient": error_type in ("success", "reasoning_failure"),
            "reasoning_kind": reasoning_kind or None,
        }
        return json.dumps(verdicts)

    def _sources(self, shown: str) -> list[str]:
        asked = _ASKED.search(shown)
        return list(self._scripts.source_nodes(self._scripts.row_asked(asked[0]))) if asked else []


class SimulatedEvolver(_SimulatedModel):
    """Proposes edits of a family, for the clusters whose questions the conversation shows.

    Every reply is one JSON object with all that an evolving model is ever asked for: `edits`, best first,
    with the fields of `Edit`, and `guidance` for the momentum block, which is worth what an edit of the
    family is. It reads no rules out of the conversation, so a gain is what it would be without any others.
    """

    def __init__(self, model: str, maker: EditMaker, task_types: Sequence[str]) -> None:
        super().__init__(model)
        self._maker = maker
        self._task_types = task_types

    def reply(self, messages: Sequence[Message]) -> str:
        """`EDITS_PROPOSED` edits and the guidance; the same conversation always brings the same."""
        shown = _shown(messages)
        clusters = _CLUSTER.findall(shown)
        types = {cluster.rpartition("-")[0] for cluster in clusters}
        served = [name for name in self._task_types if name in types] or [EVERY]
        draw = skill_hash(shown)
        made: dict[EditKey, Edit] = {}
        for number in range(EDITS_PROPOSED + 1):
            edit = self._maker.make("", served=served, clusters=clusters, tried=made, draw=f"{draw} {number}")
            made[edit_key(edit)] = edit
        *edits, guidance = made.values()
        fields = ("op", "target", "content", "reason")
        told = [{name: getattr(edit, name) for name in fields} for edit in edits]
        return json.dumps({"edits": told, "guidance": guidance.content})


def _shown(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)
