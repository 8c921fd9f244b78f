"""Makers of gate evidence that the tests of the gate share."""

from hypothesis import strategies as st

from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, PairResult


def pairs_of(improved, regressed, ties=0, *, prefix="q"):
    """Unweighted pairs, improvements first."""
    kinds = [(False, True)] * improved + [(True, False)] * regressed + [(True, True)] * ties
    return [PairResult(f"{prefix}{i}", base, cand) for i, (base, cand) in enumerate(kinds)]


def one_block(improved, regressed, ties=0):
    """All that was planned, in one block."""
    pairs = pairs_of(improved, regressed, ties)
    return GateEvidence.from_blocks(len(pairs), [pairs])


def as_the_gate_would_reach_it(evidence, params):
    """The evidence cut after the first block that decides, and whether its last block is the last one."""
    for number in range(1, len(evidence.blocks) + 1):
        reached = GateEvidence.from_blocks(evidence.planned, evidence.blocks[:number], evidence.weights)
        is_last = number == len(evidence.blocks)
        if gate_decision(reached, params, is_last_block=is_last).decision != "CONTINUE":
            return reached, is_last
    raise AssertionError("the last block always decides")


soft_scores = st.integers(0, 20).map(lambda twentieths: twentieths / 20)


@st.composite
def evidences(draw, *, missing=True, spare=0, decisive=False):
    """Up to 30 pairs in blocks, with weights, probes and soft scores; `spare` more questions are planned.

    `decisive` evidence leans strongly to one side.
    """
    usual = [True, False, None] if missing else [True, False]
    base_answers = cand_answers = st.sampled_from(usual)
    if decisive:
        seldom, often = st.sampled_from([False] * 5 + usual), st.sampled_from([True] * 5 + usual)
        base_answers, cand_answers = draw(st.sampled_from([(seldom, often), (often, seldom)]))
    weights = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1 + spare, max_size=30 + spare))
    asked = len(weights) - spare
    pairs = [
        PairResult(
            f"q{position}",
            draw(base_answers),
            draw(cand_answers),
            draw(soft_scores),
            draw(soft_scores),
            weights[position],
            draw(st.booleans()),
        )
        for position in range(asked)
    ]
    size = draw(st.integers(1, 12))
    blocks = [pairs[start : start + size] for start in range(0, asked, size)]
    return GateEvidence.from_blocks(len(weights), blocks, weights)


@st.composite
def parameters(draw):
    """Parameters with tau <= 1 - alpha, so that what is CONFIRMED would also be PROVISIONAL."""
    return GateParams(
        alpha=draw(st.sampled_from([0.01, 0.05, 0.2])),
        tau=draw(st.sampled_from([None, 0.5, 0.75, 0.8])),
        metric=draw(st.sampled_from(["hard", "soft", "mixed"])),
        soft_levels=draw(st.sampled_from([4, 20])),
        probe_veto=draw(st.integers(0, 2)),
    )
