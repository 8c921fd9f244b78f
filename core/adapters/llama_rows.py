"""Where a row may stand in a matrix product without other bits in its result.

BLAS libraries work through a product in tiles of several rows. A row's result has other last bits when the
row has another place in its tile, or when there are too few rows for a tile. So texts start at a multiple
of the tile's period, which is found by trying, and there is a least number of rows.
"""

from __future__ import annotations

import numpy as np

from core.adapters.llama_weights import Array, LlamaWeights

BLOCK = 48
"""Positions that attend together; a multiple of every period that `row_period` may find."""

SEGMENT = 10 * BLOCK
"""Rows that go through the layers together, which bounds the memory of a long context."""

MINIMUM_ROWS = 24
"""Fewer rows than this take another path through some BLAS libraries, with other bits."""

PERIODS = (1, 2, 4, 8, 12, 16, 24, 48)


def row_period(weights: LlamaWeights) -> int:
    """The smallest period after which a row's place in a batch does not change its bits.

    A product of many copies of one row shows which places are alike. Raises `RuntimeError` when even
    `BLOCK` rows apart the bits differ.
    """
    counts = (*range(MINIMUM_ROWS, MINIMUM_ROWS + 13), BLOCK, SEGMENT)
    few_counts = (MINIMUM_ROWS, MINIMUM_ROWS + 1, MINIMUM_ROWS + 12, BLOCK)
    products = [
        [_copies_product(matrix, rows) for rows in counts]
        for (matrix, *_) in (weights.query_key_value, weights.attention_output, weights.gate_up, weights.down)
    ] + [[_copies_product(weights.embedding.T, rows) for rows in few_counts]]
    for period in PERIODS:
        if all(_repeats(products_of_one, period) for products_of_one in products):
            return period
    raise RuntimeError(f"this machine's matrix products do not repeat their bits within {BLOCK} rows")


def _copies_product(matrix: Array, rows: int) -> Array:
    row = np.random.default_rng(0).standard_normal(matrix.shape[0], dtype=np.float32)
    return np.tile(row, (rows, 1)) @ matrix


def _repeats(products: list[Array], period: int) -> bool:
    """Whether rows `period` apart are the same in these products, and in all of them alike."""
    fitting = [
        product.reshape(-1, period, product.shape[1]) for product in products if len(product) % period == 0
    ]
    return all(bool((product == fitting[0][0]).all()) for product in fitting)


def padded_rows(rows: int, period: int) -> int:
    """How many rows to compute where `rows` are wanted."""
    return round_up(max(rows, MINIMUM_ROWS), period)


def round_up(number: int, multiple: int) -> int:
    """The next multiple that is not smaller."""
    return -(-number // multiple) * multiple
