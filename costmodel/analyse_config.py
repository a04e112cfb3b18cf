"""What one config makes of a workload: tiles, bytes, resources, time; all estimates."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from costmodel.features.canonical import canonical_config
from costmodel.features.effective import EffectiveKeys
from costmodel.features.emission import emitted_accesses
from costmodel.features.extract import Evaluation
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.liveness import LivePlan
from costmodel.features.liveness import make_live_plan
from costmodel.features.movement import contiguous_bytes
from costmodel.features.movement import elements_moved
from costmodel.features.nest import NestLevel
from costmodel.features.ops import OpKind
from costmodel.features.reuse import AccessFact
from costmodel.features.symbols import Sizes
from costmodel.features.symbols import ceil_div
from costmodel.features.tiles import Tiles
from costmodel.frozen import dataclass
from costmodel.roofline import Roofline
from costmodel.roofline import place
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class LiveTile:
    """Tiles of one shape that are alive where registers are fullest.

    Attributes:
        shape: As sizes in text.
        sizes: The same in elements.
        itemsize: Bytes of an element.
        count: How many.
        total_bytes: Of all of them, in one program.
    """

    shape: tuple[str, ...]
    sizes: tuple[int, ...]
    itemsize: int
    count: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """What one access moves in a launch.

    Attributes:
        tile: Elements of its tile, by dimension.
        total_bytes: Bytes moved, re-reads included.
        run_bytes: Contiguous bytes of a tile.
        indexing: How Helion really addresses it; None for an atomic, and where a
            rolled reduction makes another program.
    """

    tile: tuple[int, ...]
    total_bytes: float
    run_bytes: float
    indexing: str | None


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """One config, evaluated.

    Attributes:
        label: Whose config it is.
        config: The config.
        blocks: Tile size of each block, by key.
        trips: Trips of each axis, by nest level; of a bounded one the mean.
        programs: Grid size of the launch.
        resources: Of one program, by name with its unit.
        times_us: Terms of the estimate in microseconds; see `analytic.Estimate`.
        launch: Waves, and how full they are.
        traffic: Bytes and operations of the launch.
        moved: By access.
        live: Tiles alive at the peak of registers, most bytes first.
        roofline: Where it stands.
    """

    label: str
    config: Config
    blocks: tuple[int, ...]
    trips: tuple[tuple[float, ...], ...]
    programs: int
    resources: Mapping[str, float]
    times_us: Mapping[str, float]
    launch: Mapping[str, float]
    traffic: Mapping[str, float]
    moved: tuple[MovedBytes, ...]
    live: tuple[LiveTile, ...]
    roofline: Roofline


def evaluate_configs(
    extractor: FeatureExtractor,
    nest: Sequence[NestLevel],
    accesses: Sequence[AccessFact],
    configs: Mapping[str, Config],
) -> tuple[ConfigFacts, ...]:
    """Evaluate configs by label, each by itself.

    Raises:
        UnreadableKernelError: A config does not fit this kernel.
    """
    plan = make_live_plan(extractor.graph)
    keys = EffectiveKeys(extractor.graph)
    return tuple(
        _Reader(extractor, nest, accesses, plan, keys, config).facts(label)
        for label, config in configs.items()
    )


class _Reader:
    """Reads one evaluated config; every array has one row."""

    def __init__(
        self,
        extractor: FeatureExtractor,
        nest: Sequence[NestLevel],
        accesses: Sequence[AccessFact],
        plan: LivePlan,
        keys: EffectiveKeys,
        config: Config,
    ) -> None:
        self.graph: KernelGraph = extractor.graph
        self.extractor = extractor
        self.nest = nest
        self.accesses = accesses
        self.plan = plan
        self.keys = keys
        self.config = config
        self.found: Evaluation = extractor.evaluate([config])
        self.tiles: Tiles = self.found.tiles

    def facts(self, label: str) -> ConfigFacts:
        return ConfigFacts(
            label=label,
            config=self.config,
            blocks=tuple(int(_one(size)) for size in self.tiles.size),
            trips=tuple(self._trips(level) for level in self.nest),
            programs=int(_one(self.tiles.total_programs)),
            resources=self._resources(),
            times_us=self._times(),
            launch=self._launch(),
            traffic=self._traffic(),
            moved=self._moved(),
            live=self._live(),
            roofline=place(self.found, 0, self.extractor.hardware),
        )

    def _trips(self, level: NestLevel) -> tuple[float, ...]:
        if level.graph_id is not None:
            return tuple(
                _one(trips) for trips in self.tiles.axis_trips.get(level.graph_id, ())
            )
        return tuple(
            _one(ceil_div(np.array([float(a.extent)]), self.tiles.size[a.block]))
            for a in level.axes
        )

    def _resources(self) -> dict[str, float]:
        found, live = self.found.resources, self.found.live
        limits = {
            "threads": _one(found.limit_threads),
            "registers": _one(found.limit_registers),
            "shared memory": _one(found.limit_smem),
        }
        return {
            "threads": _one(found.threads),
            "regs_per_thread": _one(found.regs_per_thread),
            "spill_registers": _one(found.spill_registers),
            "smem_bytes": _one(found.smem_bytes),
            "live_bytes": _one(live.registers),
            "accumulator_bytes": _one(live.accumulators),
            "max_tile_numel": _one(found.max_tile_numel),
            "occupancy_ctas": _one(found.occupancy_ctas),
            "occupancy_warps": _one(found.occupancy_ctas)
            * _one(found.threads)
            / self.extractor.hardware.warp_size,
            **{f"ctas_by_{k.replace(' ', '_')}": v for k, v in limits.items()},
        }

    def _times(self) -> dict[str, float]:
        time = self.found.estimate
        return {
            "total_us": _one(time.total_us),
            "launch_us": _one(time.launch_us),
            "memory_us": _one(time.memory_us),
            "compute_us": _one(time.compute_us),
            "latency_us": _one(time.latency_us),
            "exposed_us": _one(time.exposed_us),
            "dram_us": _one(time.dram_us),
            "l2_us": _one(time.l2_us),
            "tensor_us": _one(time.tensor_us),
            "arithmetic_us": _one(time.issue_us),
        }

    def _launch(self) -> dict[str, float]:
        time = self.found.estimate
        return {
            "waves": _one(time.waves),
            "tail_share": _one(time.tail),
            "busiest_sm_ratio": _one(time.busy_programs),
            "bandwidth_share_in_flight": _one(time.bandwidth_share),
        }

    def _traffic(self) -> dict[str, float]:
        work = self.found.work
        unique = _one(work.unique_bytes)
        moved = _one(work.load_bytes) + _one(work.store_bytes)
        return {
            "load_bytes": _one(work.load_bytes),
            "store_bytes": _one(work.store_bytes),
            "unique_bytes": unique,
            "reread_ratio": moved / unique,
            "vector_bytes": _one(work.vector_bytes),
            "sector_waste": _one(work.sector_waste),
            "padding_waste": _one(work.waste),
            "dot_operations": sum(_one(v) for v in work.flops.values()),
            "arithmetic_operations": _one(work.arithmetic),
            "special_operations": _one(work.special),
        }

    def _moved(self) -> tuple[MovedBytes, ...]:
        indexing = self._indexing()
        return tuple(
            MovedBytes(
                tile=tuple(int(_one(self.tiles.dim(p))) for p in fact.access.shape),
                total_bytes=_one(elements_moved(self.graph, self.tiles, fact.access))
                * fact.access.itemsize,
                run_bytes=_one(contiguous_bytes(self.graph, self.tiles, fact.access)),
                indexing=indexing.get(fact.access.node_id),
            )
            for fact in self.accesses
        )

    def _indexing(self) -> dict[str, str]:
        """Addressing by node, where the program is the one with whole rows."""
        loops = self.config.get("reduction_loops") or []
        if any(size is not None for size in loops):
            return {}
        values = self.keys.indexing(canonical_config(self.config, None))
        slots = [e for e in emitted_accesses(self.graph) if e.kind is not OpKind.ATOMIC]
        return {
            entry.node_id: str(values[entry.indexing_slot])
            for entry in slots
            if entry.indexing_slot < len(values)
        }

    def _live(self) -> tuple[LiveTile, ...]:
        numel = [_one(self.tiles.numel(shape)) for shape, _ in self.plan.columns]
        weights = [
            n * item for n, (_, item) in zip(numel, self.plan.columns, strict=True)
        ]
        totals = self.plan.register_counts @ np.array(weights)
        if not totals.size or totals.max() <= 0.0:
            return ()
        counts = self.plan.register_counts[int(totals.argmax())]
        tiles = [
            LiveTile(
                shape=shape,
                sizes=tuple(int(_one(self.tiles.dim(part))) for part in shape),
                itemsize=item,
                count=int(count),
                total_bytes=int(count * weight),
            )
            for (shape, item), count, weight in zip(
                self.plan.columns, counts, weights, strict=True
            )
            if count > 0
        ]
        return tuple(sorted(tiles, key=lambda t: (-t.total_bytes, t.shape, t.itemsize)))


def _one(values: Sizes) -> float:
    """The only row of an array."""
    return float(np.asarray(values).reshape(-1)[0])
