"""The public names of the package."""

import subprocess
import sys

import pytest

import harness

PUBLIC = {
    "HarnessLog", "InferenceResult", "Pools", "ResolvedPaths", "RunConfig", "RunLogImpl", "Runner",
    "VersionedPromptStore", "VersionedSkillStore", "build_or_load_pools", "build_pools", "load_config",
    "load_pools", "resolve_paths", "run_inference", "save_pools",
}  # fmt: skip


def test_public_api_imports():
    assert set(harness.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(harness, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = harness.Trainer


def test_importing_the_package_loads_no_table_or_plot_library():
    code = "import sys, harness.log; print({'pandas', 'matplotlib', 'openai'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
