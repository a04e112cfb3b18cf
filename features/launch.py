"""What a config makes of a kernel before layouts: loops that stay, descriptors, MMA.

One object for n configs of one kernel on one GPU; several estimates read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from costmodel.features.compute import Dot
from costmodel.features.dottiles import WGMMA_MIN_ROWS
from costmodel.features.dottiles import WGMMA_MIN_THREADS
from costmodel.features.fusion import FusedPair
from costmodel.features.fusion import fuses
from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import DEFAULT_NUM_STAGES
from costmodel.features.knobs import asked_descriptors
from costmodel.features.knobs import encoded
from costmodel.features.knobs import fitting_descriptor
from costmodel.features.knobs import number
from costmodel.features.knobs import range_values
from costmodel.features.layouts import Bits
from costmodel.features.layouts import Layout
from costmodel.features.layouts import bits
from costmodel.features.layouts import mma
from costmodel.features.layouts import mma_warps
from costmodel.features.scratch import Scratch
from costmodel.features.staging import LoopPlan
from costmodel.features.staging import StagingPlan
from costmodel.features.staging import Tile
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config

Flags = npt.NDArray[np.bool_]

_NEVER = np.zeros(1, dtype=np.bool_)
_GROUP_MIN_COLUMNS = 8.0  # columns of the smallest wgmma (PTX ISA)


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """How one loop is compiled.

    Attributes:
        is_loop: bool[n], whether it is still a loop.
        stages: Stages of its pipeline.
        own_stages: Those that its own `range_num_stages` asks for, or 0.
        copies: How often its body is repeated within a trip.
        fused: bool[n], whether it is one loop with the persistent grid around it.
    """

    is_loop: Flags
    stages: Sizes
    own_stages: Sizes
    copies: Sizes
    fused: Flags


class Launch:
    """What is the same for all loops of n configs."""

    def __init__(
        self,
        graph: KernelGraph,
        plan: StagingPlan,
        tiles: Tiles,
        configs: Sequence[Config],
        threads: Sizes,
        hardware: Hardware,
    ) -> None:
        self.graph, self.tiles, self.hardware = graph, tiles, hardware
        self.threads = threads
        self.warps = bits(threads / float(hardware.warp_size))
        self.stages = np.maximum(number(configs, "num_stages", DEFAULT_NUM_STAGES), 1.0)
        asked = asked_descriptors(graph, configs, tiles)
        self.descriptors = {
            index: wants * fitting_descriptor(graph, index, tiles) > 0.0
            for index, wants in asked.items()
        }
        self.scratch = Scratch(graph, tiles, self.warps, threads)
        self._bits: dict[str, Bits] = {}
        self.groups: dict[str, Flags] = {}
        self.warps_of: dict[str, tuple[Bits, Bits]] = {}
        self.results: dict[str, Layout] = {}
        asks = np.zeros(1)
        for column in asked.values():
            asks = np.maximum(asks, column)
        on_host = encoded(
            configs, "host_tensor_descriptors", lambda v: (float(v is True),)
        )[0]
        # Helion takes these back where a descriptor is asked for.
        self.no_range_stages = (asks > 0.0) & (on_host <= 0.0)
        self.no_unroll = (asks > 0.0) & (self.stages > 1.0)
        self.persistent = encoded(configs, "pid_type", _persists)[0] > 0.0
        self.range_stages = range_values(plan.range_slots, configs, "range_num_stages")
        self.unrolls = range_values(plan.range_slots, configs, "range_unroll_factors")
        self.flattens = range_values(plan.range_slots, configs, "range_flattens")
        self.loops = {one.graph_id: compiled_loop(self, one) for one in plan.loops}
        for pair in plan.pairs:
            self.loops[pair.loop] = self._fused(pair)
        self.chains = plan.chains

    def _fused(self, pair: FusedPair) -> CompiledLoop:
        """A loop with what a grid that is flattened into it makes of it."""
        grid, loop = self.loops[pair.grid], self.loops[pair.loop]
        fused = fuses(
            self.flattens.get(pair.grid, np.zeros(1)),
            self.persistent,
            loop.is_loop,
            (grid.copies, loop.copies),
            self.tiles.axis_trips[pair.loop][0],
            self.tiles.rolled,
        )
        own = np.where(fused, np.maximum(grid.own_stages, loop.own_stages), 0.0)
        # One stage is as if nothing was asked for.
        asked = np.where(own > 1.0, own, self.stages)
        return replace(
            loop,
            stages=np.where(fused, asked, loop.stages),
            own_stages=np.where(fused, own, loop.own_stages),
            fused=fused,
        )

    def bits(self, text: str) -> Bits:
        """log2 of a tile dimension."""
        found = self._bits.get(text)
        if found is None:
            found = self._bits[text] = bits(self.tiles.dim(text))
        return found

    def size(self, tile: Tile) -> Sizes:
        """Bytes of a tile."""
        return self.tiles.numel(tile[0]) * float(tile[1])

    def uses_descriptor(self, index: int) -> Flags:
        """For each config, whether an access goes through a descriptor."""
        found = self.descriptors.get(index)
        return np.zeros(1, dtype=np.bool_) if found is None else found


def _persists(value: object) -> tuple[float, ...]:
    return (float(str(value or "").startswith("persistent")),)


def compiled_loop(launch: Launch, loop: LoopPlan) -> CompiledLoop:
    """Whether a loop is still one after unrolling, and with how many stages."""
    own = launch.range_stages.get(loop.graph_id, np.zeros(1))
    own = np.where(launch.no_range_stages, 0.0, own)
    stages = np.where(own > 0.0, own, launch.stages)
    unroll = np.maximum(launch.unrolls.get(loop.graph_id, np.ones(1)), 1.0)
    unroll = np.where(launch.no_unroll, 1.0, unroll)
    if loop.is_grid:
        is_loop = launch.persistent
        copies = np.where(is_loop, unroll, 1.0)
        return CompiledLoop(is_loop, stages, own, copies, _NEVER)
    trips = np.ones(1)
    for count in launch.tiles.axis_trips.get(loop.graph_id, ()):
        trips = trips * count
    if not loop.trips_known:
        is_loop = np.ones(1, dtype=np.bool_)
        return CompiledLoop(is_loop, stages, own, unroll, _NEVER)
    # Fewer trips than the factor: what is left over runs unrolled by one, and without
    # stages (Triton's LoopUnroll).
    rest = trips < unroll
    is_loop = (trips > 1.0) & (trips != unroll)
    return CompiledLoop(
        is_loop,
        np.where(rest, 1.0, stages),
        np.where(rest, 0.0, own),
        np.where(rest, 1.0, unroll),
        _NEVER,
    )


def is_group(launch: Launch, dot: Dot) -> Flags:
    """Whether a dot is large enough for warp-group MMA: bool[n]."""
    known = launch.groups.get(dot.node_id)
    if known is None:
        known = launch.groups[dot.node_id] = _find_group(launch, dot)
    return known


def _find_group(launch: Launch, dot: Dot) -> Flags:
    hardware = launch.hardware
    if not (hardware.has_wgmma or hardware.has_tcgen05):
        return np.zeros(1, dtype=np.bool_)
    found = launch.threads >= WGMMA_MIN_THREADS
    found = found & (launch.tiles.dim(dot.m) >= WGMMA_MIN_ROWS)
    found = found & (launch.tiles.dim(dot.n) >= _GROUP_MIN_COLUMNS)
    for part in dot.batch:
        found = found & (launch.tiles.dim(part) <= 1.0)
    return found


def dot_warps(launch: Launch, dot: Dot) -> tuple[Bits, Bits]:
    """log2 of the warps along the rows and the columns of a dot's result.

    Both are 0 where older MMA spreads the warps over a batch.
    """
    known = launch.warps_of.get(dot.node_id)
    if known is None:
        known = launch.warps_of[dot.node_id] = _find_warps(launch, dot)
    return known


def _find_warps(launch: Launch, dot: Dot) -> tuple[Bits, Bits]:
    m, n = launch.bits(dot.m), launch.bits(dot.n)
    group, none = is_group(launch, dot), launch.warps * 0
    rows, _ = mma_warps(m, n, launch.warps, group)
    if dot.node_id in launch.chains.feeding:
        rows = np.where(group, launch.warps, rows)
    along_rows, meets = _meeting(launch, dot)
    rows = np.where(~group & meets, np.where(along_rows, launch.warps, 0), rows)
    columns = launch.warps - rows
    batched = np.zeros(1, dtype=np.bool_)
    for part in dot.batch:
        batched = batched | (launch.tiles.dim(part) > 1.0)
    if batched.any():
        rows = np.where(batched, none, rows)
        columns = np.where(batched, none, columns)
    return rows, columns


def _meeting(launch: Launch, dot: Dot) -> tuple[Flags, Flags]:
    """Whether older MMA puts all warps along rows, and whether it puts all one way.

    The last dot of a region decides for the others, which follow it; the copies of an
    unrolled body meet each other.
    """
    along_rows = np.ones(1, dtype=np.bool_)
    count = np.zeros(1)
    for one in launch.chains.neighbours[dot.node_id]:
        old = ~is_group(launch, one)
        count = count + old
        tall = launch.bits(one.m) >= launch.bits(one.n)
        along_rows = np.where(old, tall, along_rows)
    loop = launch.loops.get(dot.graph_id)
    copies = np.ones(1) if loop is None else loop.copies
    return along_rows, (count > 1.0) | (copies > 1.0)


def dot_result(launch: Launch, dot: Dot) -> Layout:
    """Layout of a dot's result, rows and columns."""
    known = launch.results.get(dot.node_id)
    if known is None:
        m, n = launch.bits(dot.m), launch.bits(dot.n)
        known = mma(m, n, dot_warps(launch, dot), is_group(launch, dot))
        launch.results[dot.node_id] = known
    return known
