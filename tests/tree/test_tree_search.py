"""What a search finds, in which order, and what it leaves out."""

import pytest

from core.tree.model import VideoTree
from core.tree.search import NodeSearch, SearchIndex
from core.tree.words import content_words, words


@pytest.fixture
def index(film):
    return SearchIndex(film)


def test_words_are_folded_and_lose_their_punctuation():
    assert words("The Dog's HAT—blown away!") == ["the", "dog", "s", "hat", "blown", "away"]


def test_content_words_come_once_in_the_order_of_first_use():
    assert content_words("What does the miller do after the miller finds the boat?") == [
        "miller",
        "finds",
        "boat",
    ]


def test_the_index_is_a_node_search(index):
    assert isinstance(index, NodeSearch)


def test_the_node_that_shares_the_rarest_word_comes_first(index):
    assert index.search("Where does the boat drift: under a bridge?", k=1, level=3) == ["m3"]


def test_stop_words_alone_find_nothing(index):
    assert index.search("what is it that the she of her", k=5) == []


@pytest.mark.parametrize("query", ["zeppelin", "", "?!"])
def test_a_query_that_matches_no_word_finds_nothing(index, query):
    assert index.search(query, k=5) == []


def test_only_nodes_of_the_asked_level_are_hits(index, film):
    for level in (1, 2, 3):
        hits = index.search("boat lantern home", k=9, level=level)
        assert hits
        assert {film.nodes[hit].level for hit in hits} == {level}


def test_only_the_asked_field_is_searched(index):
    assert index.search("ship", k=5, field="subtitle") == ["m4"]
    assert index.search("ship", k=5, field="card") == []
    assert index.search("ship", k=5) == ["m4"]


def test_a_level_without_subtitles_finds_nothing_in_them(index):
    assert index.search("ship", k=5, field="subtitle", level=1) == []


def test_equal_scores_are_ordered_by_id(raw_film):
    for node in raw_film["nodes"].values():
        node.update(card="the same lantern", subtitle="")
    hits = SearchIndex(VideoTree.model_validate(raw_film)).search("lantern", k=9, level=3)
    assert hits == ["m1", "m2", "m3", "m4", "m5"]


def test_a_hit_whose_descendant_is_already_listed_is_dropped(film, raw_film):
    raw_film["nodes"]["m1"]["card"] = "brook brook brook"
    hits = SearchIndex(VideoTree.model_validate(raw_film)).search("brook", k=9)
    assert hits == ["m1"]  # and not s1, which names the brook too


def test_at_most_k_hits_come_back(index):
    assert len(index.search("lantern boat", k=2)) == 2


def test_the_film_in_another_file_order_gives_the_same_hits(film, raw_film):
    raw_film["nodes"] = dict(reversed(raw_film["nodes"].items()))
    other = SearchIndex(VideoTree.model_validate(raw_film))
    for query in ("boat", "lantern miller", "girl brook boat home"):
        assert other.search(query, k=9) == SearchIndex(film).search(query, k=9)
