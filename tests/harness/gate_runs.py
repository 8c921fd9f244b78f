"""Gates for the tests: a scripted `Infer` that tells what it was asked, and a simulated world on disk."""

import dataclasses

from inference_runs import SKILLS, make_questions

from core.adapters.simulated import SimulatedWorld
from core.adapters.simulated_rules import Rule, render_rule
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateParams
from core.types import Prediction
from harness.baseline_cache import BaselineCache, skill_hash
from harness.compare import InferenceRunConfig
from harness.gate_ladder import LadderEntry
from harness.inference import Inference, aggregate_results
from harness.rollout import Hashes
from harness.validate import validate_skill_local

TARGET = "order.md"
EVOLVED = SKILLS[TARGET] + "Look a third time.\n"
ORDER_QUESTIONS = [question for question in make_questions(100) if question.task_type == "order"]


class ScriptedInfer:
    """Answers by side and question: `answers[side][question_id]`, right where it says nothing.

    `asked` lists (side, question ids) in the order of the calls.
    """

    deterministic = False

    def __init__(self, base=None, cand=None, before=None):
        self.questions = {question.question_id: question for question in ORDER_QUESTIONS}
        self.answers = {"base": base or {}, "cand": cand or {}}
        self.asked, self.rows, self.before = [], {}, before

    def hashes(self, question_ids, *, skills, **texts):
        return {name: Hashes(skill_hash(skills.read(TARGET)), "prompts", "agent") for name in question_ids}

    async def __call__(self, question_ids, *, run_id, concurrency, **texts):
        side = "base" if "_base_" in run_id or run_id.endswith("_a") else "cand"
        ids = list(question_ids)
        self.asked.append((side, ids))
        if self.before is not None:
            await self.before(side, ids)
        hashes = self.hashes(ids, **texts)
        rows = [self._row(run_id, name, hashes[name], self.answers[side].get(name, True)) for name in ids]
        return aggregate_results(run_id, rows)

    def _row(self, run_id, name, hashes, correct):
        question = self.questions[name]
        ended = "error" if correct is None else "finished"
        return Prediction(
            run_id, name, question.video_id, question.task_type, "A", correct=correct, stop_reason=ended,
            **dataclasses.asdict(hashes),
        )  # fmt: skip


def save_skills(folder, texts):
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def make_config(skills_dir, *, concurrency=4, step=0):
    return InferenceRunConfig(concurrency, 15, "auto", f"pilot_e1_s{step}", DEFAULT_PROMPTS_DIR, skills_dir)


def make_ladder(ids, *, p_hat=0.5):
    return [LadderEntry(name, "v0", p_hat, 1, is_probe=False) for name in ids]


def order_ids(count):
    return [question.question_id for question in ORDER_QUESTIONS[:count]]


async def validate(log, skills_dir, infer, *, step=0, cache=None, **changes):
    """`validate_skill_local` with everything that a test does not care about."""
    arguments = {
        "target_file": TARGET,
        "task_types": ("order",),
        "original": SKILLS[TARGET],
        "evolved": EVOLVED,
        "ladder": make_ladder(order_ids(40)),
        "params": GateParams(),
        "run_config": make_config(skills_dir, step=step),
        "run_prefix": f"pilot_e1_s{step}_gate_order",
        "gate": gate_decision,
        **changes,
    }
    cache = await BaselineCache.open(log, max_age=2) if cache is None else cache
    return await validate_skill_local(log=log, infer=infer, cache=cache, **arguments)


class Lab:
    """A simulated world, its skills on disk, and an `Inference` into a log."""

    def __init__(self, folder, log, *, concurrency=4, **parameters):
        settings = {"seed": 5, "n_videos": 8, "n_questions": 120, "task_types": ("order", "content")}
        self.world = SimulatedWorld(**{**settings, **parameters})
        self.texts = self.world.initial_skills()
        self.skills_dir = save_skills(folder / "skills" / "v1", self.texts)
        self.config = make_config(self.skills_dir, concurrency=concurrency)
        self.infer = Inference.bind(
            self.world.questions,
            llm=None,
            agent_factory=self.world.agent,
            tool_dispatch_fn=self.world.tools_for,
            log=log,
        )

    def ids(self, task_type, count=None):
        return [one.question_id for one in self.world.questions if one.task_type == task_type][:count]

    def with_rule(self, effect, name="order"):
        """The text of the order skill with one rule."""
        return self.texts[TARGET] + render_rule(Rule(name, "look twice.", effect)) + "\n"

    def gate_arguments(self, effect=2.0, **changes):
        return {
            "original": self.texts[TARGET],
            "evolved": self.with_rule(effect),
            "ladder": make_ladder(self.ids("order", 40)),
            "run_config": self.config,
            **changes,
        }
