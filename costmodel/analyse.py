"""One workload as its author wants to see it: structure, tiles, memory, time.

A pure function of a `WorkloadRecord`, a GPU and some configs, so that a log record and
the live kernel it came from give the same answer. Everything is an estimate of the
analyser; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.analyse_config import ConfigFacts
from costmodel.analyse_config import evaluate_configs
from costmodel.errors import UnreadableKernelError
from costmodel.features.blocks import BlockKind
from costmodel.features.dataflow import Dataflow
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.nest import KnobFact
from costmodel.features.nest import NestLevel
from costmodel.features.nest import read_knobs
from costmodel.features.nest import read_nest
from costmodel.features.opmix import OpMix
from costmodel.features.opmix import read_opmix
from costmodel.features.reuse import AccessFact
from costmodel.features.reuse import read_access_facts
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.features.traits import KernelTraits
from costmodel.features.traits import read_traits
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config
from costmodel.types import WorkloadRecord


@dataclass(frozen=True, slots=True)
class Analysis:
    """All facts of one workload on one GPU, with the configs that were asked about.

    Attributes:
        graph: The kernel.
        hardware: The GPU.
        traits: Class and traits.
        nest: Loop nest in program order.
        knobs: What each entry of a list knob drives.
        accesses: Loads, stores and atomics, by slot.
        ops: Operations as written.
        configs: Evaluated configs, in the order given.
        problem: Why they could not be evaluated although the structure is known, or
            None.
    """

    graph: KernelGraph
    hardware: Hardware
    traits: KernelTraits
    nest: tuple[NestLevel, ...]
    knobs: tuple[KnobFact, ...]
    accesses: tuple[AccessFact, ...]
    ops: OpMix
    configs: tuple[ConfigFacts, ...]
    problem: str | None = None


def analyse(
    record: WorkloadRecord, hardware: Hardware, configs: Mapping[str, Config]
) -> Analysis:
    """Analyse a workload and evaluate some of its configs.

    Args:
        record: From a live kernel or from a log.
        hardware: The GPU.
        configs: By label, in the order to show; may be empty.

    Raises:
        UnreadableKernelError: The graph cannot be resolved.
    """
    graph = KernelGraph.from_record(record)
    flow = Dataflow(graph)
    nest = read_nest(graph, flow)
    accesses = read_access_facts(graph)
    problem = None
    evaluated: tuple[ConfigFacts, ...] = ()
    try:
        extractor = FeatureExtractor(graph, hardware)
        evaluated = evaluate_configs(extractor, nest, accesses, configs)
    except UnreadableKernelError as error:
        problem = str(error)
    return Analysis(
        graph=graph,
        hardware=hardware,
        traits=read_traits(graph, flow),
        nest=nest,
        knobs=read_knobs(graph),
        accesses=accesses,
        ops=read_opmix(graph),
        configs=evaluated,
        problem=problem,
    )


def block_name(graph: KernelGraph, key: int) -> str:
    """Short name of a block: `B0` for `block_sizes[0]`, `R0` for `reduction_loops[0]`.

    A block that no knob sizes is named by its size, or `F` and its key where the
    kernel's own tunables decide that.
    """
    block = graph.blocks[key]
    if block.kind is BlockKind.TUNABLE:
        return f"B{block.slot}"
    if block.kind is BlockKind.REDUCTION:
        return str(block.extent) if block.slot is None else f"R{block.slot}"
    if block.kind is BlockKind.GRID:
        return "1"
    return f"F{key}" if block.fixed_size is None else str(block.fixed_size)


def size_text(graph: KernelGraph, text: str) -> str:
    """A tile size with short names for its symbols."""
    if literal(text) is not None:
        return text
    key = graph.by_symbol.get(text)
    if key is not None:
        return block_name(graph, key)
    found = text
    for name in sorted(names_in(text), key=len, reverse=True):
        if name in graph.by_symbol:
            found = found.replace(name, block_name(graph, graph.by_symbol[name]))
    return found


def shape_text(graph: KernelGraph, shape: tuple[str, ...]) -> str:
    """A tile as text, such as `[B0, 128]`."""
    return "[" + ", ".join(size_text(graph, part) for part in shape) + "]"
