"""The demo's controls differ from it in what they control and in nothing else, and no run is mixed up or lost."""

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo_runs.arms import ARMS, LOOP, SealedExecutor, strict_greater
from benchmarks.demo_runs.intent import intent_of, lines_kept, useful_places
from benchmarks.demo_runs.report import difference, mean_and_error, report
from benchmarks.demo_runs.shuffled import ShuffledProposer, stand_ins
from benchmarks.demo_runs.study import NotYet, is_done, read_rows, tasks_of, with_row, write_rows
from benchmarks.demo_runs.training import Task, config_of, fresh_split_seeds, pools_of, settings_of, train
from core.agent.skills import render_line
from core.evolution.catalogue import load_catalogue
from core.evolution.gate_types import GateEvidence, GateParams, PairResult
from core.evolution.types import CaseSample, Edit, SkillCasePack
from core.types import GeneratedQuestion
from harness.budget import BudgetExhausted
from harness.config import build_config, read_yaml
from harness.from_config import RunModel
from harness.summary import select

ROOT = Path(__file__).parents[2]
FOLDER = Path("runs-of-a-test")


@pytest.fixture(autouse=True)
def at_the_projects_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def demo():
    return build_config(read_yaml(Path("configs/demo.yaml")))


@pytest.fixture
def catalogue():
    return load_catalogue(Path("data/demo/catalogue.md"))


def question(name: str, task_type: str) -> GeneratedQuestion:
    return GeneratedQuestion(name, f"film of {name}", task_type, f"What of {name}?", ("a", "b"), "A")


def questions(sizes: dict[str, int]) -> list[GeneratedQuestion]:
    return [question(f"{name}{number}", name) for name, size in sizes.items() for number in range(size)]


# ---- strict greater


def evidence(pairs, planned: int, block: int) -> GateEvidence:
    results = [PairResult(f"q{number}", *pair) for number, pair in enumerate(pairs)]
    blocks = [results[start : start + block] for start in range(0, len(results), block)]
    return GateEvidence.from_blocks(planned, blocks)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_without_a_gate_an_edit_is_accepted_iff_strictly_more_of_the_whole_ladder_is_right(pairs):
    verdict = strict_greater(evidence(pairs, len(pairs), 10), GateParams(), is_last_block=True)
    assert verdict.accepted == (sum(cand for _, cand in pairs) > sum(base for base, _ in pairs))


@pytest.mark.parametrize("pair", [(True, False), (False, True)])
def test_without_a_gate_nothing_is_decided_before_the_whole_ladder_was_asked(pair):
    verdict = strict_greater(evidence([pair] * 20, 40, 10), GateParams(), is_last_block=False)
    assert verdict.decision == "CONTINUE"


def test_infrastructure_that_fails_aborts_without_a_gate_too():
    verdict = strict_greater(evidence([(None, True)] * 20, 20, 10), GateParams(), is_last_block=True)
    assert (verdict.decision, verdict.reason) == ("REJECT", "infra_abort")


# ---- signals shuffled between cases


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=2).filter(
        lambda sizes: 2 * max(sizes.values()) <= sum(sizes.values())
    ),
    st.integers(0, 9),
)
def test_each_question_stands_in_once_and_for_one_of_another_type(sizes, seed):
    asked = questions(sizes)
    found = stand_ins(asked, seed)
    types = {one.question_id: one.task_type for one in asked}
    assert found.keys() == types.keys() == {other.question_id for other in found.values()}
    assert all(types[name] != other.task_type for name, other in found.items())
    assert found == stand_ins(asked[::-1], seed)


def test_a_type_too_large_to_be_stood_in_for_is_refused():
    with pytest.raises(ValueError, match="'order'"):
        stand_ins(questions({"order": 5, "detail": 4}), 0)


class Recording:
    """A proposer that keeps what it was shown."""

    name, attempts = "recording", 1

    def __init__(self):
        self.packs = []

    async def propose(self, pack, **asked):
        self.packs.append(pack)
        return [Edit("append", content="x", related_cases=tuple(c.question_id for c in pack.failure_cases))]


async def test_the_shuffled_proposer_sees_nothing_of_its_failing_cases_and_all_else_as_it_is():
    asked = questions({"order": 3, "detail": 3})
    cases = tuple(
        CaseSample(one.question_id, one.video_id, one.task_type, one.question, one.options, "A", "B", False)
        for one in asked[:2]
    )
    pack = SkillCasePack("order.md", ("order",), {"wrong": 2}, cases, (), ("order0", "order1"))
    inner = Recording()
    edits = await ShuffledProposer(inner, stand_ins(asked, 0)).propose(
        pack, text="", rejected=[], edit_budget=1, seed=0
    )
    shown = inner.packs[0]
    assert [case.task_type for case in shown.failure_cases] == ["detail", "detail"]
    assert dataclasses.replace(shown, failure_cases=cases) == pack
    assert [edit.related_cases for edit in edits] == [()]


# ---- the test pool of a control


async def test_a_sealed_question_ends_the_run_before_anything_is_asked():
    asked = []

    async def ask(one):
        asked.append(one.question_id)
        return one.question_id

    executor, mixed = SealedExecutor(frozenset({"b1"})), questions({"a": 2, "b": 2})
    with pytest.raises(BudgetExhausted):
        async for _ in executor.run(ask, mixed, concurrency=2):
            pass
    assert asked == []
    results = [result async for result in executor.run(ask, mixed[:3], concurrency=2)]
    assert sorted(results) == [(0, "a0"), (1, "a1"), (2, "b0")]


class Scripted:
    """A scorer that prefers continuations whose words stand in the context."""

    model = "scripted"

    async def score(self, context, continuations):
        known = set(context.lower().split())
        return [sum(word in known for word in text.lower().split()) for text in continuations]


@pytest.fixture
def small(demo, monkeypatch):
    """The demo with small pools and a scripted model."""

    @contextlib.contextmanager
    def opened(model):
        model._scorer = Scripted()
        yield

    monkeypatch.setattr(RunModel, "opened", opened)
    return dataclasses.replace(
        demo, test_size=9, val_size=9, eval_min_per_class=1, diag_size=36, batch_size=12, min_class=2,
        gate_min_pairs=4, gate_min_discordant_provisional=1, epochs=1,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "most"), [("strict", 90), ("random", 0)])
async def test_a_control_makes_no_more_rollouts_than_it_may_and_asks_no_test_question(
    small, name, most, tmp_path, monkeypatch
):
    monkeypatch.setattr("benchmarks.demo_runs.training.EPOCHS_OF_A_CONTROL", 1)
    config = config_of(small, Task(ARMS[name], 0, small.split_seed, most), tmp_path)
    row = await train(ARMS[name], config)
    asked = select(Path(config.workspace_dir) / "harness.db", "predictions", "SELECT * FROM predictions")
    sealed = {one.question_id for one in pools_of(config).test}
    assert sealed
    assert sealed.isdisjoint(answer["question_id"] for answer in asked)
    assert (row["status"], row["test"]) == ("budget_exhausted", None)
    assert row["rollouts"] == most if most else row["epochs"] == 1
    assert row["gates"] > 0
    assert json.loads(json.dumps(row)) == row


# ---- what the catalogue's author intended


def test_the_list_of_useful_lines_fits_the_catalogue_and_leaves_at_least_half_of_it_out(catalogue):
    useful = useful_places(catalogue)
    assert 0 < len(useful) <= len(catalogue) / 2


def test_a_catalogue_that_was_changed_is_noticed(catalogue):
    with pytest.raises(ValueError, match="bring it up to date"):
        useful_places(catalogue[1:])


def test_lines_that_training_brought_are_told_by_intent(catalogue):
    useful = useful_places(catalogue)
    good = next(line for line in catalogue if (line.rule, line.tactic) in useful)
    bad = next(line for line in catalogue if (line.rule, line.tactic) not in useful)
    swapped = dataclasses.replace(good, tactic="read_all")
    plain = dataclasses.replace(good, rule="The question asks for the first thing.", tactic="search_1")

    def text(*lines):
        return "## Where to look\n\n" + "\n".join(map(render_line, lines)) + "\n"

    kept = lines_kept({"a.md": text(plain)}, {"a.md": text(plain, good, bad, swapped)}, catalogue)
    assert [line["intent"] for line in kept] == ["useful", "nonsense", "remade"]
    assert intent_of((plain.rule, plain.tactic), catalogue, useful) == "remade"


# ---- which runs there are


def made(demo, arm: str, seed: int, most: int = 0, **figures) -> dict:
    """The row of a run as it would be made now."""
    task = Task(ARMS[arm], seed, demo.split_seed, most)
    row = {
        "arm": arm, "seed": seed, "split_seed": demo.split_seed, "code": "abc", "seconds": 1, "rollouts": 100,
        "settings": settings_of(config_of(demo, task, FOLDER)), "before": 0.25, "in_force": 0.5, "best": 0.5,
        "gates": 4, "accepted": 2, "kept": 1, "unsettled": 0, "lines": [], "by_epoch": [], "test": None,
    }  # fmt: skip
    return row | figures


def test_controls_wait_for_the_loop_and_make_as_many_rollouts_as_it_did_on_average(demo):
    rows = [made(demo, "loop", 0, rollouts=100), made(demo, "loop", 1, rollouts=301)]
    with pytest.raises(NotYet, match="loop-1"):
        tasks_of(demo, ARMS["random"], range(2), rows[:1], FOLDER)
    tasks = tasks_of(demo, ARMS["random"], range(2), rows, FOLDER)
    assert [(task.seed, task.max_rollouts) for task in tasks] == [(0, 200), (1, 200)]


def test_a_run_counts_as_done_only_with_the_settings_that_it_would_have_now(demo):
    rows = [made(demo, "loop", 0)]
    assert is_done(demo, Task(LOOP, 0, demo.split_seed), rows, Path("another-folder"))
    assert not is_done(demo, Task(LOOP, 1, demo.split_seed), rows, FOLDER)
    changed = dataclasses.replace(demo, gate_alpha=0.01)
    assert not is_done(changed, Task(LOOP, 0, demo.split_seed), rows, FOLDER)


def test_arms_differ_from_the_loop_in_what_they_control_alone(demo):
    loop = config_of(demo, Task(LOOP, 0, demo.split_seed), FOLDER)
    for arm in (arm for arm in ARMS.values() if arm.control):
        config = config_of(demo, Task(arm, 0, demo.split_seed, 7), FOLDER)
        differing = {
            name for name, value in dataclasses.asdict(loop).items() if getattr(config, name) != value
        }
        expected = {"workspace_dir", "store_dir", "run_id", "epochs", "max_rollouts"}
        assert differing == expected | (set() if arm.gated else {"probation"})


def test_fresh_splits_are_not_the_demos_and_fill_their_pools(demo):
    seeds = fresh_split_seeds(demo, 2)
    tests = [
        {one.video_id for one in pools_of(dataclasses.replace(demo, split_seed=seed)).test} for seed in seeds
    ]
    own = {one.video_id for one in pools_of(demo).test}
    assert demo.split_seed not in seeds
    assert tests[0] != tests[1] != own != tests[0]


def test_rows_come_back_as_written_and_a_new_one_takes_the_place_of_its_run(demo, tmp_path):
    path = tmp_path / "rows.json"
    assert read_rows(path) == []
    rows = [made(demo, "strict", 1), made(demo, "loop", 0)]
    write_rows(path, with_row(rows, made(demo, "strict", 1, kept=9)))
    assert [(row["arm"], row["kept"]) for row in read_rows(path)] == [("loop", 1), ("strict", 9)]


# ---- the report


def test_a_part_of_the_gain_is_the_mean_difference_of_runs_with_the_same_seed(demo):
    loop = {seed: made(demo, "loop", seed, in_force=0.5 + seed / 10) for seed in range(3)}
    strict = {seed: made(demo, "strict", seed, in_force=0.4 + seed / 10) for seed in (1, 2, 3)}
    mean, error = difference(loop, strict)
    assert (mean, error) == (pytest.approx(10), pytest.approx(0, abs=1e-9))
    assert mean_and_error([5.0]) == (5.0, None)


def test_the_report_names_every_arm_and_labels_the_splits(demo):
    test = {
        "before": 0.3,
        "after": 0.4,
        "difference": 0.1,
        "low": 0.02,
        "high": 0.2,
        "questions": 9,
        "films": 3,
    }
    rows = [made(demo, arm, 0, test=None if ARMS[arm].control else test) for arm in ARMS]
    told = report(rows)
    assert all(arm.about in told for arm in ARMS.values())
    assert "re-split, not unseen" in told
    assert "interval above 0 in 1" in told
    assert report([]) == "no runs yet"
