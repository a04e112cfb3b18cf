"""Facts of a kernel and configs to the feature matrix, in one vectorised pass."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.features.analytic import Estimate
from costmodel.features.analytic import estimate_time
from costmodel.features.blocks import BlockKind
from costmodel.features.classify import classify
from costmodel.features.dottiles import dot_features
from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import Alike
from costmodel.features.knobs import Columns
from costmodel.features.knobs import as_columns
from costmodel.features.knobs import knob_features
from costmodel.features.knobs import scattered_blocks
from costmodel.features.liveness import LiveBytes
from costmodel.features.liveness import live_bytes
from costmodel.features.liveness import make_live_plan
from costmodel.features.proposed import Proposed
from costmodel.features.remembered import RememberedFeatures
from costmodel.features.remembered import RememberedResources
from costmodel.features.remembered import joined
from costmodel.features.resources import Resources
from costmodel.features.resources import estimate_resources
from costmodel.features.schema import BASE_FEATURES
from costmodel.features.schema import SCHEMA
from costmodel.features.schema import WORKLOAD_FEATURES
from costmodel.features.staging import make_staging_plan
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.features.tiles import is_readable
from costmodel.features.tiles import make_tiles
from costmodel.features.traffic import Work
from costmodel.features.traffic import estimate_work
from costmodel.features.workload import workload_features
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Candidate
from costmodel.types import Config
from costmodel.types import FloatArray
from costmodel.types import KernelClass

# Batches of resources that are remembered: a decision asks for drafts, their variants
# and seeds in turn, and for no more than a hundred of them at once.
_MOST_BATCHES = 6
_MOST_APART = 4  # configs that are looked up one by one in different batches


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything known of n configs before they become features."""

    tiles: Tiles
    live: LiveBytes
    resources: Resources
    work: Work
    estimate: Estimate


class FeatureExtractor:
    """Turns configs of one workload on one GPU into features.

    What no config changes is computed once, here; the rest is array arithmetic, so a
    row's features do not depend on the rows around it. Answers are remembered by the
    identity of configs, which must not change once they were asked about.

    Features need to know our own analytic list, which is made from resource estimates:
    `costmodel.heuristics.listed.with_list` makes it and says it here. Resources and
    estimated times need none.

    Attributes:
        graph: The kernel.
        hardware: The GPU.
        kernel_class: Class read from the graph.
    """

    def __init__(self, graph: KernelGraph, hardware: Hardware) -> None:
        self.graph = graph
        self.hardware = hardware
        self.kernel_class: KernelClass = classify(graph)
        self._live_plan = make_live_plan(graph)
        self._staging = make_staging_plan(graph)
        self._workload = _pack(
            workload_features(graph, self.kernel_class, hardware),
            WORKLOAD_FEATURES,
            1,
        )
        self._proposed: Proposed | None = None
        self._remembered: RememberedFeatures | None = None
        self._batches: list[RememberedResources] = []
        self._expected: list[Config] = []

    def know_list(self, default: Config, candidates: Sequence[Candidate]) -> None:
        """Say what the analytic list of this workload is, before features are asked.

        Args:
            default: Helion's full default.
            candidates: The list, best first; may be empty.
        """
        self._proposed = Proposed(self.graph, default, candidates)
        self._remembered = None

    @property
    def proposed(self) -> Proposed:
        """The analytic list.

        Raises:
            AssertionError: Nobody said it; features without it would mean otherwise
                than those that a model was trained on.
        """
        assert self._proposed is not None, "call with_list before asking for features"
        return self._proposed

    def expect(self, configs: Sequence[Config]) -> None:
        """Say whose resources will be asked for soon, to be estimated with the next.

        Most of the time goes to single steps over all configs, however few. Configs of
        another kernel are left out.
        """
        self._expected += [one for one in configs if is_readable(self.graph, one)]

    def remember(self, configs: Sequence[Config], alike: Alike | None = None) -> None:
        """Evaluate configs once for all that will be asked about these very objects.

        Most of the time goes to single steps over all configs, however few: one pass
        over hundreds costs little more than one over ten.

        Args:
            configs: What will be asked about.
            alike: Fewer configs that have the same values but for the tile, if known.

        Raises:
            UnreadableKernelError: A config does not fit this kernel.
        """
        columns = Columns(configs, alike)
        found = self.evaluate(columns)
        self._remembered = RememberedFeatures(
            configs,
            found.resources,
            self._features(columns, found),
            found.estimate.total_us,
        )

    def evaluate(self, configs: Sequence[Config]) -> Evaluation:
        """Evaluate tiles, resources, work and time of n configs.

        Raises:
            UnreadableKernelError: A config does not fit this kernel.
        """
        configs = as_columns(configs)
        tiles = make_tiles(self.graph, configs)
        live = live_bytes(self._live_plan, tiles)
        resources = estimate_resources(
            self.graph,
            self._staging,
            self._live_plan,
            live,
            tiles,
            configs,
            self.hardware,
        )
        work, estimate = self._timed(tiles, resources, configs)
        return Evaluation(tiles, live, resources, work, estimate)

    def base(self, configs: Sequence[Config]) -> FloatArray:
        """Features of each config by itself: float32[n, n_base].

        Raises:
            UnreadableKernelError: A config does not fit this kernel.
        """
        if not configs:
            return np.zeros((0, len(BASE_FEATURES)), dtype=np.float32)
        known = self._remembered
        rows = None if known is None else known.rows(configs)
        if known is not None and rows is not None:
            return known.base(rows)
        columns = as_columns(configs)
        return self._features(columns, self.evaluate(columns))

    def _features(self, configs: Sequence[Config], found: Evaluation) -> FloatArray:
        columns = {
            **knob_features(self.graph, configs, found.tiles),
            **_physical(self.graph, found, self.hardware),
            **dot_features(self.graph, found.tiles, found.resources.threads),
            **self.proposed.columns(configs),
        }
        return _pack(columns, BASE_FEATURES, len(configs))

    def matrix(self, configs: Sequence[Config], default: Config) -> FloatArray:
        """The full matrix, float32[n, len(SCHEMA)], against Helion's default.

        Raises:
            UnreadableKernelError: A config, or the default, does not fit this kernel.
        """
        # A row does not depend on the rows around it, so the default rides along.
        rows = self.base([*configs, default])
        return self.differences(rows[:-1], rows[-1])

    def differences(self, base: FloatArray, reference_row: FloatArray) -> FloatArray:
        """The full matrix against any reference row: float32[n, len(SCHEMA)].

        Args:
            base: float32[n, n_base] from `base`.
            reference_row: float32[n_base], the row to subtract.
        """
        workload = np.broadcast_to(self._workload, (len(base), len(WORKLOAD_FEATURES)))
        full = np.concatenate([base, base - reference_row[None, :], workload], axis=1)
        assert full.shape[1] == len(SCHEMA)
        return np.ascontiguousarray(full, dtype=np.float32)

    def resources(self, configs: Sequence[Config]) -> Resources:
        """Estimated resources of each config, float64[n] arrays.

        Raises:
            UnreadableKernelError: A config does not fit this kernel.
        """
        known = self.known_resources(configs)
        if known is not None:
            return known
        # Who asks what fits asks next for more of what does.
        batch = [*configs, *self._expected]
        self._expected = []
        columns = as_columns(batch)
        tiles = make_tiles(self.graph, columns)
        live = live_bytes(self._live_plan, tiles)
        found = estimate_resources(
            self.graph,
            self._staging,
            self._live_plan,
            live,
            tiles,
            columns,
            self.hardware,
        )
        made = RememberedResources(
            batch, found, lambda: self._timed(tiles, found, columns)[1].total_us
        )
        self._batches = [made, *self._batches][:_MOST_BATCHES]
        return made.resources(np.arange(len(configs)))

    def _timed(
        self, tiles: Tiles, resources: Resources, configs: Sequence[Config]
    ) -> tuple[Work, Estimate]:
        """Work and time of n configs whose resources are known."""
        scattered = scattered_blocks(self.graph, configs)
        work = estimate_work(self.graph, tiles, resources.threads, scattered)
        return work, estimate_time(
            self.graph, tiles, resources, work, configs, self.hardware
        )

    def known_resources(self, configs: Sequence[Config]) -> Resources | None:
        """The same if these very objects were evaluated before, else None."""
        places = self._places(configs)
        if places is None:
            return None
        parts = [known.resources(rows) for known, rows in places]
        return parts[0] if len(parts) == 1 else joined(parts)

    def _places(
        self, configs: Sequence[Config]
    ) -> list[tuple[RememberedResources, npt.NDArray[np.intp]]] | None:
        """Where configs are remembered, in their order; None where one is not."""
        batches = [one for one in (*self._batches, self._remembered) if one is not None]
        for known in batches:
            rows = known.rows(configs)
            if rows is not None:
                return [(known, rows)]
        if len(configs) > _MOST_APART:
            return None
        found = []
        for config in configs:
            place = next(
                ((b, row) for b in batches if (row := b.row(config)) is not None), None
            )
            if place is None:
                return None
            found.append((place[0], np.array([place[1]], dtype=np.intp)))
        return found

    def analytic_us(self, configs: Sequence[Config]) -> npt.NDArray[np.float64]:
        """First-principles time of each config in microseconds: float64[n].

        Raises:
            UnreadableKernelError: A config does not fit this kernel.
        """
        places = self._places(configs)
        if places is None:
            return self.evaluate(configs).estimate.total_us
        parts = [known.total_us(rows) for known, rows in places]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pack(
    columns: Mapping[str, Sizes], order: Sequence[tuple[str, str]], n: int
) -> FloatArray:
    """Columns in schema order as float32[n, len(order)], finite by construction."""
    table = np.empty((len(order), n))
    for position, (name, _) in enumerate(order):
        table[position] = columns[name]
    finite = np.clip(np.nan_to_num(table), -1e30, 1e30)
    return np.ascontiguousarray(finite.T, dtype=np.float32)


def _log2(values: Sizes) -> Sizes:
    """log2 of a quantity that is at least 1 where it matters; 0 below."""
    return np.log2(np.maximum(values, 1.0))


def _ratio_log2(numerator: Sizes, denominator: Sizes) -> Sizes:
    """log2 of a ratio, kept within 2^-20 and 2^20."""
    ratio = np.maximum(numerator, 1e-12) / np.maximum(denominator, 1e-12)
    return np.clip(np.log2(ratio), -20.0, 20.0)


def _physical(
    graph: KernelGraph, found: Evaluation, hardware: Hardware
) -> dict[str, Sizes]:
    tiles, live, res = found.tiles, found.live, found.resources
    work, time = found.work, found.estimate
    programs = np.maximum(np.broadcast_to(tiles.total_programs, (tiles.n,)), 1.0)
    flops = np.zeros(tiles.n)
    for value in work.flops.values():
        flops = flops + value
    moved = work.load_bytes + work.store_bytes
    warps = res.threads / hardware.warp_size
    active = programs / hardware.n_sms / time.waves
    trips = np.maximum(work.trips, 1.0)
    has_loop_dot = np.where(trips > 1.0, float(bool(graph.dots)), 0.0)
    stages = res.stages
    rolled = [r.astype(np.float64) for r in tiles.rolled.values()]
    columns: dict[str, Sizes] = {
        "analytic_us_log2": np.log2(time.total_us),
        "roofline_us_log2": np.log2(np.maximum(time.roofline_us, 1e-3)),
        "l2_over_dram_log2": _ratio_log2(time.l2_us, time.dram_us),
        "tensor_over_dram_log2": _ratio_log2(time.tensor_us, time.dram_us),
        "issue_over_dram_log2": _ratio_log2(time.issue_us, time.dram_us),
        "latency_us_log2": np.log2(np.maximum(time.latency_us, 1e-3)),
        "programs_log2": _log2(programs),
        "programs_per_sm_log2": np.log2(programs / hardware.n_sms),
        "waves_log2": np.log2(time.waves),
        "tail_share": time.tail,
        "busiest_sm_ratio": np.minimum(time.busy_programs, 256.0),
        "occupancy_ctas_log2": _log2(res.occupancy_ctas),
        "limit_threads_log2": _log2(res.limit_threads),
        "limit_registers_log2": _log2(res.limit_registers),
        "limit_smem_log2": _log2(res.limit_smem),
        "resident_warps": res.occupancy_ctas * warps,
        "active_warps": active * warps,
        "live_bytes_log2": _log2(live.total),
        "live_bytes_without_loads_log2": _log2(live.without_loads),
        "accumulator_bytes_log2": _log2(live.accumulators),
        "loaded_bytes_log2": _log2(live.loads),
        "register_bytes_log2": _log2(live.registers),
        "register_file_share": np.minimum(
            live.registers / (hardware.regs_per_sm * 4.0), 64.0
        ),
        "regs_per_thread_log2": _log2(res.regs_per_thread),
        "spill_registers_log2": np.log2(1.0 + res.spill_registers),
        "loop_spill_registers_log2": np.log2(1.0 + res.loop_spill_registers),
        "smem_share": np.minimum(res.smem_bytes / hardware.smem_per_cta_bytes, 64.0),
        "smem_fits": (res.smem_bytes <= hardware.smem_per_cta_bytes).astype(np.float64),
        "stage_bytes_log2": _log2(res.stage_bytes),
        "pipelined_bytes_log2": _log2(res.pipelined_bytes),
        "pending_copy_groups": has_loop_dot * np.maximum(stages - 2.0, 0.0),
        "has_no_prefetch": has_loop_dot * (stages <= 1.0),
        "stages_over_trips": np.minimum(stages / trips, 16.0),
        "in_flight_bytes_log2": _log2(time.in_flight_bytes),
        "bandwidth_share": time.bandwidth_share,
        "largest_tile_log2": _log2(live.largest_tile),
        "elements_per_thread_log2": np.log2(live.largest_tile / res.threads),
        "reread_log2": _ratio_log2(moved, work.unique_bytes),
        "store_share": work.store_bytes / np.maximum(moved, 1.0),
        "intensity_log2": _ratio_log2(1.0 + flops, np.maximum(moved, 1.0)),
        "special_per_byte_log2": _ratio_log2(1.0 + work.special, work.unique_bytes),
        "vector_bytes": work.vector_bytes,
        "vector_bytes_min": work.vector_bytes_min,
        "contiguous_bytes_log2": _log2(work.contiguous_bytes_min),
        "sector_waste_log2": _log2(work.sector_waste),
        "edge_waste_log2": _log2(work.waste),
        "trips_log2": _log2(trips),
        "reduction_trips_log2": _log2(work.reduction_trips),
        "rolled_share": sum(rolled[1:], rolled[0]) / len(rolled)
        if rolled
        else np.zeros(1),
    }
    columns.update(_block_features(graph, tiles))
    return columns


def _block_features(graph: KernelGraph, tiles: Tiles) -> dict[str, Sizes]:
    """Sizes of tunable blocks by their place in the nest."""
    one = np.ones(1)
    grid, loop, last_grid = one, one, one
    smallest, largest = np.full(1, 2.0**30), one
    first = one
    for block in graph.blocks:
        size = tiles.size[block.key]
        if block.kind in (BlockKind.GRID, BlockKind.REDUCTION):
            continue
        if block.in_grid:
            grid, last_grid = grid * size, size
        else:
            loop = np.maximum(loop, size)
        if block.kind is BlockKind.TUNABLE:
            smallest, largest = np.minimum(smallest, size), np.maximum(largest, size)
            first = size if block.slot == 0 else first
    smallest = np.minimum(smallest, largest)
    return {
        "grid_tile_log2": _log2(grid),
        "loop_tile_log2": _log2(loop),
        "block_min_log2": _log2(smallest),
        "block_max_log2": _log2(largest),
        "first_block_log2": _log2(first),
        "last_grid_block_log2": _log2(last_grid),
    }
