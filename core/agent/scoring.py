"""The agent of a model too small to reason: it never generates, it chooses by likelihood.

Which line of the skill fits the question, and which option fits what was found, are both read off exact
log-probabilities. So the *text* of the skill decides where the agent looks, and that decides whether it is
right. No randomness but seeded draws between equals: a second run gives the same.
"""

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from core.agent.plugins import Plugins
from core.agent.skills import SkillLine, parse_lines
from core.agent.submission import SUBMIT, read_submission
from core.agent.tactics import Evidence, look
from core.protocols import TextScorer, ToolDispatcher
from core.types import GeneratedQuestion, LoopResult, Step, lettered_options

TIE = 1e-3
"""Scores (in nats) closer than this are equal: the last bits differ between kinds of processor."""


class ScoringAgent:
    """An `Agent` that picks a line, runs its tactic and picks the option that the evidence makes likelier.

    The lines are those in the system prompt. Without any, or when the tactic finds nothing, all options stand
    equal and the answer is a seeded draw, marked `no_evidence`. Options that score within `TIE` of the best
    are equal too. Answers choice questions only (`ValueError` for others).
    """

    deterministic = True

    def __init__(self, scorer: TextScorer, *, seed: int = 0) -> None:
        self._scorer = scorer
        self._seed = seed
        self.fingerprint = f"ScoringAgent/1 model={scorer.model} tie={TIE} seed={seed}"

    async def run(
        self,
        question: GeneratedQuestion,
        system_prompt: str,
        user_prompt: str,
        tools: ToolDispatcher,
        plugins: Sequence[object] = (),
    ) -> LoopResult:
        """One rollout. The lines come from `system_prompt`; the question is taken as it is, so `user_prompt`
        is not read."""
        if question.answer_kind != "choice":
            raise ValueError(
                f"question {question.question_id!r}: the scoring agent chooses among options, and a"
                f" {question.answer_kind} question has none"
            )
        hooks = Plugins(plugins, question)
        recorder = _Recorder(tools, hooks)
        line, line_scores = await choose_line(self._scorer, parse_lines(system_prompt), question.question)
        recorder.plan = {"line": line and f"{line.rule} -> {line.tactic}", "line_scores": line_scores}
        evidence = await look(line.tactic, question.question, recorder) if line else Evidence()
        scores = await score_options(self._scorer, question, evidence.text)
        chosen = choose_option(scores, seed=f"{self._seed} {question.question_id}")
        letters = list(lettered_options(question.options))
        recorder.plan = {"option_scores": dict(zip(letters, scores, strict=True))}
        submission = read_submission(
            {
                "answer": letters[chosen],
                "confidence": softmax(scores)[chosen],
                "evidence": {"node_ids": list(evidence.node_ids), "text": evidence.text},
                "reasoning": f"{line.rule} -> {line.tactic}" if line else "no line to follow",
            },
            question,
        )
        await recorder(SUBMIT, submission)
        steps = tuple(recorder.steps)
        result = LoopResult(
            submission, steps, len(steps), None, None, "finished", no_evidence=not evidence.text
        )
        hooks.on_finish(result)
        return result


async def choose_line(
    scorer: TextScorer, lines: Sequence[SkillLine], question: str
) -> tuple[SkillLine | None, list[float]]:
    """The line under which the question is likeliest, and each line's log P(question | rule and examples).

    Among equals the first line counts. A single line is chosen without asking the model.
    """
    if len(lines) < 2:
        return (lines[0] if lines else None), []
    # At once: calls that wait together go through the model's layers together, at half the cost.
    answers = await asyncio.gather(*(scorer.score(line_context(line), [f" {question}"]) for line in lines))
    scores = [answer[0] for answer in answers]
    best = max(scores)
    return next(line for line, score in zip(lines, scores, strict=True) if score >= best - TIE), scores


def line_context(line: SkillLine) -> str:
    """What a line makes a question follow: its rule, its examples as questions, and one more to come."""
    return "\n".join([line.rule, *(f"Question: {example}" for example in line.examples), "Question:"])


async def score_options(scorer: TextScorer, question: GeneratedQuestion, evidence: str) -> list[float]:
    """How much likelier the evidence makes each option: log P(option | evidence, question) - log P(option |
    question), in nats. All 0 without evidence."""
    if not evidence:
        return [0.0] * len(question.options)
    asked = f"Question: {question.question}\nAnswer:"
    options = [f" {text}" for text in lettered_options(question.options).values()]
    informed, prior = await asyncio.gather(
        scorer.score(f"{evidence}\n{asked}", options), scorer.score(asked, options)
    )
    return [with_it - without for with_it, without in zip(informed, prior, strict=True)]


def choose_option(scores: Sequence[float], *, seed: str) -> int:
    """The position of the best score; among equals the first in an order drawn with `seed`."""
    order = random.Random(seed).sample(range(len(scores)), len(scores))
    best = max(scores)
    return next(position for position in order if scores[position] >= best - TIE)


def softmax(scores: Sequence[float]) -> list[float]:
    """Scores in nats as probabilities."""
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    return [weight / sum(weights) for weight in weights]


class _Recorder:
    """Passes tool calls on and keeps each as a step; `plan` goes into the next one."""

    def __init__(self, tools: ToolDispatcher, hooks: Plugins) -> None:
        self._tools, self._hooks = tools, hooks
        self.plan: Mapping[str, Any] | None = None
        self.steps: list[Step] = []

    def describe(self) -> str:
        return self._tools.describe()

    async def __call__(self, name: str, args: Mapping[str, Any]) -> str:
        number = len(self.steps) + 1
        self._hooks.before_step(number)
        output = await self._tools(name, args)
        # Hints are for agents that read; this one only chooses.
        self._hooks.after_tool(number, name, args, output)
        step = Step(plan=self.plan, tool_call={"tool": name, "args": dict(args)}, tool_output=output)
        self.plan = None
        self.steps.append(step)
        self._hooks.after_step(number, step)
        return output
