"""The prompts of judge and evolving model, as Markdown files that can be read, copied and changed."""

from pathlib import Path

from core.agent.prompts import PromptDirectory
from core.evolution.types import DiagnosePrompts, EvolvePrompts

DEFAULT_PROMPTS_DIR = Path(__file__).parent / "prompts"


def load_diagnose_prompts(folder: Path = DEFAULT_PROMPTS_DIR) -> DiagnosePrompts:
    """`judge_span.md`, `judge_question.md` and `judge_reasoning.md` of a folder.

    Raises `ValueError` naming the folder and the file that is missing.
    """
    files = PromptDirectory(folder)
    return DiagnosePrompts(*(files.read(f"judge_{name}") for name in ("span", "question", "reasoning")))


def load_evolve_prompts(folder: Path = DEFAULT_PROMPTS_DIR) -> EvolvePrompts:
    """`evolve_skill.md`, `evolve_system.md` and `evolve_tool.md` of a folder, likewise."""
    files = PromptDirectory(folder)
    return EvolvePrompts(*(files.read(f"evolve_{name}") for name in ("skill", "system", "tool")))
