"""Reads the items of question files as they stand, with the place of each, so that an error can point at it.

What the fields mean is decided in `core.questions.loading`; here a file of any format becomes plain mappings.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MISSING_CELLS = {"", "nan", "NaN"}
_LARGEST_CELL = 2**31 - 1  # the most that the csv module takes on every platform


@dataclass(frozen=True, slots=True)
class RawItem:
    """One item as its file has it. `place` is a line or a position, `problem` says why fields are missing."""

    place: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def question_files(path: Path) -> list[Path]:
    """The file itself, or the readable files of a folder (not of the folders in it), by name.

    Raises `ValueError` when there is nothing to read.
    """
    formats = ", ".join(READERS)
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise ValueError(f"{path}: questions are read from {formats}, not from {path.suffix or 'this'}")
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder; name the one that holds the questions")
    try:
        visible = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
    except OSError as error:
        raise ValueError(f"{path}: could not be read: {error.strerror or error}") from None
    files = sorted(file for file in visible if file.suffix.lower() in READERS)
    if not files:
        raise ValueError(f"{path}: no questions in it; put files in it that end in {formats}")
    return files


def read_items(path: Path) -> list[RawItem]:
    """The items of one file in its order. Raises `ValueError` naming the file if it is broken as a whole."""
    try:
        return list(READERS[path.suffix.lower()](path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path}: could not be read: {error.strerror or error}") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from None


def _read_json(path: Path) -> Iterator[RawItem]:
    items = _parsed(_text(path))
    if not isinstance(items, list):
        raise ValueError(f"a list of questions is expected, found {type(items).__name__}")
    for index, item in enumerate(items):
        yield _item(f"item {index + 1} (index {index})", item)


def _read_jsonl(path: Path) -> Iterator[RawItem]:
    for number, line in enumerate(io.StringIO(_text(path), newline=None), start=1):
        if not line.strip():
            continue
        try:
            yield _item(f"line {number}", _parsed(line))
        except (ValueError, RecursionError) as error:
            yield RawItem(f"line {number}", problem=str(error))


def _read_csv(path: Path) -> Iterator[RawItem]:
    with _cells_of_any_size():
        rows = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
        header = [name.strip() for name in next(rows, [])]
        if twice := [name for name, count in Counter(header).items() if count > 1]:
            raise ValueError(f"line 1: the column {twice[0]!r} stands twice")
        if len(header) == 1 and (other := next((mark for mark in ";\t|" if mark in header[0]), "")):
            raise ValueError(f"line 1: columns are parted by {other!r}; save the table with commas")
        start = rows.line_num + 1
        try:
            for row in rows:
                if row:
                    yield _row(f"line {start}", header, row)
                start = rows.line_num + 1
        except csv.Error as error:
            raise ValueError(f"line {start}: not readable as CSV: {error}") from None


def _read_parquet(path: Path) -> Iterator[RawItem]:
    import pyarrow.parquet  # only who has such a file waits for the import

    try:
        rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
    except (ValueError, OSError) as error:
        raise ValueError(f"not readable as Parquet: {error}") from None
    for index, row in enumerate(rows):
        yield RawItem(f"row {index + 1} (index {index})", row)


READERS: Mapping[str, Callable[[Path], Iterator[RawItem]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
"""How each kind of file is read, by the end of its name."""


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8-sig")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_field_twice)
    except json.JSONDecodeError as error:
        raise ValueError(f"not readable as JSON: {error}") from None
    except RecursionError:
        raise ValueError("not readable as JSON: nested too deeply") from None


def _no_field_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON would keep the last of two answers and say nothing."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the field {twice!r} stands twice in one item")
    return fields


def _item(place: str, value: Any) -> RawItem:
    if isinstance(value, dict):
        return RawItem(place, value)
    return RawItem(place, problem=f"an object with the fields of a question is expected, found {value!r:.60}")


def _row(place: str, header: list[str], row: list[str]) -> RawItem:
    if len(row) != len(header):
        counts = f"{len(row)} cells for {len(header)} columns"
        return RawItem(place, problem=f"{counts}; put text with commas or line breaks between double quotes")
    return RawItem(place, {name: _cell(text) for name, text in zip(header, row, strict=True)})


def _cell(text: str) -> str | None:
    return None if text.strip() in _MISSING_CELLS else text


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """The csv module refuses cells over 128 KiB, by a limit that is one for the whole process."""
    limit = csv.field_size_limit(_LARGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
