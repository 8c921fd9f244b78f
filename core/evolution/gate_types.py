"""Values of the gate: what it is given and what it decides.

Words used here: *baseline* is the skill in force, *candidate* the edited one. A pair is both on the
same question. W counts improved pairs, L regressed ones, D = W + L the discordant ones, S the signed and
weighted sum, P the mid-p probability that the candidate is better.
"""

import dataclasses
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

Decision = Literal["CONTINUE", "ACCEPT_CONFIRMED", "ACCEPT_PROVISIONAL", "REJECT"]
Reason = Literal[
    "undecided", "boundary", "confirmed_but_probe_veto", "terminal", "curtailed", "futility", "infra_abort"
]
Metric = Literal["hard", "soft", "mixed"]
LadderKind = Literal["fresh", "plan", "stratified"]
LadderSource = Literal["diagnosis", "diagnosis+validation"]
LadderExclusion = Literal["question", "video"]

TAU_WITH_PROBATION = 0.60
TAU_WITHOUT_PROBATION = 0.75


def _is_whole(value: Any) -> bool:
    """True for an integer; 2.0 is none, since exact counting must not meet a float."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True, slots=True)
class PairResult:
    """Baseline and candidate on one question.

    `base` and `cand` say whether the answer was right, `None` where there was none for a reason that is not
    the agent's. `base_soft` and `cand_soft` are soft scores in [0, 1], `None` where nothing was judged.
    `weight` is the positive integer weight that the ladder planned for the question; `is_probe` marks an easy
    question that is asked to see whether the edit breaks what already worked.
    """

    question_id: str
    base: bool | None
    cand: bool | None
    base_soft: float | None = None
    cand_soft: float | None = None
    weight: int = 1
    is_probe: bool = False

    def __post_init__(self) -> None:
        if not _is_whole(self.weight) or self.weight < 1:
            raise ValueError(
                f"pair {self.question_id!r}: weight must be a positive integer, is {self.weight!r}"
            )
        for name in ("base_soft", "cand_soft"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"pair {self.question_id!r}: {name} must lie in [0, 1], is {value}")

    @property
    def missing(self) -> bool:
        """True when either side has no answer: the pair was attempted and is no evidence."""
        return self.base is None or self.cand is None


@dataclasses.dataclass(frozen=True, slots=True)
class QuadrantClassification:
    """Question ids by what the edit did to them, each in the order of the pairs."""

    both_right: tuple[str, ...] = ()
    both_wrong: tuple[str, ...] = ()
    improved: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GateEvidence:
    """Everything a gate has seen so far, block by block.

    `planned` is the number of questions of the ladder and `weights` their weights in ladder order; both were
    frozen before the first block. Make one with `from_blocks`, which checks it.
    """

    planned: int
    blocks: tuple[tuple[PairResult, ...], ...]
    weights: tuple[int, ...]

    @classmethod
    def from_blocks(
        cls,
        planned: int,
        blocks: Iterable[Sequence[PairResult]],
        weights: Sequence[int] | None = None,
    ) -> "GateEvidence":
        """Evidence from blocks of pairs in the order they were asked; `weights=None` means all 1.

        An empty block is no look and is left out.

        Raises `ValueError` when there are more pairs than were planned, a question appears twice, or a
        block's weights are not those planned for its place.
        """
        frozen_blocks = tuple(tuple(block) for block in blocks if block)
        if not _is_whole(planned):
            raise ValueError(f"planned must be a number of questions, is {planned!r}")
        frozen_weights = (1,) * planned if weights is None else tuple(weights)
        if planned < 0 or len(frozen_weights) != planned:
            raise ValueError(f"planned {planned} questions but {len(frozen_weights)} weights")
        if any(not _is_whole(weight) or weight < 1 for weight in frozen_weights):
            raise ValueError("planned weights must be positive integers")
        _check_blocks(planned, frozen_blocks, frozen_weights)
        return cls(planned=planned, blocks=frozen_blocks, weights=frozen_weights)

    @property
    def pairs(self) -> tuple[PairResult, ...]:
        """All pairs of all blocks, in order."""
        return tuple(pair for block in self.blocks for pair in block)

    @property
    def attempts(self) -> int:
        """Pairs asked, missing ones included."""
        return sum(len(block) for block in self.blocks)


def _check_blocks(planned: int, blocks: tuple[tuple[PairResult, ...], ...], weights: tuple[int, ...]) -> None:
    seen: set[str] = set()
    position = 0
    for number, block in enumerate(blocks, start=1):
        for pair in block:
            if pair.question_id in seen:
                raise ValueError(f"block {number}: question {pair.question_id!r} appears twice in one gate")
            seen.add(pair.question_id)
        expected = sorted(weights[position : position + len(block)])
        position += len(block)
        if position > planned:
            raise ValueError(f"block {number}: {position} pairs, but only {planned} questions were planned")
        if sorted(pair.weight for pair in block) != expected:
            raise ValueError(f"block {number}: the weights of its pairs are not the planned ones, {expected}")


@dataclasses.dataclass(frozen=True, slots=True)
class GateParams:
    """How the gate and its ladders decide; in a run's configuration each field bears the prefix `gate_`.

    alpha: bound on the chance that a worthless edit is CONFIRMED, at any look; 0 < alpha <= 0.2.
    tau: least P for PROVISIONAL, in [0.5, 1); `None` means 0.60 with probation and 0.75 without.
    futility: reject when the predictive power falls below this and P <= 1/2; in [0, 1), 0 never.
    block: questions between two looks.
    max_questions: greatest length of a ladder.
    min_pairs: a shorter ladder is no gate (`insufficient_evidence`).
    min_discordant_confirm, min_discordant_provisional: least D for the two kinds of acceptance.
    probe_veto: net regressions among probes that turn CONFIRMED into PROVISIONAL; 0 switches it off.
    infra_max_share, infra_min_attempts: abort when more than this share of attempts is no evidence, from this
        number of attempts on.
    metric: `hard` counts right answers, `soft` the soft score, `mixed` = (1 - mixed_weight) hard +
        mixed_weight soft. soft_levels: steps into which a difference of 1 is cut for soft and mixed.
    p_low, p_high: the band of success probability that a ladder prefers. gamma: how much of a question's
        old probability survives an observation. n_probes: easy questions at the ladder's tail.
    ladder: `fresh` draws the questions anew for each gate; `plan` and `stratified` order them by that
        probability. source: pools the ladder is cut from. exclude: whether a question that the proposer saw
        keeps only itself out of the ladder, or its whole video.
    max_per_step: gates in one step, 0 = all.
    settle_tau: least P with which an edit outlives probation. slow_tau: the same for R2 and best.

    Raises `ValueError` naming the field that is out of range, or that counts something and is no integer.
    """

    alpha: float = 0.05
    tau: float | None = None
    futility: float = 0.10
    block: int = 10
    max_questions: int = 40
    min_pairs: int = 10
    min_discordant_confirm: int = 5
    min_discordant_provisional: int = 2
    probe_veto: int = 2
    infra_max_share: float = 0.20
    infra_min_attempts: int = 10
    metric: Metric = "hard"
    mixed_weight: float = 0.5
    soft_levels: int = 20
    p_low: float = 0.15
    p_high: float = 0.85
    gamma: float = 0.7
    n_probes: int = 4
    ladder: LadderKind = "fresh"
    source: LadderSource = "diagnosis"
    exclude: LadderExclusion = "question"
    max_per_step: int = 0
    settle_tau: float = 0.50
    slow_tau: float = 0.60

    def __post_init__(self) -> None:
        broken = [
            f"{field.name} must be a whole number, is {getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.type is int and not _is_whole(getattr(self, field.name))
        ]
        problems = broken or [
            f"{name} must be {rule}, is {getattr(self, name)!r}"
            for name, valid, rule in _parameter_rules(self)
            if not valid
        ]
        if problems:
            raise ValueError("gate parameters: " + "; ".join(problems))

    @property
    def tau_in_force(self) -> float:
        """`tau`, or the default of a file that can go on probation."""
        return TAU_WITH_PROBATION if self.tau is None else self.tau

    def for_file(self, *, probation: bool, shared: bool) -> "GateParams":
        """These parameters with `tau` settled for one file.

        `probation`: the run puts accepted edits on probation. A `shared` file cannot go on probation, so it
        needs at least the `tau` of a run without.
        """
        default = TAU_WITH_PROBATION if probation else TAU_WITHOUT_PROBATION
        tau = default if self.tau is None else self.tau
        return dataclasses.replace(self, tau=max(tau, TAU_WITHOUT_PROBATION) if shared else tau)


def _parameter_rules(params: GateParams) -> list[tuple[str, bool, str]]:
    """(field, holds, what must hold) for every rule."""
    p = params
    return [
        ("alpha", 0 < p.alpha <= 0.2, "over 0 and at most 0.2"),
        ("tau", p.tau is None or 0.5 <= p.tau < 1, "None or at least 0.5 and under 1"),
        ("futility", 0 <= p.futility < 1, "at least 0 and under 1"),
        ("block", p.block >= 1, "at least 1"),
        ("max_questions", p.max_questions >= p.block, f"at least block ({p.block})"),
        ("min_pairs", p.min_pairs >= 1, "at least 1"),
        ("min_discordant_confirm", p.min_discordant_confirm >= 1, "at least 1"),
        ("min_discordant_provisional", p.min_discordant_provisional >= 1, "at least 1"),
        ("probe_veto", p.probe_veto >= 0, "at least 0"),
        ("infra_max_share", 0 <= p.infra_max_share < 1, "at least 0 and under 1"),
        ("infra_min_attempts", p.infra_min_attempts >= 1, "at least 1"),
        ("metric", p.metric in get_args(Metric), "one of " + ", ".join(get_args(Metric))),
        ("mixed_weight", 0 <= p.mixed_weight <= 1, "in [0, 1]"),
        ("soft_levels", p.soft_levels >= 1, "at least 1"),
        ("p_low", 0 < p.p_low < 1, "between 0 and 1"),
        ("p_high", p.p_low < p.p_high < 1, f"over p_low ({p.p_low}) and under 1"),
        ("gamma", 0 <= p.gamma < 1, "at least 0 and under 1"),
        ("n_probes", p.n_probes >= 0, "at least 0"),
        ("ladder", p.ladder in get_args(LadderKind), "one of " + ", ".join(get_args(LadderKind))),
        ("source", p.source in get_args(LadderSource), "one of " + ", ".join(get_args(LadderSource))),
        ("exclude", p.exclude in get_args(LadderExclusion), "one of " + ", ".join(get_args(LadderExclusion))),
        ("max_per_step", p.max_per_step >= 0, "at least 0"),
        ("settle_tau", 0.5 <= p.settle_tau < 1, "at least 0.5 and under 1"),
        ("slow_tau", 0.5 <= p.slow_tau < 1, "at least 0.5 and under 1"),
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class GateVerdict:
    """What the gate decided after a block, and every number that decided it.

    decision, reason: the outcome and the rule that brought it.
    planned, attempts, errors: questions of the ladder, asked so far, of these without an answer on either
        side, or for `soft` and `mixed` without its soft score.
    improved (W), regressed (L), discordant (D): counts of pairs.
    statistic (S): sum over discordant pairs of sign x weight x level. threshold: the least S that would be
        CONFIRMED at this look; `None` when no S could.
    probability (P): P(S0 < S) + P(S0 = S) / 2 under fair signs. tau: what P is compared with.
    exact_p: P(S0 >= S), and 1 for S <= 0. alpha, alpha_spent: the error bound, and what all looks so far have
        spent of it.
    predictive_power: chance of ending accepted, `None` where it was not asked.
    expected_discordant: discordant pairs expected among the remaining questions, `None` likewise.
    e_value: evidence against "the edit changes nothing", for combining gates.
    probe_net_regressions: regressed minus improved among probes.

    After `infra_abort` no test happened: threshold, probabilities, alpha spent and e-value are `None`.
    """

    decision: Decision
    reason: Reason
    planned: int
    attempts: int
    errors: int
    improved: int
    regressed: int
    discordant: int
    statistic: int
    probe_net_regressions: int
    tau: float
    alpha: float
    threshold: int | None = None
    probability: float | None = None
    exact_p: float | None = None
    alpha_spent: float | None = None
    predictive_power: float | None = None
    expected_discordant: int | None = None
    e_value: float | None = None

    @property
    def accepted(self) -> bool:
        """True for both kinds of acceptance."""
        return self.decision in ("ACCEPT_CONFIRMED", "ACCEPT_PROVISIONAL")

    def explain(self) -> str:
        """The decision and its ground in one sentence for a person."""
        counts = (
            f"after {self.attempts} of {self.planned} questions {self.improved} improved "
            f"and {self.regressed} regressed"
        )
        if self.errors and self.reason != "infra_abort":
            counts += f" ({self.errors} had no answer or no score)"
        outcome = "Aborted" if self.reason == "infra_abort" else _VERDICT_WORDS[self.decision]
        return f"{outcome}: {counts}{_ground(self)}."


_VERDICT_WORDS = {
    "CONTINUE": "Undecided",
    "ACCEPT_CONFIRMED": "Accepted and confirmed",
    "ACCEPT_PROVISIONAL": "Accepted provisionally",
    "REJECT": "Rejected",
}


def _ground(verdict: GateVerdict) -> str:
    """Why, as the tail of a sentence."""
    v = verdict
    if v.reason == "infra_abort":
        return f", but {v.errors} had no answer or no score, so that no test took place"
    if v.reason == "boundary":
        if _crossed_earlier(v):
            return "; an earlier block was clear enough to confirm it, and that stands"
        return f"; so clear a result has exact p = {v.exact_p:.4f}, within the error bound of {v.alpha:g}"
    if v.reason == "confirmed_but_probe_veto":
        confirming = "; an earlier block" if _crossed_earlier(v) else ", which"
        return (
            f"{confirming} would confirm it, but among the easy questions {v.probe_net_regressions} more "
            "regressed than improved"
        )
    if v.reason == "terminal":
        return f"; {_terminal_ground(v)}"
    if v.reason == "curtailed":
        outcome = "worst" if v.accepted else "best"
        return f", and even the {outcome} outcome of the remaining questions would not change that"
    if v.reason == "futility":
        return f", and the chance of still ending accepted is only {v.predictive_power:.3f}"
    return f"; the chance that the edit helps is {v.probability:.3f} so far"


def _crossed_earlier(verdict: GateVerdict) -> bool:
    """True when what stands now would not have crossed the boundary: a crossing is never undone."""
    return verdict.threshold is None or verdict.statistic < verdict.threshold


def _terminal_ground(verdict: GateVerdict) -> str:
    """Which of the conditions for PROVISIONAL decided at the end."""
    if verdict.statistic <= 0:
        return "on balance nothing improved, and a tie keeps the text in force"
    if not verdict.accepted and verdict.probability >= verdict.tau:
        return "too few answers changed to tell"
    return f"the chance that the edit helps is {verdict.probability:.3f}, where {verdict.tau:g} is asked"
