"""Budgets: how far beyond its limits a run may go, whatever runs at once."""

from functools import partial

import pytest
from training_runs import make_world

from core.adapters.telemetry import SqliteTelemetry
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.types import LLMCall, LoopResult
from harness.budget import Budget, BudgetedInference, BudgetExhausted, spent_by
from harness.inference import Inference
from harness.log import HarnessLog
from harness.workspace import VersionedPromptStore, VersionedSkillStore

MODEL, TOKENS = "priced", 15
PRICES = {MODEL: (100_000.0, 100_000.0)}  # 1.5 for each rollout
WORLD = make_world(n_questions=60)


class PaidAgent:
    """Answers after one call, which it records. broken: ids of questions at which the agent breaks off, once."""

    fingerprint, deterministic = "PaidAgent/1", False

    def __init__(self, telemetry, asked, broken):
        self.telemetry, self.asked, self.broken = telemetry, asked, broken

    async def run(self, question, system_prompt, user_prompt, tools, plugins=()):
        name = question.question_id
        self.asked.append(name)
        if name in self.broken:
            self.broken.remove(name)
            return LoopResult(None, (), 0, None, None, "error")
        self.telemetry.record(LLMCall("agent", name, "", MODEL, 10, 5))
        result = {"answer": question.answer, "confidence": 0.5, "evidence": "", "reasoning": ""}
        return LoopResult(result, (), 1, 10, 5, "finished")


class Lab:
    """One run within a budget; `asked`: the questions put to the agent, in order."""

    def __init__(self, folder, log, telemetry, broken=()):
        self.log, self.telemetry, self.asked, broken = log, telemetry, [], set(broken)
        (folder / "skills").mkdir()
        for name, text in WORLD.initial_skills().items():
            (folder / "skills" / name).write_text(text, encoding="utf-8")
        self.texts = {
            "skills": VersionedSkillStore(folder / "skills"),
            "prompts": VersionedPromptStore(DEFAULT_PROMPTS_DIR),
        }
        self.bound = Inference.bind(
            WORLD.questions,
            llm=None,
            agent_factory=lambda: PaidAgent(telemetry, self.asked, broken),
            tool_dispatch_fn=WORLD.tools_for,
            log=log,
        )

    async def answer(self, budget, concurrency=7):
        """All questions; `BudgetExhausted` when the budget does not do."""
        infer = BudgetedInference(
            self.bound.questions, self.bound.dependencies, budget, flush=self.telemetry.flush
        )
        how = {"concurrency": concurrency, "max_steps": 15, "skill_mode": "auto", **self.texts}
        return await infer(self.bound.questions, run_id="paid_baseline", **how)


@pytest.fixture
def make_lab(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "paid", synchronous="NORMAL") as log:
        telemetry = SqliteTelemetry(partial(log.insert_many, "llm_calls"), PRICES)
        yield partial(Lab, tmp_path, log, telemetry)
        telemetry.close()


@pytest.mark.parametrize("concurrency", [1, 7])
@pytest.mark.parametrize(
    ("limit", "spent", "each"),
    [
        ({"max_tokens": 301}, "tokens", TOKENS),
        ({"max_cost": 20.0}, "cost", 1.5),
        ({"max_rollouts": 20}, "rollouts", 0),
    ],
)
async def test_a_budget_is_exceeded_by_no_more_than_was_under_way(make_lab, concurrency, limit, spent, each):
    lab = make_lab()
    with pytest.raises(BudgetExhausted, match="spent"):
        await lab.answer(Budget(**limit), concurrency)
    most = next(iter(limit.values()))
    lab.telemetry.flush()
    assert most <= getattr(spent_by(lab.log), spent) <= most + concurrency * each
    assert len(lab.asked) == spent_by(lab.log).rollouts


@pytest.mark.parametrize("concurrency", [1, 7])
async def test_a_larger_budget_goes_on_and_asks_nobody_twice(make_lab, concurrency):
    lab = make_lab()
    with pytest.raises(BudgetExhausted):
        await lab.answer(Budget(max_tokens=301), concurrency)
    result = await lab.answer(Budget(max_tokens=10_000), concurrency)
    assert result.predictions == (await lab.answer(Budget())).predictions
    assert sorted(lab.asked) == sorted(lab.bound.questions)


async def test_within_a_budget_a_question_that_broke_off_is_asked_once_a_call_as_without_one(make_lab):
    broken = [question.question_id for question in WORLD.questions[3:5]]
    lab = make_lab(broken)
    result = await lab.answer(Budget(max_rollouts=100))
    assert (result.total, result.errors, len(lab.asked)) == (60, 2, 60)
    again = await lab.answer(Budget(max_rollouts=100))
    assert (again.errors, lab.asked[60:]) == (0, broken)
    assert again.token_usage["prompt_tokens"] == 600
