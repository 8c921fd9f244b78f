"""What an agent is told: a system prompt from files, tools and skills; a user prompt with the question."""

from pathlib import Path

from core.agent.skills import SkillSet, parse_lines
from core.agent.tactics import TACTICS
from core.protocols import ToolDispatcher
from core.tree.condense import Prompts
from core.tree.model import lies_inside
from core.types import GeneratedQuestion, lettered_options

DEFAULT_PROMPTS_DIR = Path(__file__).parent / "prompts"

_HOW_TO_ANSWER = {
    "choice": "Answer with the letter of one option.",
    "text": "Answer in a few words, without a sentence around them.",
    "number": "Answer with a number in digits, without a unit.",
}


class PromptDirectory:
    """The `*.md` files of a folder as prompts. Line ends and a byte order mark are evened out."""

    def __init__(self, folder: Path = DEFAULT_PROMPTS_DIR) -> None:
        self._folder = folder

    def list(self) -> list[str]:
        """The names that can be read, sorted."""
        return sorted(path.stem for path in self._folder.glob("*.md"))

    def read(self, name: str) -> str:
        """The text of a prompt. Raises `ValueError` naming the folder and what there is, or the file."""
        if name not in self.list():
            raise ValueError(
                f"{self._folder}: no prompt {name}.md; there are {', '.join(self.list()) or 'none'}"
            )
        path = self._folder / f"{name}.md"
        if not lies_inside(path, self._folder):
            raise ValueError(f"{path}: leads out of {self._folder}")
        try:
            return path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: cannot be read as UTF-8 text: {error}") from None


def system_prompt(prompts: Prompts, tools: ToolDispatcher, skills: SkillSet, task_type: str) -> str:
    """Who the agent is (`system`), how it speaks (`protocol`), its tools, and the skills for the task type.

    What changes least comes first, so that providers can reuse the beginning of earlier prompts.
    """
    skill_text = skills.text_for(task_type)
    parts = [
        prompts.read("system"),
        prompts.read("protocol"),
        f"# Tools\n\n{tools.describe()}",
        skill_text,
        _places(skill_text),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _places(skill_text: str) -> str:
    """What the places mean that the skill's lines name, for models that read the lines as advice."""
    named = {line.tactic for line in parse_lines(skill_text)}
    items = [f"- `{name}`: {tactic.meaning}" for name, tactic in TACTICS.items() if name in named]
    return "\n".join(["# Places named in the skill", "", *items]) if items else ""


def user_prompt(question: GeneratedQuestion) -> str:
    """The question, its options with their letters, and the form of the answer."""
    options = [f"{letter}. {text}" for letter, text in lettered_options(question.options).items()]
    listed = ["", "Options:", *options] if options else []
    return "\n".join([f"Question: {question.question}", *listed, "", _HOW_TO_ANSWER[question.answer_kind]])
