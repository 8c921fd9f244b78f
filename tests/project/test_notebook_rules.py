"""Rules that keep notebooks readable, and working in Jupyter as well as under the test runner."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
MOST_CELLS, MOST_LINES = 130, 60


def cell_problems(source: str) -> list[str]:
    """What is wrong with one code cell."""
    tree = ast.parse("\n".join("" if line.startswith(("%", "!")) else line for line in source.splitlines()))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    awaits = any(isinstance(node, ast.Await) for node in ast.walk(tree))
    starts_tasks = any(name.endswith("create_task") for name in calls)
    exported = re.match(r"# ?\| ?export", source)
    lines = [line for line in source.splitlines() if line.strip()]
    return [
        *(["calls asyncio.run, which fails in Jupyter"] if "asyncio.run" in calls else []),
        *(["imports beside other code"] if imports and len(imports) < len(tree.body) else []),
        *(["starts a task and never awaits"] if starts_tasks and not awaits and not exported else []),
        *([f"exports {len(lines)} lines"] if exported and len(lines) > MOST_LINES else []),
    ]


def notebook_problems(notebook: nbformat.NotebookNode) -> list[str]:
    """What is wrong with a notebook, as `cell number: problem`."""
    code = [(number, cell) for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    problems = [
        f"cell {number}: {problem}" for number, cell in code for problem in cell_problems(cell.source)
    ]
    first = notebook.cells[0].source
    if not re.match(r"# \S[^\n]*\n\n> \S", first):
        problems.append("cell 0: must be a title and one quoted line")
    if len(notebook.cells) > MOST_CELLS:
        problems.append(f"{len(notebook.cells)} cells are too many for one chapter")
    errors = [number for number, cell in code for output in cell.outputs if output.output_type == "error"]
    return problems + [f"cell {number}: has a saved error" for number in errors]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_the_rules(path):
    assert notebook_problems(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_every_module_notebook_has_tests_of_its_own(path):
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    checks = [
        source
        for source in sources
        if re.search(r"\b(test_\w+\(|assert )", source) and "export" not in source
    ]
    assert len(checks) >= 5


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("asyncio.run(main())", "calls asyncio.run, which fails in Jupyter"),
        ("import os\nos.getcwd()", "imports beside other code"),
        ("task = asyncio.create_task(work())", "starts a task and never awaits"),
        ("# | export\n" + "x = 1\n" * 61, "exports 61 lines"),
    ],
)
def test_a_broken_rule_is_found(source, problem):
    assert (
        cell_problems(source) == [problem] if "61" not in problem else "exports" in cell_problems(source)[0]
    )


@pytest.mark.parametrize(
    "source", ["import os\nfrom pathlib import Path", "await work()", "%matplotlib inline\nx = 1"]
)
def test_a_good_cell_passes(source):
    assert cell_problems(source) == []
