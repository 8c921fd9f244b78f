"""Builds the site into `_docs/`, and README.md from `nbs/index.ipynb`.

nbdev prepares the notebooks (`_proc/`): it renders signatures and docstrings. Quarto turns that into pages
where it is installed; elsewhere smalldocs does, from the same `_quarto.yml`. `--check` builds, but changes
neither README.md nor anything else that is committed, and fails when README.md is out of step.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import yaml
from nbconvert import MarkdownExporter
from nbdev.config import get_config
from nbdev.quarto import nbdev_docs, nbdev_sidebar, refresh_quarto_yml
from nbdev.serve import proc_nbs

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "_proc"
SITE = ROOT / "_docs"
NUMBER = re.compile(r"^\d+[a-z]?_")


def page_name(path: Path) -> str:
    """`01_log.ipynb` becomes `log.ipynb`: the number orders the chapters and is no part of an address."""
    return NUMBER.sub("", path.name)


def stage() -> None:
    """nbdev's processed notebooks, anew, with page names and links that work from any address."""
    shutil.rmtree(STAGE, ignore_errors=True)
    refresh_quarto_yml()
    nbdev_sidebar.__wrapped__()
    proc_nbs(n_workers=2)
    for path in sorted(STAGE.rglob("*.ipynb")):
        depth = len(path.relative_to(STAGE).parts) - 1
        path.write_text(_relative_links(path.read_text(encoding="utf-8"), "../" * depth), encoding="utf-8")
        path.rename(path.with_name(page_name(path)))
    for name in ["sidebar.yml", "nbdev.yml"]:
        text = (ROOT / "nbs" / name).read_text(encoding="utf-8")
        (STAGE / name).write_text(re.sub(r"(?<=[ /])\d+[a-z]?_(?=[\w-]+\.ipynb)", "", text), encoding="utf-8")


def _relative_links(text: str, up: str) -> str:
    config = get_config()
    return text.replace(f"{config.doc_host}{config.doc_baseurl}/", up or "./")


def build_with_smalldocs() -> None:
    """Pages from the stage by smalldocs, which ignores where Quarto would put them."""
    subprocess.run(["smalldocs", "render", "--quiet", str(STAGE)], check=True)
    output = yaml.safe_load((STAGE / "nbdev.yml").read_text(encoding="utf-8"))["project"]["output-dir"]
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.move(STAGE / output, SITE)


def readme() -> str:
    """README.md: the index notebook as Markdown, its code with the saved outputs, hidden cells left out."""
    notebook = nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if not _hidden(cell)]
    notebook.metadata["language_info"] = {"name": "python"}
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    text = re.sub(r"(?m)^#\|.*\n|^# \|.*\n", "", text)
    text = re.sub(r"\]\((\w+\.svg)\)", r"](nbs/\1)", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _hidden(cell: nbformat.NotebookNode) -> bool:
    first = cell.source.lstrip().partition("\n")[0].replace("# |", "#|").replace("#| ", "#|")
    return first.startswith(("#|hide", "#|default_exp"))


def main() -> int:
    check = "--check" in sys.argv[1:]
    if shutil.which("quarto"):
        nbdev_docs.__wrapped__()
    else:
        stage()
        build_with_smalldocs()
    pages = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    print(f"{len(pages)} pages in {SITE.name}/")
    target = ROOT / "README.md"
    if check:
        if target.read_text(encoding="utf-8") != readme():
            print("README.md is not what nbs/index.ipynb makes; run `make docs`")
            return 1
        return 0
    target.write_text(readme(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
