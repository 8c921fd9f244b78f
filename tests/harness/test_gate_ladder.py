"""The ladder: which questions a gate asks, and in which order."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from core.evolution.gate_types import LadderKind
from core.types import GeneratedQuestion, Prediction
from harness import gate_ladder
from harness.gate_ladder import (
    GatePools,
    LadderEntry,
    build_cold_entries,
    build_or_load_gate_pools,
    order_ladder,
    read_gate_pools,
)
from harness.log import HarnessLog, RunIds
from harness.store import StoreError
from harness.tables import PREDICTIONS, write_rows

CUT = {"ladder": "plan", "max_questions": 40, "p_low": 0.15, "p_high": 0.85, "seed": 0}


def question(name: str, task_type: str = "order") -> GeneratedQuestion:
    return GeneratedQuestion(name, "film", task_type, "What comes next?", ("A. tea", "B. rain"), "A")


def entry(name: str, p_hat: float, *, n_obs: int = 1, is_probe: bool = False) -> LadderEntry:
    return LadderEntry(name, "film", p_hat, n_obs, is_probe)


def ids(entries) -> list[str]:
    return [one.question_id for one in entries]


def cold_pools(known: dict[str, bool | None], *, n_probes: int = 4) -> GatePools:
    entries = build_cold_entries([question(name) for name in known], known, n_probes=n_probes, seed=0)
    return GatePools({"order": tuple(entries)}, "made in a test", n_probes)


# Cold


def test_cold_start_interleaving():
    known = {f"w{i}": False for i in range(6)} | {f"r{i}": True for i in range(6)} | {"n0": None}
    entries = build_cold_entries([question(name) for name in known], known, n_probes=2, seed=3)
    # Six wrong and, without two probes, four right: three rounds of two to one, then the right one left over.
    assert "".join(one.question_id[0] for one in entries) == "wwr" * 3 + "r" + "n" + "rr"
    assert [one.is_probe for one in entries] == [False] * 11 + [True] * 2


def test_cold_start_p_hat_beta():
    known = {"wrong": False, "right": True, "broke down": None}
    questions = [question(name) for name in [*known, "never asked"]]
    entries = {one.question_id: one for one in build_cold_entries(questions, known, n_probes=0, seed=0)}
    assert (entries["wrong"].p_hat, entries["wrong"].n_obs) == (1 / 3, 1)
    assert (entries["right"].p_hat, entries["right"].n_obs) == (2 / 3, 1)
    assert (entries["broke down"].p_hat, entries["broke down"].n_obs) == (1 / 2, 0)
    assert (entries["never asked"].p_hat, entries["never asked"].n_obs) == (1 / 2, 0)


def test_probes_are_drawn_from_right_answers_by_seed():
    known = {f"w{i}": False for i in range(10)} | {f"r{i}": True for i in range(10)} | {"n": None}
    questions = [question(name) for name in known]
    drawn = set()
    for seed in range(20):
        probes = {
            one.question_id
            for one in build_cold_entries(questions, known, n_probes=3, seed=seed)
            if one.is_probe
        }
        assert len(probes) == 3
        assert all(known[name] for name in probes)
        drawn.add(frozenset(probes))
    assert len(drawn) > 10


def test_fewer_right_answers_than_probes_makes_all_of_them_probes():
    known = {"w": False, "r": True}
    entries = build_cold_entries([question(name) for name in known], known, n_probes=4, seed=0)
    assert [(one.question_id, one.is_probe) for one in entries] == [("w", False), ("r", True)]


def test_a_doubled_question_is_refused_by_name():
    with pytest.raises(ValueError, match="'q1' is there twice"):
        build_cold_entries([question("q1"), question("q1")], {}, n_probes=0, seed=0)


# Warm


def test_warm_ordering_information():
    entries = [
        entry("a", 0.3),
        entry("b", 0.5),
        entry("c", 0.7),
        entry("d", 0.6),
        entry("e", 1 / 3),
        entry("f", 2 / 3),
    ]
    # 0.3 and 0.7 tell the same, so do 1/3 and 2/3: ties go by question id.
    assert ids(order_ladder(entries, p_low=0.15, p_high=0.85)) == ["b", "d", "e", "f", "a", "c"]


def test_warm_filter_bounds():
    entries = [entry(str(p), p / 100) for p in (14, 15, 50, 85, 86)] + [entry("probe", 0.99, is_probe=True)]
    assert ids(order_ladder(entries, p_low=0.15, p_high=0.85)) == ["50", "15", "85", "probe"]


def test_questions_never_observed_follow_the_observed_ones_in_both_orders():
    known = {"w": False, "r": True, "new": None}
    pools = cold_pools(known, n_probes=0)
    assert ids(pools.ladder_for(["order"], [], **CUT))[-1] == "new"
    # All three in the band, and 1/2 would be the most informative of them.
    warm = pools.update_probs({"w": True, "r": False}, gamma=0.7)
    assert ids(warm.ladder_for(["order"], [], **CUT))[-1] == "new"


def test_the_fill_takes_two_hard_to_one_easy_least_extreme_first_before_the_probes():
    names = {"h1": 0.14, "h2": 0.1, "h3": 0.02, "e1": 0.9, "e2": 0.97, "even": 0.5}
    entries = [entry(name, p) for name, p in names.items()] + [entry("probe", 0.99, is_probe=True)]
    pools = GatePools({"order": tuple(entries)}, "made in a test", n_probes=1, warm=True)
    assert ids(pools.ladder_for(["order"], [], **CUT)) == ["even", "h1", "h2", "e1", "h3", "e2", "probe"]


def test_a_deterministic_agents_ladder_does_not_starve():
    known = {f"q{i:02d}": i % 3 == 0 for i in range(60)}
    pools = cold_pools(known)
    for _ in range(8):
        assert len(pools.ladder_for(["order"], [], **CUT)) == 40
        pools = pools.update_probs(known, gamma=0.7)
    assert (
        len(order_ladder(pools.entries["order"], p_low=0.15, p_high=0.85)) == 4
    )  # the band kept the probes alone


def test_probes_are_not_cut_off_by_a_short_ladder():
    known = {f"q{i:02d}": i % 2 == 0 for i in range(40)}
    for pools in (cold_pools(known), cold_pools(known).update_probs(known, gamma=0.7)):
        ladder = pools.ladder_for(["order"], [], **{**CUT, "max_questions": 10})
        assert [one.is_probe for one in ladder] == [False] * 6 + [True] * 4


def test_a_file_of_several_task_types_has_one_ladder_with_the_probes_of_one():
    known = {f"q{i:02d}": i % 2 == 0 for i in range(40)}
    entries = {
        task_type: tuple(
            build_cold_entries(
                [question(f"{task_type}-{name}") for name in known],
                {f"{task_type}-{name}": right for name, right in known.items()},
                n_probes=4,
                seed=0,
            )
        )
        for task_type in ("order", "counting", "objects")
    }
    pools = GatePools(entries, "made in a test", n_probes=4)
    ladder = pools.ladder_for(["objects", "order", "counting"], [], **{**CUT, "max_questions": 200})
    assert len(ladder) == 120  # the surplus probes are ordinary questions again
    assert sum(one.is_probe for one in ladder) == 4
    assert ladder == pools.ladder_for(
        ["counting", "order", "objects", "order"], [], **{**CUT, "max_questions": 200}
    )


def test_ladder_for_excludes_qids():
    known = {f"q{i:02d}": i % 2 == 0 for i in range(20)}
    pools = cold_pools(known)
    seen_by_the_proposer = {"q00", "q01", "q02", "elsewhere"}
    for kind in get_args(LadderKind):
        for some_pools in (pools, pools.update_probs(known, gamma=0.7)):
            ladder = some_pools.ladder_for(["order"], seen_by_the_proposer, **{**CUT, "ladder": kind})
            assert set(ids(ladder)) == known.keys() - seen_by_the_proposer


def test_an_unknown_kind_of_ladder_is_refused():
    with pytest.raises(ValueError, match="'random' is none of fresh, plan, stratified"):
        cold_pools({"q": True}).ladder_for(["order"], [], **{**CUT, "ladder": "random"})


# Fresh


def test_each_gate_draws_its_own_questions_and_no_answer_has_a_say_in_it():
    known = {f"q{i:02d}": i % 2 == 0 for i in range(60)}
    cold = cold_pools(known)
    cut = {**CUT, "ladder": "fresh", "max_questions": 20}
    ladders = [ids(cold.ladder_for(["order"], [], **{**cut, "seed": seed})) for seed in range(5)]
    assert len({frozenset(ladder) for ladder in ladders}) == 5
    other_answers = cold_pools({name: not right for name, right in known.items()})
    for pools in (cold.update_probs(known, gamma=0.7), other_answers):
        assert [ids(pools.ladder_for(["order"], [], **{**cut, "seed": seed})) for seed in range(5)] == ladders


def test_what_a_proposer_saw_leaves_a_fresh_ladder_and_disturbs_no_other_question():
    cold, cut = cold_pools({f"q{i:02d}": i % 2 == 0 for i in range(30)}), {**CUT, "ladder": "fresh"}
    whole = ids(cold.ladder_for(["order"], [], **cut))
    without = ids(cold.ladder_for(["order"], whole[:3], **cut))
    assert without == whole[3:]


def test_a_fresh_ladder_has_equal_weights_and_no_probes():
    ladder = cold_pools({f"q{i:02d}": True for i in range(30)}).ladder_for(
        ["order"], [], **{**CUT, "ladder": "fresh"}
    )
    assert {(one.weight, one.is_probe) for one in ladder} == {(1, False)}


# Stratified


def test_stratified_quotas_probes_and_weights():
    entries = (
        [entry(f"h{i}", 0.1) for i in range(30)]
        + [entry(f"b{i}", 0.5) for i in range(48)]
        + [entry(f"e{i}", 0.9, is_probe=i == 0) for i in range(80)]
    )
    pools = GatePools({"order": tuple(entries)}, "made in a test", n_probes=4, warm=True)
    ladder = pools.ladder_for(["order"], [], **{**CUT, "ladder": "stratified"})
    of = {letter: [one for one in ladder if one.question_id[0] == letter] for letter in "hbe"}
    assert {letter: len(group) for letter, group in of.items()} == {"h": 6, "b": 24, "e": 10}
    assert {one.is_probe for one in of["e"]} == {True}
    assert {one.is_probe for one in [*of["h"], *of["b"]]} == {False}
    # Ratios 30/6 = 5, 48/24 = 2, 80/10 = 8; the greatest becomes 8.
    assert {letter: {one.weight for one in group} for letter, group in of.items()} == {
        "h": {5},
        "b": {2},
        "e": {8},
    }


def test_weights_undo_the_selection():
    """The weighted share of a stratum in the ladder is its share in the pool, but for rounding."""
    entries = [entry(f"q{i:03d}", (i + 0.5) / 240) for i in range(240)]
    pools = GatePools({"order": tuple(entries)}, "made in a test", n_probes=4, warm=True)
    ladder = pools.ladder_for(["order"], [], **{**CUT, "ladder": "stratified"})
    weight = sum(one.weight for one in ladder)
    weighted = {
        name: sum(one.weight for one in ladder if gate_ladder.stratum_of(one) == name) / weight
        for name in ("hard", "band", "easy")
    }
    pool = {"hard": 1 / 4, "band": 1 / 2, "easy": 1 / 4}
    assert all(abs(weighted[name] - pool[name]) < 0.05 for name in pool)


def test_stratified_band_is_by_information_and_nothing_is_dropped():
    entries = [
        entry("even", 0.5),
        entry("near", 0.6),
        entry("far", 0.74),
        entry("new", 0.5, n_obs=0),
        entry("no", 0.01),
    ]
    pools = GatePools({"order": tuple(entries)}, "made in a test", n_probes=0, warm=True)
    ladder = ids(pools.ladder_for(["order"], [], **{**CUT, "ladder": "stratified"}))
    assert sorted(ladder) == sorted(ids(entries))
    assert [name for name in ladder if name != "no"] == ["even", "near", "far", "new"]


# Updates


def test_gamma_ema_update():
    pools = cold_pools({"w": False, "r": True, "quiet": True, "new": None}, n_probes=1)
    updated = pools.update_probs({"w": True, "r": False, "new": True, "not in any ladder": True}, gamma=0.7)
    before = {one.question_id: one for one in pools.entries["order"]}
    after = {one.question_id: one for one in updated.entries["order"]}
    assert after["w"].p_hat == pytest.approx(0.7 / 3 + 0.3)
    assert after["r"].p_hat == pytest.approx(0.7 * 2 / 3)
    assert after["new"].p_hat == pytest.approx(0.35 + 0.3)
    assert [after[name].n_obs for name in ("w", "r", "new")] == [2, 2, 1]
    assert after["quiet"] == before["quiet"]
    assert after.keys() == before.keys()


def test_gamma_zero_keeps_the_last_answer_alone():
    pools = cold_pools({"w": False, "r": True}, n_probes=0).update_probs({"w": True, "r": False}, gamma=0.0)
    assert {one.question_id: one.p_hat for one in pools.entries["order"]} == {"w": 1.0, "r": 0.0}


@pytest.mark.parametrize("gamma", [-0.1, 1.0, float("nan")])
def test_gamma_out_of_range_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma"):
        cold_pools({"w": False}).update_probs({"w": True}, gamma=gamma)


@pytest.mark.parametrize("observed", [None, 1, 0.0, "True"])
def test_an_observation_that_is_no_bool_is_refused_and_not_taken_for_wrong(observed):
    with pytest.raises(ValueError, match="'w'"):
        cold_pools({"w": False}).update_probs({"w": observed}, gamma=0.7)


async def test_update_probs_excludes_gate_runs(tmp_path):
    """The caller filters by run id; what it hands over moves the ladder, what a gate answered does not."""
    names = RunIds("pilot")
    answers = {
        names.step(1, 0): {"q1": False},
        names.gate(1, 0, "order", "base", "0a1b2c3d"): {"q2": True},
        names.gate(1, 0, "order", "cand", "4e5f6a7b"): {"q2": True, "q1": True},
        names.step(2, 0): {"q3": True},
    }
    rows = [
        dataclasses.asdict(
            Prediction(run_id, name, "film", "order", "A", correct=correct, stop_reason="finished")
        )
        for run_id, answered in answers.items()
        for name, correct in answered.items()
    ]
    with HarnessLog(tmp_path / "harness.db", "pilot") as log:
        await write_rows(log, PREDICTIONS, rows)
        steps_of_epoch = (
            "SELECT question_id, correct FROM predictions WHERE run_id GLOB ? AND NOT run_id GLOB ?"
        )
        observed = log.query(steps_of_epoch, ("pilot_e1_s*", "*_gate_*"))
    observations = {row["question_id"]: bool(row["correct"]) for row in observed}
    pools = cold_pools({"q1": False, "q2": False, "q3": False}, n_probes=0)
    updated = pools.update_probs(observations, gamma=0.7)
    p_hats = {one.question_id: one.p_hat for one in updated.entries["order"]}
    assert observations == {"q1": False}
    assert p_hats == {"q1": pytest.approx(0.7 / 3), "q2": 1 / 3, "q3": 1 / 3}


def test_an_update_leaves_the_pools_of_the_epoch_as_they_were():
    pools = cold_pools({"w": False, "r": True}, n_probes=0)
    before = pools.ladder_for(["order"], [], **CUT)
    pools.update_probs({"w": True, "r": False}, gamma=0.7)
    assert pools.ladder_for(["order"], [], **CUT) == before


# The file


def test_gate_pools_save_load_atomic(tmp_path, monkeypatch):
    path = tmp_path / "gate_pools.json"
    pools = cold_pools({"é": False, "r": True, "new": None}, n_probes=1).update_probs({"é": True}, gamma=0.7)
    pools.save(path)
    assert read_gate_pools(path) == pools
    assert "é" in path.read_text(encoding="utf-8")

    def refuses(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuses)
    with pytest.raises(StoreError, match="No space left"):
        pools.update_probs({"r": False}, gamma=0.7).save(path)
    assert read_gate_pools(path) == pools  # the old file stands, whole
    assert os.listdir(tmp_path) == ["gate_pools.json"]


def test_gate_pools_fingerprint_mismatch(tmp_path):
    path = tmp_path / "gate_pools.json"
    questions, known = [question("q1"), question("q2")], {"q1": True, "q2": False}
    built = build_or_load_gate_pools(path, questions, known, n_probes=1, seed=0)
    others = {
        "another question": {"questions": [question("q1"), question("q3")]},
        "one question less": {"questions": questions[:1]},
        "another number of probes": {"n_probes": 2},
        "another seed": {"seed": 1},
        "another source": {"source": "diagnosis+validation"},
    }
    usual = {"questions": questions, "correctness": known, "n_probes": 1, "seed": 0, "source": "diagnosis"}
    for changed in others.values():
        with pytest.raises(RuntimeError) as told:
            build_or_load_gate_pools(path, **{**usual, **changed})
        wanted = {**usual, **changed}
        fingerprint = gate_ladder.ladder_fingerprint(
            ids(wanted["questions"]),
            n_probes=wanted["n_probes"],
            seed=wanted["seed"],
            source=wanted["source"],
        )
        assert built.fingerprint in str(told.value)
        assert fingerprint in str(told.value)
        assert str(path) in str(told.value)
    assert read_gate_pools(path) == built


def test_a_later_schema_is_a_mismatch(tmp_path, monkeypatch):
    path = tmp_path / "gate_pools.json"
    build_or_load_gate_pools(path, [question("q1")], {}, n_probes=0, seed=0)
    monkeypatch.setattr(gate_ladder, "SCHEMA_VERSION", 2)
    with pytest.raises(RuntimeError, match="fingerprint"):
        build_or_load_gate_pools(path, [question("q1")], {}, n_probes=0, seed=0)


def test_loading_keeps_the_updates_and_does_not_look_at_correctness(tmp_path):
    path = tmp_path / "gate_pools.json"
    questions = [question("q1"), question("q2", "counting")]
    built = build_or_load_gate_pools(path, questions, {"q1": True, "q2": False}, n_probes=0, seed=0)
    assert {task_type: ids(group) for task_type, group in built.entries.items()} == {
        "counting": ["q2"],
        "order": ["q1"],
    }
    updated = built.update_probs({"q1": False}, gamma=0.7)
    updated.save(path)
    assert build_or_load_gate_pools(path, questions[::-1], {"q1": False}, n_probes=0, seed=0) == updated


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"entries": {"order": [{"question_id": "q"}]}}', "\xff"]
)
def test_a_broken_file_is_told_by_name(tmp_path, content):
    path = tmp_path / "gate_pools.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(RuntimeError, match=r"gate_pools\.json: can not be read as gate pools"):
        read_gate_pools(path)


def test_a_file_nested_too_deeply_is_told_by_name(tmp_path):
    path = tmp_path / "gate_pools.json"
    path.write_text("[" * 100_000)
    with pytest.raises(RuntimeError, match=r"gate_pools\.json: .*nested too deeply"):
        read_gate_pools(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"p_hat": 7}, r"p_hat 7 is not in \[0, 1\]"),
        ({"p_hat": -0.1}, "p_hat -0.1"),
        ({"p_hat": None}, "NoneType"),
        ({"p_hat": "0.5"}, "str"),
        ({"n_obs": -1}, "n_obs -1"),
        ({"weight": 0}, "weight 0"),
        ({"question_id": "q2"}, "'q2' is there twice"),
        ({"question_id": "q9"}, "question 'q1' of type 'order' is in the data, not in the file"),
    ],
)
def test_a_damaged_entry_is_never_asked(tmp_path, change, named):
    path = tmp_path / "gate_pools.json"
    questions = [question("q1"), question("q2")]
    build_or_load_gate_pools(path, questions, {"q1": False, "q2": True}, n_probes=0, seed=0)
    content = json.loads(path.read_text("utf-8"))
    (entry_of_q1,) = (one for one in content["entries"]["order"] if one["question_id"] == "q1")
    entry_of_q1.update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(RuntimeError, match=rf"gate_pools\.json: .*{named}"):
        build_or_load_gate_pools(path, questions, {}, n_probes=0, seed=0)


def test_a_file_whose_questions_are_no_longer_of_its_types_is_refused(tmp_path):
    path = tmp_path / "gate_pools.json"
    build_or_load_gate_pools(path, [question("q1")], {}, n_probes=0, seed=0)
    with pytest.raises(RuntimeError, match="'q1' of type 'order' is in the file, not in the data"):
        build_or_load_gate_pools(path, [question("q1", "sequence")], {}, n_probes=0, seed=0)


def test_a_file_with_other_probes_than_it_was_made_for_is_refused(tmp_path):
    path = tmp_path / "gate_pools.json"
    pools = build_or_load_gate_pools(path, [question("q1")], {}, n_probes=2, seed=0)
    dataclasses.replace(pools, n_probes=0).save(path)
    with pytest.raises(RuntimeError, match="n_probes is 0, this run's is 2"):
        build_or_load_gate_pools(path, [question("q1")], {}, n_probes=2, seed=0)


@pytest.mark.parametrize("known", ["False", 0.5, 1])
def test_a_correctness_that_is_no_bool_is_told(known):
    with pytest.raises(ValueError, match="correctness of 'q1'"):
        build_cold_entries([question("q1")], {"q1": known}, n_probes=0, seed=0)


LADDER_IN_A_FRESH_PROCESS = """
import json
from harness.gate_ladder import GatePools, LadderEntry
entries = tuple(LadderEntry(f"q{i}", "film", (i % 19) / 19, 1, i % 7 == 0) for i in range(60))
pools = GatePools({"order": entries}, "made in a test", 4, warm=True)
cut = {"max_questions": 40, "p_low": 0.15, "p_high": 0.85, "seed": 5}
for kind in ("fresh", "plan", "stratified"):
    ladder = pools.ladder_for({"order"}, {"q1", "q2", "q3"}, ladder=kind, **cut)
    print(json.dumps([one.question_id for one in ladder]))
"""


def test_two_processes_with_other_hash_seeds_cut_the_same_ladders():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", LADDER_IN_A_FRESH_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert [len(json.loads(line)) for line in outputs[0].splitlines()] == [40, 40, 40]
