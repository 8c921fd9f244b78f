"""A recording gives back what was scored, and nothing else."""

import gzip

import pytest

from core.adapters.recorded_scores import DIGITS, RecordedScorer, ScoreRecorder
from core.protocols import ProviderError, TextScorer


class LengthScorer:
    model = "length"

    async def score(self, context, continuations):
        return [-len(context) / 3 - len(text) / 7 for text in continuations]


async def recording(path):
    recorder = ScoreRecorder(LengthScorer())
    given = await recorder.score("Question: Who?\nAnswer:", [" Ann", " Ben and Cy"])
    recorder.write(path)
    return given


async def test_replay_gives_exactly_what_the_recorder_gave(tmp_path):
    given = await recording(tmp_path / "scores.json.gz")
    replay = RecordedScorer.read(tmp_path / "scores.json.gz")
    assert isinstance(replay, TextScorer)
    assert replay.model == "length"
    assert await replay.score("Question: Who?\nAnswer:", [" Ben and Cy", " Ann"]) == given[::-1]


async def test_recorded_scores_are_rounded_alike_while_recording(tmp_path):
    exact = await LengthScorer().score("Question: Who?\nAnswer:", [" Ann", " Ben and Cy"])
    given = await recording(tmp_path / "scores.json.gz")
    assert given == [round(score, DIGITS) for score in exact]
    assert given != exact


async def test_the_same_scores_are_the_same_file(tmp_path):
    for name in ("a", "b"):
        await recording(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("asked", [("Question: Why?\nAnswer:", " Ann"), ("Question: Who?\nAnswer:", " Dan")])
async def test_what_was_not_recorded_is_an_error_with_the_words_of_the_question(tmp_path, asked):
    await recording(tmp_path / "scores.json.gz")
    replay = RecordedScorer.read(tmp_path / "scores.json.gz")
    context, continuation = asked
    with pytest.raises(ProviderError) as caught:
        await replay.score(context, [" Ann", continuation])
    assert context.splitlines()[0] in str(caught.value)
    assert "record it again" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"text", gzip.compress(b"[]"), gzip.compress(b'{"model": "m"}')])
def test_a_file_that_is_no_recording_is_named(tmp_path, content):
    path = tmp_path / "scores.json.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"scores\.json\.gz: is no recording .*record it again"):
        RecordedScorer.read(path)
