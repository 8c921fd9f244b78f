"""Checks that the package is exactly what the notebooks export, and that the notebooks are clean.

Run on a copy of the project, so that a check never changes what it checks. Prints what differs and how to
mend it; exit code 1 if anything does.
"""

import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fresh_copy(root: Path, folder: Path) -> Path:
    """A copy of what nbdev needs: configuration, notebooks, and an otherwise empty package."""
    copy = folder / "project"
    no_checkpoints = shutil.ignore_patterns(".ipynb_checkpoints")
    shutil.copytree(root / "nbs", copy / "nbs", symlinks=True, ignore=no_checkpoints)
    (copy / "harness").mkdir()
    for name in ["settings.ini", "_quarto.yml", "pyproject.toml", "harness/__init__.py"]:
        shutil.copy(root / name, copy / name)
    return copy


def differences(root: Path) -> list[str]:
    """One sentence for each file of the package or notebook that a fresh export or clean would change."""
    with tempfile.TemporaryDirectory() as folder:
        copy = fresh_copy(root, Path(folder))
        for command in ["nbdev_clean", "nbdev_export"]:
            beside_python = Path(sys.executable).parent / command  # also where `.venv/bin` is not on PATH
            subprocess.run([beside_python], cwd=copy, check=True, capture_output=True)
        return [*_package_differences(root, copy), *_notebook_differences(root, copy)]


def _package_differences(root: Path, copy: Path) -> list[str]:
    have = {path.relative_to(root) for path in (root / "harness").rglob("*.py")}
    want = {path.relative_to(copy) for path in (copy / "harness").rglob("*.py")}
    changed = [path for path in have & want if not filecmp.cmp(root / path, copy / path, shallow=False)]
    return [
        *[f"{path}: no notebook exports it; delete it" for path in sorted(have - want)],
        *[f"{path}: is missing; run `make sync`" for path in sorted(want - have)],
        *[f"{path}: differs from its notebook; run `make sync`" for path in sorted(changed)],
    ]


def _notebook_differences(root: Path, copy: Path) -> list[str]:
    notebooks = sorted(path.relative_to(root) for path in (root / "nbs").rglob("[!.]*.ipynb"))
    dirty = [path for path in notebooks if not filecmp.cmp(root / path, copy / path, shallow=False)]
    return [f"{path}: is not clean; run `make sync`" for path in dirty]


def main() -> int:
    found = differences(ROOT)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
