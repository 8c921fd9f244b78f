"""Trains the text of a tool-using LLM agent. Each module is exported from the notebook of the same name."""

__version__ = "0.1.0"

from importlib import import_module

from loguru import logger

# A library is silent until its user asks: the command line and the tutorials enable it.
logger.disable("harness")

# Where each public name lives. Looked up on first use, so that reading a log does not import pandas.
_HOMES = {
    "HarnessLog": "log",
    "InferenceResult": "inference",
    "Pools": "pools",
    "ResolvedPaths": "workspace",
    "RunConfig": "config",
    "RunLogImpl": "log",
    "Runner": "runner",
    "VersionedPromptStore": "workspace",
    "VersionedSkillStore": "workspace",
    "build_or_load_pools": "pools",
    "build_pools": "pools",
    "load_config": "config",
    "load_pools": "pools",
    "resolve_paths": "workspace",
    "run_inference": "inference",
    "save_pools": "pools",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    return getattr(import_module(f"harness.{_HOMES[name]}"), name)
