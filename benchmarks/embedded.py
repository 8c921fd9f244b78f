"""What the embedded model can do on the demo data, and what greedy training makes of it.

`python -m benchmarks.embedded [tables] [greedy]` writes `benchmarks/results/embedded_tables.json` and
`embedded_greedy.json`, which `nbs/studies/embedded.ipynb` reads. All answers are the embedded model's, kept
on disk by content, so an interrupted run goes on where it was. Only validation and diagnosis are looked at.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.greedy import Answers, as_rows, train_greedily
from core.adapters.local import LocalScorer
from core.adapters.memo import MemoScorer
from core.evolution.catalogue import CatalogueProposer, RandomProposer, load_catalogue
from core.evolution.fit import BM25Fit, SourceReach
from core.evolution.protocols import Proposer
from core.protocols import TextScorer
from core.questions.check_model import (
    MEANT,
    Answered,
    DemoSet,
    accuracy,
    accuracy_table,
    best_line_per_type,
    best_single_tactic,
    measure,
    open_demo_set,
    routed_right,
    targets,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DATA = ROOT / "data" / "demo"
SEEDS = range(5)
PROPOSALS = 40


def proposers(demo: DemoSet) -> dict[str, Proposer]:
    """The two that the study compares: one that looks at failed questions, one that draws blindly.

    Both are rule-based: no model has a hand in a proposal. Fit is BM25, for ranking the hundred edits that
    are possible at a time by the model's likelihood costs more than judging the one that is drawn.
    """
    catalogue = load_catalogue(demo.folder / "catalogue.md")
    questions = {question.question_id: question for question in demo.pools["diagnosis"]}
    reach = SourceReach(questions, demo.environment.tools_for)
    return {
        "from failed questions": CatalogueProposer(catalogue, fit=BM25Fit(), reach=reach),
        "random": RandomProposer(catalogue),
    }


def skill_texts(folder: Path) -> dict[str, str]:
    """Skill file name without `.md` -> text."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


async def tables(demo: DemoSet, scorer: TextScorer) -> dict:
    """Right answers by way of answering, kind and pool, and whether the targets hold."""
    result = {}
    for pool, questions in demo.pools.items():
        table = await measure(scorer, demo, questions, told=_progress(pool))
        print(f"\n{pool}\n{accuracy_table(table, demo)}\n")
        for finding in targets(table, demo):
            print(f"{'holds' if finding.holds else 'DOES NOT HOLD'}: {finding.name}: {finding.measured}")
        result[pool] = {
            "questions": dict(Counter(answer.kind for answer in table[MEANT])),
            "right": {way: _count_by_kind(answers) for way, answers in table.items()},
            "best single tactic": best_single_tactic(table),
            "best line per type": round(accuracy(best_line_per_type(table, demo)), 2),
            "routed right": {
                way: round(routed_right(table, demo, way), 2) for way in ("good skill", "bad skill")
            },
            "targets": [
                {"name": finding.name, "holds": finding.holds, "measured": finding.measured}
                for finding in targets(table, demo)
            ],
        }
    return result


def _count_by_kind(answers: Sequence[Answered]) -> dict[str, int]:
    """Right answers of each kind, kinds without any included."""
    counts = dict.fromkeys((answer.kind for answer in answers), 0)
    for answer in answers:
        counts[answer.kind] += answer.correct
    return counts


def _progress(label: str):
    started = time.monotonic()
    return lambda done: print(f"  {label}: {done}, {time.monotonic() - started:.0f} s", file=sys.stderr)


def _each(name: str, seed: int):
    return lambda trial: print(f"  {name}, seed {seed}: proposal {trial.number}", file=sys.stderr)


async def greedy(demo: DemoSet, scorer: TextScorer) -> dict:
    """Every proposal of every seed, for both proposers."""
    answers = Answers(scorer, demo)
    plain = skill_texts(demo.folder / "skills")
    sizes = {pool: len(questions) for pool, questions in demo.pools.items()}
    start = {}
    for pool, questions in demo.pools.items():
        start[pool] = sum((await answers.of(plain, questions)).values())
    runs = []
    for name, proposer in proposers(demo).items():
        for seed in SEEDS:
            texts, trials = await train_greedily(
                answers, demo, plain, proposer, proposals=PROPOSALS, seed=seed, told=_each(name, seed)
            )
            runs.append({"proposer": name, "seed": seed, "trials": as_rows(trials), "skills": texts})
            end = trials[-1]
            print(
                f"{name}, seed {seed}: {sum(trial.kept for trial in trials)} of {len(trials)} kept, "
                f"diagnosis {start['diagnosis']} -> {end.after if end.kept else end.before} "
                f"of {sizes['diagnosis']}, "
                f"validation {start['validation']} -> {end.validation} of {sizes['validation']}",
                flush=True,
            )
    return {"sizes": sizes, "start": start, "proposals": PROPOSALS, "runs": runs}


async def main(parts: list[str]) -> None:
    demo = open_demo_set(DATA)
    with LocalScorer(workers=2) as model, MemoScorer(model) as scorer:
        for part in parts:
            started = time.monotonic()
            result = {"model": scorer.model, **await {"tables": tables, "greedy": greedy}[part](demo, scorer)}
            path = RESULTS / f"embedded_{part}.json"
            path.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            print(f"{path.relative_to(ROOT)} written after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["tables", "greedy"]))
