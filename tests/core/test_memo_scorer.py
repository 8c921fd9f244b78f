"""Scores kept on disk: what is asked of the wrapped scorer, and what several users of a file see."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.adapters.memo import MemoScorer, score_key
from core.protocols import TextScorer


class CountingScorer:
    """Scores by length, and keeps what it was asked."""

    def __init__(self, model: str = "counting"):
        self.model = model
        self.asked: list[tuple[str, list[str]]] = []

    async def score(self, context, continuations):
        self.asked.append((context, list(continuations)))
        return [-len(context) - len(continuation) / 7 for continuation in continuations]


@pytest.fixture
def inner():
    return CountingScorer()


@pytest.fixture
def memo(inner, tmp_path):
    with MemoScorer(inner, tmp_path / "new folder" / "scores.sqlite") as memo:
        yield memo


def test_it_is_a_text_scorer_with_the_model_of_the_wrapped_one(memo, inner):
    assert isinstance(memo, TextScorer)
    assert memo.model == inner.model


async def test_answers_are_those_of_the_wrapped_scorer_and_are_asked_for_once(memo, inner):
    expected = await CountingScorer().score("context", ["a", "bcd", "ef"])
    assert await memo.score("context", ["a", "bcd", "ef"]) == expected
    assert await memo.score("context", ["ef", "a"]) == [expected[2], expected[0]]
    assert inner.asked == [("context", ["a", "bcd", "ef"])]


async def test_only_what_is_missing_is_asked_for_and_each_text_once(memo, inner):
    await memo.score("context", ["a"])
    await memo.score("context", ["b", "a", "c", "b"])
    assert inner.asked == [("context", ["a"]), ("context", ["b", "c"])]


async def test_nothing_is_asked_for_no_continuations(memo, inner):
    assert await memo.score("context", []) == []
    assert inner.asked == []


async def test_scores_outlive_the_process_and_keep_their_bits(memo, inner):
    first = await memo.score("context", ["a third", "of it"])
    with MemoScorer(inner, memo.path) as again:
        assert await again.score("context", ["a third", "of it"]) == first
    assert len(inner.asked) == 1


async def test_models_do_not_share_scores(memo):
    await memo.score("context", ["a"])
    other = CountingScorer("another")
    with MemoScorer(other, memo.path) as another:
        await another.score("context", ["a"])
    assert len(other.asked) == 1


async def test_a_failure_is_not_kept(memo, inner, monkeypatch):
    async def fail(context, continuations):
        raise ValueError("too long")

    with monkeypatch.context() as patch:
        patch.setattr(inner, "score", fail)
        with pytest.raises(ValueError, match="too long"):
            await memo.score("context", ["a"])
    assert await memo.score("context", ["a"]) == await CountingScorer().score("context", ["a"])


def test_several_processes_may_write_at_once(tmp_path):
    path = tmp_path / "scores.sqlite"
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from test_memo_scorer import CountingScorer, MemoScorer\n"
        "async def main():\n"
        f"    with MemoScorer(CountingScorer(), Path({str(path)!r})) as memo:\n"
        "        for number in range(50): await memo.score(f'context {number}', [sys.argv[1], 'shared'])\n"
        "asyncio.run(main())"
    )
    here = Path(__file__).parent
    started = [subprocess.Popen([sys.executable, "-c", program, str(n)], cwd=here) for n in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]

    async def asked_again() -> list:
        inner = CountingScorer()
        with MemoScorer(inner, path) as memo:
            for number in range(50):
                await memo.score(f"context {number}", ["0", "1", "2", "shared"])
        return inner.asked

    assert asyncio.run(asked_again()) == []


def test_a_file_that_is_no_memo_is_named(inner, tmp_path):
    path = tmp_path / "scores.sqlite"
    path.write_text("something else entirely " * 100)
    with pytest.raises(ValueError, match=r"scores\.sqlite"):
        MemoScorer(inner, path)


@given(first=st.tuples(st.text(), st.text(), st.text()), second=st.tuples(st.text(), st.text(), st.text()))
def test_keys_are_the_same_only_for_the_same_texts(first, second):
    assert (score_key(*first) == score_key(*second)) == (first == second)


@given(text=st.text(min_size=2), cut=st.integers(min_value=1))
def test_moving_the_border_between_context_and_continuation_changes_the_key(text, cut):
    cut = cut % len(text)
    assert score_key("model", text[:cut], text[cut:]) != score_key("model", text, "")
