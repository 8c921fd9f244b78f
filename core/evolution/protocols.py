"""What evolution asks of its surroundings: a log to read, stores to read, and somebody who proposes edits."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from core.evolution.types import CasePack, Edit, RejectedEdit


class ProposalError(ValueError):
    """A proposer gave nothing that can be read as edits; the message says what was wrong with it."""


@runtime_checkable
class RunLog(Protocol):
    """Reads the rows of a run. `question_ids=None` means all of them."""

    async def get_predictions(
        self, run_id: str, *, question_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of the `predictions` table."""
        ...

    async def get_traces(
        self, run_id: str, *, question_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of the `traces` table, in the order of question and step."""
        ...


@runtime_checkable
class SkillStore(Protocol):
    """Skill files by name, such as `order.md`."""

    def read(self, name: str) -> str:
        """The text of one file. Raises `KeyError` naming the file when there is none."""
        ...

    def list(self) -> list[str]:
        """The names of all files, sorted."""
        ...


@runtime_checkable
class PromptStore(Protocol):
    """Prompt files by name, the same way as `SkillStore`."""

    def read(self, name: str) -> str:
        """The text of one file. Raises `KeyError` naming the file when there is none."""
        ...

    def list(self) -> list[str]:
        """The names of all files, sorted."""
        ...


@runtime_checkable
class Proposer(Protocol):
    """Proposes edits of one text, the best first.

    name: how it is called wherever its results show. attempts: how often it may be asked for one proposal; a
    second time it is told in `problems` what was wrong with the first (a proposer that would only repeat
    itself says 1).
    """

    name: str
    attempts: int

    async def propose(
        self,
        pack: CasePack,
        *,
        text: str,
        rejected: Sequence[RejectedEdit],
        edit_budget: int,
        seed: int,
        problems: Sequence[str] = (),
    ) -> Sequence[Edit]:
        """Edits of `text` made from `pack`; at most `edit_budget` of them will be applied.

        `rejected` holds what was tried on this text before and must not come again. The same arguments give
        the same edits. What may not be touched is not told: an edit of it is refused when it is applied.
        Raises `ProposalError` when nothing readable comes out.
        """
        ...
