"""The package is what the notebooks export: nothing more, nothing older."""

import shutil
from pathlib import Path

import exported
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path):
    """A copy of the project's notebooks and package that a test may spoil."""
    copy = tmp_path / "project"
    for name in ["nbs", "harness"]:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ["settings.ini", "_quarto.yml", "pyproject.toml"]:
        shutil.copy(ROOT / name, copy / name)
    return copy


def test_package_and_notebooks_are_exported_and_clean(project):
    assert exported.differences(project) == []


def test_a_stale_module_is_found(project):
    (project / "harness" / "forgotten.py").write_text("", encoding="utf-8")
    assert exported.differences(project) == ["harness/forgotten.py: no notebook exports it; delete it"]


def test_a_missing_module_is_found(project):
    (project / "harness" / "log.py").unlink()
    assert exported.differences(project) == ["harness/log.py: is missing; run `make sync`"]


def test_a_module_edited_by_hand_is_found(project):
    module = project / "harness" / "config.py"
    module.write_text(module.read_text(encoding="utf-8") + "\nedited = True\n", encoding="utf-8")
    assert exported.differences(project) == ["harness/config.py: differs from its notebook; run `make sync`"]


def test_a_notebook_that_is_not_clean_is_found(project):
    notebook = project / "nbs" / "00_config.ipynb"
    text = notebook.read_text(encoding="utf-8")
    notebook.write_text(text.replace('"execution_count": null', '"execution_count": 7', 1), encoding="utf-8")
    assert exported.differences(project) == ["nbs/00_config.ipynb: is not clean; run `make sync`"]
