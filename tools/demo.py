"""`make demo`, first form: trains the demo's skills greedily with the embedded model.

Answers the validation questions with the plain skills, trains for a few minutes, answers them again, and
prints both accuracies and the diff of the skill files. Every number is measured in this run; nothing is
simulated.
"""

import asyncio
import difflib
import sys
import time
from collections.abc import Mapping

from tqdm import tqdm

from benchmarks.embedded import DATA, proposers, skill_texts
from benchmarks.greedy import Answers, Trial, train_greedily
from core.adapters.local import LocalScorer
from core.adapters.memo import MemoScorer
from core.adapters.model_fetch import ModelFetchError
from core.agent.tactics import TACTICS
from core.evolution.comparison import PairedComparison, compare_pairs
from core.evolution.types import PairResult
from core.questions.check_model import open_demo_set

PROPOSALS, SEED, WORKERS = 24, 0, 2

WHAT_THIS_IS = """\
This project, harness, trains TEXT: skill files that tell an agent where to look. No model's weights change.

  films       {videos} real old films, each described scene by scene, moment by moment, by hand and from memory
  questions   four options each, so guessing gives 25 %. {validation} questions of {val_films} films
              (validation) measure, {diagnosis} of {diag_films} other films (diagnosis) choose the edits.
              The test films stay closed.
  agent       a small language model (135 million parameters) that runs here, on this machine. A question's type
              says which skill file serves it; the model picks the line of that file that fits the question best,
              the line's tactic is run on the film (plain search, by rule), and the model picks the option that
              fits what was found. It never writes, and the same question always gets the same answer.
  proposer    rule-based, no model: tries {lines} hand-written candidate lines, about half of them wrong on purpose,
              written without sight of the questions; it prefers what would have found the answers that were missed
  control     GREEDY: an edit is kept if more of the diagnosis questions are right with it. The project's own
              statistical test (the gate) exists and is NOT used here. A greedy loop also keeps luck: edits that
              happen to suit these questions. So expect more gain on diagnosis than on validation.

Nothing is simulated: every answer below is the model's, given now or kept on disk from an earlier run.

Tactics, the places to look:
{tactics}
"""


def accuracy_in_words(right: Mapping[str, bool], film_of: Mapping[str, str]) -> str:
    """`28 of 92, 31 % (95 % interval over films 24 to 39 %)`."""
    against_nothing = [PairResult(name, base=False, cand=correct) for name, correct in right.items()]
    each = compare_pairs(against_nothing, group_of=film_of)
    share, low, high = (100 * value for value in (each.difference, each.low, each.high))
    return (
        f"{sum(right.values())} of {len(right)}, {share:.0f} % (95 % interval, resampling whole films: "
        f"{low:.0f} to {high:.0f} %)"
    )


def compared(
    before: Mapping[str, bool], after: Mapping[str, bool], film_of: Mapping[str, str]
) -> PairedComparison:
    """Both versions on the same questions, paired."""
    pairs = [PairResult(name, base=before[name], cand=after[name]) for name in before]
    return compare_pairs(pairs, group_of=film_of)


def skill_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What training changed in the skill files, as a unified diff."""
    lines: list[str] = []
    for name in before:
        old, new = before[name].splitlines(), after[name].splitlines()
        lines += difflib.unified_diff(old, new, f"{name}.md, before", f"{name}.md, after", lineterm="", n=1)
    return "\n".join(lines)


def edit_in_words(trial: Trial) -> str:
    """What an edit does, in one line. `=>` stands before a tactic."""
    content, anchor = (text.strip().partition("\n")[0] for text in (trial.content, trial.anchor))
    rule, _, tactic = content.removeprefix("- ").rpartition(" -> ")
    if trial.reason.startswith("adds a line"):
        return f"new line: {rule} => {tactic}"
    if trial.reason.startswith("gives"):
        return (
            f"example for '{anchor.removeprefix('- ').rpartition(' -> ')[0]}': {content.removeprefix('- ')}"
        )
    if trial.reason.startswith("swaps"):
        return f"{rule}: {anchor.rpartition(' -> ')[2]} => {tactic}"
    return f"drops: {anchor}"


def trial_in_words(trial: Trial) -> str:
    """`12  order  kept      41 -> 47  new line: ...`."""
    verdict = "kept" if trial.kept else "tie" if trial.after == trial.before else "dropped"
    return (
        f"{trial.number + 1:>3}  {trial.file:<16} {verdict:<8} {trial.before:>3} -> {trial.after:<3}  "
        f"{edit_in_words(trial)}"
    )


async def run() -> None:
    demo = open_demo_set(DATA)
    plain = skill_texts(DATA / "skills")
    validation, diagnosis = demo.pools["validation"], demo.pools["diagnosis"]
    film_of = {question.question_id: question.video_id for question in validation}
    print("Fetching the embedded model (93 MB, once) ...", file=sys.stderr)
    with LocalScorer(workers=WORKERS) as model, MemoScorer(model) as scorer:
        proposer = proposers(demo)["from failed questions"]
        print(
            WHAT_THIS_IS.format(
                videos=len(demo.environment.video_ids),
                validation=len(validation),
                val_films=len({question.video_id for question in validation}),
                diagnosis=len(diagnosis),
                diag_films=len({question.video_id for question in diagnosis}),
                lines=len(proposer.catalogue),
                tactics="\n".join(f"  {name:<16} {tactic.meaning}" for name, tactic in TACTICS.items()),
            )
        )
        answers = Answers(scorer, demo)
        started = time.monotonic()
        print("Answering the validation questions with the untrained skills ...", file=sys.stderr)
        before = await answers.of(plain, validation)
        print(f"Validation before training: {accuracy_in_words(before, film_of)}\n")
        print(
            f"Training: {PROPOSALS} edits are tried. Right answers on diagnosis, of {len(diagnosis)}, "
            "without and with each:\n"
        )
        print("  #  file             verdict  without with  edit")
        with tqdm(total=PROPOSALS, desc="training", leave=False, disable=None) as bar:

            def told(trial: Trial) -> None:
                bar.write(trial_in_words(trial), file=sys.stdout)
                bar.update()

            texts, trials = await train_greedily(
                answers, demo, plain, proposer, proposals=PROPOSALS, seed=SEED, told=told
            )
        after = await answers.of(texts, validation)
    print("\nWhat training changed in the skill files:\n")
    print(skill_diff(plain, texts) or "(nothing)")
    _print_end(trials, len(diagnosis), compared(before, after, film_of))
    print(f"  validation before  {accuracy_in_words(before, film_of)}")
    print(f"  validation after   {accuracy_in_words(after, film_of)}")
    print(
        f"\n{answers.asked} questions were answered in {time.monotonic() - started:.0f} s; an edit asks again "
        "only what its file serves."
    )


def _print_end(trials: list[Trial], n_diagnosis: int, comparison: PairedComparison) -> None:
    kept = [trial for trial in trials if trial.kept]
    start, end = trials[0].before, kept[-1].after if kept else trials[0].before
    by_one = sum(trial.after - trial.before == 1 for trial in kept)
    print(
        f"\n{len(kept)} of {len(trials)} edits were kept, {by_one} of them for a single question more: some of those "
        "are luck, and this loop can not tell which."
    )
    print(
        f"  diagnosis, which chose the edits: {start} -> {end} of {n_diagnosis}, "
        f"{100 * (end - start) / n_diagnosis:+.1f} percentage points (optimistic)"
    )
    print(
        f"  validation, which chose nothing: {100 * comparison.difference:+.1f} percentage points, 95 % interval "
        f"{100 * comparison.low:+.1f} to {100 * comparison.high:+.1f} by resampling whole films "
        f"({comparison.W} questions gained, {comparison.L} lost)"
    )


def main() -> int:
    try:
        asyncio.run(run())
    except ModelFetchError as error:
        print(f"The embedded model can not be had: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nStopped. Answers are kept on disk: run `make demo` again and it goes on quickly.",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
