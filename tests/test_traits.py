"""The fine class: a table of kernels, and laws that no rule may break."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import random
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import parity_kernels
import pytest
from expected_traits import EXPECTED
from expected_traits import OF_FAMILY
from expected_traits import SIZE_TRAITS
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.arguments import TensorArgument
from costmodel.arguments import parse_argument
from costmodel.choosing import choose_for
from costmodel.datasets.anonymise import Names
from costmodel.datasets.anonymise_graph import anonymous_graph
from costmodel.datasets.anonymise_graph import graph_words
from costmodel.datasets.anonymise_source import anonymous_source
from costmodel.datasets.anonymise_source import private_words
from costmodel.datasets.store import Corpus
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import UnreadableKernelError
from costmodel.features.classify import classify
from costmodel.features.dataflow import CarryKind
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.trait_names import Trait
from costmodel.features.traits import KernelTraits
from costmodel.features.traits import read_traits
from costmodel.hardware import load_hardware
from costmodel.target import bind
from costmodel.types import KernelClass
from costmodel.types import WorkloadRecord

CORPUS = "datasets/corpora/h200"
H200 = load_hardware("H200")
# Kernels bound here and now, of as many kinds as there is time for.
LIVE = (
    "attention:attention_causal_bounded",
    "grouped:jagged_scores",
    "rotary:rotate_pairs",
)
# Kernels that the corpus does not hold, with traits that no kernel of it has.
UNRECORDED = {
    "gated_activation:gelu_interleaved": "pointwise strided split",
    "gather:scatter_add_rows": "pointwise segment contiguous atomic",
    "matmul_low_precision:int8_gemm": "matmul int8 pointwise_epilogue",
    "pointwise:transpose_copy": "pointwise transposing",
    "softmax:softmax_three_pass": "reduction row_reduction multi_pass contiguous",
}


@functools.cache
def recorded() -> Mapping[str, tuple[WorkloadData, ...]]:
    """Workloads of the bundled corpus by kernel, one for each shape."""
    found: dict[str, list[WorkloadData]] = defaultdict(list)
    for one in Corpus.load(CORPUS).workloads():
        found[one.record.kernel_name].append(one)
    return {name: tuple(found[name]) for name in sorted(found)}


@functools.cache
def traits_at(name: str, index: int) -> KernelTraits:
    """Traits of one recorded shape of a kernel."""
    return read_traits(KernelGraph.from_record(recorded()[name][index].record))


KERNELS = st.sampled_from(sorted(EXPECTED))


def words(found: KernelTraits) -> str:
    """Class and traits as the table spells them."""
    kept = [trait.value for trait in found.traits if trait not in SIZE_TRAITS]
    return " ".join((found.kind.value, *kept))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_kernel_is_what_its_source_says(name: str) -> None:
    assert words(traits_at(name, 0)) == EXPECTED[name]


def test_the_tables_know_every_trait() -> None:
    seen = {word for line in EXPECTED.values() for word in line.split()[1:]}
    seen |= {word for line in UNRECORDED.values() for word in line.split()[1:]}
    assert {trait.value for trait in Trait} - set(SIZE_TRAITS) == seen
    assert len(EXPECTED) >= 80


# Kernels whose family says where they are used and not what they are: a product with
# one weight for the whole batch, a fill of rows that reads no index, patches that are a
# plain product, sums over ids that add in memory, a gradient that is a row reduction.
LOOSE_FAMILY = {
    "bmm_shared_weight",
    "masked_fill_rows",
    "patch_embedding",
    "scatter_add_rows",
    "segment_sum",
    "softmax_backward",
}


def test_every_recorded_kernel_has_a_trait_of_its_family() -> None:
    wrong = {
        name
        for name, shapes in recorded().items()
        for index, one in enumerate(shapes)
        if one.family in OF_FAMILY
        and not OF_FAMILY[one.family] & set(traits_at(name, index).traits)
    }
    assert wrong == LOOSE_FAMILY
    assert len(recorded()) >= 100


def test_traits_refine_the_class_and_never_change_it() -> None:
    for name, shapes in recorded().items():
        graph = KernelGraph.from_record(shapes[0].record)
        found = traits_at(name, 0)
        assert found.kind is classify(graph) is not KernelClass.UNKNOWN
        assert found.parts
        assert found.is_mixture == (len(found.parts) > 1)
        assert list(found.traits) == [t for t in Trait if t in set(found.traits)]


def test_shapes_of_one_kernel_share_all_but_their_size() -> None:
    for name, shapes in recorded().items():
        told = {words(traits_at(name, index)) for index in range(len(shapes))}
        assert len(told) == 1, name


def test_traits_of_size_change_with_size() -> None:
    def has(name: str, trait: Trait) -> set[bool]:
        shapes = recorded()[name]
        return {trait in traits_at(name, index).traits for index in range(len(shapes))}

    assert has("gemm_nn", Trait.SKINNY) == {True, False}
    assert has("max_and_count", Trait.LONG_ROWS) == {True, False}
    assert has("group_norm", Trait.GROUP_REDUCTION) == {True, False}


def renamed(record: WorkloadRecord) -> WorkloadRecord:
    """The same kernel with every word of its author replaced."""
    rename = Names(
        {*private_words(record.kernel_source), *graph_words(record.ir_graph)}
    )
    return dataclasses.replace(
        record,
        kernel_name="rms_norm_matmul",
        kernel_source=anonymous_source(record.kernel_source, rename),
        ir_graph=anonymous_graph(record.ir_graph, rename),
    )


@settings(max_examples=15, deadline=None)
@given(KERNELS)
def test_names_of_kernels_variables_and_files_decide_nothing(name: str) -> None:
    record = recorded()[name][0].record
    other = renamed(record)
    assert other.kernel_source != record.kernel_source
    assert read_traits(KernelGraph.from_record(other)) == traits_at(name, 0)


def permuted(record: WorkloadRecord, seed: int) -> WorkloadRecord:
    """The same kernel with its tensor arguments declared in another order.

    Parameters change places in the text, so that every line stays where it is.
    """
    lines = record.kernel_source.split("\n")
    function = next(
        node
        for node in ast.walk(ast.parse(record.kernel_source))
        if isinstance(node, ast.FunctionDef)
    )
    tensors = [
        index
        for index, arg in enumerate(function.args.args)
        if ast.unparse(arg.annotation or ast.Constant("")) == "torch.Tensor"
    ]
    order = list(range(len(tensors)))
    random.Random(seed).shuffle(order)
    args = [function.args.args[i] for i in tensors]
    texts = [lines[a.lineno - 1][a.col_offset : a.end_col_offset] for a in args]
    for place in sorted(order, key=lambda p: (-args[p].lineno, -args[p].col_offset)):
        arg, text = args[place], texts[order[place]]
        line = lines[arg.lineno - 1]
        lines[arg.lineno - 1] = (
            line[: arg.col_offset] + text + line[arg.end_col_offset :]
        )
    return dataclasses.replace(
        record,
        kernel_source="\n".join(lines),
        input_shapes=tuple(record.input_shapes[i] for i in order),
        dtypes=tuple(record.dtypes[i] for i in order),
    )


@settings(max_examples=15, deadline=None)
@given(KERNELS, st.integers(0, 1000))
def test_the_order_of_arguments_decides_nothing(name: str, seed: int) -> None:
    record = recorded()[name][0].record
    other = permuted(record, seed)
    assert sorted(other.input_shapes) == sorted(record.input_shapes)
    assert read_traits(KernelGraph.from_record(other)) == traits_at(name, 0)


@settings(max_examples=15, deadline=None)
@given(KERNELS, st.randoms(use_true_random=False))
def test_the_order_of_edges_decides_nothing(name: str, rng: random.Random) -> None:
    record = recorded()[name][0].record
    edges = list(record.ir_graph["edges"])
    rng.shuffle(edges)
    shuffled = {**record.ir_graph, "edges": edges}
    graph = KernelGraph.from_record(dataclasses.replace(record, ir_graph=shuffled))
    assert read_traits(graph) == traits_at(name, 0)


def case_of(reference: str) -> Any:
    """A kernel of the workloads, by `module:kernel`."""
    module, _, name = reference.partition(":")
    family = importlib.import_module(f"costmodel.datasets.workloads.{module}")
    return next(case for case in family.CASES if case.name == name)


def bound_traits(kernel: Any, args: Sequence[str]) -> KernelTraits:
    """Traits of a kernel bound here and now."""
    bound = bind(kernel, [parse_argument(text) for text in args], H200)
    return read_traits(KernelGraph.from_record(helion_hook.record_of(bound)))


@pytest.mark.parametrize("reference", LIVE)
def test_the_live_kernel_is_what_its_record_says(reference: str) -> None:
    case = case_of(reference)
    shapes = [one.record.input_shapes for one in recorded()[case.name]]
    for args in case.shapes:
        specs = [parse_argument(text) for text in args]
        own = tuple(tuple(s.shape) for s in specs if isinstance(s, TensorArgument))
        if own in shapes:
            found = bound_traits(case.kernel, args)
            assert found == traits_at(case.name, shapes.index(own))
            return
    pytest.fail(f"{reference}: the corpus holds none of its shapes")


@pytest.mark.parametrize("reference", sorted(UNRECORDED))
def test_a_live_kernel_is_what_its_source_says(reference: str) -> None:
    case = case_of(reference)
    assert words(bound_traits(case.kernel, case.shapes[0])) == UNRECORDED[reference]


@pytest.mark.parametrize(("m", "n"), [(96, 80), (512, 1000), (8192, 16384)])
def test_a_regime_has_one_answer(m: int, n: int) -> None:
    kernel = parity_kernels.CASES["row_norm"].kernel
    assert words(bound_traits(kernel, [f"bf16[{m},{n}]", f"bf16[{n}]"])) == (
        "reduction row_reduction single_pass contiguous broadcast"
    )


OF_PARITY = {
    "chunk_scan": {Trait.STATE_SPACE},
    "grouped_product": {Trait.JAGGED, Trait.GROUPED},
    "row_chunk_gradient": {Trait.ROW_REDUCTION, Trait.COLUMN_REDUCTION},
    "split_product": {Trait.SPLIT_K, Trait.ATOMIC, Trait.SKINNY},
    "dynamic_product": {Trait.PLAIN},
}


@pytest.mark.parametrize("name", sorted(OF_PARITY))
def test_kernels_beyond_the_corpus(name: str) -> None:
    graph = KernelGraph.from_record(parity_kernels.view_of(name).record)
    assert set(read_traits(graph).traits) >= OF_PARITY[name]


def test_a_mixture_names_its_parts() -> None:
    def parts(name: str) -> tuple[KernelClass, ...]:
        graph = KernelGraph.from_record(parity_kernels.view_of(name).record)
        return read_traits(graph).parts

    assert parts("two_grids") == (KernelClass.REDUCTION, KernelClass.POINTWISE)
    assert parts("grouped_product") == (KernelClass.DATA_DEPENDENT, KernelClass.MATMUL)
    assert parts("attention") == (KernelClass.MULTI_DOT,)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("product", [CarryKind.DOT]),
        ("attention", [CarryKind.EXTREME, CarryKind.RESCALED, CarryKind.RESCALED]),
        ("row_chunk_gradient", [CarryKind.SUM]),
        ("row_norm", []),
    ],
)
def test_loops_say_what_they_carry(name: str, kinds: list[CarryKind]) -> None:
    graph = KernelGraph.from_record(parity_kernels.view_of(name).record)
    assert sorted(c.kind for c in Dataflow(graph).carries) == sorted(kinds)


def test_a_graph_that_touches_no_memory_is_unknown() -> None:
    root: dict[str, Any] = {
        "graph_id": 0,
        "region_kind": "RootGraphInfo",
        "block_ids": [0],
    }
    node = {"id": "g0:output", "graph_id": 0, "op_kind": "output", "target": "output"}
    record = dataclasses.replace(
        recorded()["gemm_nn"][0].record,
        kernel_source="def nothing(x):\n    for t in hl.tile(4):\n        pass\n",
        ir_graph={
            "graph": {"root_ids": [0], "graphs": [root]},
            "nodes": [node],
            "edges": [],
        },
    )
    found = read_traits(KernelGraph.from_record(record))
    assert found == KernelTraits(KernelClass.UNKNOWN, (KernelClass.UNKNOWN,), ())


def test_a_kernel_of_no_class_is_left_to_helion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(graph: KernelGraph) -> KernelClass:
        return KernelClass.UNKNOWN

    monkeypatch.setattr("costmodel.features.extract.classify", nothing)
    model: Any = SimpleNamespace(card=SimpleNamespace(hardware=("NVIDIA H200",)))
    with pytest.raises(UnreadableKernelError, match="Helion's default"):
        choose_for(parity_kernels.bound_case("row_norm"), None, model)
