"""How text is cut into words: one way for the index, the tools and the tactics."""

import re

from bm25s.stopwords import STOPWORDS_EN_PLUS

_WORD = re.compile(r"\w+")
STOP_WORDS = frozenset(STOPWORDS_EN_PLUS)


def words(text: str) -> list[str]:
    """The words of `text` in their order, case folded, without punctuation: `"The dog's hat"` has
    `the, dog, s, hat`."""
    return _WORD.findall(text.casefold())


def content_words(text: str) -> list[str]:
    """The words of `text` that carry meaning: each once, in the order of first use, stop words left out."""
    return list(dict.fromkeys(word for word in words(text) if word not in STOP_WORDS))
