"""The tools and what each takes. One model per tool checks calls and describes them."""

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.protocols import ToolError

Text = Annotated[str, Field(min_length=1)]
Question = Annotated[str, Field(min_length=1, description="what you want to find out")]


class _Arguments(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, coerce_numbers_to_str=True
    )


class ViewNode(_Arguments):
    """Opens a node: its text, then its children's. `root` lists the scenes, `first` and `last` are the film's
    first and last moment."""

    node_id: Annotated[str, Field(min_length=1, description="a node id, or root, first, last")]
    question: Question


class SearchSimilar(_Arguments):
    """The nodes whose words fit best, best first. A search that matches no word finds nothing."""

    query: Annotated[str, Field(min_length=1, description="the words to look for")]
    question: Question
    k: Annotated[int, Field(ge=1, le=20, description="how many at most")] = 5
    field: Annotated[
        Literal["all", "card", "subtitle"],
        Field(description="card: what is seen; subtitle: what is written or said"),
    ] = "all"
    level: Annotated[
        Literal[1, 2, 3] | None, Field(description="1 scenes, 2 events, 3 moments; null: all of them")
    ] = None


class CountMoments(_Arguments):
    """In how many moments a word stands in the description of what is seen, and the first of them."""

    word: Annotated[str, Field(min_length=1, description="one word, as it would be written")]


class ObserveFrame(_Arguments):
    """Looks at the images themselves: of one to four moments, or of one event."""

    node_ids: Annotated[
        list[Text], Field(min_length=1, max_length=4, description="ids of moments or an event")
    ]
    question: Question


class SubmitAnswer(_Arguments):
    """Hands in the answer and ends the work."""

    answer: Annotated[str, Field(min_length=1, description="the letter of an option; else the answer itself")]
    confidence: Annotated[float, Field(ge=0, le=1, description="how sure you are, from 0 to 1")]
    evidence: Annotated[Any, Field(description="node ids and what they say")] = ""
    reasoning: Annotated[str, Field(description="how the evidence leads to the answer")] = ""


TOOLS: Mapping[str, type[_Arguments]] = {
    "view_node": ViewNode,
    "search_similar": SearchSimilar,
    "count_moments": CountMoments,
    "observe_frame": ObserveFrame,
    "submit_answer": SubmitAnswer,
}


def read_arguments(name: str, args: Mapping[str, Any]) -> _Arguments:
    """The checked arguments of a call. Raises `ToolError` that says what would be right."""
    try:
        return TOOLS[name].model_validate(dict(args))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        )
        raise ToolError(f"{name}: {problems}. It takes {signature(name)}") from None


def signature(name: str) -> str:
    """The tool's call as a line, optional arguments with their default: `look(node_id, k = 5)`."""
    schema = TOOLS[name].model_json_schema()["properties"]
    return f"{name}({', '.join(_argument(key, info) for key, info in schema.items())})"


@functools.cache  # asked once for each rollout; pydantic builds the schema anew each time
def describe_tool(name: str) -> str:
    """A tool as a Markdown item: call, purpose, and each argument's meaning."""
    tool = TOOLS[name]
    purpose = " ".join((tool.__doc__ or "").split())
    arguments = [f"  - `{key}`: {field.description}" for key, field in tool.model_fields.items()]
    return "\n".join([f"- `{signature(name)}`: {purpose}", *arguments])


def _argument(name: str, info: Mapping[str, Any]) -> str:
    return f"{name} = {json.dumps(info['default'])}" if "default" in info else name
