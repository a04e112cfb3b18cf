"""Helion's own answer stays in front where Helion has a rule and ours is no surer.

Rules that were tuned on recorded kernels lost on unknown ones most where nothing but
taste told the two answers apart. So ours comes first only for a reason:

1. Several products: the estimate that ranked ours gives Helion's a tenth more time,
   and under a half more that of the whole kernel does not gainsay it. Not where
   operands are looked up one by one, for there the list has no estimate.
2. One product: as the list says, but beside a reduction again by a tenth.
3. Reductions: sums of columns, rows that are walked or shared, rows over what stays in
   registers. A row that one program holds keeps Helion's tile, without warps that would
   leave their threads fewer than 32 values.
4. Maps: the estimate of the whole kernel gives Helion's a twentieth more time, or
   neighbours in memory are so few that Helion's tile is known to be too large.
5. Loops that data ends, and several bodies in one launch, have no estimate: Helion's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.fill import tile_elements
from costmodel.heuristics.fill import warps_for
from costmodel.heuristics.matmul import problem_of
from costmodel.heuristics.matmul import split_knob
from costmodel.heuristics.multi_dot_time import Grid
from costmodel.heuristics.multi_dot_time import Held
from costmodel.heuristics.multi_dot_time import dram_us
from costmodel.heuristics.multi_dot_time import estimate
from costmodel.heuristics.pointwise import has_short_runs
from costmodel.heuristics.reduction import holds_rows
from costmodel.heuristics.tiles import Tiles
from costmodel.heuristics.tiles import matmul_us
from costmodel.types import Config
from costmodel.types import KernelClass

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

# On 56 recorded kernels with several products, picks that the list's estimate put under
# 1.1 ran at 0.10 to 1.53 of Helion's speed, most at 0.86 to 1.04; from 1.5 on at 1.00
# to 3.3, one at 0.84 (H200, 2026-11). Between, a second estimate decides.
_SURE_PRODUCTS = 1.10
_BEYOND_DOUBT = 1.50
# On 42 recorded maps, 0.91 to 1.32, 1.01 in the mean, below; above, 1.9 (H200).
_SURE_MAPS = 1.05
# Of 7 rows with 16 warps of 16 values, halving the warps won on 6, by 1.07 in the mean;
# of 14 with 8 warps, 1.01 in the mean and 0.72 at worst (H200, 2026-11).
_FEWEST_WARPS_CUT = 8
_VALUES_PER_THREAD = 32


def helion_first(
    facts: Facts,
    ours: Draft,
    default: Config,
    config: Config,
    extractor: FeatureExtractor,
) -> Draft | None:
    """What to put in front of our drafts, or None where ours is surer.

    Args:
        facts: The kernel, for which Helion has a rule.
        ours: Our first draft.
        default: Helion's full config.
        config: What `with_fewer_warps` makes of it.
        extractor: Resource and time estimates on the target.
    """
    if _shape(ours.config) == _shape(default):
        return None
    gain = _gain(facts, ours.config, default, extractor)
    if gain is not None and gain >= _threshold(facts):
        return None
    warps = int(config["num_warps"])
    said = "no estimate says" if gain is None else f"at {gain:.2f} times its speed"
    return Draft(config, f"{warps} warps: Helion's own rule; ours is not sure, {said}")


def _shape(config: Config) -> tuple[object, ...]:
    keys = ("block_sizes", "num_warps", "num_stages", "reduction_loops", "pid_type")
    return tuple(repr(config.get(key)) for key in keys)


def _threshold(facts: Facts) -> float:
    return _SURE_PRODUCTS if facts.dots else _SURE_MAPS


def _gain(
    facts: Facts, ours: Config, default: Config, extractor: FeatureExtractor
) -> float | None:
    """Helion's time over ours by the best estimate there is; None without one,
    infinite where the list has a reason of its own."""
    if facts.parts:
        return None
    if len(facts.dots) > 1:
        return (
            None if facts.scatters else _products_gain(facts, ours, default, extractor)
        )
    if facts.dots:
        if not facts.reduced:
            return float("inf")
        return _product_gain(facts, ours, default, extractor)
    if facts.kernel_class is KernelClass.DATA_DEPENDENT:
        return None
    if facts.reduced:
        return None if holds_rows(facts) else float("inf")
    if has_short_runs(facts):
        return float("inf")
    return _kernel_gain(ours, default, extractor)


def _seconded(
    gain: float, ours: Config, default: Config, extractor: FeatureExtractor
) -> float:
    """A list's estimate of the gain; in doubt, its geometric mean with the estimate of
    the whole kernel, which costs milliseconds and so is asked for only then."""
    if not _SURE_PRODUCTS <= gain < _BEYOND_DOUBT:
        return gain
    return math.sqrt(gain * _kernel_gain(ours, default, extractor))


def _kernel_gain(ours: Config, default: Config, extractor: FeatureExtractor) -> float:
    """Helion's time over ours by the estimate of the whole kernel."""
    theirs_us, ours_us = extractor.analytic_us([default, ours])
    return float(theirs_us / ours_us)


def _products_gain(
    facts: Facts, ours: Config, default: Config, extractor: FeatureExtractor
) -> float:
    configs = [default, ours]
    sizes = {
        knob.slot: np.array([float(c["block_sizes"][knob.slot]) for c in configs])
        for knob in facts.knobs
    }
    warps = np.array([float(c["num_warps"]) for c in configs])
    stages = np.array([float(c["num_stages"]) for c in configs])
    # Both were asked for before, each in a batch of its own.
    found = [extractor.resources([config]) for config in configs]
    held = Held(
        np.concatenate([one.regs_per_thread for one in found]),
        np.concatenate([one.smem_bytes for one in found]),
    )
    hardware = extractor.hardware
    times, _ = estimate(facts, Grid(sizes, warps, stages), hardware, held)
    theirs, mine = np.maximum(times, dram_us(facts, hardware))
    return _seconded(float(theirs / mine), ours, default, extractor)


def _product_gain(
    facts: Facts, ours: Config, default: Config, extractor: FeatureExtractor
) -> float | None:
    dot = facts.dots[0]
    if split_knob(facts, dot) is not None:
        return None

    def sides(axis: Axis) -> npt.NDArray[np.float64]:
        if axis.knob is None:
            return np.full(2, float(axis.tile))
        return np.array([float(c["block_sizes"][axis.knob]) for c in (default, ours)])

    tiles = Tiles(
        sides(dot.m),
        sides(dot.n),
        sides(dot.k),
        np.array([float(c["num_warps"]) for c in (default, ours)]),
        np.array([float(c["num_stages"]) for c in (default, ours)]),
    )
    theirs, mine = matmul_us(problem_of(facts, dot, None), tiles, extractor.hardware)
    return _seconded(float(theirs / mine), ours, default, extractor)


def with_fewer_warps(facts: Facts, default: Config) -> Config:
    """Helion's config, without warps whose threads would have too little of a row."""
    main = facts.widest()
    warps = int(default["num_warps"])
    if facts.dots or facts.parts or not facts.reduced or main is None:
        return dict(default)
    sizes = dict(enumerate(default.get("block_sizes", ())))
    enough = warps_for(tile_elements(main, sizes), _VALUES_PER_THREAD)
    most = max(_FEWEST_WARPS_CUT, enough)
    return {**default, "num_warps": min(warps, most)}
