"""The end of an epoch: evaluation, probations, best, and what is slow to change."""

from benchmarks.gate_study.families import TASK_TYPES
from benchmarks.gate_study.state import KeptEdit, OpenProbation, RunState
from benchmarks.gate_study.world import SYSTEM, Answers
from core.evolution.comparison import settle_probation
from core.evolution.exact import exact, posterior_better
from core.evolution.gate_types import PairResult
from core.evolution.planning import HeldGate


def end_epoch(state: RunState, epoch: int) -> None:
    """R, settlements, best, the slow edit, R2 when something changed, best again, ladder refresh."""
    state.evaluate(epoch, state.texts, f"e{epoch} R")
    settled = [settle(state, epoch, file) for file in sorted(state.probations)]
    rolled_back = "rolled_back" in settled
    state.probations.clear()
    if not rolled_back:
        consider_best(state, epoch)
    if state.arm.slow_edits:
        change_system_prompt(state, epoch)
    elif rolled_back:
        state.evaluate(epoch, state.texts, f"e{epoch} R2")
    consider_best(state, epoch)
    state.pools = state.pools.update_probs(state.observed, state.arm.params.gamma)
    state.observed.clear()


def settle(state: RunState, epoch: int, file: str) -> str:
    """Ends the probation of a file: `kept`, or `rolled_back` to the text before the first accept."""
    probation = state.probations[file]
    before = {**state.texts, file: probation.text_before}
    pairs = paired(state.measured(epoch, before, file), state.measured(epoch, state.texts, file))
    if state.arm.pooled:
        pairs += probation.evidence
    settlement = settle_probation(pairs, state.arm.params)
    for number in probation.gates:
        gate = state.held[number]
        state.held[number] = HeldGate(
            gate.planned, gate.answered, gate.discordant, gate.tau, settlement.n, settlement.D
        )
    if settlement.decision == "rolled_back":
        _roll_back(state, file, probation)
    return settlement.decision


def _roll_back(state: RunState, file: str, probation: OpenProbation) -> None:
    state.texts[file] = probation.text_before
    for name, answer in probation.overwritten.items():
        if answer is None:
            state.correctness.pop(name, None)
        else:
            state.correctness[name] = answer
    of_file = [edit for edit in state.kept if edit.file == file]
    others = [edit for edit in state.kept if edit.file != file]
    state.kept = others + of_file[: len(of_file) - probation.edits]


def consider_best(state: RunState, epoch: int) -> None:
    """The texts in force become best when they are strictly and clearly better on validation."""
    rows = _all_measured(state, epoch)
    if outdoes(state.best_rows, rows, state.arm.params.slow_tau):
        state.best_texts, state.best_rows = dict(state.texts), rows


def change_system_prompt(state: RunState, epoch: int) -> None:
    """One edit of the system prompt, kept when the second evaluation bears it out."""
    before = _all_measured(state, epoch)
    setting = state.setting
    failed = [name for name, right in state.correctness.items() if not right]
    proposal = setting.propose(epoch, -1, SYSTEM, state.texts, failed, failed, state.tried[SYSTEM])
    changed = {**state.texts, SYSTEM: proposal.text}
    rows = state.evaluate(epoch, changed, f"e{epoch} R2")
    if outdoes(before, rows, state.arm.params.slow_tau):
        state.texts = changed
        state.kept.append(KeptEdit(SYSTEM, proposal.kind))


def outdoes(before: Answers, after: Answers, bar: float) -> bool:
    """P(Bin(D + 1, 1/2) <= W) >= bar, and more right answers: a tie keeps what there was."""
    improved = sum(after[name] and not before[name] for name in after)
    regressed = sum(before[name] and not after[name] for name in after)
    return improved > regressed and posterior_better(improved, regressed) >= exact(bar)


def paired(before: Answers, after: Answers) -> list[PairResult]:
    """The pairs of two evaluations of the same questions."""
    return [PairResult(name, before[name], after[name]) for name in after]


def _all_measured(state: RunState, epoch: int) -> Answers:
    rows: Answers = {}
    for task_type in TASK_TYPES:
        rows |= state.measured(epoch, state.texts, task_type)
    return rows
