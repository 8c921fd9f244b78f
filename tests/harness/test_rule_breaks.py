"""Each rule of the ten phases has a test that fails when the rule is broken: they are broken here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rule_breaks import BREAKS

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("harness", "core", "tests", "tools", "pyproject.toml", "settings.ini")
FAILED = 1  # pytest's exit code: collected, run, and not all passed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project, to break."""
    folder = tmp_path_factory.mktemp("broken")
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)
    return folder


def run_tests(folder, tests):
    """The exit code of tests in a copy, and what they said."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*command, *(f"tests/harness/{test}" for test in tests)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return told.returncode, told.stdout + told.stderr


def test_the_tests_pass_while_nothing_is_broken(copy):
    code, told = run_tests(copy, sorted({test for one in BREAKS for test in one.tests}))
    assert code == 0, told


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_rule_fails_each_of_its_tests(copy, broken):
    path = copy / broken.module
    kept = path.read_text("utf-8")
    assert kept.count(broken.old) == 1, f"{broken.module} has changed: {broken.old!r} is not there once"
    path.write_text(kept.replace(broken.old, broken.new), encoding="utf-8")
    try:
        for test in broken.tests:
            code, told = run_tests(copy, [test])
            assert code == FAILED, told
    finally:
        path.write_text(kept, encoding="utf-8")
