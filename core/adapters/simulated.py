"""`SimulatedWorld`: questions, films and an agent whose true accuracy under any text is known.

For tests, studies and benchmarks; its numbers say nothing about any real model, and every id in it says
"simulated". The response model is described in `simulated_model`, the rules that a text may hold in
`simulated_rules`, what happens in a rollout in `simulated_agent`.

```
world = SimulatedWorld(seed=1, n_videos=20, n_questions=200, task_types=("order", "content"), churn=0.1)
rows = world.rows_of(question.question_id for question in world.questions)
world.correct(rows, text, draw=0)          # one rollout of every question: an array of booleans
world.true_accuracy(skills.text_for)       # what infinitely many rollouts would average
```
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from core.adapters.simulated_agent import Failure, Scripts, SimulatedAgent, SimulatedTools
from core.adapters.simulated_chance import Floats, Rows, key_of
from core.adapters.simulated_edits import RULES_HEADING, EditFamily, EditMaker, SimulatedProposer
from core.adapters.simulated_model import Draw, Flags, ResponseModel, logistic, mean_by_type
from core.adapters.simulated_questions import Film, make_films, make_places, make_question, question_id
from core.adapters.simulated_roles import SimulatedChat, SimulatedEvolver, SimulatedJudge
from core.adapters.simulated_rules import read_rules
from core.types import GeneratedQuestion

TextFor = Callable[[str], str]
"""Task type -> the text that the agent is given for it, such as `SkillSet.text_for`."""


class SimulatedWorld:
    """A world of `n_questions` about `n_videos` films, the same for the same arguments.

    task_types: their names; each has `clusters` clusters, `order-1`, `order-2` and so on. accuracy, spread,
    churn, text_noise, drift, epoch: see `ResponseModel`.

    Raises `ValueError` for arguments that make no world.
    """

    def __init__(
        self,
        seed: int,
        n_videos: int,
        n_questions: int,
        task_types: Sequence[str],
        *,
        clusters: int = 3,
        accuracy: float = 0.55,
        spread: float = 1.0,
        churn: float = 0.1,
        text_noise: float = 0.0,
        drift: float = 0.0,
        epoch: int = 0,
    ) -> None:
        self._size = (seed, n_videos, n_questions, tuple(task_types))
        self._parameters = {
            "clusters": clusters, "accuracy": accuracy, "spread": spread, "churn": churn,
            "text_noise": text_noise, "drift": drift,
        }  # fmt: skip
        self._seed = seed
        self.task_types = tuple(task_types)
        self.model = f"simulated-{key_of(*map(str, self._size), *self._parameters.values()):016x}"
        self.places = make_places(n_videos, n_questions, self.task_types, clusters)
        self.responses = ResponseModel(
            seed,
            self.places,
            accuracy=accuracy,
            spread=spread,
            churn=churn,
            text_noise=text_noise,
            drift=drift,
            epoch=epoch,
        )
        self._rows = {question_id(row): row for row in range(n_questions)}

    @cached_property
    def films(self) -> dict[str, Film]:
        """The films by video id. They and all that rests on them are made when first asked for: a study that
        only counts needs none."""
        return make_films(self._seed, self.places)

    @cached_property
    def questions(self) -> tuple[GeneratedQuestion, ...]:
        """The questions in the order of their rows."""
        rows = zip(self.places, map(str, self.responses.difficulties), strict=True)
        return tuple(
            make_question(self._seed, row, place, difficulty, self.films[place.video_id])
            for row, (place, difficulty) in enumerate(rows)
        )

    @cached_property
    def _scripts(self) -> Scripts:
        return Scripts(self._seed, self.questions, self.films)

    @cached_property
    def _tools(self) -> dict[str, SimulatedTools]:
        return {video_id: SimulatedTools(film) for video_id, film in self.films.items()}

    def at_epoch(self, epoch: int) -> "SimulatedWorld":
        """The same world after so many steps of drift. Silently: model id and fingerprint stay, as they would
        behind an endpoint whose model is exchanged."""
        return SimulatedWorld(*self._size, **self._parameters, epoch=epoch)

    def rows_of(self, question_ids: Iterable[str]) -> Rows:
        """The rows by which the fast methods know questions. Raises `ValueError` for an unknown id."""
        return np.array([self._row_of(question_id) for question_id in question_ids], dtype=np.intp)

    def _row_of(self, question_id: str) -> int:
        if question_id not in self._rows:
            raise ValueError(f"question {question_id!r} is none of the {len(self._rows)} of {self.model}")
        return self._rows[question_id]

    @property
    def clusters(self) -> dict[str, str]:
        """The cluster of each question by id."""
        return {
            question_id: place.cluster for question_id, place in zip(self._rows, self.places, strict=True)
        }

    # The truth

    def correct(self, rows: Rows, text: str, draw: Draw) -> Flags:
        """One rollout of each question: whether it is right. The same as the agents' under this system
        prompt."""
        return self.responses.correct(rows, text, draw)

    def chance_right(self, rows: Rows, text: str) -> Floats:
        """How often each question is right over many rollouts, exactly."""
        return self.responses.chance_right(rows, text)

    def true_accuracy(self, text_for: TextFor, rows: Rows | None = None) -> float:
        """The accuracy that infinitely many rollouts of these very questions (default: all) would average."""
        return self._mean(self.chance_right, text_for, rows)

    def population_accuracy(self, text_for: TextFor, rows: Rows | None = None) -> float:
        """The same, averaged over the questions' luck too: what to expect of new questions as hard as
        these."""
        return self._mean(self._chance_of_new, text_for, rows)

    def true_churn(self, text_for: TextFor, rows: Rows | None = None) -> float:
        """How often two rollouts of these questions under the same text disagree, in the mean, exactly."""
        return self._mean(self._disagreement, text_for, rows)

    def failure_of(self, question_id: str) -> Failure:
        """Why the question fails when it fails."""
        return self._scripts.failure_of(self._row_of(question_id))

    def _chance_of_new(self, rows: Rows, text: str) -> Floats:
        return logistic(self.responses.abilities(read_rules(text)))[rows]

    def _disagreement(self, rows: Rows, text: str) -> Floats:
        chances = self.chance_right(rows, text)
        return 2 * chances * (1 - chances)

    def _mean(self, measure: Callable[[Rows, str], Floats], text_for: TextFor, rows: Rows | None) -> float:
        """The mean of a measure over questions, each under the text of its task type."""
        return mean_by_type(
            self.responses.rows if rows is None else rows,
            lambda row: self.places[row].task_type,
            lambda members, task_type: measure(members, text_for(task_type)),
        )

    # The parts of a run

    def initial_skills(self) -> dict[str, str]:
        """A skill file without rules for each task type, and the default strategy, by file name."""
        named = {f"{task_type}.md": task_type for task_type in self.task_types}
        return {
            name: _skill_file(task_type) for name, task_type in {**named, "default-strategy.md": ""}.items()
        }

    def tools_for(self, question: GeneratedQuestion) -> SimulatedTools:
        """The tools for the film that a question is about."""
        return self._tools[question.video_id]

    def agent(self, draw: Draw = 0) -> SimulatedAgent:
        """The agent without a chat: quick, for studies and for loops that test something else."""
        return SimulatedAgent(self.model, self.responses, self._scripts, draw)

    def agent_llm(self, draw: Draw = 0) -> SimulatedChat:
        """The chat model with which `AgentLoop` answers as `agent` does."""
        return SimulatedChat(self.model, self.responses, self._scripts, draw)

    def judge_llm(self) -> SimulatedJudge:
        """The chat model that judges rollouts of this world truthfully."""
        return SimulatedJudge(self.model, self._scripts)

    def proposer(self, family: EditFamily) -> SimulatedProposer:
        """A proposer of a family's edits."""
        return SimulatedProposer(EditMaker(self.responses, family, self._seed), self.clusters)

    def evolver_llm(self, family: EditFamily) -> SimulatedEvolver:
        """The chat model that proposes a family's edits."""
        return SimulatedEvolver(self.model, EditMaker(self.responses, family, self._seed), self.task_types)


def _skill_file(task_type: str) -> str:
    name = task_type or "default-strategy"
    serves = f"{task_type} questions" if task_type else "questions of types without a skill of their own"
    return "\n".join(
        [
            "---",
            f'name: "{name}"',
            f"description: How to answer {serves} (simulated).",
            *([f'task_type: "{task_type}"'] if task_type else []),
            "always: false",
            "---",
            "",
            f"A simulated skill for {serves}. Search for the words of the question,",
            "open the moment that fits best, and choose the option that its card supports. The rules below",
            "are all that the simulated agent minds.",
            "",
            RULES_HEADING,
            "",
            "",
        ]
    )
