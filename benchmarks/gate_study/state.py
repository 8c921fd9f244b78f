"""What a run of the study carries along, and what is read off it at the end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.gate_study.arms import Arm
from benchmarks.gate_study.families import TASK_TYPES
from benchmarks.gate_study.judging import BaselineRows
from benchmarks.gate_study.world import SYSTEM, Answers, Setting, rendered
from core.evolution.edits import EditKey
from core.evolution.gate_types import PairResult
from core.evolution.planning import HeldGate
from harness.gate_ladder import GatePools, build_cold_entries

WORTH = {
    "null": "null",
    "helpful": "helpful",
    "very helpful": "helpful",
    "harmful": "harmful",
    "very harmful": "harmful",
    "easy-breaking": "harmful",
}
"""What an edit of a kind does to the true accuracy."""


@dataclass(frozen=True, slots=True)
class KeptEdit:
    """An edit in force."""

    file: str
    kind: str


@dataclass
class OpenProbation:
    """text_before: the file's before the first accept. edits: how many since. overwritten: what the merges
    put aside of the diagnosis correctness. gates: numbers of the gates that accepted. evidence: their pairs,
    for the arms that pool them."""

    text_before: str
    edits: int = 0
    overwritten: dict[str, bool | None] = field(default_factory=dict)
    gates: list[int] = field(default_factory=list)
    evidence: list[PairResult] = field(default_factory=list)


@dataclass
class RunState:
    """correctness: last answers of the diagnosis questions. validated: answers of a task type's validation
    questions by type and rendered text, the newest measured. best_texts, best_rows: delivered at the end.
    observed: what the epoch's steps saw of diagnosis questions. held: every gate."""

    setting: Setting
    arm: Arm
    texts: dict[str, str]
    best_texts: dict[str, str]
    pools: GatePools
    spent: int = 0
    correctness: Answers = field(default_factory=dict)
    validated: dict[tuple[str, str], Answers] = field(default_factory=dict)
    best_rows: Answers = field(default_factory=dict)
    observed: Answers = field(default_factory=dict)
    baseline: BaselineRows = field(default_factory=BaselineRows)
    probations: dict[str, OpenProbation] = field(default_factory=dict)
    tried: dict[str, set[EditKey]] = field(default_factory=dict)
    kept: list[KeptEdit] = field(default_factory=list)
    held: list[HeldGate] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def roll_out(self, epoch: int, text: str, question_ids: Sequence[str], draw: str) -> Answers:
        """One rollout of each question, counted."""
        self.spent += len(question_ids)
        return self.setting.answers(epoch, text, question_ids, draw) if question_ids else {}

    def may_go_on(self) -> bool:
        """Whether the budget allows for more than the evaluation that ends the run."""
        return self.spent + self.setting.family.validation < self.setting.family.budget

    def evaluate(self, epoch: int, texts: Mapping[str, str], draw: str) -> Answers:
        """Rolls out the validation pool and keeps the rows under their texts."""
        rows: Answers = {}
        for task_type in TASK_TYPES:
            text = rendered(texts, task_type)
            names = [question.question_id for question in self.setting.validation[task_type]]
            answers = self.roll_out(epoch, text, names, draw)
            self.validated[task_type, text] = answers
            rows |= answers
        return rows

    def measured(self, epoch: int, texts: Mapping[str, str], task_type: str) -> Answers:
        """The validation rows of a task type under texts; rolled out when they never were."""
        text = rendered(texts, task_type)
        if (task_type, text) not in self.validated:
            names = [question.question_id for question in self.setting.validation[task_type]]
            self.validated[task_type, text] = self.roll_out(epoch, text, names, f"e{epoch} base")
        return self.validated[task_type, text]


def begin(setting: Setting, arm: Arm) -> RunState:
    """The state after the baseline run of validation and diagnosis pool."""
    texts = dict(setting.initial_texts)
    state = RunState(setting, arm, texts, dict(texts), GatePools({}, "simulated", arm.params.n_probes))
    state.tried = {name: set() for name in texts}
    state.best_rows = state.evaluate(0, texts, "baseline")
    entries = {}
    for task_type, questions in setting.diagnosis.items():
        names = [question.question_id for question in questions]
        state.correctness |= state.roll_out(0, rendered(texts, task_type), names, "baseline")
        entries[task_type] = tuple(
            build_cold_entries(questions, state.correctness, n_probes=arm.params.n_probes, seed=setting.seed)
        )
    state.pools = GatePools(entries, "simulated", arm.params.n_probes)
    return state


def outcome(state: RunState) -> dict[str, float]:
    """The figures of a finished run. Gains in points of true accuracy; counts of edits by their worth, those
    of the system prompt apart; `spent` in rollouts."""
    accuracy = state.setting.accuracy
    before = accuracy(state.setting.initial_texts)
    in_force = Counter(
        f"{'slow_' if edit.file == SYSTEM else ''}{WORTH[edit.kind]}_kept" for edit in state.kept
    )
    figures = {
        "gain": 100 * (accuracy(state.texts) - before),
        "delivered": 100 * (accuracy(state.best_texts) - before),
        "spent": state.spent,
        "gates": len(state.held),
    }
    for worth in ("null", "helpful", "harmful"):
        for stage in ("proposed", "accepted", "kept"):
            figures[f"{worth}_{stage}"] = (
                in_force[f"{worth}_kept"] if stage == "kept" else (state.counts[f"{worth}_{stage}"])
            )
        figures[f"slow_{worth}_kept"] = in_force[f"slow_{worth}_kept"]
    return figures
