"""What an agent's run leaves behind."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from core.types import StopReason


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One turn: what the model thought, the tool it called (`{"tool": name, "args": {...}}`) and what came back."""

    thought: str = ""
    reflect: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None
    tool_call: Mapping[str, Any] | None = None
    tool_output: str = ""
    raw_content: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LoopResult:
    """How a rollout ended.

    `result` holds `answer`, `confidence`, `evidence` and `reasoning` as given to `submit_answer`, or is `None`
    when the agent ended without an answer. Token counts are sums over the calls; `None` where the model
    does not count. `no_evidence` marks an answer drawn without having read anything.
    """

    result: Mapping[str, Any] | None
    steps: tuple[Step, ...]
    steps_used: int
    prompt_tokens: int | None
    completion_tokens: int | None
    stop_reason: StopReason
    no_evidence: bool = False
