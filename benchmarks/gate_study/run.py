"""One run of one arm: epochs of steps, each with a batch, a proposal for every file and its gate."""

from collections.abc import Iterator

from benchmarks.gate_study.arms import Arm
from benchmarks.gate_study.families import BATCH_SIZE, EPOCHS, STEPS_PER_EPOCH, TASK_TYPES
from benchmarks.gate_study.judging import BaselineRows, Judgement, asker, judge, ladder_of
from benchmarks.gate_study.settling import end_epoch
from benchmarks.gate_study.state import WORTH, KeptEdit, OpenProbation, RunState, begin
from benchmarks.gate_study.world import Answers, Proposal, Question, Setting, rendered
from core.evolution.planning import HeldGate
from harness.batching import build_batches

MIN_CLASS = 4
CORRECT_RATIO = 0.25


def run(setting: Setting, arm: Arm) -> RunState:
    """The finished run. It ends after `PROPOSALS` proposals or when the budget of the family is spent."""
    state = begin(setting, arm)
    for epoch in range(EPOCHS):
        if not state.may_go_on():
            break
        batches = batches_of(state, epoch)
        for step in range(STEPS_PER_EPOCH):
            batch = next(batches, None)
            if batch is None or not state.may_go_on():
                break
            take_step(state, epoch, step, batch)
        end_epoch(state, epoch)
    return state


def batches_of(state: RunState, epoch: int) -> Iterator[list[Question]]:
    """The batches of an epoch; dealt again when a small pool runs out. None when nothing fails any more."""
    questions = [question for members in state.setting.diagnosis.values() for question in members]
    deal = 0
    while True:
        batches, _ = build_batches(
            questions,
            state.correctness,
            batch_size=BATCH_SIZE,
            min_class=MIN_CLASS,
            correct_ratio=CORRECT_RATIO,
            seed=1000 * epoch + deal,
        )
        if not batches:
            return
        yield from batches
        deal += 1


def take_step(state: RunState, epoch: int, step: int, batch: list[Question]) -> None:
    """The batch is rolled out, and a proposal for every file judged."""
    seen: dict[str, Answers] = {}
    for task_type in TASK_TYPES:
        names = [question.question_id for question in batch if question.task_type == task_type]
        text = rendered(state.texts, task_type)
        seen[task_type] = state.roll_out(epoch, text, names, f"e{epoch} s{step}")
        state.correctness |= seen[task_type]
        state.observed |= seen[task_type]
        if task_type in state.probations:
            for name in names:  # a later observation outlives a rollback
                state.probations[task_type].overwritten.pop(name, None)
    for file in TASK_TYPES:
        if not state.may_go_on():
            return
        if state.arm.joining or file not in state.probations:
            _try_edit(state, epoch, step, file, seen[file])


def _try_edit(state: RunState, epoch: int, step: int, file: str, seen: Answers) -> None:
    failed = [name for name, right in seen.items() if not right]
    setting = state.setting
    proposal = setting.propose(epoch, step, file, state.texts, failed, seen, state.tried[file])
    judgement = _judgement(state, epoch, step, proposal)
    worth = WORTH[proposal.kind]
    state.counts[f"{worth}_proposed"] += 1
    state.counts[f"{worth}_accepted"] += judgement.accepted
    state.held.append(_held(state, file, judgement))
    if judgement.accepted:
        _accept(state, proposal, judgement)
    else:
        state.tried[file].add(proposal.key)


def _judgement(state: RunState, epoch: int, step: int, proposal: Proposal) -> Judgement:
    setting, file = state.setting, proposal.file
    number = epoch * STEPS_PER_EPOCH + step
    kinds = [state.arm.questions, *(["fresh"] if state.arm.rule == "minibatch3_then_fixed" else [])]
    ladders = [ladder_of(state.arm, kind, setting, state.pools, proposal, number) for kind in kinds]
    ask = asker(
        rendered(state.texts, file),
        rendered({**state.texts, file: proposal.text}, file),
        epoch=epoch,
        gate_id=f"e{epoch} s{step} gate {file}",
        rows=state.baseline if state.arm.keeps_rows else BaselineRows(),
        roll_out=state.roll_out,
    )
    return judge(state.arm, ladders[0], ladders[-1], ask)


def _held(state: RunState, file: str, judgement: Judgement) -> HeldGate:
    changed = sum(pair.base != pair.cand for pair in judgement.pairs)
    pairs = len(state.setting.validation[file]) if state.arm.probation else 0
    tau = state.arm.params_in_force.tau_in_force
    return HeldGate(judgement.planned, len(judgement.pairs), changed, tau, pairs)


def _accept(state: RunState, proposal: Proposal, judgement: Judgement) -> None:
    file = proposal.file
    on_probation = state.arm.probation and (state.arm.confirmed_on_probation or not judgement.confirmed)
    if on_probation and file not in state.probations:
        state.probations[file] = OpenProbation(state.texts[file])
    if file in state.probations:
        probation = state.probations[file]
        probation.edits += 1
        probation.gates.append(len(state.held) - 1)
        probation.evidence += judgement.pairs
        for name in judgement.candidate_answers:
            probation.overwritten.setdefault(name, state.correctness.get(name))
    state.correctness |= judgement.candidate_answers
    state.texts = {**state.texts, file: proposal.text}
    state.tried[file].clear()
    state.kept.append(KeptEdit(file, proposal.kind))
