"""A run whose answers are written down in its texts, for tests of the slow update.

A question with an even number is answered right, one with an odd number wrong, unless a line of the system
prompt says otherwise: `mends v-order-01 v-order-03` makes them right, `spoils v-order-00` wrong. So a test
knows before what every evaluation will find. `overrides` decide single answers by run, for luck and errors.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.evolution.gate import gate_decision
from core.evolution.prompt_files import load_diagnose_prompts, load_evolve_prompts
from core.evolution.types import CaseSample, Edit, RejectedEdit, SystemCasePack
from core.types import GeneratedQuestion, LLMResponse, LoopResult, Step
from harness.baseline_cache import BaselineCache
from harness.checkpoint import Best, TrainState
from harness.config import RunConfig
from harness.evaluation import validation_ids
from harness.gating import joined, validation_snapshot
from harness.inference import Inference
from harness.log import HarnessLog, RunIds
from harness.parts import Parts, change_version, cold_gate_pools, put_in_force, roll_out, version_key
from harness.pools import Cut, Pools
from harness.store import VersionMeta, init_store, read_version
from harness.validate import Probation
from harness.workspace import VersionPair, init_workspace, resolve_paths, update_best

TASK_TYPES = ("content", "order", "other")
V1 = VersionPair("v1", "v1")


def question(pool, task_type, number):
    return GeneratedQuestion(
        question_id=f"{pool}-{task_type}-{number:02d}",
        video_id=f"film-{pool}-{number % 5}",
        task_type=task_type,
        question=f"What about number {number} of {task_type}?",
        options=("A. this", "B. that"),
        answer="A",
    )


def pool(name, per_type):
    return tuple(question(name, task_type, number) for task_type in TASK_TYPES for number in range(per_type))


def skill_text(name, task_type):
    bound = f"task_type: {task_type}\n" if task_type else ""
    return f"---\nname: {name}\ndescription: How to answer.\n{bound}---\n\nLook closely.\n"


@dataclasses.dataclass
class Script:
    """What the agent is told from outside, and what happened in order."""

    happened: list = dataclasses.field(default_factory=list)
    overrides: dict = dataclasses.field(default_factory=dict)
    on_answer: Callable[[str], None] = lambda scope: None

    def answers(self, run_id=""):
        """The questions that were really put to the agent in runs whose id holds `run_id`."""
        scopes = [what for kind, what in self.happened if kind == "answer"]
        return [scope for scope in scopes if run_id in scope.partition("/")[0]]


class ScriptedAgent:
    fingerprint, deterministic = "ScriptedAgent/1", False

    def __init__(self, script, scope=""):
        self.script, self.scope = script, scope

    def for_scope(self, scope):
        return ScriptedAgent(self.script, scope)

    async def run(self, question, system_prompt, user_prompt, tools, plugins=()):
        self.script.happened.append(("answer", self.scope))
        self.script.on_answer(self.scope)
        name = question.question_id
        right = self.script.overrides.get(
            (self.scope.partition("/")[0], name), told_right(system_prompt, name)
        )
        step = Step(tool_call={"tool": "view_node", "args": {"node_id": "n1"}}, tool_output="{}")
        if right is None:
            return LoopResult(None, (step,), 1, None, None, "error")
        result = {"answer": "A" if right else "B", "confidence": 0.5, "evidence": "", "reasoning": ""}
        return LoopResult(result, (step,), 1, None, None, "finished")


def told_right(prompt, name):
    """Whether a question is answered right under a prompt."""
    for word, right in (("spoils", False), ("mends", True)):
        if any(name in line.split() for line in re.findall(rf"{word} (.*)", prompt)):
            return right
    return int(name[-2:]) % 2 == 0


class NoTools:
    def describe(self):
        return "No tools."

    async def __call__(self, name, args):
        return "{}"


@dataclasses.dataclass
class ScriptedLLM:
    """Replies with the same JSON to everything: guidance, edits and judgements."""

    script: Script
    guidance: str = ""
    edits: tuple = ()
    completeness: float = 0.5
    model: str = "scripted"

    async def chat(self, messages, **options):
        self.script.happened.append(("call", messages[-1].content))
        edits = [{"op": "append", "target": "", "content": line, "reason": "r"} for line in self.edits]
        judged = {"completeness": self.completeness, "hallucination": 0.0}
        return LLMResponse(json.dumps({"guidance": self.guidance, "edits": edits, **judged}))


@dataclasses.dataclass
class Lab:
    parts: Parts
    script: Script
    log: HarnessLog

    def with_config(self, **changes):
        """The same run under a changed configuration."""
        config = dataclasses.replace(self.parts.config, **changes)
        return dataclasses.replace(self, parts=dataclasses.replace(self.parts, config=config))

    def with_evolver(self, **replies):
        """The same run with a chat model that writes guidance and prompts."""
        llm = ScriptedLLM(self.script, **replies)
        return dataclasses.replace(self, parts=dataclasses.replace(self.parts, evolve_llm=llm))

    def events(self, event_type):
        """Payloads of the events of a type, by target."""
        sql = "SELECT target, payload FROM _events WHERE event_type = ? ORDER BY id"
        return {row["target"]: json.loads(row["payload"]) for row in self.log.query(sql, (event_type,))}

    def metric(self, phase, epoch=1):
        sql = "SELECT * FROM dual_metric WHERE phase = ? AND epoch = ?"
        return self.log.query(sql, (phase, epoch))

    def file(self, version, name, kind="skills"):
        return read_version(self.parts.paths.store_dir, kind, version)[name].decode()


async def make_lab(folder: Path, *, per_type: int = 10, **config) -> Lab:
    """Store, workspace, pools and parts; nothing is rolled out yet."""
    (folder / "skills").mkdir(parents=True)
    texts = {f"{name}.md": skill_text(name, name) for name in ("content", "order")}
    texts["default-strategy.md"] = skill_text("default-strategy", "")
    for name, text in texts.items():
        (folder / "skills" / name).write_text(text, encoding="utf-8")
    store, workspace = folder / "store", folder / "experiment"
    init_store(store, folder / "skills", DEFAULT_PROMPTS_DIR)
    init_workspace(workspace, store, V1, str(folder))
    script = Script()
    log = HarnessLog(workspace / "harness.db", "run", synchronous="NORMAL")
    pools = Pools(
        pool("t", 2), pool("v", per_type), pool("d", per_type), Cut(test_size=6, val_size=30), "digest"
    )
    bound = {
        "llm": None,
        "agent_factory": lambda: ScriptedAgent(script),
        "tool_dispatch_fn": lambda asked: NoTools(),
        "log": log,
    }
    parts = Parts(
        config=RunConfig(**{"momentum_samples": 8, "gate_n_probes": 0, **config}),
        run=RunIds("run"),
        paths=resolve_paths(workspace, store),
        log=log,
        pools=pools,
        infer=Inference.bind(pools.validation + pools.diagnosis, **bound),
        infer_sealed=Inference.bind(pools.test, **bound),
        proposer=None,
        evolve_llm=None,
        judge=None,
        diagnose_prompts=load_diagnose_prompts(),
        evolve_prompts=load_evolve_prompts(),
        gate=gate_decision,
        cache=await BaselineCache.open(log, max_age=2),
        questions_ref=str(folder),
    )
    return Lab(parts, script, log)


async def begin(lab: Lab) -> TrainState:
    """The baseline run, cold ladders, and the state at the beginning of the first epoch."""
    parts = lab.parts
    result = await roll_out(parts, "run_baseline", parts.questions, V1)
    known = {name: right for name, right in result.correctness.items() if right is not None}
    asked = [known[name] for name in validation_ids(parts) if name in known]
    cold_gate_pools(parts, known)
    update_best(parts.paths.workspace_dir, V1)
    return TrainState(
        current_skills_version="v1",
        current_prompts_version="v1",
        baseline_skills_version="v1",
        baseline_prompts_version="v1",
        epoch_start_skills="v1",
        batches=(("d-order-00", "d-content-01"), ("d-order-01",)),
        step=2,
        global_step=2,
        best=Best("v1", "v1", "run_baseline", sum(asked) / len(asked)),
        correctness=known,
    )


async def accept(lab: Lab, state: TrainState, name: str, line: str, *, step: int = 0) -> TrainState:
    """An edit of a skill file as the gate leaves it: in force, on probation unless the file is shared."""
    parts, target, task_type = lab.parts, f"{name}.md", name
    edit = Edit("append", content=line)
    text = lab.file(state.current_skills_version, target) + f"{line}\n"
    key = version_key(parts.run, "accept", target, state.epoch, step)
    version = change_version(
        parts,
        "skills",
        state.current_skills_version,
        {target: text},
        key=key,
        meta=VersionMeta(source="accept"),
    )
    probations = dict(state.probations)
    if name != "default-strategy":
        tried = RejectedEdit(target, edit, "boundary", state.epoch, step, 3, 0)
        opened = Probation(
            target_file=target,
            task_types=(task_type,),
            base_version=state.current_skills_version,
            accepted_versions=(version,),
            epoch=state.epoch,
            step=step,
            validation=await validation_snapshot(parts, state, [task_type]),
            diagnosis={f"d-{task_type}-01": state.correctness.get(f"d-{task_type}-01")},
            pending_edits=(tried,),
        )
        probations[target] = joined(probations.get(target), opened)
    put_in_force(parts, VersionPair(version, state.current_prompts_version))
    return dataclasses.replace(
        state,
        current_skills_version=version,
        probations=probations,
        correctness={**state.correctness, f"d-{task_type}-01": True},
        changed_task_types_this_epoch=state.changed_task_types_this_epoch | {task_type},
    )


def system_pack(*names: str) -> SystemCasePack:
    """A case pack for the system prompt."""
    cases = tuple(
        CaseSample(name, "film", "order", f"Who, {name}?", ("A. x", "B. y"), "A", "B", False)
        for name in names
    )
    return SystemCasePack({"right": 1, "wrong": 3, "patterns": {"early_submit": 3}}, cases, ())


def ignore(state: TrainState) -> None:
    """A checkpoint that nobody needs."""
