"""Search over the texts of a tree: BM25 (`bm25s`), with ties settled by node id."""

from collections.abc import Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

import bm25s
import numpy as np

from core.tree.model import TreeNode, VideoTree
from core.tree.words import content_words, words

Field = Literal["all", "card", "subtitle"]
FIELDS: tuple[str, ...] = get_args(Field)


@runtime_checkable
class NodeSearch(Protocol):
    """Finds nodes for words; BM25 is one way, embeddings could be another."""

    def search(self, query: str, *, k: int, field: Field = "all", level: int | None = None) -> list[str]:
        """The ids of at most `k` nodes, best first; none when nothing fits."""
        ...


class SearchIndex:
    """BM25 over a tree's cards and subtitles, built once for each field and level that is asked for.

    Stop words of the query are left out, a node that shares no word with it is no hit, and equal scores are
    ordered by id. A hit is dropped when a node below it is already listed: it would tell the same again.
    """

    def __init__(self, tree: VideoTree) -> None:
        self._tree = tree
        self._built: dict[tuple[str, int | None], tuple[Sequence[str], bm25s.BM25 | None]] = {}

    def search(self, query: str, *, k: int, field: Field = "all", level: int | None = None) -> list[str]:
        """The ids of at most `k` nodes, best first; `level=None` searches all levels."""
        ids, index = self._index(field, level)
        if index is None:
            return []
        known = [word for word in content_words(query) if word in index.vocab_dict]
        return self._without_repeats(_ranked(ids, index.get_scores(known)), k) if known else []

    def _index(self, field: Field, level: int | None) -> tuple[Sequence[str], bm25s.BM25 | None]:
        key = (field, level)
        if key not in self._built:
            ids = sorted(id_ for id_, node in self._tree.nodes.items() if level in (None, node.level))
            self._built[key] = ids, _bm25([_text(self._tree.nodes[id_], field) for id_ in ids])
        return self._built[key]

    def _without_repeats(self, ranked: Sequence[str], k: int) -> list[str]:
        hits: list[str] = []
        told: set[str] = set()  # the ancestors of all hits
        for node_id in ranked:
            if len(hits) == k:
                break
            if node_id not in told:
                hits.append(node_id)
                told.update(self._tree.ancestors(node_id))
        return hits


def _text(node: TreeNode, field: Field) -> str:
    return {"all": f"{node.card}\n{node.subtitle}", "card": node.card, "subtitle": node.subtitle}[field]


def _bm25(texts: Sequence[str]) -> bm25s.BM25 | None:
    """The index of the texts; `None` when there is not one word in them."""
    corpus = [words(text) for text in texts]
    if not any(corpus):
        return None
    index = bm25s.BM25()
    index.index(corpus, create_empty_token=False, show_progress=False)
    return index


def _ranked(ids: Sequence[str], scores: np.ndarray) -> list[str]:
    """The ids with a positive score, best first. `ids` are sorted, so a stable sort settles ties by id."""
    order = np.argsort(-scores, kind="stable")
    return [ids[position] for position in order[: np.count_nonzero(scores > 0)]]
