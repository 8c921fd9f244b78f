"""Gates on a simulated world: the same at any concurrency and after any kill; comparisons; the A/A run."""

import asyncio
import dataclasses
import os
import signal

import pytest
from gate_runs import TARGET, Lab, make_ladder, save_skills, validate
from inference_runs import RUN_TABLES, MockAgent, rows_of, state_hash
from killed import ended_well, in_child

from core.evolution.gate_types import GateParams
from core.protocols import ProviderError
from harness.baseline_cache import BaselineCache
from harness.compare import Side, compare_on_rows, infer_with
from harness.inference import Inference
from harness.log import HarnessLog, RunIds
from harness.validate import calibrate

NAMES = RunIds("pilot")
GATE_TABLES = (*RUN_TABLES, "gate_evidence", "quadrant_pairs", "shadow_gate", "baseline_cache")
SLOWLY = GateParams(block=10, futility=0.0, min_discordant_confirm=40)  # goes to the ladder's end


@pytest.fixture
def log(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "pilot", synchronous="NORMAL") as opened:
        yield opened


def state(log):
    """A hash of all that gates leave behind."""
    rows = {table: log.query(f"SELECT * FROM {table}") for table in GATE_TABLES[3:]}
    for found in rows.values():
        for row in found:
            del row["timestamp"]
    return state_hash(log), sorted(repr(sorted(row.items())) for found in rows.values() for row in found)


@pytest.mark.parametrize("churn", [0.0, 0.2])
async def test_gates_are_the_same_at_concurrency_1_7_and_64(tmp_path, churn):
    outcomes, states = [], []
    for concurrency in (1, 7, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        with HarnessLog(folder / "harness.db", "pilot", synchronous="NORMAL") as log:
            lab = Lab(folder, log, concurrency=concurrency, churn=churn)
            outcomes.append(
                [
                    await validate(log, lab.skills_dir, lab.infer, **lab.gate_arguments(effect))
                    for effect in (0.5, 2.0)
                ]
            )
            states.append(state(log))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert states[0] == states[1] == states[2]


async def test_an_edit_that_helps_is_accepted_and_one_that_harms_is_not(tmp_path, log):
    lab = Lab(tmp_path, log)
    good = await validate(log, lab.skills_dir, lab.infer, **lab.gate_arguments(3.0))
    bad = await validate(log, lab.skills_dir, lab.infer, **lab.gate_arguments(-3.0))
    assert (good.accepted, bad.accepted) == (True, False)


def gate_to_the_end(folder, *, die_after=None):
    """One gate of 40 questions in `folder`; the process kills itself when so many rollouts were begun."""
    begun = []

    async def main():
        with HarnessLog(folder / "harness.db", "pilot") as log:
            lab = Lab.__new__(Lab)
            save = folder / "skills" / "v1"
            if save.exists():
                lab.__init__(folder / "unused", log)
                lab.skills_dir = save
                lab.config = dataclasses.replace(lab.config, skills_dir=save)
            else:
                lab.__init__(folder, log)

            class Mortal:
                def __init__(self, agent):
                    self._agent = agent
                    self.fingerprint, self.deterministic = agent.fingerprint, agent.deterministic

                def for_scope(self, scope):
                    return Mortal(self._agent.for_scope(scope))

                async def run(self, *arguments):
                    begun.append(1)
                    if die_after is not None and len(begun) > die_after:
                        os.kill(os.getpid(), signal.SIGKILL)
                    await asyncio.sleep(0.001)
                    return await self._agent.run(*arguments)

            infer = Inference.bind(
                lab.world.questions,
                llm=None,
                agent_factory=lambda: Mortal(lab.world.agent()),
                tool_dispatch_fn=lab.world.tools_for,
                log=log,
            )
            outcome = await validate(log, lab.skills_dir, infer, params=SLOWLY, **lab.gate_arguments(1.0))
            assert (outcome.blocks, outcome.rollouts, outcome.cached) == (4, 80, 0)
            return state(log), len(begun)

    return asyncio.run(main())


def test_a_gate_killed_anywhere_and_resumed_equals_the_undisturbed_one(tmp_path):
    (tmp_path / "undisturbed").mkdir()
    undisturbed, rollouts = gate_to_the_end(tmp_path / "undisturbed")
    assert rollouts == 80
    for die_after in (0, 1, 6, 10, 15, 25, 47, 79):
        folder = tmp_path / str(die_after)
        folder.mkdir()
        assert not ended_well(in_child(lambda: gate_to_the_end(folder, die_after=die_after)))  # noqa: B023
        resumed, rollouts = gate_to_the_end(folder)
        assert resumed == undisturbed, f"killed after {die_after} rollouts"
        # Of a concurrency of 4, at most 4 ran and 4 were not saved yet.
        assert 80 <= die_after + rollouts <= 80 + 8, f"killed after {die_after} rollouts"
        assert not (folder / "skills" / ".cand_tmp").exists()


async def test_a_dead_provider_ends_the_gate_without_a_verdict(tmp_path, log):
    async def dead(question):
        raise ProviderError("HTTP 503: busy")

    lab = Lab(tmp_path, log)
    infer = Inference.bind(
        lab.world.questions, llm=None, agent_factory=lambda: MockAgent(before=dead),
        tool_dispatch_fn=lab.world.tools_for, log=log,
    )  # fmt: skip
    with pytest.raises(ProviderError, match="HTTP 503: busy"):
        await validate(log, lab.skills_dir, infer, **lab.gate_arguments())
    assert log.query("SELECT count(*) AS n FROM sqlite_master WHERE name = 'gate_evidence'") == [{"n": 0}]
    assert log.query("SELECT count(correct) AS n FROM predictions") == [{"n": 0}]


# Comparisons


class TwoVersions(Lab):
    """A lab with `v2`, whose order skill has a rule that helps."""

    def __init__(self, folder, log, **parameters):
        super().__init__(folder, log, **parameters)
        texts = {**self.texts, TARGET: self.with_rule(2.0)}
        self.v1 = self.config
        self.v2 = dataclasses.replace(self.config, skills_dir=save_skills(folder / "skills" / "v2", texts))
        self.all_ids = [question.question_id for question in self.world.questions]

    async def run(self, run_id, config, ids=None):
        return await infer_with(self.infer, self.all_ids if ids is None else ids, config, run_id)


async def test_a_comparison_takes_measured_rows_and_rolls_out_nothing_twice(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    baseline = await lab.run(NAMES.baseline(), lab.v1)
    evaluated = await lab.run(NAMES.evaluation(1, "R"), lab.v2)
    base = Side(lab.v1, NAMES.comparison_base(1, "0a1b2c3d"), reuse=True)
    cand = Side(lab.v2, evaluated.run_id, rows=evaluated.predictions)
    found = await compare_on_rows(lab.all_ids, base=base, cand=cand, infer=lab.infer, log=log)
    assert found.rollouts == 0
    assert {row.run_id for row in found.base.values()} == {baseline.run_id}
    before, after = baseline.correctness, evaluated.correctness
    assert sum(after[name] and not before[name] for name in lab.all_ids) == found.comparison.W
    assert sum(before[name] and not after[name] for name in lab.all_ids) == found.comparison.L
    assert (found.comparison.n, found.comparison.groups) == (120, 8)


async def test_a_row_of_another_text_never_stands_for_a_version(tmp_path, log):
    """After a rollback the newest numbers are those of the text that was taken back."""
    lab = TwoVersions(tmp_path, log)
    await lab.run(NAMES.baseline(), lab.v1)
    taken_back = await lab.run(NAMES.evaluation(1, "R"), lab.v2)
    restored = Side(lab.v1, "pilot_e1_base_0a1b2c3d", rows=taken_back.predictions, reuse=True)
    again = Side(lab.v2, "pilot_e1_R2")
    found = await compare_on_rows(lab.all_ids, base=restored, cand=again, infer=lab.infer, log=log)
    by_type = {name: lab.infer.questions[name].task_type for name in lab.all_ids}
    assert {row.run_id for name, row in found.base.items() if by_type[name] == "order"} == {"pilot_baseline"}
    # The edit does not touch content questions: there R measured the restored text, too.
    assert {row.run_id for name, row in found.base.items() if by_type[name] == "content"} == {"pilot_e1_R"}


async def test_rows_of_gates_are_never_reused(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    ids = lab.ids("order", 20)
    await lab.run(NAMES.gate(1, 0, "order", "base", "0a1b2c3d"), lab.v1, ids)
    await lab.run(NAMES.gate(1, 0, "order", "cand", "0a1b2c3d"), lab.v2, ids)
    await lab.run(NAMES.calibration("a"), lab.v1, ids)
    sides = {
        "base": Side(lab.v1, "pilot_e1_base_a", reuse=True),
        "cand": Side(lab.v2, "pilot_e1_base_b", reuse=True),
    }
    found = await compare_on_rows(ids, **sides, infer=lab.infer, log=log)
    assert found.rollouts == 40


async def test_rows_of_another_training_run_are_not_reused(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    ids = lab.ids("order", 10)
    await lab.run("pilot2_baseline", lab.v1, ids)
    side = Side(lab.v1, "pilot_e1_base_a", reuse=True)
    found = await compare_on_rows(ids, base=side, cand=Side(lab.v2, "pilot_e1_R"), infer=lab.infer, log=log)
    assert {row.run_id for row in found.base.values()} == {"pilot_e1_base_a"}


async def test_a_final_test_takes_no_earlier_row_on_either_side(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    await lab.run(NAMES.baseline(), lab.v1)
    await lab.run(NAMES.evaluation(1, "R"), lab.v2)
    sides = {"base": Side(lab.v1, NAMES.final("baseline")), "cand": Side(lab.v2, NAMES.final("best"))}
    found = await compare_on_rows(lab.all_ids, **sides, infer=lab.infer, log=log)
    assert found.rollouts == 240
    again = await compare_on_rows(lab.all_ids, **sides, infer=lab.infer, log=log)
    assert again.comparison == found.comparison
    assert len(rows_of(log, "predictions", "pilot_final_best")) == 120


async def test_an_error_in_measured_rows_stays_missing_and_is_not_asked_again(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    await lab.run(NAMES.baseline(), lab.v1)
    evaluated = await lab.run(NAMES.evaluation(1, "R"), lab.v2)
    first, *others = evaluated.predictions
    broken = dataclasses.replace(first, correct=None, stop_reason="error")
    base = Side(lab.v1, "pilot_e1_base_a", reuse=True)
    cand = Side(lab.v2, evaluated.run_id, rows=(broken, *others))
    found = await compare_on_rows(lab.all_ids, base=base, cand=cand, infer=lab.infer, log=log)
    assert (found.comparison.missing, found.comparison.n, found.rollouts) == (1, 119, 0)


async def test_an_interrupted_comparison_counts_the_same_when_it_is_resumed(tmp_path, log):
    lab = TwoVersions(tmp_path, log)
    ids = lab.ids("order", 20)
    evaluated = await lab.run(NAMES.evaluation(1, "R"), lab.v2, ids)
    base = Side(lab.v1, "pilot_e1_base_a", reuse=True)
    cand = Side(lab.v2, evaluated.run_id, rows=evaluated.predictions)
    await lab.run(base.run_id, lab.v1, ids[:7])  # as far as it came
    found = await compare_on_rows(ids, base=base, cand=cand, infer=lab.infer, log=log)
    again = await compare_on_rows(ids, base=base, cand=cand, infer=lab.infer, log=log)
    assert (found.rollouts, again.rollouts) == (20, 20)
    assert len(rows_of(log, "predictions", base.run_id)) == 20


# The A/A run


async def test_calibrate_measures_the_churn_of_the_skill_in_force(tmp_path, log):
    lab = Lab(tmp_path, log, n_questions=1200, n_videos=30, churn=0.2)
    ids = lab.ids("order", 600)
    params = GateParams(block=40)
    ladder = make_ladder(ids)
    arguments = {"run_config": lab.config, "infer": lab.infer, "blocks": 15}
    found = await calibrate(run="pilot", ladder=ladder, params=params, **arguments)
    true = lab.world.true_churn(lambda task_type: lab.texts[TARGET], lab.world.rows_of(ids))
    assert (found.answered, found.missing, found.rollouts) == (600, 0, 1200)
    # Four standard errors of a share near 0.2 among 600.
    assert abs(found.churn - true) < 4 * (0.2 * 0.8 / 600) ** 0.5
    assert found.planned == 40
    assert found.gain_accepted < found.gain_confirmed


async def test_calibrate_says_when_nothing_can_be_shown(tmp_path, log):
    lab = Lab(tmp_path, log)
    ladder = make_ladder(lab.ids("order", 4), p_hat=0.95)
    found = await calibrate(
        run="pilot", ladder=ladder, params=GateParams(), run_config=lab.config, infer=lab.infer
    )
    assert (found.discriminating, found.planned, found.gain_confirmed) == (0.0, 4, None)
    assert "0% of the ladder's questions can discriminate" in found.explain()
    assert "confirms a gain of no size" in found.explain()


async def test_calibrate_of_a_deterministic_agent_proves_nothing_and_says_so(tmp_path, log):
    lab = Lab(tmp_path, log, churn=0.0)
    ladder = make_ladder(lab.ids("order", 40))
    found = await calibrate(
        run="pilot", ladder=ladder, params=GateParams(), run_config=lab.config, infer=lab.infer
    )
    assert (found.churn, found.rollouts, found.deterministic) == (0.0, 20, True)
    assert "proves nothing but that" in found.explain()


async def test_rows_of_an_a_a_run_are_a_gates(tmp_path, log):
    """Its ids keep it out of ladders and comparisons, and its baseline side may feed the cache."""
    lab = Lab(tmp_path, log)
    ladder = make_ladder(lab.ids("order", 20))
    await calibrate(run="pilot", ladder=ladder, params=GateParams(), run_config=lab.config, infer=lab.infer)
    assert {row["run_id"] for row in rows_of(log, "predictions")} == {
        "pilot_calib_gate_a",
        "pilot_calib_gate_b",
    }
    cache = await BaselineCache.open(log, max_age=2)
    outcome = await validate(log, lab.skills_dir, lab.infer, cache=cache, **lab.gate_arguments())
    assert outcome.cached == 0
