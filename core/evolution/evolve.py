"""Turns a case pack into an edited text: a proposer proposes, and everything it says is checked."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from core.agent.skills import SkillError, parse_lines
from core.evolution.edits import apply_edits, edit_key, rejected_keys
from core.evolution.leak_guard import LeakGuard, refusal
from core.evolution.protocols import ProposalError, Proposer
from core.evolution.types import (
    CasePack,
    Edit,
    EditOutcome,
    EvolutionRecord,
    EvolutionStatus,
    RejectedEdit,
    SkillCasePack,
    SkippedEdit,
    SystemCasePack,
    TargetType,
    ToolCasePack,
)

SYSTEM_FILE = "system.md"
_QUOTED_CHARACTERS = 300


@dataclasses.dataclass(frozen=True, slots=True)
class _Task:
    """One text to be mended, and what for."""

    pack: CasePack
    target_file: str
    target_type: TargetType
    evidence_ids: tuple[str, ...]
    text: str
    rejected: Sequence[RejectedEdit]
    edit_budget: int
    seed: int
    frozen: Sequence[str]


async def evolve_skill(
    proposer: Proposer,
    pack: SkillCasePack,
    *,
    skill_text: str,
    rejected: Sequence[RejectedEdit],
    edit_budget: int,
    seed: int,
    frozen: Sequence[str] = (),
) -> EvolutionRecord:
    """A proposal for the skill file `pack.target_file`, whose text is `skill_text`.

    rejected: what was tried on this file before. At most `edit_budget` edits are applied. frozen: titles of
    headings whose sections stay as they are.

    An edit is refused, with a reason, when it was rejected before (`already_rejected`), comes twice
    (`proposed_twice`), copies from the cases (`copies_training_data`), leaves a skill line that cannot be
    read (`lines_unreadable`) or cannot be applied (see `apply_edits`). When all are refused, or the reply
    cannot be read, the proposer is told why and asked again, as often as it allows.

    Raises what the proposer raises other than `ProposalError`, such as its model's `ProviderError`.
    """
    task = _Task(
        pack, pack.target_file, "skill", pack.evidence_ids, skill_text, rejected, edit_budget, seed, frozen
    )
    return await _evolve(proposer, task)


async def evolve_system(
    proposer: Proposer,
    pack: SystemCasePack,
    *,
    skill_text: str,
    rejected: Sequence[RejectedEdit],
    edit_budget: int,
    seed: int,
    frozen: Sequence[str] = (),
) -> EvolutionRecord:
    """A proposal for the system prompt, whose text is `skill_text`; else as `evolve_skill`.

    Its evidence are the questions of the pack's cases.
    """
    ids = _distinct(case.question_id for case in (*pack.failure_cases, *pack.success_cases))
    task = _Task(pack, SYSTEM_FILE, "system", ids, skill_text, rejected, edit_budget, seed, frozen)
    return await _evolve(proposer, task)


async def evolve_tool(
    proposer: Proposer,
    pack: ToolCasePack,
    *,
    skill_text: str,
    rejected: Sequence[RejectedEdit],
    edit_budget: int,
    seed: int,
    frozen: Sequence[str] = (),
) -> EvolutionRecord:
    """A proposal for the first of the pack's `target_files`, whose text is `skill_text`; else as
    `evolve_skill`.

    Its evidence are the questions of the pack's calls.
    """
    ids = _distinct(span["question_id"] for span in (*pack.failure_spans, *pack.success_spans))
    task = _Task(pack, pack.target_files[0], "tool", ids, skill_text, rejected, edit_budget, seed, frozen)
    return await _evolve(proposer, task)


def _distinct(question_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(question_ids)))


async def _evolve(proposer: Proposer, task: _Task) -> EvolutionRecord:
    outcome, skipped = EditOutcome(task.text), []
    attempts, problems, unreadable = 0, [], ""
    while attempts < proposer.attempts:
        attempts += 1
        try:
            edits = await proposer.propose(
                task.pack,
                text=task.text,
                rejected=task.rejected,
                edit_budget=task.edit_budget,
                seed=task.seed,
                problems=problems,
            )
        except ProposalError as error:
            unreadable = str(error)
            problems = [unreadable]
            continue
        unreadable = ""
        outcome = _checked(task, edits)
        skipped += outcome.skipped
        if outcome.applied or not edits:
            break
        problems = [_told(skip) for skip in outcome.skipped]
    status, reason = _verdict(task.text, outcome, skipped, unreadable)
    return EvolutionRecord(
        target_file=task.target_file,
        target_type=task.target_type,
        original_content=task.text,
        evolved_content=outcome.text,
        applied=outcome.applied,
        skipped=tuple(skipped),
        status=status,
        reason=reason,
        attempts=attempts,
        evidence_ids=task.evidence_ids,
    )


def _checked(task: _Task, edits: Sequence[Edit]) -> EditOutcome:
    """What comes of a proposal; refused edits in the order proposed, whatever they were refused for."""
    fresh, known = _split_known(edits, task.rejected)
    guard = LeakGuard.for_pack(task.pack, known=task.text)
    original, copied = guard.judge(fresh)
    outcome = _apply(task, original, guard)
    place = {id(edit): number for number, edit in enumerate(edits)}
    skipped = sorted((*known, *copied, *outcome.skipped), key=lambda skip: place[id(skip.edit)])
    return EditOutcome(outcome.text, outcome.applied, tuple(skipped))


def _split_known(
    edits: Sequence[Edit], rejected: Sequence[RejectedEdit]
) -> tuple[list[Edit], list[SkippedEdit]]:
    """The edits that are new, and those that were rejected before or came already."""
    tried, seen = rejected_keys(rejected), set()
    fresh, known = [], []
    for edit in edits:
        key = edit_key(edit)
        if key in tried:
            known.append(SkippedEdit(edit, "already_rejected", "it was tried and did not help"))
        elif key in seen:
            known.append(SkippedEdit(edit, "proposed_twice", "the same edit came before"))
        else:
            fresh.append(edit)
            seen.add(key)
    return fresh, known


def _apply(task: _Task, edits: Sequence[Edit], guard: LeakGuard) -> EditOutcome:
    """`apply_edits`, but an edit after which a skill's lines cannot be read any more is refused too, and one
    that makes a copy together with what stands around it."""
    outcome, skipped = EditOutcome(task.text), []
    for edit in edits:
        # What was applied before applies again, so only this edit can be refused.
        together = [*outcome.applied, edit]
        extended = apply_edits(task.text, together, budget=task.edit_budget, frozen=task.frozen)
        if extended.skipped:
            skipped += extended.skipped
        elif problem := _line_problem(task, extended.text):
            skipped.append(SkippedEdit(edit, "lines_unreadable", problem))
        elif copy := guard.copied(extended.text):
            skipped.append(refusal(edit, copy))
        else:
            outcome = extended
    return EditOutcome(outcome.text, outcome.applied, tuple(skipped))


def _line_problem(task: _Task, text: str) -> str:
    """Why the lines of a skill cannot be read; empty when they can."""
    if task.target_type != "skill":
        return ""
    try:
        parse_lines(text, source=task.target_file)
    except SkillError as error:
        return str(error)
    return ""


def _told(skip: SkippedEdit) -> str:
    """A refusal in words, for the proposer."""
    quoted = (skip.edit.content or skip.edit.target)[:_QUOTED_CHARACTERS]
    return f"{skip.edit.op} {quoted!r} was refused: {skip.reason} ({skip.detail})"


def _verdict(
    text: str, outcome: EditOutcome, skipped: Sequence[SkippedEdit], unreadable: str
) -> tuple[EvolutionStatus, str]:
    """Status of the record and its ground in words."""
    if outcome.text != text:
        return "evolved", f"{len(outcome.applied)} applied, {len(skipped)} refused"
    if unreadable:
        return "failed", unreadable
    if outcome.applied:
        return "unchanged", "the edits cancel each other out"
    if skipped:
        counts = Counter(skip.reason for skip in skipped)
        return "unchanged", "every edit was refused: " + ", ".join(f"{n} {why}" for why, n in counts.items())
    return "unchanged", "no edit was proposed"
