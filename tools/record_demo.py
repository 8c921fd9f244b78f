"""Records the demo's training run, so that it can be replayed without the model: `python -m tools.record_demo`.

Trains as configs/demo.yaml says, with the embedded model (answers of earlier runs are kept on disk, so again is
quick), and writes to data/demo/recorded: `scores.json.gz`, every score that the model gave, and `decisions.json`,
what the run decided with them. Then replays the run and compares. To be done again whenever questions, films, loop,
gate or configs/demo.yaml change what a run asks; `tests/project/test_demo_replay.py` says when that is so.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.adapters.local import LocalScorer
from core.adapters.memo import MemoScorer
from core.adapters.recorded_scores import RecordedScorer, ScoreRecorder
from core.adapters.telemetry import NullTelemetry
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from core.protocols import TextScorer
from core.text_hash import sha256_of
from harness.config import RunConfig, build_config, read_yaml
from harness.from_config import agent_of, environment_of, proposer_of
from harness.log import RunIds, rows_of_run
from harness.progress import edit_in_words, events_so_far
from harness.runner import Runner
from harness.store import init_store, read_version
from harness.workspace import load_manifest

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "data" / "demo"
SCORES, DECISIONS = DEMO / "recorded" / "scores.json.gz", DEMO / "recorded" / "decisions.json"


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
    """What a finished run decided: each event, the skills that it delivered, the answers to the final test."""
    db_path = Path(config.workspace_dir) / "harness.db"
    best = load_manifest(Path(config.workspace_dir)).best.skills
    skills = read_version(Path(config.store_dir), "skills", best)
    ids = RunIds(config.run_id)
    tested = {name: rows_of_run(db_path, "predictions", ids.final(name)) for name in ("baseline", "best")}
    return {
        "events": [_told(event) for event in events_so_far(db_path, config.run_id)],
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


async def train_with(scorer: TextScorer) -> dict[str, Any]:
    """The decisions of a whole run in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        config = demo_config(Path(folder))
        await runner_with(config, scorer).train()
        return decisions_of(config)


async def record() -> None:
    with LocalScorer(workers=2) as model, MemoScorer(model) as memo:
        recorder = ScoreRecorder(memo)
        decisions = await train_with(recorder)
    SCORES.parent.mkdir(exist_ok=True)
    recorder.write(SCORES)
    DECISIONS.write_text(json.dumps(decisions, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if await train_with(RecordedScorer.read(SCORES)) != decisions:
        sys.exit("the replay decided otherwise than the run that was recorded")
    print(
        f"{len(recorder.scores)} scores and {len(decisions['events'])} decisions are recorded, and replay alike"
    )


if __name__ == "__main__":
    asyncio.run(record())
