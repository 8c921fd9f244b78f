"""What the world states as true is what happens in it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_worlds import RULES, TEXT, answers, is_right, make_world, no_rules

from core.adapters.simulated_rules import Rule, render_rule

STANDARD_ERRORS = 4

worlds = st.builds(
    make_world,
    seed=st.integers(0, 10**6),
    n_questions=st.integers(1, 40),
    accuracy=st.floats(0.3, 0.7),
    spread=st.floats(0.0, 1.0),
    churn=st.sampled_from([0.0, 0.1, 0.2]),
    text_noise=st.sampled_from([0.0, 0.2]),
)
small_worlds = st.builds(
    make_world,
    seed=st.integers(0, 10**6),
    n_questions=st.integers(1, 6),
    accuracy=st.floats(0.4, 0.6),
    spread=st.floats(0.0, 1.0),
    churn=st.sampled_from([0.0, 0.1]),
    text_noise=st.sampled_from([0.0, 0.5]),
)
texts = st.sampled_from(["", TEXT, *map(render_rule, RULES)])


async def test_measured_accuracy_of_2000_rollouts_lies_within_sampling_error_of_the_stated_truth():
    world = make_world(n_questions=100, churn=0.2)
    right = 0
    for draw in range(20):
        agent = world.agent(draw)
        results = await answers(
            lambda _, agent=agent: agent, world.questions, TEXT, tools_for=world.tools_for
        )
        right += sum(map(is_right, world.questions, results))
    chances = world.chance_right(world.responses.rows, TEXT)
    error = math.sqrt(20 * (chances * (1 - chances)).sum()) / 2000
    assert error > 0
    assert abs(right / 2000 - world.true_accuracy(lambda _: TEXT)) <= STANDARD_ERRORS * error


def test_without_churn_every_rollout_has_exactly_the_true_accuracy():
    world = make_world(churn=0.0)
    rows = world.responses.rows
    for draw in ("first", "second", 3):
        assert world.correct(rows, TEXT, draw).mean() == pytest.approx(world.true_accuracy(lambda _: TEXT))


@pytest.mark.parametrize("churn", [0.0, 0.1, 0.3])
def test_two_rollouts_of_the_same_text_disagree_as_often_as_stated(churn):
    world = make_world(n_questions=200, churn=churn)
    rows = world.responses.rows
    pairs = [world.correct(rows, "", f"{n} a") != world.correct(rows, "", f"{n} b") for n in range(200)]
    disagreement = np.mean(pairs)
    error = math.sqrt(world.true_churn(no_rules) / (200 * 200))
    assert abs(disagreement - world.true_churn(no_rules)) <= STANDARD_ERRORS * error


@pytest.mark.parametrize("churn", [0.0, 0.1, 0.3])
def test_averaged_over_worlds_the_churn_is_the_one_asked_for(churn):
    found = [make_world(seed, n_questions=100, churn=churn).true_churn(no_rules) for seed in range(60)]
    assert abs(np.mean(found) - churn) <= STANDARD_ERRORS * np.std(found) / math.sqrt(60)


@settings(max_examples=40)
@given(world=small_worlds, text=texts)
def test_true_accuracy_equals_the_enumeration_of_all_that_can_happen(world, text):
    standing, redrawn = world.responses.standing(text), world.responses.redrawn
    happenings = [  # of each question: luck kept, drawn anew below its chance, drawn anew above it
        ((1 - redrawn, bool(settled)), (redrawn * chance, True), (redrawn * (1 - chance), False))
        for settled, chance in zip(standing.settled, standing.chances, strict=True)
    ]
    expected = total = 0.0
    for state in itertools.product(*happenings):
        probability = math.prod(part for part, _ in state)
        total += probability
        expected += probability * sum(right for _, right in state) / len(state)
    assert total == pytest.approx(1)
    assert world.true_accuracy(lambda _: text) == pytest.approx(expected, abs=1e-12)


@given(seed=st.integers(0, 999), accuracy=st.floats(0.05, 0.95), spread=st.floats(0, 3))
def test_the_population_accuracy_without_rules_is_the_one_asked_for(seed, accuracy, spread):
    world = make_world(seed, accuracy=accuracy, spread=spread, churn=0.0, text_noise=0.2)
    assert world.population_accuracy(no_rules) == pytest.approx(accuracy, abs=1e-9)


def test_over_many_wordings_the_accuracy_averages_to_that_of_the_population():
    world = make_world(n_questions=100, text_noise=1.0, churn=0.0)
    found = [world.true_accuracy(lambda _, number=number: f"wording {number}") for number in range(400)]
    error = np.std(found) / math.sqrt(400)
    assert abs(np.mean(found) - world.population_accuracy(no_rules)) <= STANDARD_ERRORS * error


@settings(max_examples=40)
@given(world=worlds, effect=st.floats(0, 5), name=st.sampled_from(["order", "order-1", "every", "content-3"]))
def test_a_rule_moves_what_it_names_its_own_way_and_nothing_else(world, effect, name):
    rows, rule = world.responses.rows, Rule(name, "look twice.", round(effect, 4))
    before = world.responses.abilities(())
    after = world.responses.abilities((rule,))
    named = np.isin(rows, world.responses.rows_named(rule))
    assert np.allclose(after[named], before[named] + rule.effect)
    assert np.array_equal(after[~named], before[~named])


@settings(max_examples=40)
@given(effect=st.floats(0, 5), seed=st.integers(0, 999), churn=st.sampled_from([0.0, 0.2]))
def test_without_text_noise_a_helpful_rule_makes_no_question_harder(effect, seed, churn):
    world = make_world(seed, churn=churn)
    rows, rule = world.responses.rows, Rule("order", "look twice.", effect)
    gain = world.chance_right(rows, render_rule(rule)) - world.chance_right(rows, "")
    assert (gain >= 0).all()


def test_a_rule_for_one_difficulty_leaves_the_others_alone():
    world = make_world()
    easy = np.array([question.difficulty == "easy" for question in world.questions])
    text = render_rule(Rule("every", "read slowly.", -2.0, "easy"))
    fell = world.chance_right(world.responses.rows, text) < world.chance_right(world.responses.rows, "")
    assert fell[easy].all()
    assert not fell[~easy].any()


def test_text_noise_changes_answers_up_and_down_though_no_rule_changed():
    world = make_world(n_questions=200, churn=0.0, text_noise=0.3)
    rows = world.responses.rows
    before, after = world.correct(rows, "one wording", 0), world.correct(rows, "another wording", 0)
    assert (before & ~after).any()
    assert (~before & after).any()
    assert world.population_accuracy(lambda _: "one wording") == world.population_accuracy(no_rules)


def test_drift_moves_abilities_from_epoch_to_epoch_and_says_nothing():
    world = make_world(drift=0.5)
    later = world.at_epoch(2)
    assert np.array_equal(world.at_epoch(0).responses.abilities(()), world.responses.abilities(()))
    assert not np.array_equal(later.responses.abilities(()), world.responses.abilities(()))
    assert later.questions == world.questions
    assert later.agent().fingerprint == world.agent().fingerprint
    assert np.array_equal(
        make_world().at_epoch(2).responses.abilities(()), make_world().responses.abilities(())
    )


def test_accuracy_of_a_skill_set_gives_every_task_type_its_own_text():
    world = make_world()
    by_type = {"order": render_rule(RULES[0]), "content": ""}
    rows = {name: [r for r, place in enumerate(world.places) if place.task_type == name] for name in by_type}
    expected = sum(world.chance_right(np.array(rows[name]), text).sum() for name, text in by_type.items())
    assert world.true_accuracy(by_type.__getitem__) == pytest.approx(expected / len(world.places))


def test_there_is_no_accuracy_of_no_questions():
    with pytest.raises(ValueError, match="rows"):
        make_world().true_accuracy(no_rules, np.array([], dtype=np.intp))


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"accuracy": 0.0}, "accuracy"),
        ({"spread": -1.0}, "spread"),
        ({"churn": 0.6}, "churn"),
        ({"text_noise": 1.5}, "text_noise"),
        ({"drift": float("nan")}, "drift"),
        ({"epoch": -1}, "epoch"),
        ({"n_questions": 0}, "n_questions"),
        ({"n_videos": 1, "n_questions": 5000}, "n_videos"),
        ({"task_types": ()}, "task_types"),
        ({"task_types": ("order", "order-1")}, "task_types"),
        ({"task_types": ("every",)}, "task_types"),
        ({"task_types": ("a`b",)}, "task_types"),
        ({"clusters": 0}, "clusters"),
    ],
)
def test_arguments_that_make_no_world_are_named(parameters, named):
    with pytest.raises(ValueError, match=named):
        make_world(**parameters)
