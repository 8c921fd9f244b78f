"""The gate study is fair to its arms, keeps the rules about data, and does the same every time."""

import dataclasses
import json
from itertools import pairwise

import pytest

from benchmarks.gate_study.arms import ARMS, DEFAULT, RULES
from benchmarks.gate_study.families import FAMILIES, FIRST_PASS, PROPOSALS, SEEDS
from benchmarks.gate_study.judging import BaselineRows, asker, ladder_of
from benchmarks.gate_study.luck import luck_of, worthless
from benchmarks.gate_study.report import cells_of, mean_and_error, ratio_and_error, report
from benchmarks.gate_study.run import run
from benchmarks.gate_study.state import WORTH, begin, outcome
from benchmarks.gate_study.study import read_rows, rows_of, run_all, tasks_left
from benchmarks.gate_study.world import Setting, rendered

SMALL = "pool of 60"
SEED = 77
"""In neither half."""


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting(FAMILIES[SMALL], SEED)


@pytest.fixture(scope="module")
def states(setting):
    return {arm.name: run(setting, arm) for arm in RULES}


def question_ids(pool) -> set[str]:
    return {question.question_id for members in pool.values() for question in members}


def film_ids(pool) -> set[str]:
    return {question.video_id for members in pool.values() for question in members}


def test_tuning_and_reporting_share_no_seed_and_each_holds_the_first_pass():
    assert not set(SEEDS["tuning"]) & set(SEEDS["reporting"])
    assert all(len(set(seeds)) >= FIRST_PASS for seeds in SEEDS.values())


def test_every_kind_of_edit_of_every_family_has_a_worth():
    kinds = {kind.name for family in FAMILIES.values() for kind in family.edits}
    assert kinds <= WORTH.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_diagnosis_and_validation_have_their_sizes_and_share_no_film(family):
    setting = Setting(FAMILIES[family], SEED)
    assert len(question_ids(setting.diagnosis)) == FAMILIES[family].diagnosis
    assert len(question_ids(setting.validation)) == FAMILIES[family].validation
    assert not film_ids(setting.diagnosis) & film_ids(setting.validation)


def test_arms_share_the_draws_of_a_rollout_and_the_kinds_of_edits(setting):
    twin = Setting(FAMILIES[SMALL], SEED)
    names = sorted(question_ids(setting.diagnosis))
    text = rendered(setting.initial_texts, "order")
    assert setting.answers(1, text, names, "e1 s2") == twin.answers(1, text, names, "e1 s2")
    assert setting.answers(1, text, names, "e1 s2") != setting.answers(1, text, names, "e1 s3")

    changed = {**setting.initial_texts, "order": setting.initial_texts["order"] + "\nAnother arm's text.\n"}
    steps = [(epoch, step) for epoch in range(4) for step in range(5)]
    kinds = [
        [setting.propose(*at, "order", texts, [], [], set()).kind for at in steps]
        for texts in (setting.initial_texts, changed)
    ]
    assert kinds[0] == kinds[1]
    assert len(set(kinds[0])) > 1


def test_arms_start_from_the_same_baseline_run(setting):
    starts = [begin(setting, arm) for arm in RULES]
    assert all(one.correctness == other.correctness for one, other in pairwise(starts))
    assert all(one.best_rows == other.best_rows for one, other in pairwise(starts))


@pytest.mark.parametrize("kind", ["plan", "stratified", "fresh", "fixed"])
def test_no_ladder_holds_what_the_proposer_saw_or_what_validates(setting, kind):
    pools = begin(setting, DEFAULT).pools
    seen = [question.question_id for question in setting.diagnosis["order"][:9]]
    proposal = setting.propose(0, 0, "order", setting.initial_texts, seen, seen, set())
    ladder = [entry.question_id for entry in ladder_of(DEFAULT, kind, setting, pools, proposal, 0)]
    assert len(ladder) == len(set(ladder)) >= DEFAULT.params.min_pairs
    assert not set(ladder) & set(seen)
    assert set(ladder) <= question_ids(setting.diagnosis)


def test_fresh_questions_change_from_step_to_step_and_fixed_ones_do_not(setting):
    pools = begin(setting, DEFAULT).pools
    proposal = setting.propose(0, 0, "order", setting.initial_texts, [], [], set())
    first, second = (
        {
            kind: [one.question_id for one in ladder_of(DEFAULT, kind, setting, pools, proposal, step)]
            for kind in ("fresh", "fixed")
        }
        for step in (0, 1)
    )
    assert first["fixed"] == second["fixed"]
    assert first["fresh"] != second["fresh"]


def test_only_rows_rolled_out_as_a_baseline_serve_as_one_and_only_while_they_are_young(setting):
    rows, asked = BaselineRows(), []

    def roll_out(epoch, text, names, draw):
        asked.append((text, len(names)))
        return setting.answers(epoch, text, names, draw) if names else {}

    proposal = setting.propose(0, 0, "order", setting.initial_texts, [], [], set())
    ladder = ladder_of(DEFAULT, "fresh", setting, begin(setting, DEFAULT).pools, proposal, 0)
    names = [entry.question_id for entry in ladder]
    texts = {"base_text": "before", "cand_text": "after"}
    asker(**texts, epoch=0, gate_id="a", rows=rows, roll_out=roll_out)(ladder)
    assert rows.get("before", names, 0).keys() == set(names)
    assert rows.get("after", names, 0) == {}
    asker(**texts, epoch=1, gate_id="b", rows=rows, roll_out=roll_out)(ladder)
    assert asked == [("before", len(names)), ("after", len(names)), ("before", 0), ("after", len(names))]
    assert rows.get("before", names, 3) == {}


def test_no_arm_proposes_more_or_spends_more_than_it_may(setting, states):
    family = setting.family
    for state in states.values():
        last_gate = 2 * (state.arm.params.max_questions + 3)
        assert len(state.held) <= PROPOSALS
        assert state.spent <= family.budget + last_gate + family.validation


def test_what_is_kept_was_accepted_and_without_probation_all_of_it(states):
    for name, state in states.items():
        figures = outcome(state)
        for worth in ("null", "helpful", "harmful"):
            kept, accepted = figures[f"{worth}_kept"], figures[f"{worth}_accepted"]
            assert kept <= accepted <= figures[f"{worth}_proposed"], name
            if not state.arm.probation:
                assert kept == accepted, name


def test_a_run_that_keeps_nothing_gains_nothing(setting):
    strict = dataclasses.replace(DEFAULT, params=dataclasses.replace(DEFAULT.params, settle_tau=0.999999))
    state = run(setting, strict)
    assert state.texts == setting.initial_texts
    assert outcome(state)["gain"] == 0
    assert state.kept == []


def test_a_frozen_file_is_not_edited_while_it_is_on_probation(setting, states):
    frozen = run(setting, ARMS["frozen while on probation"])
    assert len(frozen.held) < len(states[DEFAULT.name].held)


def test_the_same_task_gives_the_same_rows():
    task = (SMALL, SEED, (DEFAULT.name, "strict greater on fresh, no probation"))
    assert rows_of(task) == rows_of(task)


def test_a_study_that_is_broken_off_goes_on_with_what_is_left(tmp_path):
    path, arms = tmp_path / "rows.jsonl", [DEFAULT.name, "tau 0.5"]
    done = rows_of((SMALL, SEED, (arms[0],)))
    path.write_text(json.dumps(done[0]) + "\n" + '{"family": "pool', encoding="utf-8")
    earlier = read_rows(path)
    left = list(tasks_left(earlier, [SMALL], arms, [SEED]))
    assert left == [(SMALL, SEED, ("tau 0.5",))]
    run_all(left, earlier, path, processes=1)
    assert read_rows(path) == rows_of((SMALL, SEED, tuple(arms)))
    assert list(tasks_left(read_rows(path), [SMALL], arms, [SEED])) == []


def test_worthless_families_hold_the_same_worthless_edit_and_no_other():
    for family in FAMILIES.values():
        (only,) = worthless(family.edits)
        assert only.share == 1
        assert only.rules == next(kind.rules for kind in family.edits if kind.name == "null")


def test_the_formula_about_luck_and_the_truth_speak_of_the_same_run():
    row = luck_of((DEFAULT.name, SMALL, SEED))
    for source in ("told", "true", "told_of_null"):
        assert 0 <= row[f"{source}_kept"] <= row[f"{source}_accepted"] <= PROPOSALS


def test_errors_are_those_of_textbooks():
    assert mean_and_error([1.0, 3.0]) == [2.0, 1.0]
    assert mean_and_error([5.0]) == [5.0, 0.0]
    assert ratio_and_error([1, 2], [2, 4]) == [0.5, 0.0]
    assert ratio_and_error([0, 0], [0, 0]) == [0.0, 0.0]


def test_the_default_differs_from_itself_by_nothing_and_results_hold_every_cell(tmp_path, capsys):
    arms = [DEFAULT.name, "tau 0.5"]
    rows = [row for seed in (SEED, SEED + 1) for row in rows_of((SMALL, seed, tuple(arms)))]
    cells = cells_of(rows, "tuning")
    default = next(cell for cell in cells if cell["arm"] == DEFAULT.name)
    assert default["gain_to"] == [0.0, 0.0]

    (tmp_path / "tuning.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report(tmp_path, tmp_path / "out.json")
    results = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [(cell["family"], cell["arm"]) for cell in results["cells"] if cell["family"] == SMALL] == [
        (SMALL, arm) for arm in arms
    ]
    assert SMALL in capsys.readouterr().out
