r"""The response model: which questions a simulated agent answers right under a text.

Question *i* has an ability $a_i$ (logits): the sum of a common level, a part of its cluster, one of its
video and one of its own. A text has rules, and

$$\theta_i(\text{text}) = a_i + \sum_{\text{rules that name } i} \text{effect}, \qquad
  p_i = \frac{1}{1 + e^{-\theta_i}}.$$

Each question has a *luck* $u_i$, uniform on [0, 1) and fixed. One rollout draws it anew with probability
`redrawn`, and is right when the luck it ends up with is below $p_i$. So, over rollouts,

$$q_i = P(\text{right}) = (1 - \text{redrawn}) \, [u_i < p_i] + \text{redrawn} \cdot p_i,$$

two rollouts disagree with probability $2 q_i (1 - q_i)$, and an edit that only helps never breaks anything
by itself. `text_noise` is the share of questions whose luck is another one under every text: then rewording
alone changes some answers, up and down alike, as it does for real models.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.adapters.simulated_chance import Floats, Rows, key_of, normal, uniform, uniforms
from core.adapters.simulated_rules import EVERY, Rule, read_rules
from core.text_hash import skill_hash

Draw = int | str
Flags = npt.NDArray[np.bool_]

VARIANCE_SHARES = {"cluster": 0.25, "video": 0.10, "question": 0.65}
"""How the variance of the abilities is made up."""
_TEXTS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question belongs; rules name its cluster or its task type."""

    cluster: str
    task_type: str
    video_id: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How all questions stand under one text. `chances`: p_i; `settled`: right unless the luck is drawn
    anew."""

    key: int
    chances: Floats
    settled: Flags


class ResponseModel:
    """The model of the module's docstring for the questions at `places`, which are known by their row.

    accuracy: the mean p_i under a text without rules. spread: standard deviation of the abilities, in logits.
    churn: how often two rollouts of one question under the same text without rules disagree, on average over
    luck; 0 is a deterministic agent. drift: standard deviation, in logits, of what each epoch adds to each
    ability. epoch: how many such steps were taken.

    Raises `ValueError` for a parameter out of its range.
    """

    def __init__(
        self,
        seed: int,
        places: Sequence[Place],
        *,
        accuracy: float,
        spread: float,
        churn: float,
        text_noise: float,
        drift: float,
        epoch: int,
    ) -> None:
        _check_ranges(
            accuracy=accuracy, spread=spread, churn=churn, text_noise=text_noise, drift=drift, epoch=epoch
        )
        self.rows: Rows = np.arange(len(places))
        self._seed = seed
        self._text_noise = text_noise
        deviations = spread * _standard_abilities(seed, places)
        settled_abilities = deviations + _level(deviations, accuracy)
        self.redrawn = _redrawn(logistic(settled_abilities), churn)
        self.difficulties = _thirds(settled_abilities)
        self._abilities = settled_abilities + drift * _walk(seed, epoch, len(places))
        self._luck = uniforms(key_of(seed, "luck"), self.rows)
        self._named = _rows_by_name(places)
        self.standing = functools.lru_cache(_TEXTS_KEPT)(self._standing)

    def abilities(self, rules: Sequence[Rule]) -> Floats:
        """theta_i of all questions under rules."""
        abilities = self._abilities.copy()
        for rule in rules:
            abilities[self.rows_named(rule)] += rule.effect
        return abilities

    def rows_named(self, rule: Rule) -> Rows:
        """The questions that a rule speaks of; none if its name occurs nowhere."""
        rows = self._named.get(rule.name, self.rows[:0])
        if not rule.difficulty:
            return rows
        return rows[self.difficulties[rows] == rule.difficulty]

    def correct(self, rows: Rows, text: str, draw: Draw) -> Flags:
        """Whether each question is answered right in one rollout under `text`."""
        standing = self.standing(text)
        settled = standing.settled[rows]
        if self.redrawn == 0:
            return settled
        key = key_of(standing.key, draw)
        again = uniforms(key, 2 * rows) < self.redrawn
        return np.where(again, uniforms(key, 2 * rows + 1) < standing.chances[rows], settled)

    def is_correct(self, row: int, text: str, draw: Draw) -> bool:
        """`correct` for one question, without arrays."""
        standing = self.standing(text)
        if self.redrawn > 0:
            key = key_of(standing.key, draw)
            if uniform(key, 2 * row) < self.redrawn:
                return uniform(key, 2 * row + 1) < float(standing.chances[row])
        return bool(standing.settled[row])

    def chance_right(self, rows: Rows, text: str) -> Floats:
        """q_i: how often each question is answered right over many rollouts under `text`."""
        standing = self.standing(text)
        return (1 - self.redrawn) * standing.settled[rows] + self.redrawn * standing.chances[rows]

    def _standing(self, text: str) -> Standing:
        key = key_of(self._seed, "text", skill_hash(text))
        chances = logistic(self.abilities(read_rules(text)))
        luck = self._luck
        if self._text_noise > 0:
            other = uniforms(key_of(key, "other luck"), self.rows) < self._text_noise
            luck = np.where(other, uniforms(key_of(key, "luck"), self.rows), luck)
        return Standing(key, chances, luck < chances)


def logistic(logits: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -logits))


def mean_by_type(
    rows: Rows, type_of: Callable[[int], str], measure: Callable[[Rows, str], npt.NDArray]
) -> float:
    """The mean over questions of `measure(rows, task type)`, asked once for each task type.

    Raises `ValueError` when there are no rows.
    """
    if not len(rows):
        raise ValueError("rows: there are none to average over")
    types: dict[str, list[int]] = {}
    for row in rows.tolist():
        types.setdefault(type_of(row), []).append(row)
    sums = [measure(np.array(members), task_type).sum() for task_type, members in types.items()]
    return float(sum(sums) / len(rows))


def solve_increasing(gap: Callable[[float], float], low: float, high: float) -> float:
    """Where the increasing function `gap` crosses 0 between `low` and `high`, by halving the interval."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    return (low + high) / 2


def _check_ranges(**parameters: float) -> None:
    for name, value in parameters.items():
        fits = 0 < value < 1 if name == "accuracy" else value >= 0 and math.isfinite(value)
        if not fits or (name == "text_noise" and value > 1):
            raise ValueError(f"{name}: {value} is out of range")


def _standard_abilities(seed: int, places: Sequence[Place]) -> Floats:
    """Abilities with mean 0 and variance 1 in expectation."""
    weights = {part: math.sqrt(share) for part, share in VARIANCE_SHARES.items()}
    return np.array(
        [
            weights["cluster"] * normal(seed, "cluster", place.cluster)
            + weights["video"] * normal(seed, "video", place.video_id)
            + weights["question"] * normal(seed, "question", row)
            for row, place in enumerate(places)
        ]
    )


def _level(deviations: Floats, accuracy: float) -> float:
    """What to add to all abilities, so that the mean chance is `accuracy`."""
    bound = float(np.abs(deviations).max()) + 40
    return solve_increasing(lambda level: logistic(deviations + level).mean() - accuracy, -bound, bound)


def _redrawn(chances: Floats, churn: float) -> float:
    """The share of rollouts whose luck is drawn anew: averaged over luck, two rollouts of question i disagree
    with probability 2 p_i (1 - p_i) (1 - (1 - redrawn)^2)."""
    most = float((2 * chances * (1 - chances)).mean())
    if churn > most:
        raise ValueError(f"churn: {churn} is more than these abilities allow ({most:.3f}); take less spread")
    return 1 - math.sqrt(1 - churn / most)


def _thirds(abilities: Floats) -> npt.NDArray[np.str_]:
    ranks = np.argsort(np.argsort(abilities, kind="stable"), kind="stable")
    return np.array(["hard", "medium", "easy"])[ranks * 3 // len(abilities)]


def _walk(seed: int, epoch: int, questions: int) -> Floats:
    steps = [[normal(seed, "drift", step, row) for row in range(questions)] for step in range(epoch)]
    return np.array(steps).reshape(epoch, questions).sum(axis=0)


def _rows_by_name(places: Sequence[Place]) -> Mapping[str, Rows]:
    names: dict[str, list[int]] = {EVERY: list(range(len(places)))}
    for row, place in enumerate(places):
        names.setdefault(place.task_type, []).append(row)
        names.setdefault(place.cluster, []).append(row)
    return {name: np.array(rows, dtype=np.intp) for name, rows in names.items()}
