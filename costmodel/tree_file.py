"""The trees of a published model as arrays, read without the library that grew them.

A `.ubj` file holds, for every tree, arrays of its nodes under fixed names: raw, big
endian, with their length in front. Those of all trees are put one behind the other.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from costmodel.errors import CorruptRecordError
from costmodel.frozen import dataclass

_ARRAYS = {
    "left_children": ("l", ">i4"),
    "right_children": ("l", ">i4"),
    "split_indices": ("l", ">i4"),
    "split_conditions": ("d", ">f4"),
}
"""Name, marker of the elements in UBJSON, and how NumPy reads them."""

_PLAIN_OBJECTIVE = b"SL\x00\x00\x00\x00\x00\x00\x00\x10reg:squarederror"
_NO_BASE = re.compile(rb"base_scoreSL\x00{7}.\[?-?0(?:\.0*)?(?:E0)?\]?L")


@dataclass(frozen=True, slots=True)
class TreeArrays:
    """Nodes of all trees, tree after tree.

    Attributes:
        first: int64[n_trees + 1], where each tree begins, its root first.
        left: int64[n_nodes], the node for smaller values; -1 for a leaf.
        right: int64[n_nodes], the node for the others; -1 for a leaf.
        feature: int64[n_nodes], the feature that is compared.
        threshold: float32[n_nodes], what with; a leaf's value for a leaf.
    """

    first: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float32]

    @property
    def n_trees(self) -> int:
        """How many trees there are."""
        return len(self.first) - 1


def read_trees(content: bytes) -> TreeArrays:
    """Read the trees of a regression model whose sums start at nothing.

    Args:
        content: What xgboost writes as UBJSON.

    Raises:
        CorruptRecordError: It is not that, or it is a model of another kind.
    """
    if _PLAIN_OBJECTIVE not in content or not _NO_BASE.search(content):
        raise CorruptRecordError(
            "expected trees with objective reg:squarederror and base_score 0, found "
            "others: publish the model again"
        )
    found = {name: _arrays(content, name) for name in _ARRAYS}
    sizes = {name: [len(one) for one in arrays] for name, arrays in found.items()}
    lengths = sizes["left_children"]
    if not lengths or min(lengths) < 1 or any(s != lengths for s in sizes.values()):
        raise CorruptRecordError(
            f"expected trees with as many children as conditions, found "
            f"{', '.join(f'{len(s)} x {name}' for name, s in sizes.items())}: publish "
            f"the model again"
        )
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    shift = np.repeat(first[:-1], lengths)
    left, right, feature = (
        np.concatenate(found[name]).astype(np.int64)
        for name in ("left_children", "right_children", "split_indices")
    )
    is_leaf = left < 0
    if not np.array_equal(is_leaf, right < 0):
        raise CorruptRecordError("expected two children or none, found a node with one")
    return TreeArrays(
        first=first,
        left=np.where(is_leaf, -1, left + shift),
        right=np.where(is_leaf, -1, right + shift),
        feature=feature,
        threshold=np.concatenate(found["split_conditions"]).astype(np.float32),
    )


def _arrays(content: bytes, name: str) -> list[npt.NDArray[np.generic]]:
    """All arrays of a name, in order."""
    marker, kind = _ARRAYS[name]
    head = name.encode() + b"[$" + marker.encode() + b"#L"
    item_bytes = np.dtype(kind).itemsize
    found = []
    place = content.find(head)
    while place >= 0:
        begin = place + len(head) + 8
        length = int.from_bytes(content[begin - 8 : begin], "big")
        end = begin + length * item_bytes
        if end > len(content):
            raise CorruptRecordError(
                f"expected {length} x {name}, found the file's end"
            )
        found.append(np.frombuffer(content, kind, length, begin))
        place = content.find(head, end)
    return found
