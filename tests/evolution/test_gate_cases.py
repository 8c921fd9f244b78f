"""The gate reproduces its reference cases: decision and reason exactly, numbers to 1e-9."""

import json
from pathlib import Path

import pytest

from core.evolution.exact import e_value, posterior_better
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, PairResult

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "gate_cases.json").read_text(encoding="utf-8"))
E_VALUES = REFERENCE["aux_tables"]["e_value(W,L)"]
POSTERIORS = REFERENCE["aux_tables"]["phi(W,L)=P(Bin(W+L+1,1/2)<=W)"]

PARAMETER_NAMES = {
    "tau_prov": "tau",
    "pi_fut": "futility",
    "min_disc_confirm": "min_discordant_confirm",
    "min_disc_prov": "min_discordant_provisional",
    "err_min_attempts": "infra_min_attempts",
    "err_max_share": "infra_max_share",
    "soft_weight": "mixed_weight",
}
VERDICT_NAMES = {
    "attempts": "attempts",
    "errors": "errors",
    "W": "improved",
    "L": "regressed",
    "D": "discordant",
    "S": "statistic",
    "probe_net_regressions": "probe_net_regressions",
    "P": "probability",
    "p_exact": "exact_p",
    "spent": "alpha_spent",
    "predictive": "predictive_power",
    "expected_more_discordant": "expected_discordant",
}


def params_of(case):
    given = {**REFERENCE["defaults"], **case["params"]}
    return GateParams(**{PARAMETER_NAMES.get(name, name): value for name, value in given.items()})


def scores(value):
    if value is None:
        return None, None
    hard, soft = value if isinstance(value, list) else (value, None)
    return bool(hard), soft


def pair_of(question_id, pair):
    base, base_soft = scores(pair["b"])
    cand, cand_soft = scores(pair["c"])
    return PairResult(
        question_id, base, cand, base_soft, cand_soft, pair.get("w", 1), pair.get("probe", False)
    )


def evidence_of(case):
    given = case["evidence"]
    blocks = [
        [pair_of(f"{block_number}-{position}", pair) for position, pair in enumerate(block)]
        for block_number, block in enumerate(given["blocks"])
    ]
    return GateEvidence.from_blocks(given["planned"], blocks, given["planned_weights"])


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["id"])
def test_reference_case_is_reproduced(case):
    verdict = gate_decision(evidence_of(case), params_of(case), is_last_block=case["is_last_block"])
    assert (verdict.decision, verdict.reason) == (case["expected"]["decision"], case["expected"]["reason"])
    for name, expected in case["check"].items():
        assert getattr(verdict, VERDICT_NAMES[name]) == pytest.approx(expected, abs=1e-9), name
    assert verdict.explain().endswith(".")


def counts(key):
    return tuple(int(count) for count in key.split(","))


@pytest.mark.parametrize(("key", "expected"), E_VALUES.items())
def test_e_values_are_reproduced(key, expected):
    assert float(e_value(*counts(key))) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("key", "expected"), POSTERIORS.items())
def test_posterior_probabilities_are_reproduced(key, expected):
    assert float(posterior_better(*counts(key))) == pytest.approx(expected, abs=1e-9)
