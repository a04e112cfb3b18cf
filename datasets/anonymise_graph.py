"""Helion's graph of a kernel with the user's words taken out.

Nodes are named after the user's variables, placeholders have them as targets, and
every node tells its file and line. Only fields known to be harmless stay; what a new
version of Helion adds is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from costmodel.features.ops import op_kind
from costmodel.features.ops import op_name

# Names that Helion makes itself, and that features read: see `features.blocks`.
_OWN_NAME = re.compile(r"^(?:block_size_\d+|u\d+|arg\d+|output)(?:_\d+)?$")
_OWN_TARGET = re.compile(r"^(?:torch\.|helion\.|_operator\.|math\.)[\w.:]+$")
_LINE = re.compile(r":(\d+)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
# Symbols of torch and sympy functions; anything else in an expression is private.
_SYMBOL = re.compile(r"^(?:[a-z]{1,3}\d+|Max|Min|Mod|FloorDiv|CeilDiv|CleanDiv)$")
_TENSOR_WORDS = frozenset(
    [
        "FakeTensor",
        "device",
        "cuda",
        "size",
        "dtype",
        "torch",
        "float32",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "float8_e4m3fn",
        "float8_e5m2",
        "None",
        "True",
        "False",
    ]
)
_NODE_KEPT = [
    "graph_id",
    "region_kind",
    "block_ids",
    "op_kind",
    "dtype",
    "shape",
    "concrete_shape",
    "stride",
    "concrete_stride",
    "lowering_class",
    "reduction_type",
    "reduction_ranges",
    "pointwise_ranges",
    "input_dtypes",
    "input_shapes",
    "value",
]
_EDGE_KEPT = ["edge_kind", "arg_positions", "dtype", "shape"]
_REGION_KEPT = ["graph_id", "region_kind", "block_ids"]
_ROLLED_KEPT = [
    "original_graph_id",
    "rolled_block_ids",
    "used_rdim",
    "can_be_rolled_by_caller",
]

Rename = Callable[[str], str]


def graph_words(graph: Mapping[str, Any]) -> Iterator[str]:
    """Every private word of a graph: node names, targets, symbols."""
    for node in graph.get("nodes", ()):
        name = _name_of(str(node["id"]))
        if not _OWN_NAME.match(name):
            yield name
        for key in (*_NODE_KEPT, "target"):
            yield from _private(node.get(key))
    for edge in _edges(graph):
        yield from _private(edge.get("shape"))


def anonymous_graph(graph: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    """The graph with words renamed and lines counted from the kernel's first."""
    if not graph:
        return {}
    first = min(
        (line for node in graph["nodes"] if (line := _line(node)) is not None),
        default=1,
    )
    meta = graph["graph"]
    return {
        "directed": graph.get("directed", True),
        "multigraph": graph.get("multigraph", False),
        "graph": {
            "num_graphs": meta.get("num_graphs"),
            "root_ids": meta.get("root_ids"),
            "graphs": [_kept(one, _REGION_KEPT, rename) for one in meta["graphs"]],
            "rolled_reductions": [
                _kept(one, _ROLLED_KEPT, rename)
                for one in meta.get("rolled_reductions") or ()
            ],
        },
        "nodes": [_node(one, rename, first) for one in graph["nodes"]],
        "edges": [
            {
                **_kept(edge, _EDGE_KEPT, rename),
                "source": _id(str(edge["source"]), rename),
                "target": _id(str(edge["target"]), rename),
            }
            for edge in _edges(graph)
        ],
    }


def _edges(graph: Mapping[str, Any]) -> Any:
    return graph.get("edges") or graph.get("links") or ()


def _node(node: Mapping[str, Any], rename: Rename, first_line: int) -> dict[str, Any]:
    line = _line(node)
    target = str(node["target"])
    return {
        **_kept(node, _NODE_KEPT, rename),
        "target": _target(node, target, rename),
        "source_loc": None if line is None else f"kernel.py:{line - first_line + 1}",
        "id": _id(str(node["id"]), rename),
    }


def _target(node: Mapping[str, Any], target: str, rename: Rename) -> str:
    if _OWN_TARGET.match(target) or _OWN_NAME.match(target):
        return target
    if node["op_kind"] in ("placeholder", "output", "get_attr"):
        return rename(target)
    lowering = node.get("lowering_class")
    new = rename(target)
    kind = str(node["op_kind"])
    if op_kind(kind, new, lowering) is op_kind(kind, target, lowering):
        return new
    return op_name(target)  # a word that features know, and so nobody's own


def _line(node: Mapping[str, Any]) -> int | None:
    found = _LINE.findall(str(node.get("source_loc") or "").split("\n", 1)[0])
    return int(found[-1]) if found else None


def _name_of(node_id: str) -> str:
    return node_id.split(":", 1)[-1]


def _id(node_id: str, rename: Rename) -> str:
    name = _name_of(node_id)
    before = node_id[: len(node_id) - len(name)]
    return node_id if _OWN_NAME.match(name) else before + rename(name)


def _kept(value: Mapping[str, Any], keys: list[str], rename: Rename) -> dict[str, Any]:
    return {key: _renamed(value[key], rename, key) for key in keys if key in value}


_VERBATIM = frozenset(
    [
        "region_kind",
        "op_kind",
        "dtype",
        "lowering_class",
        "reduction_type",
        "input_dtypes",
        "edge_kind",
        "target",
    ]
)


def _renamed(value: Any, rename: Rename, key: str) -> Any:
    if isinstance(value, list | tuple):
        return [_renamed(one, rename, key) for one in value]
    if not isinstance(value, str):
        return value
    if key in _VERBATIM:
        return value if re.fullmatch(r"[\w.]+", value) else None
    return _WORD.sub(
        lambda found: rename(found[0]) if _is_private(found[0]) else found[0], value
    )


def _is_private(word: str) -> bool:
    return not (_SYMBOL.match(word) or word in _TENSOR_WORDS)


def _private(value: Any) -> Iterator[str]:
    """Words of a value that may need another name; more than that does no harm."""
    if isinstance(value, str):
        yield value
        yield from _WORD.findall(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _private(one)
