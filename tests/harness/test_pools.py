"""Pools: nothing is shared between them, they are frozen, and what was trained on is never measured with."""

import dataclasses
import itertools
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from core.questions import load_benchmark, stratified_sample
from core.questions.duplicates import near_duplicates, question_digest
from core.types import GeneratedQuestion
from harness.config import ConfigError, RunConfig
from harness.log import HarnessLog
from harness.pools import (
    Cut,
    Pools,
    build_or_load_pools,
    build_pools,
    chi_square,
    cut_of,
    default_split_by,
    describe_pools,
    load_pools,
    questions_digest,
    save_pools,
)
from harness.store import SeedMeta, StoreError, init_seed, init_store, lineage_of, write_json_atomic

TYPES = ("order", "order", "detail", "detail", "count", "why")


def words(seed: str, n: int) -> str:
    """Invented words, so that two questions are alike only where a test wants them to be."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(n))


def ask(question_id: str, video_id: str, task_type: str, **changes) -> GeneratedQuestion:
    options = (words(f"{question_id} a", 2), words(f"{question_id} b", 2))
    question = GeneratedQuestion(question_id, video_id, task_type, words(question_id, 4), options, "A")
    return dataclasses.replace(question, **changes)


def films(n: int, types=TYPES, start: int = 0) -> list[GeneratedQuestion]:
    numbers = range(start, start + n)
    return [ask(f"film{f:02}-{i}", f"film{f:02}", kind) for f in numbers for i, kind in enumerate(types)]


def copied(question: GeneratedQuestion, question_id: str, video_id: str) -> GeneratedQuestion:
    """The same question in other clothes: its options exchanged, in capitals, with another question mark."""
    other = {"A": "B", "B": "A"}[question.answer]
    changes = {
        "question": f"{question.question.upper()} ?",
        "options": question.options[::-1],
        "answer": other,
    }
    return dataclasses.replace(question, question_id=question_id, video_id=video_id, **changes)


def pool_of(pools: Pools) -> dict[str, str]:
    return {question_id: name for name, ids in pools.ids().items() for question_id in ids}


FILMS = films(20)
CUT = Cut(test_size=30, val_size=30, eval_min_per_class=2)
BY_QUESTION = dataclasses.replace(CUT, split_by="question")


@pytest.fixture
def told():
    """What the package tells in its log."""
    messages: list[str] = []
    logger.enable("harness")
    sink = logger.add(
        lambda message: messages.append(f"{message.record['level'].name} {message}"), level="INFO"
    )
    yield messages
    logger.remove(sink)
    logger.disable("harness")


@st.composite
def benchmarks(draw) -> list[GeneratedQuestion]:
    """Videos of all sizes; some questions in groups across videos, some copied from other videos."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=5, max_size=10))
    questions = []
    for number, size in enumerate(sizes):
        for i in range(size):
            group_id = draw(st.sampled_from(["", "", "", "g1", "g2"]))
            task_type = draw(st.sampled_from(["order", "detail", "why"]))
            new = ask(f"v{number}-{i}", f"v{number}", task_type, group_id=group_id)
            if questions and draw(st.integers(0, 7)) == 0:
                new = copied(
                    questions[draw(st.integers(0, len(questions) - 1))], new.question_id, new.video_id
                )
            questions.append(new)
    return questions


cuts = st.builds(
    Cut,
    test_size=st.integers(1, 6),
    val_size=st.integers(1, 6),
    diag_size=st.sampled_from([0, 0, 3]),
    split_by=st.sampled_from(["video", "question"]),
    split_seed=st.integers(0, 3),
)


def belong_together(first: GeneratedQuestion, second: GeneratedQuestion, split_by: str) -> bool:
    """The rule, told once more and without chains: one pair, looked at directly."""
    letters = [
        sorted(filter(str.isalpha, (q.question + "".join(q.options)).casefold())) for q in (first, second)
    ]
    return (
        (split_by == "video" and first.video_id == second.video_id)
        or (first.group_id != "" and first.group_id == second.group_id)
        or letters[0] == letters[1]
    )


@settings(max_examples=300)
@given(benchmarks(), cuts, st.data())
def test_pools_share_nothing_and_lose_nothing_whatever_the_questions(questions, cut, data):
    trained = data.draw(st.sets(st.sampled_from([q.question_id for q in questions]), max_size=3))
    try:
        pools = build_pools(questions, cut, trained_ids=trained)
    except ConfigError:
        return  # too few questions for this cut; its own tests look at that
    where, by_id = pool_of(pools), {q.question_id: q for q in questions}
    assert len(where) == sum(map(len, pools.ids().values()))
    assert cut.diag_size or set(where) == set(by_id)
    for first, second in itertools.combinations(where, 2):
        if belong_together(by_id[first], by_id[second], cut.split_by):
            assert where[first] == where[second]
    assert all(where.get(question_id, "diagnosis") == "diagnosis" for question_id in trained)
    assert len(pools.test) >= cut.test_size
    assert len(pools.validation) >= cut.val_size
    shuffled = random.Random(cut.split_seed).sample(questions, len(questions))
    assert build_pools(shuffled, cut, trained_ids=trained) == pools


@pytest.mark.parametrize("cut", [CUT, BY_QUESTION])
def test_build_pools_mutual_exclusion(cut):
    pools = build_pools(FILMS, cut)
    ids = [question_id for pool in pools.ids().values() for question_id in pool]
    assert sorted(ids) == sorted(question.question_id for question in FILMS)
    assert [len(pool) for pool in pools.ids().values()] == [30, 30, 60]


def test_whole_videos_stay_whole():
    pools = build_pools(FILMS, CUT)
    videos = [{q.video_id for q in pool} for pool in (pools.test, pools.validation, pools.diagnosis)]
    assert [len(each) for each in videos] == [5, 5, 10]
    assert len(set.union(*videos)) == 20


def test_groups_and_near_duplicates_stay_together_also_along_a_chain():
    """Film 0 - film 1 by group, film 1 - film 2 by text: the three go the same way, for every seed."""
    questions = [
        dataclasses.replace(q, group_id="twins") if q.question_id in ("film00-0", "film01-0") else q
        for q in FILMS
    ]
    twin = next(q for q in questions if q.question_id == "film01-3")
    questions = [copied(twin, "film02-5", "film02") if q.question_id == "film02-5" else q for q in questions]
    for split_seed in range(8):
        pools = build_pools(questions, dataclasses.replace(CUT, split_seed=split_seed))
        where = pool_of(pools)
        assert len({where[f"film0{film}-{i}"] for film in range(3) for i in range(6)}) == 1
        assert [(pair.first, pair.second) for pair in pools.near_duplicates] == [("film01-3", "film02-5")]


def test_near_duplicates_are_told(told, tmp_path):
    questions = [*FILMS, copied(FILMS[0], "film07-9", "film07")]
    assert build_pools(questions, CUT).near_duplicates  # trying a cut out is no news
    assert told == []
    pools = build_or_load_pools(tmp_path / "pools.json", questions, CUT)
    assert any(line.startswith("WARNING") and "film00-0 and film07-9 are 100% alike" in line for line in told)
    assert pool_of(pools)["film00-0"] == pool_of(pools)["film07-9"]
    assert "chi-square" in describe_pools(pools, questions)


def test_near_duplicates_within_one_video_are_not_news():
    questions = [*FILMS, copied(FILMS[0], "film00-9", "film00")]
    assert near_duplicates(questions) != []
    assert build_pools(questions, CUT).near_duplicates == ()
    assert len(build_pools(questions, BY_QUESTION).near_duplicates) == 1


def test_build_pools_test_natural_distribution():
    """Questions one by one: test has exactly the proportions of all questions."""
    pools = build_pools(FILMS, BY_QUESTION)
    assert Counter(q.task_type for q in pools.test) == {"order": 10, "detail": 10, "count": 5, "why": 5}
    assert chi_square(pools.test, FILMS).statistic == 0
    assert chi_square(pools.test, FILMS).p == 1


def test_test_pool_does_not_look_at_correctness():
    """Also with correctness known and a ratio wanted, test is drawn as if nothing were known."""
    correctness = {q.question_id: i % 5 == 0 for i, q in enumerate(FILMS)}
    for cut in (CUT, BY_QUESTION):
        mixed = dataclasses.replace(cut, correct_ratio=0.5)
        assert build_pools(FILMS, mixed, correctness=correctness).test == build_pools(FILMS, cut).test


def test_test_pool_of_whole_videos_has_the_natural_distribution_on_average():
    """Videos that differ: over many seeds the share of a type in test is its share among all."""
    questions = films(20, ("order",) * 4) + films(10, ("why",) * 4, start=20)
    cut = Cut(test_size=40, val_size=20)
    pools = [build_pools(questions, dataclasses.replace(cut, split_seed=seed)).test for seed in range(60)]
    shares = [sum(q.task_type == "why" for q in test) / len(test) for test in pools]
    standard_error = np.std(shares, ddof=1) / math.sqrt(len(shares))
    assert abs(np.mean(shares) - 1 / 3) < 3 * standard_error


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 11])
@pytest.mark.parametrize("statistic", [0.5, 3.0, 12.0])
def test_p_of_chi_square_is_the_area_under_its_density(statistic, degrees):
    """Independent of the closed form: simple numeric integration of the density, in the square root of x."""
    root = np.linspace(math.sqrt(statistic), 20, 200_001)
    density = 2 * root ** (degrees - 1) * np.exp(-(root**2) / 2)
    area = np.sum((density[1:] + density[:-1]) / 2) * (root[1] - root[0])
    expected = area / (2 ** (degrees / 2) * math.gamma(degrees / 2))
    sample, population = _with_statistic(statistic, degrees)
    result = chi_square(sample, population)
    assert result.statistic == pytest.approx(statistic)
    assert result.p == pytest.approx(expected, abs=1e-6)


def _with_statistic(statistic: float, degrees: int):
    """One question of type 0, whose share `s` of the population makes the statistic (1 - s) / s."""
    questions = [ask(f"t{i}", "v", f"t{i}") for i in range(degrees + 1)]
    others, own = statistic.as_integer_ratio()
    population = questions[:1] * own * degrees + [q for q in questions[1:] for _ in range(others)]
    return questions[:1], population


def test_one_task_type_or_no_sample_fits_perfectly():
    alone = [ask("a", "v", "why"), ask("b", "v", "why")]
    assert chi_square(alone[:1], alone).p == 1
    assert chi_square([], FILMS).p == 1


def test_validation_has_its_floor_for_every_type():
    rare = [ask(f"film{i:02}-r", f"film{i:02}", "rare") for i in range(0, 20, 3)]
    for cut in (CUT, BY_QUESTION):
        for seed in range(10):
            pools = build_pools(FILMS + rare, dataclasses.replace(cut, split_seed=seed))
            assert min(Counter(q.task_type for q in pools.validation).values()) >= 2


def test_validation_of_single_questions_is_stratified_exactly():
    pools = build_pools(FILMS, dataclasses.replace(BY_QUESTION, val_size=12, eval_min_per_class=3))
    rest = [q for q in FILMS if q not in pools.test]
    wanted = stratified_sample(rest, 12, min_per_class=3, seed=0)
    assert Counter(q.task_type for q in pools.validation) == Counter(q.task_type for q in wanted)
    assert set(Counter(q.task_type for q in wanted).values()) == {3}


def test_validation_is_mixed_by_a_seeds_correctness():
    right_films = {f"film{number:02}" for number in range(0, 20, 2)}
    correctness = {q.question_id: q.video_id in right_films for q in FILMS}
    cut = dataclasses.replace(BY_QUESTION, val_size=24, correct_ratio=0.25)
    pools = build_pools(FILMS, cut, correctness=correctness)
    right = Counter(q.task_type for q in pools.validation if correctness[q.question_id])
    assert Counter(q.task_type for q in pools.validation) == {"order": 8, "detail": 8, "count": 4, "why": 4}
    assert right == {"order": 2, "detail": 2, "count": 1, "why": 1}
    assert pools.cut.correct_ratio == 0.25


def test_without_correctness_nothing_is_mixed_and_the_pools_say_so():
    mixed = build_pools(FILMS, dataclasses.replace(BY_QUESTION, correct_ratio=0.25))
    assert mixed == build_pools(FILMS, BY_QUESTION)
    assert mixed.cut.correct_ratio is None


@pytest.mark.parametrize(("split_by", "size"), [("question", 25), ("video", 30)])
def test_diag_size_limits_diagnosis_to_whole_units(split_by, size):
    cut = dataclasses.replace(CUT, split_by=split_by, diag_size=25)
    assert len(build_pools(FILMS, cut).diagnosis) == size


def test_floor_on_validation_size_says_what_would_do():
    cut = Cut(test_size=30, val_size=10, eval_min_per_class=3, split_by="question")
    with pytest.raises(ConfigError, match="raise val_size to 12 or lower eval_min_per_class to 2"):
        build_pools(FILMS, cut)
    build_pools(FILMS, dataclasses.replace(cut, val_size=12))
    build_pools(FILMS, dataclasses.replace(cut, eval_min_per_class=2))


def test_a_type_below_its_floor_names_the_floor_that_works():
    questions = FILMS + [ask(f"film{i:02}-r", f"film{i:02}", "rare") for i in range(4)]
    cut = dataclasses.replace(CUT, eval_min_per_class=5)
    with pytest.raises(ConfigError, match=r"\d of 4 questions of type 'rare'") as caught:
        build_pools(questions, cut)
    works = int(str(caught.value).partition("lower eval_min_per_class to ")[2][0])
    build_pools(questions, dataclasses.replace(cut, eval_min_per_class=works))
    with pytest.raises(ConfigError):
        build_pools(questions, dataclasses.replace(cut, eval_min_per_class=works + 1))


@pytest.mark.parametrize(
    ("questions", "cut", "named"),
    [
        ([], Cut(test_size=1, val_size=1), "test: only 0 questions"),
        (films(1), Cut(test_size=1, val_size=1), "validation: only 0 questions"),
        (films(2), Cut(test_size=1, val_size=1), "diagnosis: no question is left"),
        (FILMS, Cut(test_size=60, val_size=60), "diagnosis: no question is left"),
        (FILMS, Cut(test_size=200, val_size=60), "test: only 120 questions for test_size = 200"),
    ],
)
def test_too_few_questions_is_an_error_that_names_the_pool(questions, cut, named):
    with pytest.raises(ConfigError, match=named):
        build_pools(questions, cut)


def test_an_id_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="'film00-0' stands twice"):
        build_pools([*FILMS, FILMS[0]], CUT)


def test_split_seed_alone_decides_the_draw():
    config = RunConfig(test_size=30, val_size=30, eval_min_per_class=2, seed=0)
    pools = build_pools(FILMS, cut_of(config))
    assert build_pools(FILMS, cut_of(dataclasses.replace(config, seed=9, epochs=1))) == pools
    assert build_pools(FILMS, cut_of(dataclasses.replace(config, split_seed=1))).test != pools.test


def test_video_is_the_default_from_three_videos_per_pool_on():
    assert default_split_by(films(9)) == "video"
    assert default_split_by(films(8)) == "question"


# Units that are too large


@pytest.mark.parametrize(
    "generic",
    [
        lambda n: {"options": (), "answer": str(n % 4 + 1), "answer_kind": "number"},
        lambda n: {"options": ("yes", "no"), "answer": "AB"[n % 2]},
    ],
)
def test_a_question_that_is_asked_of_every_film_does_not_tie_the_films(generic):
    asked = [
        GeneratedQuestion(
            question_id=f"film{n:02}-generic",
            video_id=f"film{n:02}",
            task_type="order",
            question="Can people be seen in the film?",
            **generic(n),
        )
        for n in range(20)
    ]
    pools = build_pools([*FILMS, *asked], CUT)
    assert pools.near_duplicates == ()
    assert pools.diagnosis


def test_a_cut_that_large_units_make_impossible_names_them_and_what_ties_them():
    two = [ask(f"film{n}-{i}", f"film{n}", "order") for n in range(2) for i in range(30)]
    told = r"no question is left.*30 of the 60 questions can not be parted: video 'film0'; use split_by"
    with pytest.raises(ConfigError, match=told):
        build_pools(two, Cut(test_size=5, val_size=5))
    assert build_pools(two, Cut(test_size=5, val_size=5, split_by="question")).diagnosis


def test_films_tied_by_repeated_questions_are_told_with_an_example():
    tied = [copied(FILMS[0], f"film{n:02}-same", f"film{n:02}") for n in range(1, 20)]
    with pytest.raises(
        ConfigError, match=r"20 videos such as 'film00', near-duplicates such as film00-0 and"
    ):
        build_pools([*FILMS, *tied], CUT)


def test_sizes_that_are_too_large_are_blamed_and_not_the_units():
    with pytest.raises(ConfigError) as caught:
        build_pools(FILMS, Cut(test_size=100, val_size=100))
    assert "parted" not in str(caught.value)


def test_paths_may_be_text(tmp_path):
    path = str(tmp_path / "pools.json")
    pools = build_or_load_pools(path, FILMS, CUT)
    assert build_or_load_pools(path, FILMS, CUT) == pools == load_pools(path, FILMS)
    with pytest.raises(FileExistsError, match="frozen"):
        save_pools(pools, path)


# On disk


def test_save_load_pools_roundtrip(tmp_path):
    questions = [*FILMS, copied(FILMS[0], "film07-9", "film07")]
    pools = build_pools(questions, CUT)
    save_pools(pools, tmp_path / "pools.json")
    assert load_pools(tmp_path / "pools.json", questions[::-1]) == pools


def test_pools_file_holds_ids_only_and_is_the_same_for_any_order(tmp_path):
    for name, questions in {"a": FILMS, "b": FILMS[::-1]}.items():
        save_pools(build_pools(questions, CUT), tmp_path / f"{name}.json")
    text = (tmp_path / "a.json").read_text("utf-8")
    assert text == (tmp_path / "b.json").read_text("utf-8")
    assert not any(question.question in text for question in FILMS)


def test_load_pools_old_format_reject(tmp_path):
    path = tmp_path / "pools.json"
    write_json_atomic(path, {"train": ["film00-0"], "validation": ["film01-0"]})
    with pytest.raises(ValueError, match=r"pools\.json: has no `test` pool"):
        load_pools(path, FILMS)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": 1}, "schema"),
        ({"test": [{"question_id": "film00-0"}]}, r"test\.0"),
        ({"extra": 1}, "extra"),
        ({"cut": {"test_size": 3}}, r"cut\.val_size"),
        ({"diagnosis": None}, "diagnosis"),
    ],
)
def test_another_format_is_refused_by_file_and_field(tmp_path, change, named):
    path = tmp_path / "pools.json"
    save_pools(build_pools(FILMS, CUT), path)
    write_json_atomic(path, json.loads(path.read_text("utf-8")) | change)
    with pytest.raises(ValueError, match=rf"pools\.json: {named}"):
        load_pools(path, FILMS)


@pytest.mark.parametrize("content", ["", "{", '["test"]', "null"])
def test_a_broken_file_is_told_by_its_path(tmp_path, content):
    path = tmp_path / "pools.json"
    path.write_text(content)
    with pytest.raises((ValueError, StoreError), match=r"pools\.json"):
        load_pools(path, FILMS)


def test_questions_that_are_gone_are_named(tmp_path):
    path = tmp_path / "pools.json"
    save_pools(build_pools(FILMS, CUT), path)
    gone = {"film03-2", "film11-0"}
    with pytest.raises(ValueError, match=r"not in the benchmark any more: film03-2, film11-0; restore"):
        load_pools(path, [q for q in FILMS if q.question_id not in gone])


def test_changed_questions_are_told_but_do_not_cut_anew(tmp_path, told):
    path = tmp_path / "pools.json"
    pools = build_pools(FILMS, CUT)
    save_pools(pools, path)
    changed = [dataclasses.replace(FILMS[0], question=words("new", 5)), *FILMS[1:], *films(1, start=50)]
    loaded = load_pools(path, changed)
    assert loaded.ids() == pools.ids()
    assert loaded.questions_digest == questions_digest(changed) != pools.questions_digest
    assert any("the questions have changed" in line and FILMS[0].question_id in line for line in told)


@pytest.mark.parametrize("tie", ["video", "group", "text"])
def test_a_file_that_parts_what_belongs_together_is_refused(tmp_path, tie):
    """Somebody moved a question by hand, or edited two questions so that they became related."""
    path = tmp_path / "pools.json"
    pools = build_pools(FILMS, CUT if tie == "video" else BY_QUESTION)
    save_pools(pools, path)
    inside, outside = pools.test[0], pools.diagnosis[0]
    questions = {q.question_id: q for q in FILMS}
    if tie == "video":
        content = json.loads(path.read_text("utf-8"))
        content["test"].remove(inside.question_id)
        content["diagnosis"].append(inside.question_id)
        write_json_atomic(path, content)
    elif tie == "group":
        for question in (inside, outside):
            questions[question.question_id] = dataclasses.replace(question, group_id="g")
    else:
        questions[outside.question_id] = copied(inside, outside.question_id, outside.video_id)
    with pytest.raises(ValueError, match=inside.video_id if tie == "video" else inside.question_id):
        load_pools(path, list(questions.values()))


def test_build_or_load_pools_frozen(tmp_path, told):
    path = tmp_path / "pools.json"
    first = build_or_load_pools(path, FILMS, CUT)
    content = path.read_bytes()
    other = Cut(test_size=6, val_size=12, split_seed=9)
    assert build_or_load_pools(path, FILMS, other) == first
    assert path.read_bytes() == content
    assert any("test_size = 6 (is 30)" in line and "split_seed = 9 (is 0)" in line for line in told)
    with pytest.raises(FileExistsError, match="frozen"):
        save_pools(build_pools(FILMS, other), path)
    assert path.read_bytes() == content


def test_loading_with_the_configuration_that_cut_the_pools_warns_of_nothing(tmp_path, told):
    cut = cut_of(RunConfig(test_size=30, val_size=30, eval_min_per_class=2))
    build_or_load_pools(tmp_path / "pools.json", FILMS, cut)
    build_or_load_pools(tmp_path / "pools.json", FILMS, cut)
    assert not [line for line in told if line.startswith("WARNING")]


def test_a_failed_cut_leaves_no_file(tmp_path):
    with pytest.raises(ConfigError):
        build_or_load_pools(tmp_path / "pools.json", FILMS, Cut(test_size=100, val_size=100))
    assert list(tmp_path.iterdir()) == []


# Seeds


@pytest.fixture
def seed(tmp_path):
    """What the first experiment on the twenty films leaves behind; the store works out its lineage."""
    store, workspace = tmp_path / "store", tmp_path / "first"
    for resource in ("skills", "prompts"):
        (tmp_path / resource).mkdir()
        (tmp_path / resource / "text.md").write_text("look around")
    init_store(store, tmp_path / "skills", tmp_path / "prompts")
    workspace.mkdir()
    build_or_load_pools(workspace / "pools.json", FILMS, CUT)
    write_json_atomic(workspace / "manifest.json", {"seed": None})
    with HarnessLog(workspace / "harness.db", "first_e1_R"):
        pass
    meta = SeedMeta(
        skills_version="v1", prompts_version="v1", questions_ref="films", eval_run_id="first_e1_R"
    )
    paths = {"pools_path": workspace / "pools.json", "db_path": workspace / "harness.db"}
    return init_seed(store, "first", meta, lineage_of(store, workspace), **paths)


def measured(pools: Pools) -> set[str]:
    return {*pools.ids()["test"], *pools.ids()["validation"]}


@pytest.mark.parametrize("split_seed", range(5))
def test_a_second_experiment_with_another_split_keeps_the_seeds_pools(tmp_path, seed, split_seed, told):
    second = build_or_load_pools(
        tmp_path / "second.json", FILMS, dataclasses.replace(CUT, split_seed=split_seed), seed=seed
    )
    assert second == load_pools(seed.pools_path, FILMS)
    assert not measured(second) & set(second.ids()["diagnosis"])
    assert any("split_seed" in line for line in told) == (split_seed != 0)
    assert build_or_load_pools(tmp_path / "second.json", FILMS, CUT, seed=seed) == second


@pytest.mark.parametrize("cut", [CUT, BY_QUESTION])
@pytest.mark.parametrize("split_seed", range(5))
def test_other_data_never_put_a_trained_id_into_validation_or_test(tmp_path, seed, cut, split_seed):
    more = FILMS + films(20, start=20)
    trained = set(seed.lineage.trained_ids)
    cut = dataclasses.replace(cut, split_seed=split_seed)
    assert measured(build_pools(more, cut)) & trained  # without the seed it would happen
    pools = build_or_load_pools(tmp_path / "second.json", more, cut, seed=seed)
    assert trained <= set(pools.ids()["diagnosis"])
    assert not measured(pools) & trained


def test_what_belongs_to_a_trained_question_is_not_measured_with_either(tmp_path, seed):
    """A new film that repeats one trained question, and a new question of a trained video."""
    trained = next(q for q in FILMS if q.question_id in seed.lineage.trained_ids)
    cousin = copied(trained, "film30-9", "film30")
    sibling = ask(f"{trained.video_id}-new", trained.video_id, "why")
    more = [*FILMS, *films(20, start=20), cousin, sibling]
    for split_seed in range(5):
        cut = dataclasses.replace(CUT, split_seed=split_seed)
        pools = build_pools(more, cut, trained_ids=seed.lineage.trained_ids)
        videos = {q.video_id for q in pools.test + pools.validation}
        assert not videos & {"film30", trained.video_id}


def test_pools_from_elsewhere_that_measure_on_trained_questions_are_refused(tmp_path, seed):
    path = tmp_path / "pools.json"
    save_pools(build_pools(FILMS, dataclasses.replace(CUT, split_seed=3)), path)
    with pytest.raises(ValueError, match=r"pools\.json: seed 'first' was trained on film"):
        build_or_load_pools(path, FILMS, CUT, seed=seed)
    pools = json.loads(path.read_text("utf-8"))
    assert pools["cut"]["split_seed"] == 3  # refused, not mended behind the user's back


@pytest.mark.parametrize("measuring", ["test", "validation"])
def test_a_seeds_pools_with_diagnosis_exchanged_for_another_pool_are_refused(tmp_path, seed, measuring):
    path = tmp_path / "pools.json"
    pools = json.loads(seed.pools_path.read_text("utf-8"))
    pools["diagnosis"], pools[measuring] = pools[measuring], pools["diagnosis"]
    write_json_atomic(path, pools)
    only_diagnosis = dataclasses.replace(seed.lineage, trained_ids=tuple(pools[measuring]), trained_texts=())
    with pytest.raises(ValueError, match=r"seed 'first' was trained on film"):
        build_or_load_pools(path, FILMS, CUT, seed=dataclasses.replace(seed, lineage=only_diagnosis))


def numbered(questions):
    """The same questions as a benchmark that has renamed them, as `load_benchmark` does when ids clash."""
    return [dataclasses.replace(q, question_id=f"{q.video_id}/{i:03}") for i, q in enumerate(questions)]


def texts(questions):
    return {(q.video_id, q.question) for q in questions}


@pytest.mark.parametrize("cut", [CUT, BY_QUESTION])
@pytest.mark.parametrize("split_seed", range(5))
def test_a_trained_question_under_another_id_is_never_measured_with(tmp_path, seed, cut, split_seed):
    more = numbered(FILMS + films(20, start=20))
    trained = texts(q for q in FILMS if q.question_id in seed.lineage.trained_ids)
    cut = dataclasses.replace(cut, split_seed=split_seed)
    without = build_pools(more, cut)
    assert texts(without.test + without.validation) & trained  # without the seed it would happen
    pools = build_or_load_pools(tmp_path / "second.json", more, cut, seed=seed)
    assert not texts(pools.test + pools.validation) & trained


def test_pools_that_measure_on_renamed_trained_questions_are_refused(tmp_path, seed):
    renamed = numbered(FILMS)
    save_pools(build_pools(renamed, dataclasses.replace(CUT, split_seed=3)), tmp_path / "pools.json")
    with pytest.raises(ValueError, match=r"seed 'first' was trained on film"):
        build_or_load_pools(tmp_path / "pools.json", renamed, CUT, seed=seed)


def test_ids_that_load_benchmark_renames_lead_to_no_leak_in_either_direction(tmp_path):
    """Film A alone has ids 000, 001, ...; beside film B, which uses the same, they become A/000, ..."""

    def written(name, *numbers):
        for number in numbers:
            items = [
                {**dataclasses.asdict(q), "question_id": f"{i:03}"}
                for i, q in enumerate(ask(f"{number}-{i}", f"film{number}", "order") for i in range(60))
            ]
            (tmp_path / name).mkdir(exist_ok=True)
            write_json_atomic(tmp_path / name / f"film{number}.json", items)
        return load_benchmark(tmp_path / name)

    alone, both = written("alone", 1), written("both", 1, 2)
    assert not {q.question_id for q in alone} & {q.question_id for q in both}
    for first, second in [(alone, both), (both, alone)]:
        cut = Cut(test_size=5, val_size=5, split_by="question")
        pools = build_pools(first, dataclasses.replace(cut, test_size=len(first) // 3))
        trained = pools.validation + pools.diagnosis
        again = build_pools(
            second,
            dataclasses.replace(cut, split_seed=5),
            trained_ids=[q.question_id for q in trained],
            trained_texts=[question_digest(q) for q in trained],
        )
        assert not texts(again.test + again.validation) & texts(trained)


def test_too_little_that_is_new_is_an_error_that_says_why(tmp_path, seed):
    with pytest.raises(ConfigError, match=r"validation: only 6 questions .*trained on"):
        build_or_load_pools(tmp_path / "second.json", FILMS + films(1, start=20), CUT, seed=seed)
    assert not (tmp_path / "second.json").exists()


def test_lineage_reaches_over_generations(tmp_path, seed):
    """A third experiment, from a seed of the second, does not measure on what taught the first."""
    lineage = dataclasses.replace(seed.lineage, parents=("first",))
    grandchild = dataclasses.replace(seed, name="second", lineage=lineage)
    more = FILMS + films(30, start=20)
    pools = build_or_load_pools(tmp_path / "third.json", more, CUT, seed=grandchild)
    assert not measured(pools) & set(seed.lineage.trained_ids)
