"""Where each tactic looks in the tiny film, by which calls, and what it brings back."""

import json

import pytest

from core.agent.tactics import TACTICS, Evidence, look
from core.agent.traces import opened_nodes
from core.tree.model import VideoTree
from core.tree.tools import TreeTools

BRIDGE = "What comes after the boat drifts under a bridge?"  # its best hit is m3


class CountedTools:
    """Keeps each call and the nodes it opened."""

    def __init__(self, tools):
        self.tools, self.calls, self.opened = tools, [], []

    async def __call__(self, name, args):
        output = await self.tools(name, args)
        self.calls.append(name)
        self.opened += opened_nodes(output)
        return output


@pytest.mark.parametrize(
    ("tactic", "question", "found"),
    [
        ("first_moments", "How does it begin?", ["m1", "m2"]),
        ("last_moments", "How does it end?", ["m4", "m5"]),
        ("search_1", BRIDGE, ["m3"]),
        ("search_2", "Where is the boat or the wheel?", ["m3", "m4"]),
        ("search_next", BRIDGE, ["m3", "m4"]),
        ("search_next", "What comes after the knock at the door?", ["m5"]),
        ("search_previous", BRIDGE, ["m2", "m3"]),
        ("search_previous", "Before the girl folds the newspaper?", ["m1"]),
        ("search_around", BRIDGE, ["m2", "m3", "m4"]),
        ("search_subtitle", "Who asks about the ship?", ["m4"]),
        ("scene_summary", "What becomes of the girl and her brook?", ["s1"]),
        ("event_moments", "What goes on when he knocks at the door?", ["m4", "m5"]),
        ("count_word", "In how many moments does a lantern occur?", ["m2", "m3", "m5"]),
        ("read_all", "Anything?", ["s1", "e1", "m1", "m2", "e2", "m3", "s2", "e3", "m4", "m5"]),
    ],
)
async def test_a_tactic_finds_its_places_in_film_order(tools, tactic, question, found):
    counted = CountedTools(tools)
    evidence = await look(tactic, question, counted)
    assert list(evidence.node_ids) == found
    assert set(found) <= set(counted.opened)


@pytest.mark.parametrize(
    ("tactic", "question"),
    [
        ("first_moments", "How does it begin?"),
        ("last_moments", "How does it end?"),
        ("search_1", BRIDGE),
        ("search_next", BRIDGE),
        ("search_around", BRIDGE),
        ("search_subtitle", "Who asks about the ship?"),
        ("scene_summary", "What becomes of the girl?"),
        ("count_word", "In how many moments does a lantern occur?"),
    ],
)
async def test_these_open_nothing_but_what_they_bring(tools, tactic, question):
    counted = CountedTools(tools)
    evidence = await look(tactic, question, counted)
    assert set(counted.opened) == set(evidence.node_ids)


async def test_the_evidence_is_the_texts_with_words_in_quotes(tools):
    evidence = await look("search_next", BRIDGE, tools)
    assert evidence.text == (
        "The boat with the lantern drifts under a bridge.\n"
        'A miller lifts it out of the wheel. "Whose ship are you?"'
    )


@pytest.mark.parametrize(
    "tactic", [name for name in TACTICS if name.startswith(("search", "event", "scene", "count"))]
)
async def test_words_that_stand_nowhere_bring_no_evidence(tools, tactic):
    assert await look(tactic, "Zeppelin? What about it?", tools) == Evidence()


async def test_the_recurring_word_is_the_one_that_is_counted(tools):
    evidence = await look("count_word", "In how many moments do we see a lantern near a bridge?", tools)
    assert evidence.text == 'The word "lantern" occurs in three moments.'


@pytest.mark.parametrize(
    ("times", "told"), [(1, "one moment."), (12, "twelve moments."), (13, "13 moments.")]
)
async def test_numbers_are_words_up_to_twelve(times, told):
    moments = [f"m{number}" for number in range(times)]
    nodes = {
        "s": {"level": 1, "time_range": [0, 99], "children_ids": ["e"]},
        "e": {"level": 2, "time_range": [0, 99], "children_ids": moments},
        **{m: {"level": 3, "time_range": [n, n + 1], "card": "A kite."} for n, m in enumerate(moments)},
    }
    tools = TreeTools(VideoTree(videoID="v", duration_seconds=99, nodes=nodes))
    assert (await look("count_word", "How often a kite?", tools)).text == f'The word "kite" occurs in {told}'


async def test_a_film_of_one_moment_is_first_and_last(tools):
    nodes = {
        "s": {"level": 1, "time_range": [0, 1], "children_ids": ["e"]},
        "e": {"level": 2, "time_range": [0, 1], "children_ids": ["m"]},
        "m": {"level": 3, "time_range": [0, 1], "card": "A kite."},
    }
    tools = TreeTools(VideoTree(videoID="v", duration_seconds=1, nodes=nodes))
    for tactic in ("first_moments", "last_moments"):
        assert await look(tactic, "q", tools) == Evidence("A kite.", ("m",))


@pytest.mark.parametrize("output", ["", "no JSON", "[1]", '{"nodes": [{}, 3]}', json.dumps({"count": 2})])
def test_output_of_other_shapes_opened_nothing(output):
    assert opened_nodes(output) == ()
