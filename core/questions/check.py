"""Checks a data set of questions and trees: what a reader of its results may take for granted.

Every check is a pure function from the data to a `Finding`; `table` makes text of them.
"""

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.questions.duplicates import near_duplicates
from core.questions.loading import load_benchmark
from core.tree.environment import TreeEnvironment
from core.types import GeneratedQuestion, lettered_options

_PROBLEMS_TOLD = 10
_STANDS_OUT = 1.5  # an answer so many times longer, or shorter, than every other option ...
_STANDS_OUT_BY = 10  # ... and by so many characters: "two" beside "three" does not stand out


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: whether it holds, the figure behind that, and each case against it."""

    name: str
    holds: bool
    measured: str
    problems: tuple[str, ...] = ()


def check_data(folder: Path) -> list[Finding]:
    """All checks of `folder`, which holds `questions` (a folder, or one file of that name with its ending)
    and `trees`. When the questions can not be read, that is the only finding."""
    try:
        questions = load_benchmark(questions_in(folder))
    except ValueError as error:
        return [Finding("questions", False, "not readable", tuple(str(error).splitlines()))]
    return [
        check_ids(questions),
        check_sources(questions, folder / "trees"),
        check_letters(questions),
        check_lengths(questions),
        check_standing_out(questions),
        check_duplicates(questions),
    ]


def questions_in(folder: Path) -> Path:
    """Where the questions of a data set are. Raises `ValueError` when there are none, or in two places."""
    found = sorted([*folder.glob("questions"), *folder.glob("questions.*")])
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{folder}: one `questions` folder or file is expected, found {names}")
    return found[0]


def check_ids(questions: Sequence[GeneratedQuestion]) -> Finding:
    """All items could be read and their ids are unique: `load_benchmark` takes nothing else."""
    videos = {question.video_id for question in questions}
    kinds = {question.task_type for question in questions}
    return Finding(
        "ids unique", True, f"{len(questions)} questions, {len(videos)} videos, {len(kinds)} task types"
    )


def check_sources(questions: Sequence[GeneratedQuestion], trees: Path) -> Finding:
    """Every video has a tree that can be loaded, and every source node stands in it."""
    try:
        environment = TreeEnvironment(trees)
    except ValueError as error:
        return Finding("source nodes", False, "no trees", (str(error),))
    nodes: dict[str, Collection[str]] = {}
    problems = []
    for video_id in sorted({question.video_id for question in questions}):
        try:
            nodes[video_id] = environment.film(video_id).tree.nodes
        except ValueError as error:
            problems.append(str(error))
    for question in questions:
        problems += _absent_sources(question, nodes)
    total = sum(len(question.source_nodes) for question in questions)
    without = sum(not question.source_nodes for question in questions)
    measured = f"{total} in {len(nodes)} trees, {without} questions name none"
    return Finding("source nodes", not problems, measured, tuple(problems))


def check_letters(questions: Sequence[GeneratedQuestion]) -> Finding:
    """Each letter is the answer about as often as by chance, within two standard errors."""
    choices = _choices(questions)
    letters = sorted({letter for question in choices for letter in lettered_options(question.options)})
    tallies = [_tally(letter, _always(letter), choices) for letter in letters]
    return _against_chance("answer letters", tallies, [each for each in tallies if not each.near_chance])


def check_lengths(questions: Sequence[GeneratedQuestion]) -> Finding:
    """Whoever always takes the longest option, or the shortest, is no more often right than by chance."""
    choices = _choices(questions)
    tallies = [_tally("longest", _by_length(max), choices), _tally("shortest", _by_length(min), choices)]
    gains = [each for each in tallies if each.right > each.chance and not each.near_chance]
    return _against_chance("answer lengths", tallies, gains)


def check_standing_out(questions: Sequence[GeneratedQuestion]) -> Finding:
    """No single answer is much longer, or much shorter, than all other options of its question."""
    problems = []
    for question in _choices(questions):
        texts = lettered_options(question.options)
        answer = len(texts.pop(question.answer))
        shortest, longest = min(map(len, texts.values())), max(map(len, texts.values()))
        if answer >= max(_STANDS_OUT * longest, longest + _STANDS_OUT_BY) or answer <= min(
            shortest / _STANDS_OUT, shortest - _STANDS_OUT_BY
        ):
            problems.append(
                f"{question.question_id}: its answer has {answer} characters, the others {shortest}-{longest}"
            )
    return Finding("options alike", not problems, f"{len(problems)} answers stand out", tuple(problems))


def check_duplicates(questions: Sequence[GeneratedQuestion]) -> Finding:
    """No two questions say nearly the same."""
    pairs = near_duplicates(questions)
    problems = tuple(f"{pair.first} and {pair.second}: {pair.similarity:.0%} alike" for pair in pairs)
    return Finding("no duplicates", not pairs, f"{len(pairs)} pairs nearly alike", problems)


def table(findings: Sequence[Finding]) -> str:
    """The findings in columns, and under them what speaks against each that does not hold."""
    width = max(len(finding.name) for finding in findings)
    lines = [f"{'check':<{width}}  holds  measured"]
    lines += [
        f"{each.name:<{width}}  {'yes' if each.holds else 'NO':<5}  {each.measured}" for each in findings
    ]
    for finding in findings:
        lines += [f"\n{finding.name}:"] if finding.problems else []
        lines += [f"  {problem}" for problem in finding.problems[:_PROBLEMS_TOLD]]
        if len(finding.problems) > _PROBLEMS_TOLD:
            lines.append(f"  ... and {len(finding.problems) - _PROBLEMS_TOLD} more")
    return "\n".join(lines)


def _absent_sources(question: GeneratedQuestion, nodes: Mapping[str, Collection[str]]) -> Iterator[str]:
    if question.video_id not in nodes:
        return  # told already, for its tree could not be loaded
    for node_id in question.source_nodes:
        if node_id not in nodes[question.video_id]:
            near = difflib.get_close_matches(node_id, nodes[question.video_id], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"{question.question_id}: {node_id!r} is no node of {question.video_id!r}{hint}"


def _choices(questions: Sequence[GeneratedQuestion]) -> list[GeneratedQuestion]:
    return [question for question in questions if question.answer_kind == "choice"]


Rule = Callable[[Mapping[str, str]], Collection[str]]
"""Letters that somebody would pick among, seeing the options alone; none: would not answer."""


def _always(letter: str) -> Rule:
    return lambda texts: {letter} & texts.keys()


def _by_length(extreme: Callable[[Sequence[int]], int]) -> Rule:
    def pick(texts: Mapping[str, str]) -> Collection[str]:
        length = extreme([len(text) for text in texts.values()])
        return {letter for letter, text in texts.items() if len(text) == length}

    return pick


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a rule picks the answer: `right`, what `chance` would give, and two standard errors of that,
    in questions."""

    rule: str
    right: float
    chance: float
    bound: float

    @property
    def near_chance(self) -> bool:
        return abs(self.right - self.chance) <= self.bound


def _tally(name: str, rule: Rule, choices: Sequence[GeneratedQuestion]) -> Tally:
    """Over the questions that the rule answers, k their number of options: chance is sum 1/k, its variance
    sum 1/k (1 - 1/k). Among m letters picked the answer counts 1/m."""
    right = chance = variance = 0.0
    for question in choices:
        texts = lettered_options(question.options)
        if picked := rule(texts):
            right += (question.answer in picked) / len(picked)
            chance += 1 / len(texts)
            variance += (1 - 1 / len(texts)) / len(texts)
    return Tally(name, right, chance, 2 * math.sqrt(variance))


def _against_chance(name: str, tallies: Sequence[Tally], bad: Sequence[Tally]) -> Finding:
    measured = ", ".join(f"{each.rule} {each.right:.0f} (chance {each.chance:.0f})" for each in tallies)
    problems = tuple(
        f"{each.rule}: the answer {each.right:.1f} times, by chance {each.chance:.1f} +- {each.bound:.1f}"
        for each in bad
    )
    return Finding(name, not bad, measured, problems)
