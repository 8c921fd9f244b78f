"""The two signals that rank catalogue edits: how well a line fits questions, and what a tactic reaches."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import bm25s

from core.agent.scoring import line_context
from core.agent.skills import SkillLine
from core.agent.tactics import look
from core.evolution.types import CaseSample
from core.protocols import TextScorer, ToolDispatcher
from core.tree.words import words
from core.types import GeneratedQuestion


@runtime_checkable
class LineFit(Protocol):
    """How well lines explain questions. A question goes to the line with the greatest fit."""

    async def __call__(self, lines: Sequence[SkillLine], questions: Sequence[str]) -> list[list[float]]:
        """Fit of each line (outer list) to each question (inner); greater is better, for one question."""
        ...


@runtime_checkable
class Reach(Protocol):
    """Whether a tactic would have opened what a case needed."""

    async def __call__(self, case: CaseSample, tactic: str) -> float:
        """In [0, 1]; 0 when what holds the answer stays closed."""
        ...


class BM25Fit:
    """Fit without a model: BM25 of the question against each line's rule and examples, among these lines."""

    async def __call__(self, lines: Sequence[SkillLine], questions: Sequence[str]) -> list[list[float]]:
        corpus = [words(" ".join((line.rule, *line.examples))) for line in lines]
        if not any(corpus):
            return [[0.0] * len(questions) for _ in lines]
        index = bm25s.BM25()
        index.index(corpus, create_empty_token=False, show_progress=False)
        by_question = [_bm25_scores(index, question, len(lines)) for question in questions]
        return [[scores[position] for scores in by_question] for position in range(len(lines))]


def _bm25_scores(index: bm25s.BM25, question: str, lines: int) -> list[float]:
    known = [word for word in words(question) if word in index.vocab_dict]
    return [float(score) for score in index.get_scores(known)] if known else [0.0] * lines


class ScorerFit:
    """Fit by a language model: log P(question | rule and examples), as the scoring agent chooses lines."""

    def __init__(self, scorer: TextScorer) -> None:
        self._scorer = scorer

    async def __call__(self, lines: Sequence[SkillLine], questions: Sequence[str]) -> list[list[float]]:
        asked = [f" {question}" for question in questions]
        # All at once, so that a scorer can go through its layers for several lines together.
        return await asyncio.gather(*(self._scorer.score(line_context(line), asked) for line in lines))


class SourceReach:
    """Reach by running a tactic's tool chain on the case's film: tool calls, no model.

    The value is the share of opened nodes that hold the answer, and 0 when one of them stays closed: to open
    everything reaches everything, but little of it is to the point. `questions` are training questions, whose
    source nodes are known; a case of another question, or one without source nodes, is reached by nothing.
    """

    def __init__(
        self,
        questions: Mapping[str, GeneratedQuestion],
        tools_for: Callable[[GeneratedQuestion], ToolDispatcher],
    ) -> None:
        self._questions = questions
        self._tools_for = tools_for
        self._known: dict[tuple[str, str], float] = {}

    async def __call__(self, case: CaseSample, tactic: str) -> float:
        key = (case.question_id, tactic)
        if key not in self._known:
            self._known[key] = await self._measure(case.question_id, tactic)
        return self._known[key]

    async def _measure(self, question_id: str, tactic: str) -> float:
        question = self._questions.get(question_id)
        if question is None or not question.source_nodes:
            return 0.0
        evidence = await look(tactic, question.question, self._tools_for(question))
        opened, needed = set(evidence.node_ids), set(question.source_nodes)
        return len(needed) / len(opened) if needed <= opened else 0.0
