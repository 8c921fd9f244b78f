"""Asks a chat model for edits of a text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from core.agent.skills import parse_lines
from core.agent.tactics import TACTICS
from core.evolution.json_reply import UnreadableReplyError, extract_json_from_response
from core.evolution.protocols import ProposalError
from core.evolution.types import (
    CasePack,
    CaseSample,
    Edit,
    EvolvePrompts,
    RejectedEdit,
    SkillCasePack,
    SystemCasePack,
    ToolCasePack,
)
from core.protocols import LLMProvider
from core.types import Message, lettered_options


class LLMProposer:
    """A `Proposer` that shows a chat model the text, the case pack and what was rejected, and reads JSON
    edits out of its reply.

    Cases are shown under labels (`F1`, `S1`), never under their question ids; of rejected edits nothing is
    shown but the change itself and how it did.
    """

    attempts = 2

    def __init__(self, llm: LLMProvider, prompts: EvolvePrompts) -> None:
        self.name = f"llm ({llm.model})"
        self._llm = llm
        self._prompts = prompts

    async def propose(
        self,
        pack: CasePack,
        *,
        text: str,
        rejected: Sequence[RejectedEdit],
        edit_budget: int,
        seed: int,
        problems: Sequence[str] = (),
    ) -> list[Edit]:
        """The edits of the reply, best first; none when the model has none to propose.

        Raises `ProposalError` for a reply that cannot be read as edits, and the model's `ProviderError`.
        """
        labels = dict(_labelled(pack))
        material = {
            "text": text,
            "edit_budget": edit_budget,
            **_told_pack(pack, labels),
            **_told_places(pack, text),
            "rejected_edits": [_told_rejected(entry) for entry in rejected],
            **({"problems_with_your_last_reply": list(problems)} if problems else {}),
        }
        shown = json.dumps(material, ensure_ascii=False, indent=1)
        messages = [Message("system", self._prompt(pack)), Message("user", shown)]
        response = await self._llm.chat(messages, seed=seed)
        ids = {label: _question_id(case) for label, case in labels.items()}
        return _read_edits(response.content, ids, cut_off=response.finish_reason == "length")

    def _prompt(self, pack: CasePack) -> str:
        if isinstance(pack, SkillCasePack):
            return self._prompts.skill
        return self._prompts.system if isinstance(pack, SystemCasePack) else self._prompts.tool


# What the model is shown

Case = CaseSample | Mapping[str, Any]


def _labelled(pack: CasePack) -> Iterator[tuple[str, Case]]:
    """Failing cases or calls as F1, F2, ..., succeeding ones as S1, S2, ..."""
    if isinstance(pack, ToolCasePack):
        groups = {"F": pack.failure_spans, "S": pack.success_spans}
    else:
        groups = {"F": pack.failure_cases, "S": pack.success_cases}
    for letter, cases in groups.items():
        for number, case in enumerate(cases, start=1):
            yield f"{letter}{number}", case


def _question_id(case: Case) -> str:
    return case.question_id if isinstance(case, CaseSample) else case["question_id"]


def _told_pack(pack: CasePack, labels: Mapping[str, Case]) -> dict[str, Any]:
    if isinstance(pack, SkillCasePack):
        what = {"file": pack.target_file, "task_types": pack.task_types}
    elif isinstance(pack, SystemCasePack):
        what = {"file": "system prompt"}
    else:
        what = {"file": pack.target_files[0], "tool": pack.tool_name}
    return {
        **what,
        "statistics": pack.stats,
        "failing": {label: _told_case(case) for label, case in labels.items() if label.startswith("F")},
        "succeeding": {label: _told_case(case) for label, case in labels.items() if label.startswith("S")},
    }


def _told_places(pack: CasePack, text: str) -> dict[str, Any]:
    """The places that a skill's lines may name, where it has lines."""
    if not isinstance(pack, SkillCasePack) or not parse_lines(text):
        return {}
    return {"places": {name: tactic.meaning for name, tactic in TACTICS.items()}}


def _told_case(case: Case) -> dict[str, Any]:
    if not isinstance(case, CaseSample):
        return {name: value for name, value in case.items() if name != "question_id"}
    return {
        "task_type": case.task_type,
        "question": case.question,
        "options": lettered_options(case.options),
        "correct_answer": case.answer,
        "answer_given": case.prediction,
        "error_type": case.error_type,
        "why_shown": case.selection_reason,
        "metrics": case.metrics,
        "steps": case.trace,
    }


def _told_rejected(entry: RejectedEdit) -> dict[str, Any]:
    """The change and how it did. Its own reason and cases may speak of questions, and stay out."""
    return {
        "op": entry.edit.op,
        "target": entry.edit.target,
        "content": entry.edit.content,
        "verdict": entry.reason,
        "answers_improved": entry.improved,
        "answers_made_worse": entry.regressed,
    }


# What the model replied


def _as_text(value: Any) -> str:
    """Text; lines in an array are joined. What is neither becomes blank, which is refused with a reason."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value if isinstance(value, str) else ""


def _as_texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


_Text = Annotated[str, BeforeValidator(_as_text)]


class _ProposedEdit(BaseModel):
    """An edit as the model wrote it. Whether its parts make sense is for `apply_edits` to say."""

    op: _Text = ""
    target: _Text = ""
    content: _Text = ""
    reason: _Text = ""
    cases: Annotated[tuple[str, ...], BeforeValidator(_as_texts)] = ()


def _read_edits(reply: str, ids: Mapping[str, str], *, cut_off: bool) -> list[Edit]:
    """The edits of a reply. `ids`: question ids by label. Raises `ProposalError`."""
    hint = "; it was cut off at the length limit: be shorter" if cut_off else ""
    try:
        value = extract_json_from_response(reply, keys=("edits", "op"))
    except UnreadableReplyError as problem:
        raise ProposalError(f'{problem}; reply with one JSON object {{"edits": [...]}}{hint}') from None
    proposed = _proposed(value)
    if proposed is None:
        raise ProposalError(f'there is no "edits" with an array of objects in the reply{hint}')
    return [_edit(_ProposedEdit.model_validate(item), ids) for item in proposed]


def _proposed(value: dict[str, Any] | list[Any]) -> list[dict[str, Any]] | None:
    """The edits that a reply holds: under `edits`, as a bare array, or a single one; `None` for neither."""
    if isinstance(value, dict):
        value = value.get("edits", [value] if "op" in value else None)
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    return None


def _edit(proposed: _ProposedEdit, ids: Mapping[str, str]) -> Edit:
    return Edit(
        op=proposed.op.strip().casefold(),
        target=proposed.target,
        content=proposed.content,
        reason=proposed.reason,
        related_cases=tuple(dict.fromkeys(ids[label] for label in proposed.cases if label in ids)),
    )
