"""Executes notebooks and saves their outputs, so that the site shows what the code does today.

`python tools/rerun.py [NOTEBOOK ...]` (all by default). Running it twice gives the same bytes: text that
differs from run to run (memory addresses, paths of temporary folders) has no place in a saved output.
"""

import os
import sys
import warnings
from pathlib import Path

from execnb.nbio import read_nb, write_nb
from execnb.shell import CaptureShell

ROOT = Path(__file__).resolve().parent.parent
TEMPORARY_OUTPUTS = ("stderr",)  # progress bars and warnings: they differ from machine to machine


def skipped(cell: dict) -> bool:
    """Cells that the tests leave out are left out here as well, and keep the outputs they have."""
    return any(flag in cell.source.splitlines()[:3] for flag in ("# | eval: false", "# | notest", "# | slow"))


def kept(output: dict) -> bool:
    return output.get("name") not in TEMPORARY_OUTPUTS


def rerun(path: Path) -> None:
    """Runs one notebook in its own folder and writes it back with fresh outputs; stops at the first error."""
    notebook = read_nb(path)
    os.chdir(path.parent)
    shell = CaptureShell(path=path.parent, mpl_format="png")
    for cell in notebook.cells:
        if cell.cell_type != "code" or skipped(cell):
            continue
        cell.outputs = [output for output in shell.run(cell.source) if kept(output)]
        if shell.exc:
            raise SystemExit(f"{path}: a cell failed: {shell.exc!r}\n\n{cell.source}")
        cell.execution_count = None
    write_nb(notebook, path)


def main() -> None:
    warnings.simplefilter("ignore")
    named = [Path(argument).resolve() for argument in sys.argv[1:]]
    for path in named or sorted((ROOT / "nbs").rglob("[!.]*.ipynb")):
        rerun(path)
        print(f"ran {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
