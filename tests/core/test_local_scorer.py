"""`LocalScorer` and its worker processes: a tiny model in the quick part, the real one in the slow part."""

import asyncio
import importlib.util
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_llama import MAX_TOKENS, write_tiny_gguf

from core.adapters.local import LocalScorer
from core.adapters.model_fetch import PATH_VARIABLE, find_model
from core.protocols import TextScorer

CALLS = [
    (
        "the cat sat on the mat. " * 4,
        [" the hat", " that", " at", " the cat sat on the mat and that was that"],
    ),
    ("", ["the", "at the"]),
    ("the cat sat on the mat. " * 4 + "Then", [" it left", " the hat"]),
    ("something else", [" at all"]),
]


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny_scorer(tiny_path):
    # The variable is put back at once: the tests of the real model share this module.
    with pytest.MonkeyPatch.context() as patch:
        scorer = start(patch, tiny_path)
    with scorer:
        yield scorer


def start(patch: pytest.MonkeyPatch, path: Path, workers: int = 1) -> LocalScorer:
    patch.setenv(PATH_VARIABLE, str(path))
    return LocalScorer(workers=workers)


async def scores_of(scorer: TextScorer, calls=CALLS) -> list[list[float]]:
    """All calls made at the same time."""
    return list(await asyncio.gather(*(scorer.score(*call) for call in calls)))


def test_it_is_a_text_scorer_that_names_its_file_and_content(tiny_scorer):
    assert isinstance(tiny_scorer, TextScorer)
    name, content = tiny_scorer.model.split("@")
    assert name == "tiny"
    assert len(content) == 12


async def test_calls_together_one_by_one_and_split_have_the_same_bits(tiny_scorer):
    together = await scores_of(tiny_scorer)
    assert [await tiny_scorer.score(*call) for call in CALLS] == together
    for (context, continuations), scores in zip(CALLS, together, strict=True):
        assert [(await tiny_scorer.score(context, [c]))[0] for c in continuations] == scores


async def test_two_workers_answer_with_the_same_bits_as_one(tiny_scorer, tiny_path, monkeypatch):
    many = CALLS * 5
    with start(monkeypatch, tiny_path, workers=2) as two:
        assert await scores_of(two, many) == await scores_of(tiny_scorer, many)


async def test_scores_are_finite_and_negative_in_the_order_of_the_continuations(tiny_scorer):
    context, continuations = CALLS[0]
    scores = await tiny_scorer.score(context, continuations)
    assert all(math.isfinite(score) and score < 0 for score in scores)
    assert await tiny_scorer.score(context, continuations[::-1]) == scores[::-1]
    assert await tiny_scorer.score(context, []) == []


async def test_a_bad_call_is_told_what_is_wrong_and_harms_no_other(tiny_scorer):
    good = CALLS[0]
    replies = await asyncio.gather(
        tiny_scorer.score(*good),
        tiny_scorer.score("the", ["at", ""]),
        tiny_scorer.score("x" * 600, ["at"]),
        tiny_scorer.score(*good),
        return_exceptions=True,
    )
    assert replies[0] == replies[3] == await tiny_scorer.score(*good)
    assert isinstance(replies[1], ValueError)
    assert "continuation 2 of 2 is empty" in str(replies[1])
    assert isinstance(replies[2], ValueError)
    assert "512" in str(replies[2])


async def test_a_text_of_the_greatest_length_is_read_and_one_token_more_is_not(tiny_scorer):
    # each "x" is a token, and one more precedes the text
    assert len(await tiny_scorer.score("x" * (MAX_TOKENS - 2), ["x"])) == 1
    with pytest.raises(ValueError, match=str(MAX_TOKENS)):
        await tiny_scorer.score("x" * (MAX_TOKENS - 2), ["xx"])


async def test_one_text_in_place_of_a_list_is_refused(tiny_scorer):
    with pytest.raises(ValueError, match="list of texts"):
        await tiny_scorer.score("the", "at")


async def test_text_that_no_encoding_can_hold_is_an_error_of_that_call_alone(tiny_scorer):
    with pytest.raises(ValueError, match="surrogate"):
        await tiny_scorer.score("half a pair: \ud83d", [" at"])
    assert len(await tiny_scorer.score("the", [" at"])) == 1


def test_it_serves_one_event_loop_after_another(tiny_scorer):
    assert asyncio.run(scores_of(tiny_scorer)) == asyncio.run(scores_of(tiny_scorer))


async def test_a_call_given_up_leaves_the_scorer_usable(tiny_scorer):
    given_up = asyncio.ensure_future(tiny_scorer.score(*CALLS[0]))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await tiny_scorer.score(*CALLS[3]) == (await scores_of(tiny_scorer))[3]


async def test_a_worker_that_dies_is_reported_and_not_waited_for(tiny_path, monkeypatch):
    with start(monkeypatch, tiny_path) as scorer:
        await scorer.score(*CALLS[0])
        os.kill(scorer.worker_ids[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="exit code -9"):
                await scorer.score(*CALLS[0])


async def test_a_file_that_is_no_model_is_named_by_every_call(tmp_path, monkeypatch):
    path = tmp_path / "notes.gguf"
    path.write_text("not a model")
    with start(monkeypatch, path) as scorer:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"notes\.gguf"):
                await scorer.score("the", [" at"])


def test_closing_ends_the_processes_and_may_be_repeated(tiny_path, monkeypatch):
    scorer = start(monkeypatch, tiny_path, workers=2)
    scorer.close()
    scorer.close()
    assert not any(is_running(number) for number in scorer.worker_ids)


async def test_a_closed_scorer_says_so(tiny_path, monkeypatch):
    with start(monkeypatch, tiny_path) as scorer:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await scorer.score("the", [" at"])


def test_workers_end_when_their_owner_is_killed(tiny_path):
    program = (
        "import time; from core.adapters.local import LocalScorer\n"
        "scorer = LocalScorer(workers=2); print(*scorer.worker_ids, flush=True); time.sleep(60)"
    )
    environment = os.environ | {PATH_VARIABLE: str(tiny_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as owner:
        workers = [int(number) for number in owner.stdout.readline().split()]
        owner.kill()
    assert len(workers) == 2
    for _ in range(600):
        if not any(map(is_running, workers)):
            return
        time.sleep(0.1)
    pytest.fail(f"still running after the owner's death: {workers}")


def test_a_program_without_a_main_guard_may_use_it(tiny_path, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio; from core.adapters.local import LocalScorer\n"
        "with LocalScorer() as scorer: print(len(asyncio.run(scorer.score('the', [' at', ' hat']))))\n"
    )
    environment = os.environ | {PATH_VARIABLE: str(tiny_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment)
    assert (done.stdout.strip(), done.returncode) == ("2", 0), done.stderr


def test_without_the_extra_the_message_names_it(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tokenizers" else find_spec(name)
    )
    with pytest.raises(ImportError, match=r"needs tokenizers: .*\[local\]"):
        LocalScorer()


def test_importing_it_needs_nothing_of_the_extra():
    program = (
        "import sys; sys.modules |= dict.fromkeys(['gguf', 'tokenizers', 'numpy'])\n"
        "import core.adapters.local, core.adapters.memo"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_workers_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        LocalScorer(workers=0)


def is_running(number: int) -> bool:
    """Whether a process is there and is not a zombie."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/status")
    return not (status.exists() and "\nState:\tZ" in status.read_text())


# The real model


FILMS = [
    "A baker carries a tray of buns across the market square and drops it in front of a goat.",
    "Two men in straw hats row a small boat under a stone bridge while a band plays on the bank.",
    "A girl writes a letter by candlelight, folds it, and hides it behind the clock on the wall.",
]
QUESTIONS = [
    ("What does the baker carry?", [" a tray of buns", " a basket of eggs", " a red umbrella", " a sack"]),
    ("What is hidden behind the clock?", [" a letter", " a key", " a bag of coins", " a small photograph"]),
    ("Who rows the boat?", [" two men in straw hats", " a girl", " the baker", " a sailor and his old dog"]),
    ("What happens by the bridge?", [" a band plays", " a fire breaks out", " a goat eats", " it rains"]),
    ("How is the room lit?", [" by candlelight", " by the sun", " with a lamp of brass", " not at all"]),
]
REAL_CALLS = [
    *((f"{film * 3}\nQuestion: {asked}\nAnswer:", options) for film in FILMS for asked, options in QUESTIONS),
    *((f"Question: {asked}\nAnswer:", options) for asked, options in QUESTIONS),
    ("\n".join(FILMS * 20), [" The end", " A baker carries a tray of buns across the square"]),
]


@pytest.fixture(scope="module")
def real_scorer():
    with LocalScorer() as scorer:
        yield scorer


@pytest.fixture(scope="module")
def real_scores(real_scorer):
    """Every continuation alone, in order: the cache is cold for a context's first and warm for the others."""

    async def one_by_one() -> list[list[float]]:
        return [
            [(await real_scorer.score(context, [continuation]))[0] for continuation in continuations]
            for context, continuations in REAL_CALLS
        ]

    return asyncio.run(one_by_one())


@pytest.mark.slow
async def test_real_scores_have_the_same_bits_batched_reordered_and_together(real_scorer, real_scores):
    assert [await real_scorer.score(*call) for call in REAL_CALLS] == real_scores
    reordered = [(context, options[::-1]) for context, options in REAL_CALLS[::-1]]
    scores = [await real_scorer.score(*call) for call in reordered]
    assert [options[::-1] for options in scores[::-1]] == real_scores
    assert await scores_of(real_scorer, REAL_CALLS) == real_scores


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_real_scores_have_the_same_bits_in_new_processes(real_scores, workers):
    with LocalScorer(workers=workers) as scorer:
        assert await scores_of(scorer, REAL_CALLS) == real_scores


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["Haswell", "Zen", "Nehalem"])
async def test_real_scores_are_exact_with_the_kernels_of_other_processors(real_scores, kernels, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", kernels)
    with LocalScorer() as scorer:
        alone = [[(await scorer.score(c, [o]))[0] for o in options] for c, options in REAL_CALLS[-8:]]
        assert await scores_of(scorer, REAL_CALLS[-8:]) == alone
    for scores, expected in zip(alone, real_scores[-8:], strict=True):
        np.testing.assert_allclose(scores, expected, atol=1e-3)


@pytest.mark.slow
def test_llama_cpp_makes_the_same_choices(real_scores):
    pytest.importorskip("cyllama")
    from llama_cpp_scores import choices_of, llama_cpp_scores

    calls = REAL_CALLS[:15]
    others = llama_cpp_scores(find_model().path, calls)
    assert sum(len(options) for _, options in calls) == 60
    assert choices_of(others) == choices_of(real_scores[:15])


@pytest.mark.slow
def test_llama_cpp_gives_the_same_scores_with_weights_in_float32(real_scores, tmp_path):
    pytest.importorskip("cyllama")
    from llama_cpp_scores import llama_cpp_scores, write_float32

    calls = REAL_CALLS[:15]
    others = llama_cpp_scores(write_float32(find_model().path, tmp_path / "float32.gguf"), calls)
    for scores, expected in zip(real_scores, others, strict=False):
        np.testing.assert_allclose(scores, expected, atol=2e-4)
