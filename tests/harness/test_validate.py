"""Block-sequential validation: who is asked what, in which order, and what is left behind."""

import asyncio
import dataclasses

import pytest
from gate_runs import (
    EVOLVED,
    TARGET,
    Lab,
    ScriptedInfer,
    make_config,
    make_ladder,
    order_ids,
    save_skills,
    validate,
)
from inference_runs import SKILLS

from core.agent.skills import SkillError
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateParams, GateVerdict
from harness.baseline_cache import BaselineAnswer, BaselineCache, BaselineKey, skill_hash
from harness.log import HarnessLog, LogError
from harness.validate import (
    InferenceRunConfig,
    Probation,
    SnapshotRow,
    ValidationOutcome,
    materialize_candidate_skill,
)
from harness.workspace import VersionedSkillStore

ALL_WRONG = dict.fromkeys(order_ids(50), False)


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


@pytest.fixture
def skills_dir(tmp_path):
    return save_skills(tmp_path / "skills" / "v1", SKILLS)


def names_of(value_type):
    return [field.name for field in dataclasses.fields(value_type)]


def test_validation_outcome_fields():
    assert names_of(ValidationOutcome) == [
        "decision", "verdict", "pairs", "blocks", "rollouts", "cached", "base_hash", "cand_hash",
        "cand_correctness", "stop_reason",
    ]  # fmt: skip
    assert names_of(InferenceRunConfig) == [
        "concurrency", "max_steps", "skill_mode", "run_prefix", "prompts_dir", "skills_dir",
    ]  # fmt: skip


def test_probation_fields():
    assert names_of(Probation) == [
        "target_file", "task_types", "base_version", "accepted_versions", "epoch", "step", "validation",
        "diagnosis", "pending_edits",
    ]  # fmt: skip
    assert names_of(SnapshotRow) == ["correct", "run_id", "skill_hash", "prompts_hash", "agent_fingerprint"]
    probation = Probation(TARGET, ("order",), "v1", ("v2",), 1, 0, {}, {}, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        probation.base_version = "v3"


# The candidate on disk


def test_materialize_candidate_skill(skills_dir):
    with materialize_candidate_skill(skills_dir, TARGET, EVOLVED) as candidate_dir:
        assert candidate_dir.parent.name == ".cand_tmp"
        candidate = VersionedSkillStore(candidate_dir)
        assert {name: candidate.read(name) for name in candidate.list()} == {**SKILLS, TARGET: EVOLVED}
    assert [path.name for path in skills_dir.parent.iterdir()] == ["v1"]
    in_force = VersionedSkillStore(skills_dir)
    assert {name: in_force.read(name) for name in in_force.list()} == SKILLS


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_materialize_cleanup_on_failure(skills_dir, error):
    def fail():
        with materialize_candidate_skill(skills_dir, TARGET, EVOLVED):
            raise error

    with pytest.raises(error):
        fail()
    assert [path.name for path in skills_dir.parent.iterdir()] == ["v1"]


def test_what_a_killed_gate_left_does_not_reach_the_next_candidate(skills_dir):
    with materialize_candidate_skill(skills_dir, TARGET, EVOLVED) as candidate_dir:
        pass
    save_skills(candidate_dir, {"leftover.md": "---\n"})
    with materialize_candidate_skill(skills_dir, TARGET, EVOLVED) as candidate_dir:
        assert VersionedSkillStore(candidate_dir).list() == sorted(SKILLS)


@pytest.mark.parametrize("target", ["sorting.md", "../v1/order.md", "", ".."])
def test_a_candidate_of_no_file_of_the_version_is_refused(skills_dir, target):
    with pytest.raises((ValueError, RuntimeError)), materialize_candidate_skill(skills_dir, target, EVOLVED):
        pass
    assert [path.name for path in skills_dir.parent.iterdir()] == ["v1"]


# Decisions


async def test_validate_skill_local_accept(log, skills_dir):
    infer = ScriptedInfer(base=ALL_WRONG)
    outcome = await validate(log, skills_dir, infer)
    assert (outcome.decision, outcome.verdict.reason, outcome.accepted) == (
        "ACCEPT_CONFIRMED",
        "boundary",
        True,
    )
    assert (outcome.blocks, outcome.rollouts, outcome.cached) == (1, 20, 0)
    assert outcome.cand_correctness == dict.fromkeys(order_ids(10), True)
    assert outcome.stop_reason == dict.fromkeys(order_ids(10), "finished")
    assert (outcome.base_hash, outcome.cand_hash) == (skill_hash(SKILLS[TARGET]), skill_hash(EVOLVED))


async def test_validate_skill_local_reject(log, skills_dir):
    infer = ScriptedInfer(cand=ALL_WRONG)
    outcome = await validate(log, skills_dir, infer)
    assert (outcome.decision, outcome.accepted) == ("REJECT", False)
    assert outcome.verdict.improved == 0
    assert len(infer.asked) == 2 * outcome.blocks < 8, "a hopeless edit is not asked to the end"


async def test_the_verdict_is_the_gates_on_exactly_these_pairs(log, skills_dir):
    seen = []

    def watching(evidence, params, *, is_last_block):
        seen.append(evidence)
        return gate_decision(evidence, params, is_last_block=is_last_block)

    base = {name: number % 3 == 0 for number, name in enumerate(order_ids(40))}
    cand = {name: number % 5 != 0 for number, name in enumerate(order_ids(40))}
    outcome = await validate(log, skills_dir, ScriptedInfer(base, cand), gate=watching)
    assert outcome.pairs == seen[-1].pairs
    assert [(pair.question_id, pair.base, pair.cand) for pair in outcome.pairs] == [
        (name, base[name], cand[name]) for name in order_ids(len(outcome.pairs))
    ]


@pytest.mark.parametrize(
    "prefix", ["pilot_e1_s0", "pilot_e1_s0_order", "", "pilot_gate", "pilot_e1_gate_order"]
)
async def test_gate_prefix_must_contain_gate(log, skills_dir, prefix):
    infer = ScriptedInfer()
    with pytest.raises(ValueError, match="a gate's is <run>_e<epoch>_s<step>_gate_<file>"):
        await validate(log, skills_dir, infer, run_prefix=prefix)
    assert infer.asked == []


async def test_a_gate_of_another_step_is_refused(log, skills_dir):
    with pytest.raises(ValueError, match="is no gate of 'pilot_e1_s0'"):
        await validate(log, skills_dir, ScriptedInfer(), run_prefix="pilot_e1_s1_gate_order")


@pytest.mark.parametrize(
    ("errors", "aborted_after"),
    [(2, None), (3, 10)],
)
async def test_infra_guard_threshold(log, skills_dir, errors, aborted_after):
    """More than 20 % errors abort, but not before ten attempts, over all blocks together."""
    cand = {**dict.fromkeys(order_ids(40), False), **dict.fromkeys(order_ids(errors), None)}
    params = GateParams(block=5, futility=0.0)
    outcome = await validate(log, skills_dir, ScriptedInfer(cand=cand), params=params)
    if aborted_after is None:
        assert (outcome.decision, outcome.verdict.errors) == ("REJECT", 2)
        assert outcome.verdict.attempts > 10
    else:
        # After the first block 3 of 5 were errors: too few attempts to say so.
        assert (outcome.decision, outcome.verdict.reason) == ("aborted", "infra_abort")
        assert (outcome.verdict.attempts, outcome.blocks, outcome.accepted) == (aborted_after, 2, False)


async def test_errors_are_missing_on_either_side_and_are_no_evidence(log, skills_dir):
    missing_base, missing_cand = order_ids(2)
    infer = ScriptedInfer(base={**ALL_WRONG, missing_base: None}, cand={missing_cand: None})
    outcome = await validate(log, skills_dir, infer)
    assert outcome.verdict.errors == 2
    assert outcome.verdict.improved == outcome.verdict.attempts - 2
    assert outcome.cand_correctness[missing_cand] is None
    assert missing_cand not in outcome.stop_reason, "a rollout that broke down did not end"
    assert outcome.stop_reason[missing_base] == "finished"


# The baseline's cache


async def test_baseline_cache_hit(log, skills_dir):
    first, second = ScriptedInfer(base=ALL_WRONG), ScriptedInfer(base=ALL_WRONG)
    cache = await BaselineCache.open(log, max_age=2)
    paid = await validate(log, skills_dir, first, cache=cache, step=0)
    other = SKILLS[TARGET] + "Something else.\n"
    saved = await validate(log, skills_dir, second, cache=cache, step=1, evolved=other)
    assert [side for side, ids in first.asked if ids] == ["base", "cand"]
    assert [side for side, ids in second.asked if ids] == ["cand"]
    assert (paid.rollouts, paid.cached, saved.rollouts, saved.cached) == (20, 0, 10, 10)
    assert saved.pairs == paid.pairs


async def test_only_the_misses_of_a_block_are_rolled_out(log, skills_dir):
    cache = await BaselineCache.open(log, max_age=2)
    known = order_ids(10)[::3]
    keys = {name: BaselineKey(name, skill_hash(SKILLS[TARGET]), "prompts", "agent") for name in known}
    old = BaselineAnswer(False, None, "pilot_e1_s9_gate_order_base_0a1b2c3d", 1)
    await cache.put(dict.fromkeys(keys.values(), old))
    infer = ScriptedInfer(base=ALL_WRONG)
    outcome = await validate(log, skills_dir, infer, cache=cache)
    assert infer.asked[0] == ("base", [name for name in order_ids(10) if name not in known])
    assert (outcome.rollouts, outcome.cached) == (16, 4)
    runs = {row["question_id"]: row["base_run_id"] for row in log.query("SELECT * FROM quadrant_pairs")}
    assert {runs[name] for name in known} == {old.source_run_id}
    assert {runs[name] for name in runs if name not in known} == {
        f"pilot_e1_s0_gate_order_base_{outcome.base_hash[:8]}"
    }


async def test_an_accepted_candidates_rows_do_not_become_a_baseline(log, skills_dir):
    cache = await BaselineCache.open(log, max_age=2)
    assert (await validate(log, skills_dir, ScriptedInfer(base=ALL_WRONG), cache=cache)).accepted
    save_skills(skills_dir.parent / "v2", {**SKILLS, TARGET: EVOLVED})
    infer = ScriptedInfer()
    config = make_config(skills_dir.parent / "v2", step=1)
    other = EVOLVED + "And again.\n"
    await validate(
        log, skills_dir, infer, cache=cache, step=1, run_config=config, original=EVOLVED, evolved=other
    )
    assert infer.asked[0] == ("base", order_ids(10))


async def test_errors_of_the_baseline_do_not_enter_the_cache(log, skills_dir):
    cache = await BaselineCache.open(log, max_age=2)
    missing = order_ids(1)[0]
    await validate(log, skills_dir, ScriptedInfer(base={**ALL_WRONG, missing: None}), cache=cache)
    infer = ScriptedInfer(base=ALL_WRONG)
    await validate(log, skills_dir, infer, cache=cache, step=1, evolved=SKILLS[TARGET] + "Else.\n")
    assert infer.asked[0] == ("base", [missing])


# Blocks


async def test_block_level_barrier(log, skills_dir):
    """No question of a block is asked before the gate has looked at the block before it."""
    events = []

    def undecided_until_the_end(evidence, params, *, is_last_block):
        events.append(("gate", len(evidence.blocks)))
        verdict = gate_decision(evidence, params, is_last_block=is_last_block)
        return (
            verdict
            if is_last_block
            else dataclasses.replace(verdict, decision="CONTINUE", reason="undecided")
        )

    async def before(side, ids):
        await asyncio.sleep(0)
        events.append((side, tuple(ids)))

    infer = ScriptedInfer(before=before)
    ladder = make_ladder(order_ids(25))
    await validate(log, skills_dir, infer, ladder=ladder, gate=undecided_until_the_end)
    blocks = [tuple(order_ids(25)[start : start + 10]) for start in (0, 10, 20)]
    expected = [[("base", ids), ("cand", ids), ("gate", number)] for number, ids in enumerate(blocks, 1)]
    assert events == [event for block in expected for event in block]


async def test_last_block_terminal(log, skills_dir):
    """The last block's verdict is the outcome; nobody asks the gate again after the loop."""
    asked = []

    def watching(evidence, params, *, is_last_block):
        asked.append((len(evidence.blocks), is_last_block))
        return gate_decision(evidence, params, is_last_block=is_last_block)

    changes = {name: number % 2 == 0 for number, name in enumerate(order_ids(40)[:4])}
    infer = ScriptedInfer(base=changes, cand={name: not right for name, right in changes.items()})
    params = GateParams(futility=0.0)
    outcome = await validate(log, skills_dir, infer, params=params, gate=watching)
    assert asked == [(1, False), (2, False), (3, False), (4, True)]
    assert (outcome.decision, outcome.verdict.reason, outcome.blocks) == ("REJECT", "terminal", 4)


async def test_a_gate_that_will_not_decide_is_an_error(log, skills_dir):
    def never(evidence, params, *, is_last_block):
        verdict = gate_decision(evidence, params, is_last_block=False)
        return dataclasses.replace(verdict, decision="CONTINUE", reason="undecided")

    with pytest.raises(ValueError, match="pilot_e1_s0_gate_order: the gate did not decide on the last block"):
        await validate(log, skills_dir, ScriptedInfer(), gate=never)


async def test_a_gate_of_a_users_own_decides(log, skills_dir):
    def no_gate(evidence, params, *, is_last_block):
        verdict = gate_decision(evidence, params, is_last_block=is_last_block)
        return dataclasses.replace(verdict, decision="ACCEPT_PROVISIONAL", reason="terminal")

    outcome = await validate(log, skills_dir, ScriptedInfer(cand=ALL_WRONG), gate=no_gate)
    assert (outcome.accepted, outcome.blocks) == (True, 1)


async def test_a_ladder_that_is_too_short_costs_nothing(log, skills_dir):
    infer = ScriptedInfer()
    outcome = await validate(log, skills_dir, infer, ladder=make_ladder(order_ids(9)))
    assert (outcome.decision, outcome.verdict, outcome.pairs) == ("insufficient_evidence", None, ())
    assert (infer.asked, outcome.rollouts, outcome.accepted) == ([], 0, False)


# Refused before anything is paid


async def test_an_original_that_is_not_in_force_is_refused(log, skills_dir):
    infer = ScriptedInfer()
    with pytest.raises(ValueError, match="the text to compare with is not the one in"):
        await validate(log, skills_dir, infer, original="Something else.\n")
    assert infer.asked == []


async def test_a_ladder_of_another_task_type_is_refused(log, skills_dir):
    infer = ScriptedInfer()
    with pytest.raises(ValueError, match="is of type 'order', which it does not serve \\(content\\)"):
        await validate(log, skills_dir, infer, task_types=("content",))
    assert infer.asked == []


async def test_a_candidate_that_is_no_skill_is_refused_unpaid(log, tmp_path):
    lab = Lab(tmp_path, log)
    with pytest.raises(SkillError, match="no front matter"):
        await validate(log, lab.skills_dir, lab.infer, **lab.gate_arguments(evolved="Just prose.\n"))
    assert log.query("SELECT count(*) AS n FROM _runs") == [{"n": 1}]
    assert not (lab.skills_dir.parent / ".cand_tmp").exists()


# What is left behind


async def test_every_look_and_every_pair_is_written_down(log, skills_dir):
    changes = {name: number % 2 == 0 for number, name in enumerate(order_ids(12))}
    infer = ScriptedInfer(base=changes, cand={name: not right for name, right in changes.items()})
    outcome = await validate(log, skills_dir, infer, params=GateParams(futility=0.0))
    looks = log.query("SELECT * FROM gate_evidence ORDER BY block")
    assert [look["block"] for look in looks] == list(range(1, outcome.blocks + 1))
    assert {look["verdict"] for look in looks[:-1]} == {"CONTINUE"}
    last = looks[-1]
    assert {name: last[name] for name in names_of(GateVerdict)} == dataclasses.asdict(outcome.verdict)
    assert (last["rollouts"], last["cached"]) == (outcome.rollouts, outcome.cached)
    assert (last["run_id"], last["epoch"], last["step"], last["target_file"]) == ("pilot", 1, 0, TARGET)
    pairs = {row["question_id"]: row for row in log.query("SELECT * FROM quadrant_pairs")}
    assert len(pairs) == len(outcome.pairs)
    for pair in outcome.pairs:
        row = pairs[pair.question_id]
        assert (row["base_correct"], row["cand_correct"]) == (pair.base, pair.cand)
        assert (row["task_type"], row["p_hat"]) == ("order", 0.5)
    assert len(log.query("SELECT * FROM shadow_gate")) == 5


@pytest.mark.parametrize("fails", ["raises", "cancelled"])
async def test_the_candidate_is_removed_however_the_gate_ends(log, skills_dir, fails):
    started = asyncio.Event()

    async def before(side, ids):
        if side == "cand":
            assert (skills_dir.parent / ".cand_tmp").is_dir()
            started.set()
            if fails == "raises":
                raise LogError("disk full")
            await asyncio.sleep(3600)

    gate = asyncio.create_task(validate(log, skills_dir, ScriptedInfer(before=before)))
    await started.wait()
    if fails == "cancelled":
        gate.cancel()
    await asyncio.wait([gate])
    assert gate.cancelled() or isinstance(gate.exception(), LogError)
    assert [path.name for path in skills_dir.parent.iterdir()] == ["v1"]
