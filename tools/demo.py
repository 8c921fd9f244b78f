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
from core.evolution.comparison import PairedComparison, compare_pairs
from core.evolution.types import PairResult
from core.questions.check_model import open_demo_set

PROPOSALS, SEED, WORKERS = 24, 0, 2

WHAT_THIS_IS = """\
harness trains TEXT: skill files that tell an agent where to look. The model's weights never change.

  films       {videos} old films, each a tree of described scenes, events and moments
  questions   {validation} of validation (to measure) and {diagnosis} of diagnosis (to learn from);
              the test pool stays closed
  agent       an embedded model of 135 million parameters. It only chooses: which line of the skill fits the
              question, and which option fits what was found there. It is deterministic.
  proposer    rule-based: ranks {lines} lines of a catalogue, good and bad mixed, by the failed questions
  control     GREEDY: an edit is kept if diagnosis accuracy is strictly greater. This is not yet the gate: a
              greedy loop also keeps luck, so expect more gain on diagnosis than on validation.
"""


def accuracy_in_words(right: Mapping[str, bool], film_of: Mapping[str, str]) -> str:
    """`31 % (24 to 39 %), 28 of 92`, with a 95 % bootstrap interval over films."""
    against_nothing = [PairResult(name, base=False, cand=correct) for name, correct in right.items()]
    each = compare_pairs(against_nothing, group_of=film_of)
    return f"{each.difference:.0%} ({each.low:.0%} to {each.high:.0%}), {sum(right.values())} of {len(right)}"


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


def trial_in_words(trial: Trial) -> str:
    """`12  order  kept      41 -> 47  adds a line: ...` in one line."""
    first_line = trial.content.splitlines()[0].strip()
    verdict = "kept" if trial.kept else "dropped"
    action = trial.reason.partition(";")[0]
    return (
        f"{trial.number + 1:>3}  {trial.file:<16} {verdict:<8} {trial.before:>3} -> {trial.after:<3}  "
        f"{action}: {first_line}"
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
                diagnosis=len(diagnosis),
                lines=len(proposer.catalogue),
            )
        )
        answers = Answers(scorer, demo)
        started = time.monotonic()
        print("Answering the validation questions with the plain skills ...", file=sys.stderr)
        before = await answers.of(plain, validation)
        print(f"Validation before: {accuracy_in_words(before, film_of)}. Chance is 25 %.\n")
        print(f"Training: {PROPOSALS} proposals, right answers of {len(diagnosis)} on diagnosis\n")
        print("  #  file             verdict  before after  edit")
        with tqdm(total=PROPOSALS, desc="training", leave=False, disable=None) as bar:

            def told(trial: Trial) -> None:
                bar.write(trial_in_words(trial), file=sys.stdout)
                bar.update()

            texts, trials = await train_greedily(
                answers, demo, plain, proposer, proposals=PROPOSALS, seed=SEED, told=told
            )
        after = await answers.of(texts, validation)
    _print_end(plain, texts, trials, compared(before, after, film_of))
    print(f"Validation before: {accuracy_in_words(before, film_of)}")
    print(f"Validation after:  {accuracy_in_words(after, film_of)}")
    print(f"{answers.asked} rollouts in {time.monotonic() - started:.0f} s")


def _print_end(plain, texts, trials: list[Trial], comparison: PairedComparison) -> None:
    print("\nWhat training changed in the skill files:\n")
    print(skill_diff(plain, texts) or "(nothing)")
    kept = [trial for trial in trials if trial.kept]
    gained = kept[-1].after - trials[0].before if kept else 0
    print(
        f"\n{len(kept)} of {len(trials)} edits kept. Diagnosis, which chose them: {gained:+d} right answers."
    )
    print(
        f"Validation, which chose nothing: {comparison.difference:+.1%} ({comparison.W} questions gained, "
        f"{comparison.L} lost), 95 % interval over films {comparison.low:+.1%} to {comparison.high:+.1%}."
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
