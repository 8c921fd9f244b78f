"""A benchmark read from files."""

import ast
import dataclasses
import difflib
import io
import json
import math
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.questions.files import RawItem, question_files, read_items
from core.types import GeneratedQuestion

_FIELDS = tuple(field.name for field in dataclasses.fields(GeneratedQuestion))
_LISTS = ("options", "source_nodes")
_REQUIRED = ("question_id", "video_id", "task_type", "question", "options", "answer")
_HOW = {"options": '; they stand together as a list, in a table in one cell: ["first", "second"]'}
# Columns of the public Video-MME tables that say nothing about a question. Their `video_id` is a running
# number; the film is named by `videoID`.
_VIDEO_MME_EXTRAS = {"video_id", "duration", "domain", "sub_category", "url"}
# How pandas writes the numbers of rows, when nobody asks it not to.
_ROW_NUMBERS = {"", "Unnamed: 0", "__index_level_0__"}
_PROBLEMS_TOLD = 20


def load_benchmark(questions_dir: str | Path) -> list[GeneratedQuestion]:
    """The questions of a folder's `.json`, `.jsonl`, `.csv` and `.parquet` files, or those of one file.

    Files come by name, items in the order of their file. A JSON file is a list of items (usually one file
    for each video); the fields of items and the columns of tables are those of `GeneratedQuestion`, or the
    public Video-MME layout with `videoID`. Blanks around texts are cut off; null, NaN and an empty cell are a
    missing value; in a table, `options` and `source_nodes` may be the text of a list.

    Where two videos use one `question_id`, both become `video_id/question_id`: afterwards the id alone is
    the key.

    Raises `ValueError` that tells, for up to 20 bad items at once, file, position, field and what would be
    right; also when there are no questions at all, or a question of a video stands twice.
    """
    path = Path(questions_dir)
    placed: list[tuple[str, GeneratedQuestion]] = []
    problems: list[str] = []
    for file in question_files(path):
        items = read_items(file)
        outcomes = [(f"{file}: {item.place}", *read_question(item)) for item in items]
        placed += [(place, question) for place, question, _ in outcomes if question]
        problems += told_once((place, problem) for place, _, found in outcomes for problem in found)
    problems += _repeated(placed)
    if problems:
        raise ValueError(_listed(path, problems))
    if not placed:
        raise ValueError(f"{path}: no questions in it; its files are empty")
    return _with_unique_ids(path, [question for _, question in placed])


def read_question(item: RawItem) -> tuple[GeneratedQuestion | None, list[str]]:
    """The question of one item, or `None` and what is wrong with it, each problem as `field: reason`."""
    if item.problem:
        return None, [item.problem]
    fields = _known_layout(item.fields)
    unknown = {name: _nearest_field(name) for name in fields if name not in _FIELDS}
    problems = list(_unknown_fields(unknown))
    values: dict[str, Any] = {}
    for name in _FIELDS:
        if _is_missing(fields.get(name)):
            continue
        try:
            values[name] = (_as_list if name in _LISTS else _as_text)(name, fields[name])
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if values.get("answer_kind", "choice") != "choice":
        values.setdefault("options", ())
    # A misspelt field is told once, and not again as missing under its right name.
    spoken_of = {*values, *unknown.values(), *(problem.partition(":")[0] for problem in problems)}
    problems += [f"{name}: is missing{_HOW.get(name, '')}" for name in _REQUIRED if name not in spoken_of]
    if problems:
        return None, problems
    try:
        return GeneratedQuestion(**values), []
    except ValidationError as error:
        return None, [_in_words(detail) for detail in error.errors(include_url=False)]


def _by_id(question: GeneratedQuestion) -> str:
    return question.question_id


def _known_layout(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields under our names, without what is known to say nothing about a question."""
    kept = {name: value for name, value in fields.items() if name not in _ROW_NUMBERS}
    if "videoID" not in kept:
        return kept
    video_id = kept.pop("videoID")
    return {name: kept[name] for name in kept if name not in _VIDEO_MME_EXTRAS} | {"video_id": video_id}


def _unknown_fields(nearest: Mapping[str, str]) -> Iterator[str]:
    """A line for each unknown name that is like a field's, and one for all the others together."""
    yield from (f"unknown field {name!r}; did you mean {near!r}?" for name, near in nearest.items() if near)
    if others := [repr(name) for name, near in nearest.items() if not near]:
        mend = "rename it" if len(others) == 1 else "rename them"
        noun = "field" if len(others) == 1 else "fields"
        yield f"unknown {noun} {', '.join(others)}; {mend}, or take out what is none of {', '.join(_FIELDS)}"


def _nearest_field(name: str) -> str:
    near = difflib.get_close_matches(name.strip().casefold(), _FIELDS, n=1)
    return near[0] if near else ""


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_text(name: str, value: Any) -> str:
    """Text without blanks around it. Whole numbers are written out, others only as an answer or an option."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (isinstance(value, int) or name in ("answer", "options")):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"text is expected, found {value!r:.60}")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("half of a surrogate pair, which is no character; write the text as UTF-8")
    return value.strip()


def _as_list(name: str, value: Any) -> tuple[str, ...]:
    members = _list_from_text(value) if isinstance(value, str) else value
    if not isinstance(members, list | tuple):
        raise ValueError(f'a list like ["first", "second"] is expected, found {value!r:.60}')
    for position, member in enumerate(members, start=1):
        if _is_missing(member):
            raise ValueError(f"number {position} is missing")
    return tuple(_as_text(name, member) for member in members)


def _list_from_text(text: str) -> Any:
    """A list written into a cell, as JSON, NumPy or Python prints it; `None` when it is none of these."""
    for parse in (json.loads, _list_from_numpy, ast.literal_eval):
        try:
            return parse(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
            continue
    return None


def _list_from_numpy(text: str) -> list[Any]:
    """`['a' 'b']`, as pandas writes the arrays of Video-MME into a CSV: Python would read the text `ab`.

    Raises `ValueError` when it is anything else, and what the tokenizer raises.
    """
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    marks = [token.string for token in tokens if token.type == tokenize.OP]
    texts = [token.string for token in tokens if token.type == tokenize.STRING]
    others = {token.type for token in tokens} & {tokenize.NAME, tokenize.NUMBER}
    if marks != ["[", "]"] or len(texts) < 2 or others:
        raise ValueError("not an array of texts as NumPy prints it")
    return [ast.literal_eval(each) for each in texts]


def _in_words(detail: Mapping[str, Any]) -> str:
    """One of pydantic's complaints. Our own name question and field; the others get the field in front."""
    own = detail.get("ctx", {}).get("error")
    field = ".".join(map(str, detail["loc"]))
    return str(own) if own else f"{field}: {detail['msg']}, found {detail['input']!r:.60}"


def told_once(problems: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One line, `place and 3 more: problem`, for a problem that many items share, such as a misspelt column.

    problems: place and problem of each.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for place, problem in problems:
        places[problem].append(place)
    for problem, where in places.items():
        yield f"{where[0]}{f' and {len(where) - 1} more' if len(where) > 1 else ''}: {problem}"


def _repeated(placed: Iterable[tuple[str, GeneratedQuestion]]) -> Iterator[str]:
    first: dict[tuple[str, str], str] = {}
    for place, question in placed:
        key = (question.video_id, question.question_id)
        if key in first:
            yield (
                f"{place}: question_id: {question.question_id!r} of video {question.video_id!r} stands "
                f"already at {first[key]}; rename or delete one"
            )
        first.setdefault(key, place)


def _listed(path: Path, problems: Sequence[str]) -> str:
    told = problems[:_PROBLEMS_TOLD]
    if len(problems) > len(told):
        told = [*told, f"... and {len(problems) - len(told)} more"]
    return "\n  ".join([f"{path}: the questions can not be used:", *told])


def _with_unique_ids(path: Path, questions: Sequence[GeneratedQuestion]) -> list[GeneratedQuestion]:
    """Ids that clash between videos become `video_id/question_id`, in every video that uses them."""
    uses = Counter(map(_by_id, questions))
    named = [
        dataclasses.replace(question, question_id=f"{question.video_id}/{question.question_id}")
        if uses[question.question_id] > 1
        else question
        for question in questions
    ]
    if twice := [name for name, count in Counter(map(_by_id, named)).items() if count > 1]:
        raise ValueError(
            f"{path}: question_id: {twice[0]!r} arises twice when ids that clash between videos get the "
            "video in front; rename one of the questions"
        )
    return named
