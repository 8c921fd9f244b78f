"""The configurations that come with the package."""

from pathlib import Path

import pytest

from core.questions import load_benchmark
from harness.config import load_config
from harness.pools import build_pools, cut_of, load_pools
from harness.runner import Runner

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def config_of(name, folder):
    places = {"workspace_dir": str(folder / "workspace"), "store_dir": str(folder / "store")}
    return load_config(
        f"configs/{name}.yaml", cli={"mode": "train", **places}, environment={}, env_file="none"
    )


@pytest.mark.parametrize("name", ["demo", "openai"])
def test_configurations_cut_the_demo_data_into_its_committed_pools(name, tmp_path):
    questions = load_benchmark("data/demo/questions")
    config = config_of(name, tmp_path)
    assert config.n_task_types == len({question.task_type for question in questions})
    assert (
        build_pools(questions, cut_of(config)).ids()
        == load_pools(Path("data/demo/pools.json"), questions).ids()
    )


def test_the_demo_needs_no_endpoint_whatever_the_environment_holds(tmp_path):
    config = config_of("demo", tmp_path)
    named = {f"{role}_LLM_MODEL": "never asked" for role in ("AGENT", "EVOLVE", "JUDGE")}
    runner = Runner.from_config(config, variables=named)
    assert runner._services.endpoints.opened == []
