"""The same run in a notebook's kernel, awaited or called under its event loop, and in a script without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from training_runs import canonical_state, differences, query

HERE = Path(__file__).parent
PREPARE = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from training_runs import make_config, make_runner, make_world, quick_disk
folder = Path({folder!r})
world = make_world(n_questions=120)
small = {{"val_size": 24, "test_size": 16, "epochs": 1, "gate_max_questions": 10}}
config = make_config(folder, world, **small)
"""
LOOP = """
import asyncio
asyncio.get_running_loop()
"""
TELL = """
import json
print(json.dumps([result.status, result.steps, result.spent.rollouts]))
"""


def prepare(folder):
    return PREPARE.format(paths=[str(HERE), str(HERE.parents[1])], folder=str(folder))


def in_kernel(cells, folder):
    """Runs cells in a kernel of their own; what each of them printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, kernel_name="python3", timeout=300)
    client.execute(cwd=str(folder), env={**os.environ, "HOME": str(folder), "IPYTHONDIR": str(folder)})
    printed = []
    for cell in notebook.cells:
        streams = [part["text"] for part in cell.outputs if part.get("name") == "stdout"]
        printed.append("".join(streams))
    return printed


def in_script(source, folder):
    """What a program prints."""
    (folder / "program.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(printed):
    return json.loads(printed.splitlines()[-1])


def test_a_notebook_and_a_script_train_the_same(tmp_path):
    places = {name: tmp_path / name / "run" for name in ("notebook", "script")}
    for folder in places.values():
        folder.parent.mkdir()
    trained = "with quick_disk():\n    result = {}"
    awaits = trained.format("await make_runner(config, world).train()")
    calls = trained.format("make_runner(config, world).run(resume=True)")
    printed = in_kernel([prepare(places["notebook"]), LOOP, awaits, TELL, calls, TELL], tmp_path)
    script = in_script(
        prepare(places["script"]) + trained.format("make_runner(config, world).run()") + TELL, tmp_path
    )
    ends = [told(printed[3]), told(printed[5]), told(script)]
    assert ends == [ends[0]] * 3
    assert ends[0][0] == "completed"
    assert ends[0][1] > 0
    states = {name: canonical_state(folder) for name, folder in places.items()}
    assert differences(states["notebook"], states["script"]) == []
    assert query(places["script"], "SELECT * FROM gate_evidence")
