"""Sums over many trees for some hundred rows, all rows of a workload at once.

Candidates of one workload are alike: most comparisons come out the same for all of
them. So a set of rows is kept as bits, sixty-four to a word; a comparison is one such
set, made once however many trees ask it, and a walk down the trees is a few operations
on sets, in which whatever no row reaches is dropped. Sums are taken in the order of the
trees in float32, as xgboost does, so that both give the same bits
(`tests/test_tree_sums.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.tree_file import TreeArrays
from costmodel.types import FloatArray

Words = npt.NDArray[np.uint64]
"""uint64[n_sets, n_words]: sets of rows, a bit for each."""

# Rows that are walked together: more take more memory than a cache holds.
_MOST_ROWS = 640


class TreeSums:
    """Owns the trees, ready to be walked.

    Args:
        trees: What to sum over.
    """

    def __init__(self, trees: TreeArrays) -> None:
        self.n_trees = trees.n_trees
        self._left, self._right = trees.left, trees.right
        self._value = trees.threshold
        self._first = trees.first
        inner = np.flatnonzero(trees.left >= 0)
        # Trees ask the same questions again and again: each is answered once.
        asked = trees.feature[inner] << 32
        asked |= trees.threshold[inner].view(np.uint32).astype(np.int64)
        questions, which = np.unique(asked, return_inverse=True)
        self._question = np.full(len(trees.left), -1, dtype=np.int64)
        self._question[inner] = which
        self._feature = questions >> 32
        bits = (questions & 0xFFFFFFFF).astype(np.uint32)
        self._threshold = bits.view(np.float32)

    def sums(
        self, rows: FloatArray, parts: Sequence[tuple[int, int]]
    ) -> list[FloatArray]:
        """Sums of the leaves that each row reaches.

        Args:
            rows: float32[n, n_features], no NaN.
            parts: First tree and the tree behind the last one of each sum.

        Returns:
            float32[n] for each part.
        """
        pieces = [
            self._some_sums(rows[start : start + _MOST_ROWS], parts)
            for start in range(0, len(rows), _MOST_ROWS)
        ]
        if not pieces:
            return [np.zeros(0, dtype=np.float32) for _part in parts]
        return [np.concatenate(of_part) for of_part in zip(*pieces, strict=True)]

    def _some_sums(
        self, rows: FloatArray, parts: Sequence[tuple[int, int]]
    ) -> list[FloatArray]:
        leaves, reached = self._walk(self._answers(rows), len(rows))
        order = np.argsort(leaves, kind="stable")  # nodes of a tree are neighbours
        leaves, sets = leaves[order], reached[order]
        # Every leaf as a row of values, and zeros for rows that do not reach it: adding
        # those changes nothing. Whole words, so that NumPy never adds along the leaves
        # of one row in an order of its own.
        values = np.unpackbits(sets.view(np.uint8), axis=1, bitorder="little")
        addends = values.astype(np.float32)
        addends *= self._value[leaves][:, None]
        edges = np.searchsorted(leaves, self._first)
        return [
            np.add.reduce(addends[edges[first] : edges[end]], axis=0)[: len(rows)]
            for first, end in parts
        ]

    def _answers(self, rows: FloatArray) -> Words:
        """For every question, the rows that go left."""
        n_words = -(-len(rows) // 64)
        low, high = rows.min(axis=0)[self._feature], rows.max(axis=0)[self._feature]
        packed = np.zeros((len(self._feature), n_words * 8), dtype=np.uint8)
        packed[high < self._threshold] = 0xFF
        open_ones = np.flatnonzero((low < self._threshold) & (high >= self._threshold))
        columns = np.ascontiguousarray(rows.T)[self._feature[open_ones]]
        goes_left = columns < self._threshold[open_ones][:, None]
        some = np.packbits(goes_left, axis=1, bitorder="little")
        packed[open_ones, : some.shape[1]] = some
        return packed.view(np.uint64)

    def _walk(self, answers: Words, n_rows: int) -> tuple[npt.NDArray[np.int64], Words]:
        """Leaves that some row reaches, and which rows reach each."""
        everyone = np.zeros(answers.shape[1] * 64, dtype=np.bool_)
        everyone[:n_rows] = True
        whole = np.packbits(everyone, bitorder="little").view(np.uint64)
        nodes = self._first[:-1]
        reached = np.repeat(whole[None], len(nodes), axis=0)
        leaves, sets = [], []
        while len(nodes):
            question = self._question[nodes]
            asks = np.flatnonzero(question >= 0)
            done = np.flatnonzero(question < 0)
            leaves.append(nodes[done])
            sets.append(reached.take(done, axis=0))
            nodes, reached = nodes[asks], reached.take(asks, axis=0)
            goes_left = answers.take(question[asks], axis=0)
            goes_left &= reached
            nodes = np.concatenate([self._left[nodes], self._right[nodes]])
            reached = np.concatenate([goes_left, reached ^ goes_left])
            some = np.flatnonzero(np.bitwise_or.reduce(reached, axis=1))
            nodes, reached = nodes[some], reached.take(some, axis=0)
        return np.concatenate(leaves), np.concatenate(sets)
