"""The agent for chat models: reply, action, tool, result, until an answer is handed in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.agent.actions import Action, ReplyError, parse_action
from core.agent.plugins import Plugins
from core.agent.submission import SUBMIT, read_submission
from core.protocols import LLMProvider, ProviderError, ToolDispatcher, ToolError
from core.types import GeneratedQuestion, LLMResponse, LoopResult, Message, Step, StopReason


class AgentLoop:
    """An `Agent` for any chat model, speaking JSON actions.

    A step is one tool call that was carried out, the handing in included; there are `max_steps`. A reply
    that is no action and a call that the tools refuse are told to the model and cost no step;
    `max_retries` of them in a row end the rollout. How a rollout ends (`stop_reason`):

    * `finished`: an answer was handed in
    * `budget_exceeded`: the steps were used up without one
    * `parse_error`: too many unusable replies in a row
    * `error`: the provider gave up; its words stand in the last step's `tool_output`
    """

    deterministic = False

    def __init__(
        self,
        llm: LLMProvider,
        *,
        max_steps: int,
        max_retries: int = 3,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if max_steps < 1 or max_retries < 1:
            raise ValueError(f"max_steps ({max_steps}) and max_retries ({max_retries}) must be positive")
        self._llm = llm
        self._max_steps = max_steps
        self._max_retries = max_retries
        self._decoding = {"temperature": temperature, "max_tokens": max_tokens}
        self.fingerprint = (
            f"AgentLoop/1 model={llm.model} temperature={temperature} max_tokens={max_tokens}"
            f" max_retries={max_retries}"
        )

    async def run(
        self,
        question: GeneratedQuestion,
        system_prompt: str,
        user_prompt: str,
        tools: ToolDispatcher,
        plugins: Sequence[object] = (),
    ) -> LoopResult:
        """One rollout. What is not the provider's or the model's failure (a tool that crashes) is raised."""
        hooks = Plugins(plugins, question)
        rollout = _Rollout([Message("system", system_prompt), Message("user", user_prompt)])
        try:
            stop_reason = await self._steps(question, tools, hooks, rollout)
        except ProviderError as error:
            rollout.steps.append(Step(tool_output=str(error)))
            stop_reason = "error"
        result = rollout.result(stop_reason)
        hooks.on_finish(result)
        return result

    async def _steps(
        self, question: GeneratedQuestion, tools: ToolDispatcher, hooks: Plugins, rollout: "_Rollout"
    ) -> StopReason:
        failures = 0
        hooks.before_step(1)
        while rollout.steps_used < self._max_steps:
            response = await self._llm.chat(rollout.messages, **self._decoding)
            rollout.responses.append(response)
            try:
                action = parse_action(response.content, told=rollout.tool_outputs)
                output = await _carry_out(action, question, tools, rollout)
            except (ReplyError, ToolError) as problem:
                failures += 1
                rollout.fail(response, problem)
                if failures == self._max_retries:
                    return "parse_error"
                continue
            failures = 0
            rollout.steps_used += 1
            number = rollout.steps_used
            hints = hooks.after_tool(number, action.tool, action.args, output)
            rollout.succeed(response, action, output, hints, steps_left=self._max_steps - number)
            hooks.after_step(number, rollout.steps[-1])
            if rollout.submission is not None:
                return "finished"
            if number < self._max_steps:
                hooks.before_step(number + 1)
        return "budget_exceeded"


async def _carry_out(
    action: Action, question: GeneratedQuestion, tools: ToolDispatcher, rollout: "_Rollout"
) -> str:
    """The tool's output; an answer that is handed in is checked first and kept as the rollout's."""
    if action.tool != SUBMIT:
        return await tools(action.tool, action.args)
    submission = read_submission(action.args, question)
    output = await tools(SUBMIT, submission)
    rollout.submission = submission
    return output


@dataclass(slots=True)
class _Rollout:
    """What one rollout has gathered so far."""

    messages: list[Message]
    steps: list[Step] = field(default_factory=list)
    responses: list[LLMResponse] = field(default_factory=list)
    steps_used: int = 0
    submission: Mapping[str, Any] | None = None

    @property
    def tool_outputs(self) -> list[str]:
        return [step.tool_output for step in self.steps if step.tool_call is not None]

    def fail(self, response: LLMResponse, problem: Exception) -> None:
        """Tells the model what was wrong, and leaves a step without a tool call in the trace."""
        cut = " It was cut off at the length limit: be shorter." if response.finish_reason == "length" else ""
        if isinstance(problem, ToolError):
            told = f"The call was refused: {problem}"
        else:
            told = (
                f"The reply cannot be used: {problem}.{cut} Reply with one JSON object and nothing else:"
                ' {"reflect": {...}, "plan": {...}, "action": {"tool": name, "args": {...}}}'
            )
        self.steps.append(Step(thought=response.reasoning, tool_output=told, raw_content=response.content))
        self._converse(response, told)

    def succeed(
        self, response: LLMResponse, action: Action, output: str, hints: Sequence[str], *, steps_left: int
    ) -> None:
        self.steps.append(
            Step(
                thought=response.reasoning,
                reflect=action.reflect,
                plan=action.plan,
                tool_call={"tool": action.tool, "args": action.args},
                tool_output=output,
                raw_content=response.content,
            )
        )
        left = f"Steps left: {steps_left}." + (" Hand in your answer now." if steps_left == 1 else "")
        self._converse(response, "\n\n".join([f"Result of {action.tool}:\n{output}", *hints, left]))

    def _converse(self, response: LLMResponse, told: str) -> None:
        # Some endpoints refuse an assistant turn without text.
        self.messages += [Message("assistant", response.content or "(empty)"), Message("user", told)]

    def result(self, stop_reason: StopReason) -> LoopResult:
        return LoopResult(
            result=self.submission,
            steps=tuple(self.steps),
            steps_used=self.steps_used,
            prompt_tokens=_total([response.prompt_tokens for response in self.responses]),
            completion_tokens=_total([response.completion_tokens for response in self.responses]),
            stop_reason=stop_reason,
        )


def _total(counts: Sequence[int | None]) -> int | None:
    """The sum, `None` when the provider left one out: a part of the sum would pass for the whole."""
    return None if not counts or None in counts else sum(counts)
