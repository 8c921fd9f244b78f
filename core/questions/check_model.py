"""What the embedded model can and can not do on a data set: the figures behind "text pays here".

Each question of a demo set belongs to a *kind*, the ending of its id; `kinds.json` names for each kind the
tactic that opens the place where the answer stands. Measured are: nothing read, each tactic alone for all
questions, the place meant, and skill sets. Only validation and diagnosis are looked at, never test.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.agent.prompts import PromptDirectory, system_prompt, user_prompt
from core.agent.scoring import ScoringAgent
from core.agent.skills import SkillLine, SkillSet, discover_skills, render_line
from core.agent.tactics import TACTICS
from core.protocols import TextScorer
from core.questions.check import Finding
from core.questions.loading import load_benchmark
from core.tree.environment import TreeEnvironment
from core.types import GeneratedQuestion, LoopResult, lettered_options

AT_ONCE = 32
NOTHING, MEANT = "nothing read", "the place meant"
SKILL_SETS = {"plain": "skills", "good": "skills_good", "bad": "skills_bad"}
POOLS_LOOKED_AT = ("validation", "diagnosis")


@dataclass(frozen=True)
class DemoSet:
    """A demo data set, opened: what measuring needs."""

    folder: Path
    kinds: Mapping[str, Mapping[str, str]]
    pools: Mapping[str, tuple[GeneratedQuestion, ...]]
    environment: TreeEnvironment


def open_demo_set(folder: Path) -> DemoSet:
    """Questions by pool (test left out), kinds and trees of a folder such as `data/demo`."""
    by_id = {question.question_id: question for question in load_benchmark(folder / "questions")}
    cut = json.loads((folder / "pools.json").read_text(encoding="utf-8"))
    return DemoSet(
        folder,
        json.loads((folder / "kinds.json").read_text(encoding="utf-8")),
        {pool: tuple(by_id[name] for name in cut[pool]) for pool in POOLS_LOOKED_AT},
        TreeEnvironment(folder / "trees"),
    )


def kind_of(question: GeneratedQuestion) -> str:
    """`after` of `the-general-1926-after`."""
    return question.question_id.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class Answered:
    """One question answered one way. `tactic` is the one that ran (`""`: none)."""

    question_id: str
    kind: str
    correct: bool
    tactic: str


async def answer_with_skills(
    scorer: TextScorer, demo: DemoSet, skills: SkillSet, question: GeneratedQuestion
) -> tuple[Answered, LoopResult]:
    """One rollout of the scoring agent, with the prompt that a run would give it."""
    tools = demo.environment.tools_for(question)
    prompt = system_prompt(PromptDirectory(), tools, skills, question.task_type)
    result = await ScoringAgent(scorer).run(question, prompt, user_prompt(question), tools)
    tactic = str(result.result["reasoning"]).rpartition(" -> ")[2]
    correct = result.result["answer"] == question.answer
    return Answered(question.question_id, kind_of(question), correct, tactic), result


async def answer_with_tactic(
    scorer: TextScorer, demo: DemoSet, tactic: str, question: GeneratedQuestion
) -> Answered:
    """One rollout with a skill of a single line, which the agent then follows without choosing."""
    line = render_line(SkillLine("Any question.", tactic))
    tools = demo.environment.tools_for(question)
    prompt = f"## Where to look\n\n{line}\n"
    result = await ScoringAgent(scorer).run(question, prompt, user_prompt(question), tools)
    correct = result.result["answer"] == question.answer
    return Answered(question.question_id, kind_of(question), correct, tactic)


async def answer_unread(scorer: TextScorer, question: GeneratedQuestion) -> Answered:
    """The option that the model finds likeliest from the question alone: how guessable the question is."""
    options = lettered_options(question.options)
    asked = f"Question: {question.question}\nAnswer:"
    scores = await scorer.score(asked, [f" {text}" for text in options.values()])
    likeliest = max(zip(scores, options, strict=True))[1]
    return Answered(question.question_id, kind_of(question), likeliest == question.answer, "")


async def at_once(
    answer: Callable[[GeneratedQuestion], Awaitable[Answered]], questions: Iterable[GeneratedQuestion]
) -> list[Answered]:
    """All questions, some at a time, results in the order of the questions."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(question: GeneratedQuestion) -> Answered:
        async with places:
            return await answer(question)

    return list(await asyncio.gather(*map(one, questions)))


Table = Mapping[str, Sequence[Answered]]
"""Way of answering -> one answer for each question."""


async def measure(
    scorer: TextScorer,
    demo: DemoSet,
    questions: Sequence[GeneratedQuestion],
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, list[Answered]]:
    """Every way of answering on the given questions. `told` hears of each way that is done."""
    table = {NOTHING: await at_once(lambda question: answer_unread(scorer, question), questions)}
    for tactic in TACTICS:
        table[tactic] = await at_once(
            lambda question, tactic=tactic: answer_with_tactic(scorer, demo, tactic, question), questions
        )
        told(tactic)
    table[MEANT] = [
        table[demo.kinds[kind_of(question)]["tactic"]][position]
        for position, question in enumerate(questions)
    ]
    for name, folder in SKILL_SETS.items():
        skills = discover_skills(demo.folder / folder)

        async def with_skills(question: GeneratedQuestion, skills: SkillSet = skills) -> Answered:
            return (await answer_with_skills(scorer, demo, skills, question))[0]

        table[f"{name} skill"] = await at_once(with_skills, questions)
        told(f"{name} skill")
    return table


def accuracy(answers: Sequence[Answered]) -> float:
    """Share of right answers, in percent."""
    return 100 * sum(answer.correct for answer in answers) / len(answers)


def best_single_tactic(table: Table) -> str:
    """The tactic that, used for every question alike, gets most of them right."""
    return max(TACTICS, key=lambda tactic: accuracy(table[tactic]))


def best_line_per_type(table: Table, demo: DemoSet) -> list[Answered]:
    """For each task type the answers of the one tactic that is best for it."""
    types = {kind: facts["task_type"] for kind, facts in demo.kinds.items()}
    chosen: list[Answered] = []
    for task_type in dict.fromkeys(types.values()):
        of_type = {
            tactic: [answer for answer in table[tactic] if types[answer.kind] == task_type]
            for tactic in TACTICS
        }
        chosen += max(of_type.values(), key=lambda answers: sum(answer.correct for answer in answers))
    return chosen


def routed_right(table: Table, demo: DemoSet, way: str) -> float:
    """Share of questions, in percent, for which a skill set ran the tactic that is meant for their kind."""
    answers = table[way]
    meant = sum(answer.tactic == demo.kinds[answer.kind]["tactic"] for answer in answers)
    return 100 * meant / len(answers)


def targets(table: Table, demo: DemoSet) -> list[Finding]:
    """What has to hold for training to make sense on this data (see the data's README)."""
    n = len(table[NOTHING])
    nothing, meant = accuracy(table[NOTHING]), accuracy(table[MEANT])
    single = accuracy(table[best_single_tactic(table)])
    per_type = accuracy(best_line_per_type(table, demo))
    plain, good = accuracy(table["plain skill"]), accuracy(table["good skill"])
    bound = 200 * math.sqrt(0.25 * 0.75 / n)
    return [
        Finding(
            "nothing read is chance",
            abs(nothing - 25) <= bound,
            f"{nothing:.1f} %, 25 +- {bound:.1f} allowed",
        ),
        _at_least(f"{MEANT} over {best_single_tactic(table)}", meant, single, 25),
        _at_least("good skill over best line per type", good, per_type, 10),
        _at_least("good skill over plain skill", good, plain, 25),
    ]


def _at_least(name: str, high: float, low: float, points: float) -> Finding:
    measured = f"{high:.1f} - {low:.1f} = {high - low:.1f} points, at least {points:.0f} wanted"
    return Finding(name, high - low >= points, measured)


def accuracy_table(table: Table, demo: DemoSet) -> str:
    """Right answers by way of answering and kind, as text."""
    kinds = [kind for kind in demo.kinds if any(answer.kind == kind for answer in table[NOTHING])]
    sizes = {kind: sum(answer.kind == kind for answer in table[NOTHING]) for kind in kinds}
    lines = [f"{'':<18}{'all':>10}" + "".join(f"{kind:>8}" for kind in kinds)]
    lines.append(f"{'questions':<18}{len(table[NOTHING]):>10}" + "".join(f"{sizes[k]:>8}" for k in kinds))
    for way, answers in table.items():
        right = {kind: sum(answer.correct for answer in answers if answer.kind == kind) for kind in kinds}
        whole = f"{sum(right.values())} {accuracy(answers):4.0f}%"
        lines.append(f"{way:<18}{whole:>10}" + "".join(f"{right[kind]:>8}" for kind in kinds))
    return "\n".join(lines)
