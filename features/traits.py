"""The fine class of a kernel: what it is made of, and how it is written.

`classify` gives one word of seven. The traits here say the rest, from the same graph:
how memory is walked, how often a row is read, what a matrix product is of and what
follows it, how several products depend on each other, and what data decides. None of
them is a feature of the model; they are for people and for decision lists.
"""

from __future__ import annotations

from costmodel.features.classify import classify
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.trait_names import Trait
from costmodel.features.traits_dots import dot_traits
from costmodel.features.traits_memory import memory_traits
from costmodel.features.traits_reduction import reduction_traits
from costmodel.frozen import dataclass
from costmodel.types import KernelClass


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """What a kernel is.

    Attributes:
        kind: The class, as `classify` gives it.
        parts: Classes that it is a mixture of, by grid body and by what a loop that
            data bounds holds; `kind` alone where it is no mixture.
        traits: What else structure shows, in the order of `Trait`.
    """

    kind: KernelClass
    parts: tuple[KernelClass, ...]
    traits: tuple[Trait, ...]

    @property
    def is_mixture(self) -> bool:
        """Whether it does several of the things that have a class of their own."""
        return len(self.parts) > 1


def read_traits(graph: KernelGraph, flow: Dataflow | None = None) -> KernelTraits:
    """Read the traits of a kernel; a function of structure and extents alone.

    Args:
        graph: The kernel.
        flow: Its dataflow, where the caller has it.
    """
    flow = Dataflow(graph) if flow is None else flow
    kind = classify(graph)
    found = set[Trait]()
    if kind is not KernelClass.UNKNOWN:
        found |= dot_traits(graph, flow)
        found |= reduction_traits(graph, flow)
        found |= memory_traits(graph, flow)
    return KernelTraits(
        kind=kind,
        parts=_parts(graph, kind, found),
        traits=tuple(trait for trait in Trait if trait in found),
    )


def _parts(
    graph: KernelGraph, kind: KernelClass, found: set[Trait]
) -> tuple[KernelClass, ...]:
    parts: list[KernelClass] = []
    for root in graph.root_ids():
        inside = {g for g, region in graph.regions.items() if region.root == root}
        axes = [axis for g in inside for axis in graph.loops.get(g, ())]
        n_dots = sum(dot.graph_id in inside for dot in graph.dots)
        if any(axis.bound is BoundKind.DATA for axis in axes):
            parts.append(KernelClass.DATA_DEPENDENT)
        if n_dots:
            many = n_dots > 1
            parts.append(KernelClass.MULTI_DOT if many else KernelClass.MATMUL)
        # A softmax between two products is part of attention, not one more thing.
        is_attention = Trait.ATTENTION_FORWARD in found and n_dots > 1
        reduces = any(r.graph_id in inside for r in graph.reductions)
        if reduces and not is_attention:
            parts.append(KernelClass.REDUCTION)
        touches = any(a.graph_id in inside for a in graph.accesses)
        if touches and not n_dots and not reduces:
            parts.append(KernelClass.POINTWISE)
    return tuple(dict.fromkeys(parts)) or (kind,)
