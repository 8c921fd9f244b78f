"""Plugins watch a rollout and may give hints; they can never end or break it.

A plugin is any object with methods marked `@hookimpl`; it takes those of a hook's arguments that it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pluggy
from loguru import logger

from core.types import GeneratedQuestion, LoopResult, Step

_PROJECT = "harness"
hookspec = pluggy.HookspecMarker(_PROJECT)
hookimpl = pluggy.HookimplMarker(_PROJECT)


class HookSpecs:
    """What a plugin may implement. `step_number` counts from 1."""

    @hookspec
    def before_step(self, question: GeneratedQuestion, step_number: int) -> None:
        """Before the agent decides what to do."""

    @hookspec
    def after_tool(
        self, question: GeneratedQuestion, step_number: int, tool: str, args: Mapping[str, Any], output: str
    ) -> str | None:
        """After a tool answered. A text that is returned is appended to what the agent is told."""

    @hookspec
    def after_step(self, question: GeneratedQuestion, step_number: int, step: Step) -> None:
        """After a step is complete."""

    @hookspec
    def on_finish(self, question: GeneratedQuestion, result: LoopResult) -> None:
        """After the rollout ended, however it did."""


class Plugins:
    """Calls the plugins of one rollout, each by itself, so that one that raises keeps no other from its turn.

    Raises `pluggy.PluginValidationError` at once for a plugin whose hook takes an argument that there is not.
    """

    def __init__(self, plugins: Sequence[object], question: GeneratedQuestion) -> None:
        self._question = question
        self._managers = [_manager(plugin) for plugin in plugins]

    def before_step(self, step_number: int) -> None:
        self._call("before_step", step_number=step_number)

    def after_tool(self, step_number: int, tool: str, args: Mapping[str, Any], output: str) -> list[str]:
        """The hints that plugins gave, in the order of the plugins."""
        answers = self._call("after_tool", step_number=step_number, tool=tool, args=args, output=output)
        return [str(hint) for hint in answers if hint]

    def after_step(self, step_number: int, step: Step) -> None:
        self._call("after_step", step_number=step_number, step=step)

    def on_finish(self, result: LoopResult) -> None:
        self._call("on_finish", result=result)

    def _call(self, hook: str, **arguments: Any) -> list[Any]:
        answers: list[Any] = []
        for manager in self._managers:
            try:
                answers += getattr(manager.hook, hook)(question=self._question, **arguments)
            except Exception as error:
                # A plugin is somebody's observer: its fault must not cost a rollout that was paid for.
                logger.opt(exception=error).warning("a plugin's {} raised: {!r}", hook, error)
        return answers


def _manager(plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(_PROJECT)
    manager.add_hookspecs(HookSpecs)
    manager.register(plugin)
    return manager
