"""`make demo`: trains the demo's skills with the embedded model through the whole loop, in `runs/demo`.

Stopped at any moment (Ctrl-C, kill -9) it goes on where it was; finished, it shows its last screen again.
`FRESH=1` moves the old run aside and begins anew. Every number is measured in that run.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger
from tqdm import tqdm

from core.adapters.model_fetch import ModelFetchError, find_model
from core.agent.tactics import TACTICS
from core.evolution.catalogue import load_catalogue
from core.questions import load_benchmark
from core.tree.environment import TreeEnvironment
from harness.cli import exit_code_after
from harness.config import RunConfig, load_config, read_yaml
from harness.console import INTERRUPTED, CountingExecutor, handling_signals, prepare_console, run_to_end
from harness.control import measure_control, read_control
from harness.ending import ending, what_changed
from harness.init import CONFIG_NAME, init_experiment
from harness.observation import read_dual_metric
from harness.pools import build_pools, cut_of
from harness.progress import Watch, telling
from harness.runner import Runner
from harness.store import run_row
from harness.workspace import workspace_lock

CONFIG, FOLDER, SKILLS = Path("configs/demo.yaml"), Path("runs/demo"), Path("data/demo/skills")
RUN, WORKERS = "demo", 2

WHAT_THIS_IS = """\
This project, harness, trains TEXT: skill files that tell an agent where to look. No model's weights change.

  films       {films} real old films, each described scene by scene, moment by moment, by hand and from memory
  questions   four options each, so guessing gives 25 %. {diagnosis}: they choose the edits.
              {validation}: they measure after each epoch, and may take an edit back.
              {test}: closed until training is over.
  agent       a small language model (135 million parameters) that runs here, on this machine. A question's type
              says which skill file serves it; the model picks the line of that file that fits the question best,
              the line's tactic is run on the film (plain search, by rule), and the model picks the option that
              fits what was found. It never writes, and the same question always gets the same answer.
  proposer    rule-based: tries {lines} hand-written candidate lines, about half of them wrong on purpose, written
              without sight of the questions; it prefers what would have found the answers that were missed, and
              lines that the model finds to fit these questions
  gate        rule-based: an edit is tried, with and without it, on diagnosis questions that the proposer did not
              look at, a few at a time. An exact test on these pairs accepts it (confirmed: hardly luck;
              provisional: probably not) or rejects it. At the end of the epoch the validation films are asked,
              and a file that does worse there goes back to what it was.
  control     at the very end, on the same test questions: the best skill files of a single line for each type

Nothing is simulated: every answer below is the model's, given now or kept on disk from an earlier run.

Tactics, the places to look:
{tactics}
"""

HOW_TO_READ = """
One line for each edit that is tried. "+7 -1 of 24": of 24 questions 7 were answered right only with the edit, and
1 only without it. "=>" stands before the tactic that an edit brings. At the end of an epoch: R is the accuracy on
validation; probations say which accepted edits stay; best, whether these are the best skills so far; R2 is the
accuracy once more if something was taken back.
"""


def set_up(folder: Path) -> RunConfig:
    """The configuration of the run in a folder, which is made if it is not there."""
    path = folder / CONFIG_NAME
    if not path.exists():
        given = {**read_yaml(CONFIG), "run_id": RUN, "workers": WORKERS}
        places = {"workspace_dir": str(folder / "workspace"), "store_dir": str(folder / "store")}
        films = TreeEnvironment(Path(given["trees_dir"]))
        init_experiment(
            folder, {**given, **places}, nodes_of=lambda name: films.film(name).tree.nodes, skills_dir=SKILLS
        )
    return load_config(path, cli={"mode": "train"})


def move_aside(folder: Path) -> None:
    """Keeps an earlier run under another name."""
    if not folder.exists():
        return
    workspace = folder / "workspace"
    if workspace.exists():
        with workspace_lock(workspace):  # somebody who trains there would be told nonsense
            pass
    kept = folder.with_name(f"{folder.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    folder.rename(kept)
    config = kept / CONFIG_NAME  # it names the places of the run, and they have moved
    if config.exists():
        moved = config.read_text(encoding="utf-8").replace(f"{folder}/", f"{kept}/")
        config.write_text(moved, encoding="utf-8")
    print(f"The earlier run is kept in {kept}.", file=sys.stderr)


def what_this_is(config: RunConfig) -> str:
    """The demo in plain words."""
    questions = load_benchmark(config.questions)
    pools = build_pools(questions, cut_of(config))

    def told(name: str) -> str:
        of_pool = getattr(pools, name)
        films = {question.video_id for question in of_pool}
        return f"{len(of_pool)} questions of {len(films)} films ({name})"

    return WHAT_THIS_IS.format(
        films=len({question.video_id for question in questions}),
        lines=len(load_catalogue(Path(config.catalogue))),
        tactics="\n".join(f"  {name:<16} {tactic.meaning}" for name, tactic in TACTICS.items()),
        **{name: told(name) for name in ("diagnosis", "validation", "test")},
    )


def is_finished(config: RunConfig) -> bool:
    """Whether the run has come to its end, the final test included."""
    db_path = Path(config.workspace_dir) / "harness.db"
    if not db_path.exists() or not (read_dual_metric(db_path, config.run_id)["phase"] == "final").any():
        return False
    return run_row(db_path, config.run_id)["status"] == "completed"


Build = Callable[[RunConfig], Runner]


def build(config: RunConfig) -> Runner:
    """The runner with the embedded model, which is fetched if it is not there yet."""
    find_model()
    return Runner.from_config(config, executor=CountingExecutor())


async def train(config: RunConfig, build: Build) -> None:
    """Trains to the end, from the last checkpoint if there is one, and tells how it goes."""
    watch = Watch(config.workspace_dir, config.run_id, epochs=config.epochs)
    begin = how_to_begin(Path(config.workspace_dir))
    print(HOW_TO_READ)
    if begin.get("resume"):
        print("\n".join(["Until it was stopped, the run had come so far:", *watch.news(), "It goes on."]))
    async with telling(watch, lambda line: tqdm.write(line, file=sys.stdout)):
        await build(config).train(**begin)


def how_to_begin(workspace: Path) -> dict[str, bool]:
    """Flags for `train`. A workspace without checkpoint was stopped while it was made: nothing was asked yet."""
    if (workspace / "checkpoint.json").exists():
        return {"resume": True}
    return {"fresh": workspace.exists()}


async def run(config: RunConfig, build: Build, tactics: Sequence[str]) -> None:
    """The whole demo, or what is left of it."""
    from harness.report import write_report  # matplotlib takes a second, and is needed at the end

    started, trained = time.monotonic(), is_finished(config)
    db_path = Path(config.workspace_dir) / "harness.db"
    measured = trained and read_control(db_path, config.run_id) is not None
    if not trained:
        print(what_this_is(config))
        logger.enable("harness.pools")
        await train(config, build)
    if not measured:
        print("control: each tactic alone on the diagnosis questions, then the best for each type on test\n")
        await measure_control(config, build, tactics)
    diff = what_changed(db_path, config.run_id, config.store_dir)
    print(f"What training changed in the skill files:\n\n{diff}\n\n{ending(db_path, config.run_id)}")
    page = write_report(db_path, db_path.with_name("report.html"), run_id=config.run_id)
    print(f"\nThe whole run on one page, with figures: {page}")
    if measured:
        print("This run was finished before. To begin anew: make demo FRESH=1")
    else:
        print(f"It took {(time.monotonic() - started) / 60:.1f} minutes since it was started last.")


def main(folder: Path = FOLDER, build: Build = build, tactics: Sequence[str] = tuple(TACTICS)) -> int:
    """The demo in a folder; its exit code. build: makes the runner of a configuration."""
    prepare_console()
    logger.disable("harness.pools")  # the run itself tells of its pools
    try:
        with handling_signals() as interruption:
            if os.environ.get("FRESH"):
                move_aside(folder)
            run_to_end(run(set_up(folder), build, tactics), interruption)
    except ModelFetchError as error:
        print(f"The embedded model can not be had: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # a run that is interrupted is cancelled
        print("\nStopped. `make demo` goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # told in a line where it was foreseen
        return exit_code_after(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
