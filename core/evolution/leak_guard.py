"""Refuses edits that copy training data: advice must say where to look, never what a question's answer is.

An edit is refused when it repeats, from the case pack it was made from, five or more words in a row, the text
of an option, or a question's id. Phrases made of common words alone are anybody's, and so is what the file
said before. Words of scripts without spaces are counted as two characters each. How a word is written (in
wide letters, with underscores or soft hyphens) makes it no other.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.evolution.types import CasePack, CaseSample, Edit, SkippedEdit, ToolCasePack
from core.types import lettered_options

REASON = "copies_training_data"
RUN_OF_WORDS = 5

_SPACELESS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0eff"
_WORD = re.compile(rf"[{_SPACELESS}]|[^\W{_SPACELESS}]+(?:'[^\W{_SPACELESS}]+)*")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Soft hyphens and marks without width, which break words for nobody who reads."""
_CHARACTERS_PER_WORD = 2
_SHORTEST_NUMERIC_ID = 4
"""Ids of fewer digits cannot be told from plain numbers."""

_STOP_LIST = """
a about above after afterwards again all along also always an and another answer any anyone anything
appear appears are around as asked asks at be because been before begin beginning begins being below
best between both but by can choose clip come comes correct could detail did directly do does during
each earlier eight either eleven else end ending ends event events every exactly false far few film
final finally find first five following follows for four frame from get give given gives goes had happen
happened happening happens has have he her here him his how if immediately in into is it its itself just
kind last later least left like line look looks made make many may me means mention mentioned mentions
might moment moments more most movie much must name named near next nine no node none not nothing now
occur occurs of off often on once one only open opening opens option options or order other others out
over part people person place point previous question read reason right said same say says scene scenes
search second see seen seven several she should show shown shows six so some someone something soon
start starts still story such tell tells ten text than that the their them then there these they thing
things this those three thus time times to together true twelve two under until up upon use used very
video was watch way we were what when where whether which while who whole whom whose why will with
within without would written wrong yes you your zero
"""
COMMON_WORDS = frozenset(_STOP_LIST.split())
"""Words of ordinary questions and of advice; a phrase of these alone gives nothing away."""

Words = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LeakGuard:
    """What must not be copied out of one case pack. Make one with `for_pack`.

    runs: runs of words; phrases: texts of options and reference answers; ids: patterns of question ids;
    known: what the file said before.
    """

    runs: frozenset[Words]
    phrases: frozenset[Words]
    ids: tuple[re.Pattern[str], ...]
    known: str

    @classmethod
    def for_pack(cls, pack: CasePack, *, known: str = "") -> "LeakGuard":
        """The guard of one pack for edits of the text `known`."""
        runs = {run for text in _texts(pack) for run in _runs(_words(text))}
        ids = (_id_pattern(question_id) for question_id in sorted(_question_ids(pack)))
        return cls(
            runs=frozenset(run for run in runs if not _common(run)),
            phrases=frozenset(phrase for phrase in _phrases(pack) if not _common(phrase)),
            ids=tuple(pattern for pattern in ids if pattern),
            known=known,
        )

    def copied(self, content: str) -> str | None:
        """The first copied words or id in `content`, `None` when there is nothing to object to."""
        for pattern in self.ids:
            if (match := pattern.search(content)) and not pattern.search(self.known):
                return match[0]
        words = _words(content)
        found = [run for run in _runs(words) if run in self.runs]
        found += [phrase for phrase in sorted(self.phrases) if _contains(words, phrase)]
        known = _words(self.known)
        return next((" ".join(copy) for copy in found if not _contains(known, copy)), None)

    def judge(self, edits: Iterable[Edit]) -> tuple[tuple[Edit, ...], tuple[SkippedEdit, ...]]:
        """The edits that copy nothing, and the others as refused, each in order."""
        kept, refused = [], []
        for edit in edits:
            copy = self.copied(edit.content)
            if copy is None:
                kept.append(edit)
            else:
                refused.append(refusal(edit, copy))
        return tuple(kept), tuple(refused)


def refusal(edit: Edit, copy: str) -> SkippedEdit:
    """The edit as refused for copying `copy`."""
    return SkippedEdit(edit, REASON, f"say it without words from the cases: {copy!r}")


def _words(text: str) -> Words:
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold()
    return tuple(_WORD.findall(plain.replace("’", "'").replace("_", " ")))


def _runs(words: Words) -> Iterator[Words]:
    """Every shortest run that makes up `RUN_OF_WORDS` words."""
    weights = [1 if _is_spaceless(word) else _CHARACTERS_PER_WORD for word in words]
    for start in range(len(words)):
        weight = 0
        for end in range(start, len(words)):
            weight += weights[end]
            if weight >= RUN_OF_WORDS * _CHARACTERS_PER_WORD:
                yield words[start : end + 1]
                break


def _is_spaceless(word: str) -> bool:
    return len(word) == 1 and re.match(f"[{_SPACELESS}]", word) is not None


def _common(words: Words) -> bool:
    """True when the phrase consists of common words, numbers and single letters."""
    return all(
        word in COMMON_WORDS or word.isdigit() or (len(word) == 1 and not _is_spaceless(word))
        for word in words
    )


def _contains(words: Words, phrase: Words) -> bool:
    return any(words[start : start + len(phrase)] == phrase for start in range(len(words) - len(phrase) + 1))


def _id_pattern(question_id: str) -> re.Pattern[str] | None:
    if question_id.isdigit() and len(question_id) < _SHORTEST_NUMERIC_ID:
        return None
    return re.compile(rf"(?<!\w){re.escape(question_id)}(?!\w)", re.IGNORECASE)


def _cases(pack: CasePack) -> tuple[CaseSample, ...]:
    return () if isinstance(pack, ToolCasePack) else (*pack.failure_cases, *pack.success_cases)


def _spans(pack: CasePack) -> tuple[Mapping[str, Any], ...]:
    return (*pack.failure_spans, *pack.success_spans) if isinstance(pack, ToolCasePack) else ()


def _texts(pack: CasePack) -> Iterator[str]:
    """Every text that stands in the cases and spans of a pack."""
    for case in _cases(pack):
        yield from (case.question, *case.options, case.answer, case.prediction or "")
        yield from _strings(case.trace)
    yield from _strings(_spans(pack))


def _strings(value: Any) -> Iterator[str]:
    """All strings inside nested mappings and sequences, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(tuple(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _phrases(pack: CasePack) -> Iterator[Words]:
    """The texts of options and of reference answers."""
    for case in _cases(pack):
        for text in (*lettered_options(case.options).values(), *case.answer.splitlines()):
            if words := _words(text):
                yield words


def _question_ids(pack: CasePack) -> set[str]:
    ids = {case.question_id for case in _cases(pack)}
    ids |= {str(span["question_id"]) for span in _spans(pack) if span.get("question_id")}
    return ids | set(getattr(pack, "evidence_ids", ()))
