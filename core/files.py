"""The one way in which files are written whole, read, and databases opened by those who only look.

A file that is overwritten in place is, for a moment, neither old nor new. Here everything is written beside
its place, synced, and renamed onto it in one piece.
"""

import contextlib
import glob
import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class StoreError(RuntimeError):
    """Something on disk can not be read or written as it should: says which path, and the reason in words."""


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on disk, so that a rename survives a power cut."""
    if os.name != "posix":
        return  # Windows can not open a folder for syncing
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def in_one_piece(target: str | Path) -> Iterator[Path]:
    """Gives a temporary path; the file, or new folder, that the block makes there becomes `target`.

    When the block fails the temporary goes away and `target` is as before. Raises `StoreError` for what the
    operating system refuses.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"{target}: could not be written: {error.strerror or error}") from error
    finally:
        _remove(temporary)  # after the rename there is nothing left to remove


def write_text_atomic(path: str | Path, text: str) -> None:
    """Writes a whole file as UTF-8, line ends as they are. Durable on return; until then the old one stands.

    Raises `StoreError` naming the path when the folder is missing, the disk full, or the text not Unicode.
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}: could not be written: half a character at {error.start}") from error
    with in_one_piece(path) as temporary:
        temporary.write_bytes(content)


def write_json_atomic(path: str | Path, value: Any) -> None:
    """Writes dictionaries, lists, strings, numbers, bools and `None` as JSON, like `write_text_atomic`.

    Half a character becomes an escape and comes back as it went in. Raises `StoreError` naming the path and
    what in the value is not JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: could not be written as JSON: {error}") from error
    with in_one_piece(path) as temporary:
        temporary.write_bytes(f"{text}\n".encode("utf-8", "backslashreplace"))


def read_bytes(path: str | Path) -> bytes:
    """The content of a file. Raises `StoreError` naming the path."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: could not be read: {error.strerror or error}") from error


def read_json(path: str | Path) -> Any:
    """The value in a JSON file. Raises `StoreError` naming the path when it is missing or broken."""
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise StoreError(f"{path}: is not JSON: {error}") from error
    except RecursionError:
        raise StoreError(f"{path}: is not JSON that can be read: nested too deeply") from None


def remove_leftovers(folder: str | Path, name: str | None = None) -> None:
    """Removes what killed processes left in a folder (of one target, if named), for who holds its lock."""
    pattern = f".{'*' if name is None else glob.escape(name)}.{'[0-9a-f]' * 32}.tmp"
    for path in Path(folder).glob(pattern):
        _remove(path)


def connect_read_only(db_path: str | Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """A connection that can not change the database, nor make one. Raises `sqlite3.Error` without one."""
    address = f"{Path(db_path).resolve().as_uri()}?mode=ro"
    return sqlite3.connect(address, uri=True, timeout=10, check_same_thread=check_same_thread)


def _sync(path: Path) -> None:
    """Waits until a file, or a folder with everything in it, is on disk."""
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
        sync_folder(path)
    else:
        with path.open("r+b") as file:
            os.fsync(file.fileno())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()
