"""Records the demo's training run, so that it can be replayed without the model: `python -m tools.record_demo`.

Trains as configs/demo.yaml says, with the embedded model (answers of earlier runs are kept on disk, so again is
quick), and measures the control. Into data/demo/recorded go `scores.json.gz`, every score that the model gave in
training; `decisions.json`, what the run decided with them; `screen.txt`, its last screen, for the README. Its figure
for the README is nbs/demo.svg. Then the run is replayed and compared. To be done again whenever questions, films,
loop, gate or configs/demo.yaml change what a run asks; `tests/project/test_demo_replay.py` says when that is so.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from core.adapters.local import LocalScorer
from core.adapters.memo import MemoScorer
from core.adapters.recorded_scores import RecordedScorer, ScoreRecorder
from core.adapters.telemetry import NullTelemetry
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.agent.tactics import TACTICS
from core.protocols import TextScorer
from core.text_hash import sha256_of
from harness.config import RunConfig, build_config, read_yaml
from harness.control import measure_control
from harness.ending import ending
from harness.from_config import agent_of, environment_of, proposer_of
from harness.log import RunIds, rows_of_run
from harness.progress import edit_in_words, events_so_far
from harness.report import svg_of
from harness.runner import Runner
from harness.store import init_store, read_version
from harness.summary import gates_frame
from harness.views import dual_metric_frame, plot_dual_metric, plot_edits
from harness.workspace import load_manifest

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "data" / "demo"
RECORDED = DEMO / "recorded"
SCORES, DECISIONS, SCREEN = (RECORDED / name for name in ("scores.json.gz", "decisions.json", "screen.txt"))
FIGURE = ROOT / "nbs" / "demo.svg"


def demo_config(folder: Path) -> RunConfig:
    """The demo's configuration for a run in a folder, its store made."""
    given = {**read_yaml(ROOT / "configs" / "demo.yaml"), "run_id": "demo"}
    data = {name: str(ROOT / given[name]) for name in ("questions", "trees_dir", "catalogue")}
    places = {"workspace_dir": str(folder / "workspace"), "store_dir": str(folder / "store")}
    init_store(folder / "store", DEMO / "skills", DEFAULT_PROMPTS_DIR)
    return build_config({**given, **data, **places})


def runner_with(config: RunConfig, scorer: TextScorer) -> Runner:
    """The configuration's runner, all scores from one scorer."""
    services = SimpleNamespace(config=config, model=scorer)
    environment = environment_of(services)
    proposer = proposer_of(services, environment)
    players = {"tool_dispatch_fn": environment.tools_for, "proposer": proposer, **agent_of(services)}
    return Runner(config, telemetry=NullTelemetry(), **players)


def decisions_of(config: RunConfig) -> dict[str, Any]:
    """What a finished run decided: each event of its epochs, the skills delivered, answers of the final test."""
    db_path = Path(config.workspace_dir) / "harness.db"
    best = load_manifest(Path(config.workspace_dir)).best.skills
    skills = read_version(Path(config.store_dir), "skills", best)
    ids = RunIds(config.run_id)
    tested = {name: rows_of_run(db_path, "predictions", ids.final(name)) for name in ("baseline", "best")}
    return {
        "events": [_told(event) for event in events_so_far(db_path, config.run_id) if event["epoch"]],
        "skills": {name: sha256_of(text.decode()) for name, text in sorted(skills.items())},
        "final test": {name: sum(row["correct"] or 0 for row in rows) for name, rows in tested.items()},
    }


def _told(event: Mapping[str, Any]) -> dict[str, Any]:
    payload = event["payload"]
    named = ("decision", "reason", "improved", "regressed", "attempts", "W", "L", "skills")
    facts = {name: payload[name] for name in named if name in payload}
    edits = [edit_in_words(edit) for edit in payload.get("applied", ())]
    place = {name: event[name] for name in ("epoch", "step", "event_type", "target")}
    return {**place, **facts, **({"edits": edits} if edits else {})}


async def train_with(config: RunConfig, scorer: TextScorer) -> dict[str, Any]:
    """The decisions of a whole run."""
    await runner_with(config, scorer).train()
    return decisions_of(config)


def figure_of(config: RunConfig) -> bytes:
    """A finished run in one look, as SVG: what became of each edit, and the accuracy after each epoch."""
    db_path = Path(config.workspace_dir) / "harness.db"

    def drawn() -> Figure:
        figure, (edits, accuracy) = plt.subplots(
            1, 2, figsize=(10.5, 4.2), layout="constrained", width_ratios=(3, 2)
        )
        plot_edits(gates_frame(db_path, config.run_id), edits).set_title("Each edit that the gate judged")
        plot_dual_metric(dual_metric_frame(db_path, config.run_id), accuracy).set_title("After each epoch")
        return figure

    return svg_of(drawn, config.run_id)[0]


async def record(folder: Path) -> None:
    """Writes scores and decisions of a run in a folder, its last screen and its figure."""
    config = demo_config(folder / "run")
    with LocalScorer(workers=2) as model, MemoScorer(model) as memo:
        recorder = ScoreRecorder(memo)
        decisions = await train_with(config, recorder)
        await measure_control(config, lambda config: runner_with(config, memo), list(TACTICS))
    RECORDED.mkdir(exist_ok=True)
    recorder.write(SCORES)
    DECISIONS.write_text(json.dumps(decisions, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    screen = ending(Path(config.workspace_dir) / "harness.db")
    SCREEN.write_text(screen + "\n", encoding="utf-8")
    FIGURE.write_bytes(figure_of(config))
    if await train_with(demo_config(folder / "replay"), RecordedScorer.read(SCORES)) != decisions:
        sys.exit("the replay decided otherwise than the run that was recorded")
    print(f"{screen}\n\n{len(recorder.scores)} scores, {len(decisions['events'])} decisions: replayed alike")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(record(Path(folder)))


if __name__ == "__main__":
    main()
