"""What a user may rely on when a configuration is loaded."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import LAYERS, ConfigError, RunConfig, build_config, field_facts, load_config, validate

PLACES = {"workspace_dir": "runs/a", "store_dir": "store", "questions": "questions", "trees_dir": "trees"}
VALID = RunConfig(**PLACES)


def problems_of(**changes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(dataclasses.replace(VALID, **changes))
    return caught.value.problems


@pytest.fixture
def write_yaml(tmp_path):
    def write(text: str):
        path = tmp_path / "run.yaml"
        lines = "".join(f"{name}: {value}\n" for name, value in PLACES.items())
        path.write_text(lines + text, encoding="utf-8")
        return path

    return write


def test_valid_config():
    assert validate(VALID) is VALID
    with pytest.raises(dataclasses.FrozenInstanceError):
        VALID.epochs = 5


def test_mode_validation():
    assert problems_of(mode="dream") == ["mode: 'dream' is none of infer, train, eval, diagnose, promote"]
    assert problems_of(mode="diagnose") == ["run_id: is empty, and mode diagnose needs it"]
    found = problems_of(skill_mode="x", concurrency=0, max_steps=-1, epochs=0, n_samples=-1)
    assert [problem.partition(":")[0] for problem in found] == [
        "skill_mode", "concurrency", "max_steps", "epochs", "n_samples",
    ]  # fmt: skip


def test_edit_budget_validation():
    assert problems_of(edit_budget_start=1, edit_budget_end=2) == [
        "edit_budget_end: 2 is above edit_budget_start 1"
    ]
    assert problems_of(edit_budget_end=0) == ["edit_budget_end: 0 is below 1"]
    assert "edit_schedule" in problems_of(edit_schedule="step")[0]
    assert "evolve_targets" in problems_of(evolve_targets="skills+weights")[0]


def test_minibatch_validation():
    assert problems_of(batch_size=1, min_class=4)[0] == "batch_size: 1 is below 2"
    assert "min_class: 16" in problems_of(min_class=16)[0]
    assert "correct_ratio: 1.0" in problems_of(correct_ratio=1.0)[0]
    assert len(problems_of(test_size=0, diag_size=-1, correct_ratio=-0.1)) == 3


def test_gate_validation():
    found = problems_of(
        gate_alpha=0.21, gate_p_low=0.9, cooldown=-1, gate_max_questions=9, infra_max_rate=1.0
    )
    named = {problem.partition(":")[0] for problem in found}
    assert named == {
        "gate_alpha", "gate_p_low", "cooldown", "gate_max_questions", "infra_max_rate", "gate_min_pairs",
    }  # fmt: skip
    assert "no room" in problems_of(gate_n_probes=40)[0]


def test_load_config_cli_overrides(write_yaml, tmp_path):
    path = write_yaml("concurrency: 4\nepochs: 5\nseed: 3\n")
    dotenv = tmp_path / "run.env"
    dotenv.write_text("HARNESS_CONCURRENCY=6\n", encoding="utf-8")
    loaded = load_config(path, cli={"epochs": 2, "seed": None}, environment={}, env_file=dotenv)
    assert (loaded.concurrency, loaded.epochs, loaded.seed) == (6, 2, 3)
    environment = {"HARNESS_CONCURRENCY": "7"}
    assert load_config(path, environment=environment, env_file=dotenv).concurrency == 7
    assert (
        load_config(path, cli={"concurrency": 8}, environment=environment, env_file=dotenv).concurrency == 8
    )


def test_val_size_floor():
    assert validate(dataclasses.replace(VALID, val_size=55)).val_size == 55
    assert "raise val_size to 55" in problems_of(val_size=54)[0]


def test_unknown_keys_get_a_suggestion(write_yaml):
    with pytest.raises(ConfigError, match=r"gate_alfa: no such field; did you mean gate_alpha\?"):
        load_config(write_yaml("gate_alfa: 0.1\n"), environment={})


@pytest.mark.parametrize("name", [name for name, fact in field_facts().items() if fact["kind"] == "science"])
def test_science_fields_are_refused_from_dotenv_and_environment(name, write_yaml, tmp_path):
    dotenv = tmp_path / "run.env"
    dotenv.write_text(f"HARNESS_{name.upper()}=1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{name} is a science parameter"):
        load_config(write_yaml(""), environment={}, env_file=dotenv)
    with pytest.raises(ConfigError, match=f"{name} is a science parameter"):
        load_config(
            write_yaml(""), environment={f"HARNESS_{name.upper()}": "1"}, env_file=tmp_path / "none.env"
        )


@pytest.mark.parametrize(
    "text", ["epochs: [1", "- a\n- b\n", "epochs: 1\nepochs: 2\n", "epochs: !!python/object:os.x {}\n"]
)
def test_broken_yaml_is_refused_in_words(text, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_config(path, environment={})


def test_yaml_with_a_byte_order_mark_loads(tmp_path):
    path = tmp_path / "bom.yaml"
    text = "".join(f"{name}: {value}\r\n" for name, value in PLACES.items())
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_config(path, environment={}).workspace_dir == "runs/a"


def test_all_values_of_a_wrong_type_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        build_config({"epochs": "many", "gate_alpha": None, "batch_size": 2.5})
    assert len(caught.value.problems) == 3


@given(
    st.sampled_from(
        ["gate_alpha", "gate_tau", "gate_gamma", "correct_ratio", "mixed_weight", "infra_max_rate"]
    )
)
def test_nan_is_never_valid(name):
    assert any(name in problem for problem in problems_of(**{name: float("nan")}))


@given(st.lists(st.sampled_from(sorted(LAYERS)), unique=True, min_size=1))
def test_the_first_layer_with_problems_is_told_whole(broken):
    changes = {
        "mode": {"epochs": 0, "max_steps": 0},
        "edit budget": {"edit_budget_end": 0, "edit_schedule": "x"},
        "mini-batch and pools": {"batch_size": 1, "split_by": "x"},
        "gate": {"gate_alpha": 1.0, "gate_ladder": "x"},
    }
    all_changes = {name: value for layer in broken for name, value in changes[layer].items()}
    first = next(layer for layer in LAYERS if layer in broken)
    found = problems_of(**all_changes)
    assert {name for name in changes[first] if any(problem.startswith(name) for problem in found)} == set(
        changes[first]
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("HARNESS_CONCURRENCY: 4", "line 1: is not of the form NAME=value"),
        ("harness_concurrency=4", "write it as HARNESS_CONCURRENCY"),
        ("HARNESS_CONCURENCY=4", "did you mean concurrency?"),
    ],
)
def test_a_line_of_dotenv_never_vanishes_silently(line, problem, write_yaml, tmp_path):
    dotenv = tmp_path / "run.env"
    dotenv.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(write_yaml(""), environment={}, env_file=dotenv)
    assert problem in str(caught.value)


def test_an_empty_variable_sets_nothing(write_yaml, tmp_path):
    dotenv = tmp_path / "run.env"
    dotenv.write_text("HARNESS_CONCURRENCY=\n", encoding="utf-8")
    assert load_config(write_yaml("concurrency: 4\n"), environment={}, env_file=dotenv).concurrency == 4


def test_a_dotenv_that_is_not_utf8_is_told_in_words(write_yaml, tmp_path):
    dotenv = tmp_path / "run.env"
    dotenv.write_bytes("AGENT_LLM_MODEL=café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="can not be read as UTF-8"):
        load_config(write_yaml(""), environment={}, env_file=dotenv)
