"""Kills a process at a chosen thing that it does on disk, so that a test can try every one of them."""

import io
import itertools
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

CALLS = ("replace", "rename", "fsync", "mkdir", "unlink", "remove", "rmdir")


class _Killer:
    """Counts moments before and after each call on disk, and kills its own process at the chosen one."""

    def __init__(self, moment: int):
        self.left = moment

    def passes(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable) -> Callable:
        def hooked(*arguments, **options):
            self.passes()
            result = call(*arguments, **options)
            self.passes()
            return result

        return hooked


class _TornFile:
    """A file whose every write happens in two halves, with a moment to be killed between them."""

    def __init__(self, file, killer: _Killer):
        self._file, self._killer = file, killer

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, data) -> int:
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._file.write(half)
            self._file.flush()
            self._killer.passes()
        return len(data)


def _install(killer: _Killer) -> None:
    for name in CALLS:
        setattr(os, name, killer.around(getattr(os, name)))
    real_open = io.open

    def torn_open(file, mode="r", *arguments, **options):
        opened = real_open(file, mode, *arguments, **options)
        return _TornFile(opened, killer) if set(mode) & set("wxa") else opened

    io.open = torn_open

    class KilledConnection(sqlite3.Connection):
        execute = killer.around(sqlite3.Connection.execute)
        executemany = killer.around(sqlite3.Connection.executemany)

    real_connect = sqlite3.connect
    sqlite3.connect = lambda *arguments, **options: real_connect(
        *arguments, factory=KilledConnection, **options
    )


def in_child(action: Callable[[], object]) -> int:
    """Starts `action` in a process of its own; its id. It ends with code 0, or 1 after an exception."""
    child = os.fork()
    if child:
        return child
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)


def ended_well(child: int) -> bool:
    """Waits for a child. True: code 0; False: killed. Anything else is an error of the test."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed; its traceback stands above"
    return True


def killed_at_every_moment(
    template: Path, action: Callable[[Path], object], stride: int = 1
) -> Iterator[tuple[int, Path]]:
    """For each moment of `action(place)`: its number, and a copy of `template` where it was killed then.

    `stride`: only the 1st, the (1 + stride)th and so on.
    """
    for moment in itertools.count(1, stride):
        place = template.with_name(f"{template.name}-{moment}")
        shutil.copytree(template, place, symlinks=True)

        def die(place=place, moment=moment):
            _install(_Killer(moment))
            action(place)

        survived = ended_well(in_child(die))
        if not survived:
            yield moment, place
        shutil.rmtree(place)
        if survived:
            assert moment > 10, "hardly anything was done on disk: the hooks do not see it"
            return


def temporaries(folder: Path) -> list[Path]:
    """Everything that looks like a temporary, anywhere in a folder."""
    return sorted(folder.rglob("*.tmp*"))
