"""The feature matrix: names, units and order, versioned by a hash.

A model stores the hash of the groups it was trained on; a build that computes other
features is refused instead of read wrongly. Groups hash separately, so that a group
from compiled code can join later without a change to these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from costmodel.frozen import dataclass

SCHEMA_VERSION = 1
"""Raised when a feature of the same name and unit comes to mean something else."""

BASE_FEATURES: tuple[tuple[str, str], ...] = (
    ("analytic_us_log2", "log2 us"),
    ("roofline_us_log2", "log2 us"),
    ("l2_over_dram_log2", "log2 ratio"),
    ("tensor_over_dram_log2", "log2 ratio"),
    ("issue_over_dram_log2", "log2 ratio"),
    ("latency_us_log2", "log2 us"),
    ("programs_log2", "log2 count"),
    ("programs_per_sm_log2", "log2 count"),
    ("waves_log2", "log2 count"),
    ("tail_share", "share"),
    ("busiest_sm_ratio", "ratio"),
    ("occupancy_ctas_log2", "log2 count"),
    ("limit_threads_log2", "log2 count"),
    ("limit_registers_log2", "log2 count"),
    ("limit_smem_log2", "log2 count"),
    ("resident_warps", "count"),
    ("active_warps", "count"),
    ("live_bytes_log2", "log2 bytes"),
    ("live_bytes_without_loads_log2", "log2 bytes"),
    ("accumulator_bytes_log2", "log2 bytes"),
    ("loaded_bytes_log2", "log2 bytes"),
    ("register_bytes_log2", "log2 bytes"),
    ("register_file_share", "share"),
    ("regs_per_thread_log2", "log2 count"),
    ("spill_registers_log2", "log2 count"),
    ("loop_spill_registers_log2", "log2 count"),
    ("smem_share", "share"),
    ("smem_fits", "bool"),
    ("stage_bytes_log2", "log2 bytes"),
    ("pipelined_bytes_log2", "log2 bytes"),
    ("pending_copy_groups", "count"),
    ("has_no_prefetch", "bool"),
    ("stages_over_trips", "ratio"),
    ("in_flight_bytes_log2", "log2 bytes"),
    ("bandwidth_share", "share"),
    ("largest_tile_log2", "log2 elements"),
    ("elements_per_thread_log2", "log2 elements"),
    ("reread_log2", "log2 ratio"),
    ("store_share", "share"),
    ("intensity_log2", "log2 flop/byte"),
    ("special_per_byte_log2", "log2 op/byte"),
    ("vector_bytes", "bytes"),
    ("vector_bytes_min", "bytes"),
    ("contiguous_bytes_log2", "log2 bytes"),
    ("sector_waste_log2", "log2 ratio"),
    ("edge_waste_log2", "log2 ratio"),
    ("trips_log2", "log2 count"),
    ("reduction_trips_log2", "log2 count"),
    ("rolled_share", "share"),
    ("grid_tile_log2", "log2 elements"),
    ("loop_tile_log2", "log2 elements"),
    ("block_min_log2", "log2 elements"),
    ("block_max_log2", "log2 elements"),
    ("first_block_log2", "log2 elements"),
    ("last_grid_block_log2", "log2 elements"),
    ("dot_m_log2", "log2 elements"),
    ("dot_n_log2", "log2 elements"),
    ("dot_k_log2", "log2 elements"),
    ("dot_k_bytes_log2", "log2 bytes"),
    ("dot_aspect_log2", "log2 ratio"),
    ("dot_batch_log2", "log2 elements"),
    ("accumulators_per_thread_log2", "log2 elements"),
    ("last_dot_n_log2", "log2 elements"),
    ("wgmma_share", "share"),
    ("rows_per_warp_log2", "log2 elements"),
    ("register_fed_bytes_log2", "log2 bytes"),
    ("converted_bytes_log2", "log2 bytes"),
    ("num_warps_log2", "log2 count"),
    ("num_stages", "count"),
    ("is_persistent", "bool"),
    ("is_interleaved", "bool"),
    ("is_xyz", "bool"),
    ("num_sm_multiplier_log2", "log2 count"),
    ("maxnreg", "count"),
    ("has_maxnreg", "bool"),
    ("l2_grouping_log2", "log2 count"),
    ("n_loops_reordered", "count"),
    ("flatten_loops_share", "share"),
    ("range_unroll_max", "count"),
    ("range_unroll_sum", "count"),
    ("range_stages_max", "count"),
    ("range_stages_sum", "count"),
    ("range_multi_buffer_on_share", "share"),
    ("range_multi_buffer_off_share", "share"),
    ("range_flatten_on_share", "share"),
    ("range_flatten_off_share", "share"),
    ("static_ranges_share", "share"),
    ("evict_first_share", "share"),
    ("evict_last_share", "share"),
    ("host_descriptors", "bool"),
    ("descriptor_load_share", "share"),
    ("descriptor_store_share", "share"),
    ("is_proposed", "bool"),
    ("proposal_place", "count"),
)
"""Features of one config: name and unit, in order."""

WORKLOAD_FEATURES: tuple[tuple[str, str], ...] = (
    ("class_pointwise", "bool"),
    ("class_reduction", "bool"),
    ("class_matmul", "bool"),
    ("class_matmul_reduction", "bool"),
    ("class_multi_dot", "bool"),
    ("class_data_dependent", "bool"),
    ("n_loads", "count"),
    ("n_stores", "count"),
    ("n_atomics", "count"),
    ("n_gathers", "count"),
    ("n_dots", "count"),
    ("n_reductions", "count"),
    ("n_scans", "count"),
    ("n_elementwise", "count"),
    ("n_special", "count"),
    ("n_converts", "count"),
    ("n_loops", "count"),
    ("loop_depth", "count"),
    ("n_roots", "count"),
    ("n_tunable_blocks", "count"),
    ("n_fixed_blocks", "count"),
    ("n_reduction_slots", "count"),
    ("n_unknown_loops", "count"),
    ("n_bounded_loops", "count"),
    ("unique_bytes_log2", "log2 bytes"),
    ("flops_log2", "log2 flop"),
    ("special_log2", "log2 op"),
    ("work_intensity_log2", "log2 flop/byte"),
    ("arithmetic_per_byte_log2", "log2 op/byte"),
    ("grid_extent_log2", "log2 elements"),
    ("loop_extent_log2", "log2 elements"),
    ("reduction_extent_log2", "log2 elements"),
    ("itemsize_min", "bytes"),
    ("itemsize_max", "bytes"),
    ("dot_itemsize", "bytes"),
    ("has_rescaled_dot", "bool"),
    ("gpu_n_sms", "count"),
    ("gpu_dram_gb_per_s", "GB/s"),
    ("gpu_l2_mib", "MiB"),
    ("gpu_smem_per_cta_kib", "KiB"),
    ("gpu_peak_bf16_tflops", "TFLOP/s"),
    ("gpu_has_wgmma", "bool"),
)
"""Features of a workload that no config changes: name and unit, in order."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column."""

    name: str
    unit: str
    group: str


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """Ordered columns.

    Attributes:
        features: Columns in order.
        version: Raised when a column changes its meaning.
    """

    features: tuple[Feature, ...]
    version: int = SCHEMA_VERSION

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of columns, unique, in order."""
        return tuple(f.name for f in self.features)

    @property
    def units(self) -> tuple[str, ...]:
        """Units of columns, in order."""
        return tuple(f.unit for f in self.features)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of groups, in order of their first column."""
        return tuple(dict.fromkeys(f.group for f in self.features))

    @property
    def group_hashes(self) -> Mapping[str, str]:
        """16 hex digits for each group, of its own columns alone."""
        return {
            group: _digest(self.version, [f for f in self.features if f.group == group])
            for group in self.groups
        }

    @property
    def hash(self) -> str:
        """16 hex digits of the whole layout."""
        return _digest(self.version, self.features)

    def columns(self, group: str) -> slice:
        """Where a group stands in a row; its columns are neighbours."""
        found = [i for i, f in enumerate(self.features) if f.group == group]
        return slice(found[0], found[-1] + 1) if found else slice(0, 0)

    def index(self, name: str) -> int:
        """Position of a column.

        Raises:
            KeyError: There is no such column.
        """
        for position, feature in enumerate(self.features):
            if feature.name == name:
                return position
        raise KeyError(name)


def _digest(version: int, features: tuple[Feature, ...] | list[Feature]) -> str:
    text = "\n".join(
        [f"v{version}", *(f"{f.group}\t{f.name}\t{f.unit}" for f in features)]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_schema() -> FeatureSchema:
    """The layout that `FeatureExtractor.matrix` writes."""
    base = [Feature(name, unit, "base") for name, unit in BASE_FEATURES]
    difference = [
        Feature(f"d_{name}", unit, "difference") for name, unit in BASE_FEATURES
    ]
    workload = [
        Feature(f"w_{name}", unit, "workload") for name, unit in WORKLOAD_FEATURES
    ]
    return FeatureSchema((*base, *difference, *workload))


SCHEMA = make_schema()
"""Layout of every feature matrix: base | base - base(default) | workload."""
