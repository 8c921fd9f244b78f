"""The runner: its parts, its modes, how a workspace may begin, the plan, budgets, and who may go on."""

import asyncio
import contextlib
import dataclasses
import json
import re
import signal
import threading

import pytest
from filelock import FileLock
from loguru import logger
from training_runs import (
    Asked,
    canonical_state,
    differences,
    make_config,
    make_runner,
    make_world,
    query,
    quick_disk,
    watched,
)

import harness
from core.adapters.simulated_edits import MIXED
from core.adapters.telemetry import NullTelemetry
from core.evolution.gate import gate_decision
from core.evolution.gate_types import GateEvidence, GateParams, PairResult
from core.protocols import ProviderError
from core.types import LoopResult
from harness.assembly import code_commit
from harness.checkpoint import PHASES, CheckpointWarning, write_checkpoint
from harness.config import ConfigError, RunConfig
from harness.run_plan import plan_run
from harness.runner import Runner, begin_workspace, how_to_begin, run_blocking
from harness.side_runs import compare_versions
from harness.workspace import WorkspaceLocked, load_manifest, workspace_lock

WORLD = make_world(n_questions=120)
SMALL = {"epochs": 1, "val_size": 24, "test_size": 16}


@pytest.fixture(autouse=True)
def _quick():
    with quick_disk():
        yield


class ScopedAgent:
    """An agent whose answers a test decides; `decide(scope, question)` gives the answer, or raises."""

    fingerprint, deterministic = "ScopedAgent/1", False

    def __init__(self, decide, scope=""):
        self.decide, self.scope = decide, scope

    def for_scope(self, scope):
        return ScopedAgent(self.decide, scope)

    async def run(self, question, system_prompt, user_prompt, tools, plugins=()):
        answer = self.decide(self.scope, question)
        result = {"answer": answer, "confidence": 0.5, "evidence": "", "reasoning": ""}
        return LoopResult(result, (), 1, None, None, "finished")


def right(scope, question):
    return question.answer


# Putting it together


def test_runner_init(tmp_path):
    config = make_config(tmp_path / "run", WORLD)
    tools = {"telemetry": NullTelemetry(), "tool_dispatch_fn": WORLD.tools_for}
    assert Runner(config, agent_factory=WORLD.agent, **tools).config == config
    with pytest.raises(ConfigError, match="agent_factory"):
        Runner(config, **tools)
    soft = dataclasses.replace(config, soft_metric=True)
    with pytest.raises(ConfigError, match="judge"):
        Runner(soft, agent_factory=WORLD.agent, **tools)
    with pytest.raises(ConfigError, match="store_dir"):
        Runner(RunConfig(), agent_factory=WORLD.agent, **tools)


def test_nobody_who_proposes_is_told_before_anything_is_paid(tmp_path):
    asked = Asked(tmp_path / "asked.txt")
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    runner = make_runner(config, WORLD, agent=watched(WORLD, asked), proposer=None)
    with pytest.raises(ConfigError, match="propose"):
        runner.run()
    assert asked.scopes() == []
    assert not (tmp_path / "run" / "experiment").exists()


@pytest.mark.parametrize(
    ("workspace", "flags", "outcome"),
    [
        ("any", {"resume": True, "fresh": True}, ValueError),
        ("absent", {"resume": True, "fresh": False}, RuntimeError),
        ("exists", {"resume": True, "fresh": False}, RuntimeError),
        ("checkpoint", {"resume": True, "fresh": False}, "resume"),
        ("exists", {"resume": False, "fresh": True}, "archive"),
        ("checkpoint", {"resume": False, "fresh": False}, SystemExit),
        ("exists", {"resume": False, "fresh": False}, SystemExit),
        ("absent", {"resume": False, "fresh": False}, "create"),
        ("absent", {"resume": False, "fresh": True}, "create"),
    ],
)
def test_how_a_workspace_begins(tmp_path, workspace, flags, outcome):
    folder = tmp_path / "experiment"
    if workspace != "absent":
        folder.mkdir()
    if workspace == "checkpoint":
        (folder / "checkpoint.json").write_text("{}", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    if isinstance(outcome, str):
        assert how_to_begin(folder, **flags) == outcome
    else:
        with pytest.raises(outcome):
            how_to_begin(folder, **flags)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_start_without_a_flag_names_both_and_touches_nothing(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    make_runner(config, WORLD).run()
    before = canonical_state(tmp_path / "run")
    with pytest.raises(SystemExit, match=r"--resume.*--fresh"):
        make_runner(config, WORLD).run()
    assert canonical_state(tmp_path / "run") == before


def test_a_fresh_start_keeps_the_old_workspace_under_another_name(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    first = make_runner(config, WORLD).run()
    again = make_runner(config, WORLD).run(fresh=True)
    (archived,) = (tmp_path / "run").glob("experiment-*")
    assert load_manifest(archived).runs == ("sim",)
    assert (again.spent, again.steps) == (first.spent, first.steps)


def test_a_second_process_is_refused_before_it_touches_anything(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    make_runner(config, WORLD).run()
    with FileLock(tmp_path / "run" / ".experiment.lock"), pytest.raises(WorkspaceLocked):
        make_runner(config, WORLD).run(resume=True)


async def test_the_same_call_works_inside_a_running_event_loop(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    assert make_runner(config, WORLD).run().status == "completed"
    assert (await make_runner(config, WORLD).train(resume=True)).status == "completed"


def test_run_blocking_raises_what_the_coroutine_raises():
    async def fails():
        await asyncio.sleep(0)
        raise KeyError("gone")

    async def inside():
        run_blocking(fails())

    for call in (lambda: run_blocking(fails()), lambda: asyncio.run(inside())):
        with pytest.raises(KeyError, match="gone"):
            call()


async def test_who_interrupts_the_waiting_stops_the_work():
    happened = []

    async def works():
        await asyncio.sleep(0.2)  # until the caller waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            happened.append("stopped")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook's kernel
    try:
        with pytest.raises(KeyboardInterrupt):
            run_blocking(works())
    finally:
        signal.signal(signal.SIGINT, before)
    assert happened == ["stopped"]


# Modes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = make_config(folder, WORLD, **SMALL)
    with quick_disk():
        result = make_runner(config, WORLD).run()
    return folder, config, result


def of_mode(trained, **changes):
    folder, config, _ = trained
    return make_runner(dataclasses.replace(config, **changes), WORLD), folder


@pytest.fixture
def asks_git_anew():
    code_commit.cache_clear()
    yield
    code_commit.cache_clear()


def test_a_run_notes_the_commit_of_the_code(trained):
    folder, _, _ = trained
    for run_id in ("sim", "sim_baseline", "sim_e1_R"):
        (row,) = query(folder, "SELECT git_sha FROM _runs WHERE run_id = ?", run_id)
        assert row["git_sha"] == code_commit()


@pytest.mark.parametrize("missing", ["git", "repository"])
def test_without_git_or_repository_a_run_notes_no_commit(tmp_path, monkeypatch, asks_git_anew, missing):
    if missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (tmp_path / "__init__.py").touch()
        monkeypatch.setattr(harness, "__path__", [str(tmp_path)])
    config = make_config(tmp_path / "run", WORLD, **SMALL, n_samples=2)
    begin_workspace(config)
    make_runner(dataclasses.replace(config, mode="infer"), WORLD).run()
    assert {row["git_sha"] for row in query(tmp_path / "run", "SELECT git_sha FROM _runs")} == {None}


def players_of(folder):
    (row,) = query(folder, "SELECT payload FROM _events WHERE event_type = 'players' AND run_id = 'sim'")
    return json.loads(row["payload"])


def test_a_run_records_who_played_each_part(trained):
    told = players_of(trained[0])
    agent = WORLD.agent()
    assert told["agent"] == {
        "name": "SimulatedAgent",
        "model": None,
        "fingerprint": agent.fingerprint,
        "deterministic": False,
    }
    assert told["proposer"] == {"name": WORLD.proposer(MIXED).name, "model": None}
    assert (told["evolver"], told["judge"], told["gate"]) == (None, None, {"name": "gate_decision"})


def test_models_that_play_are_recorded_by_name(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL, max_rollouts=1)
    evolver, judge = WORLD.evolver_llm(MIXED), WORLD.judge_llm()
    models = {"proposer": None, "evolve_llm": evolver, "judge_llm": judge}
    make_runner(config, WORLD, **models).run()
    told = players_of(tmp_path / "run")
    assert told["proposer"]["model"] == evolver.model
    assert (told["evolver"], told["judge"]) == ({"model": evolver.model}, {"model": judge.model})


def test_runner_infer(trained):
    runner, folder = of_mode(trained, mode="infer")
    result = runner.run()
    pools = json.loads((folder / "experiment" / "pools.json").read_text("utf-8"))
    assert result.run_id == "sim_infer"
    assert result.total == len(WORLD.questions) - len(pools["test"])
    assert not {row.question_id for row in result.predictions} & set(pools["test"])


def test_runner_infer_asks_a_sample_when_told_to(trained):
    runner, _ = of_mode(trained, mode="infer", n_samples=10, run_id="sample")
    result = runner.run()
    assert (result.run_id, result.total) == ("sample_infer", 10)
    assert set(result.per_task_type) == set(WORLD.task_types)


def test_runner_eval_backfill_versions(trained):
    runner, folder = of_mode(trained, mode="eval", version="v1", pool="validation")
    result = runner.run()
    (row,) = query(folder, "SELECT * FROM _runs WHERE run_id = ?", result.run_id)
    assert result.run_id == "sim_eval_v1"
    assert (row["skills_version"], row["prompts_version"]) == ("v1", "v1")
    assert row["questions_ref"] == runner.config.questions
    assert row["status"] == "completed"
    assert query(folder, "SELECT status FROM _runs WHERE run_id = 'sim'") == [{"status": "completed"}]


def test_to_look_at_the_test_pool_is_recorded(trained):
    runner, folder = of_mode(trained, mode="eval", run_id="peek", version="v1", pool="test")
    assert runner.run().total > 0
    events = query(folder, "SELECT run_id FROM _events WHERE event_type = 'unsealed'")
    assert events == [{"run_id": "peek_eval_v1_test"}]


def test_no_run_of_an_evaluation_mixes_two_pools(trained):
    pools = json.loads((trained[0] / "experiment" / "pools.json").read_text("utf-8"))
    for pool, compared in (("test", "mixed_compare_v1_test"), ("validation", "mixed_compare_v1")):
        runner, folder = of_mode(trained, mode="eval", run_id="mixed", version="v1", pool=pool)
        result = runner.run()
        run_blocking(compare_versions(runner, "v1", "v1", pool=pool))
        for run_id in (result.run_id, compared):
            rows = query(folder, "SELECT question_id FROM predictions WHERE run_id = ?", run_id)
            assert sorted(row["question_id"] for row in rows) == sorted(pools[pool])


def test_eval_refuses_a_pool_that_there_is_not(trained):
    runner, _ = of_mode(trained)
    with pytest.raises(ValueError, match="holdout"):
        run_blocking(runner.eval("v1", "holdout"))


def test_runner_diagnose(trained):
    runner, folder = of_mode(trained, mode="diagnose", run_id="sim")
    diagnosis = runner.run()
    assert diagnosis.run_id == "sim_baseline"
    rows = query(folder, "SELECT count(*) AS n FROM question_metrics WHERE run_id = 'sim_baseline'")
    assert rows[0]["n"] == diagnosis.filter_summary["right"] + diagnosis.filter_summary["wrong"]


def test_runner_promote_and_a_run_that_starts_from_the_seed_pays_nothing_twice(trained, tmp_path, capsys):
    runner, folder = of_mode(trained, mode="eval", run_id="promoted", version="v1")
    evaluated = runner.run()
    seed = runner.promote("v1", evaluated.run_id, "first")
    assert seed.meta.eval_run_id == evaluated.run_id
    asked = Asked(tmp_path / "asked.txt")
    config = dataclasses.replace(
        runner.config, mode="train", run_id="next", workspace_dir=str(folder / "next"), start_from="first"
    )
    result = make_runner(config, WORLD, agent=watched(WORLD, asked)).run()
    assert result.status == "completed"
    first, second = (
        json.loads((folder / name / "pools.json").read_text("utf-8")) for name in ("experiment", "next")
    )
    assert [first[name] for name in ("test", "validation")] == [
        second[name] for name in ("test", "validation")
    ]
    wrong_ones = evaluated.total - evaluated.correct
    known = f"by the seed's evaluation {wrong_ones} of {evaluated.total} answered questions are wrong"
    assert known in capsys.readouterr().out
    paid = {scope.partition("/")[2] for scope in asked.scopes() if scope.startswith("next_baseline/")}
    assert paid == set(first["diagnosis"])


# The plan


def test_the_plan_is_told_before_the_first_paid_call(tmp_path, capsys):
    told_at_first_call = []

    def before(scope):
        if not told_at_first_call:
            told_at_first_call.append(capsys.readouterr().out)

    config = make_config(tmp_path / "run", WORLD, **SMALL)
    make_runner(config, WORLD, agent=watched(WORLD, before)).run()
    assert "Plan: 1 epochs" in told_at_first_call[0]
    assert "ladder of" in told_at_first_call[0]


def stage_of(run_id):
    rest = run_id.partition("_")[2]
    if "_gate_" in rest:
        return "gates"
    if rest.startswith("final"):
        return "final test"
    place = rest.split("_", 1)[-1]
    names = {"R": "R", "R2": "R2", "holdout": "held-out", "mom_old": "momentum", "mom_new": "momentum"}
    if place.startswith("base_"):
        return "comparison bases"
    return names.get(place, "baseline" if rest == "baseline" else "steps")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epochs": 2, "batch_size": 12, "gate_max_questions": 20, "gate_max_per_step": 1},
        {"epochs": 2, "holdout_every": 1, "gate_source": "diagnosis+validation", "momentum_samples": 8},
    ],
)
def test_a_run_costs_no_more_than_its_plan_says(tmp_path, changes, monkeypatch):
    folder = tmp_path / "run"
    config = make_config(folder, WORLD, **{**SMALL, **changes})
    plans = []
    runner = make_runner(config, WORLD, evolve_llm=WORLD.evolver_llm(MIXED))
    monkeypatch.setattr(
        "harness.runner.tell_plan", lambda parts, seed: plans.append(plan_run(parts, seed=seed))
    )
    result = runner.run()
    spent = dict.fromkeys(plans[0].rollouts, 0)
    for row in query(folder, "SELECT run_id FROM predictions WHERE source_run_id IS NULL"):
        spent[stage_of(row["run_id"])] += 1
    assert all(spent[stage] <= plans[0].rollouts[stage].greatest for stage in spent), spent
    assert result.steps <= plans[0].steps.greatest
    assert sum(spent.values()) == result.spent.rollouts
    assert plans[0].total.expected / 2 <= result.spent.rollouts <= 2 * plans[0].total.expected


def planned(tmp_path, world, *, agent=None, **changes):
    """The plan of a run; nothing is rolled out."""
    config = make_config(tmp_path / "run", world, **changes)
    runner = make_runner(config, world, agent=agent)

    async def plan():
        with workspace_lock(runner.workspace_dir):
            begin_workspace(config, "create")
            async with runner.open_parts("sim", lambda names: names.run) as parts:
                return plan_run(parts)

    return run_blocking(plan())


def test_files_of_types_too_small_for_their_own_are_warned_of(tmp_path):
    types = tuple(f"type-{number}" for number in range(11))
    world = make_world(n_questions=60, task_types=types)
    plan = planned(
        tmp_path, world, n_task_types=11, val_size=22, test_size=8, eval_min_per_class=2, split_by="question"
    )
    assert sum("default-strategy.md" in warning for warning in plan.warnings) == 11
    assert any("nothing can be accepted" in warning for warning in plan.warnings)
    assert {file.gain_accepted for file in plan.files} == {None}


def test_a_deterministic_agent_with_the_plan_ladder_is_warned_of(tmp_path):
    still = make_world(n_questions=120, churn=0.0)
    assert still.agent().deterministic
    for ladder, warned in (("plan", True), ("stratified", False), ("fresh", False)):
        plan = planned(tmp_path / ladder, still, gate_ladder=ladder)
        assert any("deterministic" in warning for warning in plan.warnings) == warned
        assert plan.assumed.churn == 0


def test_a_budget_that_does_not_pay_for_one_gate_is_warned_of(tmp_path):
    plan = planned(tmp_path, WORLD, max_rollouts=100)
    assert any("does not pay for the baseline" in warning for warning in plan.warnings)


# What a run can show, told in time


@contextlib.contextmanager
def warnings_told():
    """Inside, the warnings of the package gather in a list."""
    told = []
    logger.enable("harness")
    sink = logger.add(lambda message: told.append(message.record["message"]), level="WARNING")
    try:
        yield told
    finally:
        logger.remove(sink)
        logger.disable("harness")


def run_until(tmp_path, capsys, *, world=WORLD, stop_at, answer=right, **changes):
    """Runs until an answer is asked for in a scope that holds `stop_at`; what was printed and warned of by then."""

    def stopping(scope, question):
        if stop_at in scope:
            raise ProviderError("401: stopped here")
        return answer(scope, question)

    config = make_config(tmp_path / "run", world, **{**SMALL, **changes})
    with warnings_told() as told, contextlib.suppress(ProviderError):
        make_runner(config, world, agent=lambda: ScopedAgent(stopping)).run()
    return capsys.readouterr().out, told


def test_sixty_questions_in_eleven_types_are_told_what_they_can_show_before_the_first_call(tmp_path, capsys):
    types = tuple(f"type-{number}" for number in range(11))
    world = make_world(n_questions=60, task_types=types)
    sizes = {
        "n_task_types": 11,
        "val_size": 22,
        "test_size": 8,
        "eval_min_per_class": 2,
        "split_by": "question",
    }
    printed, told = run_until(tmp_path, capsys, world=world, stop_at="_baseline/", **sizes)
    assert query(tmp_path / "run", "SELECT 1 FROM predictions WHERE stop_reason != 'error'") == []
    assert printed.count("too short for a gate: its edits are never judged") == 11
    assert sum("default-strategy.md" in warning for warning in told) == 11
    assert any("nothing can be accepted" in warning for warning in told)


def test_how_many_questions_must_improve_is_told_before_the_first_call(tmp_path, capsys):
    printed, _ = run_until(tmp_path, capsys, stop_at="_baseline/")
    assert query(tmp_path / "run", "SELECT 1 FROM predictions WHERE stop_reason != 'error'") == []
    assert len(re.findall(r"at least \d+ questions must improve \(\d+ to confirm\)", printed)) == 2
    assert "is not known before the baseline" in printed


def test_as_many_improved_questions_as_the_plan_asks_for_are_needed_and_enough(tmp_path):
    plan = planned(tmp_path, WORLD)
    params = GateParams().for_file(probation=True, shared=False)
    for file, improved in ((one, n) for one in plan.files for n in range(one.ladder + 1)):
        pairs = tuple(PairResult(f"q{n}", n >= improved, True) for n in range(file.ladder))
        verdict = gate_decision(GateEvidence.from_blocks(file.ladder, [pairs]), params, is_last_block=True)
        assert verdict.decision.startswith("ACCEPT") == (improved >= file.needed_accepted)
        assert (verdict.decision == "ACCEPT_CONFIRMED") == (improved >= file.needed_confirmed)


def wrong(scope, question):
    return "B" if question.answer == "A" else "A"


@pytest.mark.parametrize(
    ("answer", "share", "words"),
    [
        (right, "0 of {n} answered questions are wrong (0%)", "nothing to learn from"),
        (wrong, "{n} of {n} answered questions are wrong (100%)", "before you pay for more"),
    ],
)
def test_data_on_which_nothing_discriminates_are_told_of_between_baseline_and_first_step(
    tmp_path, capsys, answer, share, words
):
    printed, told = run_until(tmp_path, capsys, stop_at="_e1_s", answer=answer)
    pools = json.loads((tmp_path / "run" / "experiment" / "pools.json").read_text("utf-8"))
    assert share.format(n=len(pools["diagnosis"])) in printed
    assert [warning for warning in told if words in warning]
    ran = {
        row["run_id"]
        for row in query(tmp_path / "run", "SELECT run_id FROM predictions WHERE correct IS NOT NULL")
    }
    assert not any("_e1_" in run_id for run_id in ran)


def test_a_type_with_too_few_wrong_answers_is_told_before_the_first_step(tmp_path, capsys):
    def nearly_right(scope, question):
        return right(scope, question) if question.task_type == "order" else wrong(scope, question)

    _, told = run_until(tmp_path, capsys, stop_at="_e1_s", answer=nearly_right)
    assert ["order.md: 0 of its" in warning for warning in told if "must improve" in warning] == [True]


# Budgets


def test_a_run_whose_budget_is_spent_ends_cleanly_and_goes_on_with_a_larger_one(tmp_path):
    whole = make_config(tmp_path / "whole", WORLD, **SMALL)
    complete = make_runner(whole, WORLD).run()
    config = make_config(tmp_path / "run", WORLD, **SMALL, max_rollouts=complete.spent.rollouts // 2)
    ended = make_runner(config, WORLD).run()
    assert ended.status == "budget_exhausted"
    assert "max_rollouts" in ended.explain()
    rows = query(tmp_path / "run", "SELECT count(*) AS n FROM predictions")
    assert rows[0]["n"] == config.max_rollouts == ended.spent.rollouts
    assert query(tmp_path / "run", "SELECT count(*) AS n FROM _events WHERE event_type = 'budget_exhausted'")
    larger = dataclasses.replace(config, max_rollouts=0)
    result = make_runner(larger, WORLD).run(resume=True)
    assert (result.status, result.spent.rollouts) == ("completed", complete.spent.rollouts)
    found = differences(canonical_state(tmp_path / "whole"), canonical_state(tmp_path / "run"))
    assert found == ["tables _events"]


def test_every_checkpoint_knows_what_the_log_says_was_spent(tmp_path, monkeypatch):
    counted = []

    def counting(path, checkpoint):
        rows = query(tmp_path / "run", "SELECT count(*) AS n FROM sqlite_master WHERE name = 'predictions'")
        made = "SELECT count(*) AS n FROM predictions WHERE source_run_id IS NULL"
        expected = query(tmp_path / "run", made)[0]["n"] if rows[0]["n"] else 0
        counted.append((checkpoint.state.phase, checkpoint.state.spent.rollouts, expected))
        write_checkpoint(path, checkpoint)

    monkeypatch.setattr("harness.training.write_checkpoint", counting)
    result = make_runner(make_config(tmp_path / "run", WORLD, **SMALL), WORLD).run()
    assert {phase for phase, _, _ in counted} == set(PHASES)
    assert all(spent == expected for _, spent, expected in counted), counted
    assert result.spent.rollouts == counted[-1][1] > counted[-2][1]


class CountingAgent(ScopedAgent):
    """An agent that says what it used: 15 tokens an answer."""

    def for_scope(self, scope):
        return CountingAgent(self.decide, scope)

    async def run(self, *arguments, **options):
        result = await super().run(*arguments, **options)
        return dataclasses.replace(result, prompt_tokens=10, completion_tokens=5)


def test_a_token_budget_is_exceeded_by_no_more_than_runs_at_once(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL, max_tokens_total=300, concurrency=4)
    ended = make_runner(config, WORLD, agent=lambda: CountingAgent(right)).run()
    assert ended.status == "budget_exhausted"
    (row,) = query(tmp_path / "run", "SELECT sum(prompt_tokens + completion_tokens) AS n FROM predictions")
    assert 300 <= row["n"] <= 300 + 4 * 15


# Chat models in all roles


def test_a_chat_model_behind_the_agent_loop_trains_as_the_agent_does(tmp_path):
    decided = {}
    for name, parts in {"agent": {}, "chat": {"llm": WORLD.agent_llm(), "agent_factory": None}}.items():
        config = make_config(tmp_path / name, WORLD, **SMALL)
        make_runner(config, WORLD, **parts).run()
        events = query(tmp_path / name, "SELECT event_type, step, target, payload FROM _events ORDER BY id")
        decided[name] = [
            (
                event["event_type"],
                event["step"],
                event["target"],
                json.loads(event["payload"]).get("improved"),
            )
            for event in events
        ]
    assert decided["agent"] == decided["chat"]
    assert any(event == "accepted" or event == "rejected" for event, *_ in decided["chat"])


def test_with_a_judge_every_evaluation_has_a_soft_score(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL, soft_metric=True)
    make_runner(config, WORLD, judge_llm=WORLD.judge_llm(), evolve_llm=WORLD.evolver_llm(MIXED)).run()
    rows = query(tmp_path / "run", "SELECT phase, soft FROM dual_metric WHERE phase != 'final'")
    assert {"baseline", "R"} <= {row["phase"] for row in rows}
    assert all(0 < row["soft"] <= 1 for row in rows)


# Nothing to learn, nobody there, changes


def test_a_run_in_which_everything_is_right_ends_without_a_step(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    result = make_runner(config, WORLD, agent=lambda: ScopedAgent(right)).run()
    assert (result.status, result.steps) == ("completed", 0)
    assert result.best.acc == 1.0
    (event,) = query(tmp_path / "run", "SELECT payload FROM _events WHERE event_type = 'nothing_to_learn'")
    assert json.loads(event["payload"])["reason"] == result.reason
    assert result.final.comparison.difference == 0


def test_a_run_in_which_everything_is_wrong_goes_through(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    result = make_runner(config, WORLD, agent=lambda: ScopedAgent(wrong)).run()
    assert result.status == "completed"
    assert result.steps > 0
    assert result.current == result.final.first


def test_a_dead_provider_stops_the_run_with_its_words_and_a_resume_goes_on(tmp_path):
    def dead(scope, question):
        if "_e1_s1/" in scope:
            raise ProviderError("401: no such key")
        return right(scope, question) if hash_of(question) % 2 else "Z"

    def hash_of(question):
        return sum(map(ord, question.question_id))

    config = make_config(tmp_path / "run", WORLD, **SMALL)
    with pytest.raises(ProviderError, match="no such key"):
        make_runner(config, WORLD, agent=lambda: ScopedAgent(dead)).run()
    assert query(tmp_path / "run", "SELECT status FROM _runs WHERE run_id = 'sim'") == [{"status": "failed"}]

    def alive(scope, question):
        return right(scope, question) if hash_of(question) % 2 else "Z"

    result = make_runner(config, WORLD, agent=lambda: ScopedAgent(alive)).run(resume=True)
    assert result.status == "completed"


@pytest.mark.parametrize("changes", [{"seed": 5}, {"batch_size": 10}, {"max_steps": 9}])
def test_a_resume_with_other_questions_pools_batches_or_agent_is_refused(trained, changes):
    runner, _ = of_mode(trained, **changes)
    with pytest.raises(ConfigError, match=next(iter(changes))):
        runner.run(resume=True)


def with_another_answer(rows):
    rows[0]["answer"] = next(key for key in "ABCD" if key != rows[0]["answer"])


def with_another_text(rows):
    rows[0]["question"] += " And why?"


def with_reversed_options(rows):
    rows[0]["options"].reverse()


def without_source(rows):
    rows[0]["source_nodes"] = []


def with_one_more(rows):
    rows.append({**rows[0], "question_id": "one-more", "question": "Was this asked from the beginning?"})


@pytest.mark.parametrize(
    "change", [with_another_answer, with_another_text, with_reversed_options, without_source, with_one_more]
)
def test_a_resume_with_questions_that_changed_is_refused_before_anything_is_asked(tmp_path, change):
    config = make_config(tmp_path / "run", WORLD, **SMALL, max_rollouts=1)
    make_runner(config, WORLD).run()
    questions, asked = tmp_path / "run" / "questions.json", Asked(tmp_path / "asked.txt")
    rows = json.loads(questions.read_text("utf-8"))
    change(rows)
    questions.write_text(json.dumps(rows), encoding="utf-8")
    larger = dataclasses.replace(config, max_rollouts=20)
    with pytest.raises(ConfigError, match="a question was changed, added or taken away"):
        make_runner(larger, WORLD, agent=watched(WORLD, asked)).run(resume=True)
    assert asked.scopes() == []


def test_a_run_that_held_its_final_test_gives_its_result_again_and_never_trains_on(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    result = make_runner(config, WORLD).run()
    asked = Asked(tmp_path / "asked.txt")
    more = dataclasses.replace(config, epochs=2)
    before = canonical_state(tmp_path / "run")
    with pytest.raises(ConfigError, match="has opened the test pool") as refusal:
        make_runner(more, WORLD, agent=watched(WORLD, asked)).run(resume=True)
    assert "--resume --epochs 1" in str(refusal.value)
    assert canonical_state(tmp_path / "run") == before
    again = make_runner(config, WORLD, agent=watched(WORLD, asked)).run(resume=True)
    assert (again.best, again.final, again.spent) == (result.best, result.final, result.spent)
    assert asked.scopes() == []
    version, run_id = re.search(r"--version (\S+) --eval-run-id (\S+)", str(refusal.value)).groups()
    seed = make_runner(config, WORLD).promote(version, run_id, "best")
    assert seed.meta.skills_version == result.best.skills


def test_a_run_that_broke_off_in_its_final_test_may_finish_it_but_not_train_on(tmp_path):
    whole = make_runner(make_config(tmp_path / "whole", WORLD, **SMALL), WORLD).run()
    config = make_config(tmp_path / "run", WORLD, **SMALL, max_rollouts=whole.spent.rollouts - 1)
    assert make_runner(config, WORLD).run().status == "budget_exhausted"
    unlimited = dataclasses.replace(config, max_rollouts=0)
    with pytest.raises(ConfigError, match="has opened the test pool"):
        make_runner(dataclasses.replace(unlimited, epochs=2), WORLD).run(resume=True)
    assert make_runner(unlimited, WORLD).run(resume=True).status == "completed"


def test_a_resume_without_the_rows_that_its_checkpoint_rests_on_is_refused(trained):
    runner, folder = of_mode(trained)
    rows = folder / "experiment" / "harness.db"
    hidden = rows.rename(rows.with_name("hidden"))
    try:
        with pytest.raises(RuntimeError, match=r"harness\.db: is missing.*put it back"):
            runner.run(resume=True)
        assert not rows.exists()
    finally:
        hidden.rename(rows)


def of_other_questions(text):
    return text.replace(json.loads(text)["fingerprint"], "0" * 40)


def without_a_question(text):
    pools = json.loads(text)
    pools["entries"] = {task_type: entries[1:] for task_type, entries in pools["entries"].items()}
    return json.dumps(pools)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (of_other_questions, "made for other questions"),
        (without_a_question, "not in the file"),
        (lambda text: text[:-20], "can not be read"),
        (None, "is missing"),
    ],
)
def test_a_resume_with_damaged_or_foreign_gate_pools_is_told_before_anything_is_asked(trained, damage, words):
    runner, folder = of_mode(trained)
    pools = folder / "experiment" / "gate_pools_e1.json"
    whole = pools.read_text("utf-8")
    pools.unlink()
    if damage is not None:
        pools.write_text(damage(whole), "utf-8")
    try:
        with pytest.raises(RuntimeError, match=words) as told:
            runner.run(resume=True)
    finally:
        pools.write_text(whole, "utf-8")
    assert "gate_pools_e1.json" in str(told.value)


def test_a_resume_that_decides_differently_warns_and_is_recorded(tmp_path):
    config = make_config(tmp_path / "run", WORLD, **SMALL)
    make_runner(config, WORLD).run()
    bolder = dataclasses.replace(config, gate_alpha=0.1)
    with pytest.warns(CheckpointWarning, match="gate_alpha"):
        make_runner(bolder, WORLD).run(resume=True)
    (event,) = query(tmp_path / "run", "SELECT payload FROM _events WHERE event_type = 'resumed'")
    assert "gate_alpha: was 0.05, is 0.1" in event["payload"]
