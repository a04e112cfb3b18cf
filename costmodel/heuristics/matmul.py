"""One matrix product: plain, skinny, batched, full-depth, 8-bit, mixed, split, grouped.

1. Rows and columns: every legal tile, ranked by `tiles.matmul_us`.
2. 8-bit operands whose sum would lose bits keep to tiles that sum in full registers.
3. Where the matrix unit takes whole warp groups, rows come in 64 if there are as many.
4. Depth and stages, among equals: if all programs run at once, the most bytes in flight
   on an SM, for nothing else hides its loads; else the deepest ring up to four stages
   and 128 bytes a row of the tile, because that is a swizzle's width.
5. Axes that carry no reuse (a batch) get the smallest tile.
6. Split depth: enough splits to give each SM a program, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Dot
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import Knob
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.mma import EXACT_FP8_SUM
from costmodel.heuristics.mma import GROUP_ROWS
from costmodel.heuristics.mma import sums_fp8_inexactly
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.tiles import Problem
from costmodel.heuristics.tiles import Tiles
from costmodel.heuristics.tiles import accumulator_registers
from costmodel.heuristics.tiles import make_tiles
from costmodel.heuristics.tiles import matmul_us
from costmodel.heuristics.tiles import occupancy
from costmodel.heuristics.tiles import shared_bytes
from costmodel.types import Config

_MOST_ROWS = 256
_MOST_COLUMNS = 256
_MOST_DEPTH_BYTES = 512  # four 128-byte swizzles; deeper tiles only lose stages
_SWIZZLE_BYTES = 128
# On one SM. Twice what Little's law asks of an idle H200 (0.7 us at 60 GB/s and SM from
# L2); measured best there are rings of 120 to 200 KiB.
_ENOUGH_IN_FLIGHT = 120.0 * 1024.0
_MOST_ACCUMULATORS = 128  # fp32 a thread; half of 255 leaves room for the rest
_PASS_TILE = 32768  # elements of a pass beside the product, and of its rows at most:
_PASS_STEP = 256  # 64 were 1.5 times slower with 128 rows, 16 1.2, 1024 1.03 (H200)
_TIE = 1.03  # the model does not tell 3 % apart
_SHAPES = 6


@dataclass(frozen=True, slots=True)
class _Choice:
    """One ranked tile."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int
    time_us: float


def propose_matmul(facts: Facts, base: Config, hardware: Hardware) -> list[Draft]:
    """Ranked drafts for a kernel with one product; the first is the pick."""
    dot = facts.dots[0]
    split = split_knob(facts, dot)
    problem = problem_of(facts, dot, split)
    fixed = other_blocks(facts, dot, split)
    passes = [k for k in facts.passes() if k.slot in fixed]
    drafts: list[Draft] = []
    choices = ranked_tiles(facts, dot, problem, hardware)
    if split is not None:
        choices = _split_choices(facts, dot, problem, split, hardware)
    for choice in choices:
        sizes = dict(fixed)
        for axis, size in ((dot.m, choice.m), (dot.n, choice.n), (dot.k, choice.k)):
            if axis.knob is not None:
                sizes[axis.knob] = size
        for knob in passes:
            whole = power_above(knob.extent)
            step = min(_PASS_STEP, max(16, _PASS_TILE // choice.m))
            sizes[knob.slot] = knob.nearest(min(whole, step))
        if split is not None:
            sizes[split.slot] = _split_size(facts, dot, split, choice, hardware)
        config = changed(
            with_blocks(base, sizes),
            num_warps=choice.num_warps,
            num_stages=choice.num_stages,
            l2_groupings=_l2_grouping(problem, choice, hardware),
        )
        drafts.append(Draft(config, _words(dot, choice, hardware, split)))
    return drafts


def ranked_tiles(
    facts: Facts, dot: Dot, problem: Problem, hardware: Hardware
) -> list[_Choice]:
    """The best tile of each of the best shapes, then variants of the very best."""
    tiles = make_tiles(
        _sizes(facts, replace(dot.m, extent=problem.m), 16, _MOST_ROWS),
        _sizes(facts, dot.n, 16, _MOST_COLUMNS),
        _depths(facts, dot),
        (2, 4, 8),
        _stages(facts, dot),
    )
    fits = shared_bytes(problem, tiles) <= hardware.smem_per_cta_bytes - 2048
    summed = _sums_rows_of(facts, dot)
    # A product that is scaled before it is added has a tile of its own beside the sum,
    # and so has one whose rows are summed: the largest is half of Helion's own bound of
    # 128 KiB, unless nothing else is left.
    held = 2.0 if summed or (dot.in_loop and not dot.carries) else 1.0
    crowded = held * accumulator_registers(tiles) > _MOST_ACCUMULATORS
    light = accumulator_registers(tiles) <= _MOST_ACCUMULATORS
    if (light & fits & ~crowded).any():
        light = ~crowded
    if summed:
        # Four warps hold whole rows, eight exchange their sums: only where four would
        # not hold the tile.
        room = 4 * 32 * _MOST_ACCUMULATORS
        light &= (tiles.num_warps < 8) | (held * tiles.m * tiles.n > room)
    deep = tiles.num_stages <= np.maximum(2.0, np.ceil(problem.k / tiles.k))
    keep = fits & light & deep & _wanted_warps(dot, tiles, problem, hardware)
    whole = keep & uses_group_instruction(hardware, tiles.m, tiles.num_warps)
    # On an H200 64 x 32 beat 32 x 64 by 1.1 to 1.4 on each of three kernels. Where
    # columns are not ours to choose, or rows are summed and so walked by one program,
    # 64 rows would cost programs: no such evidence.
    tunable = dot.m.knob is not None and dot.n.knob is not None and not summed
    if tunable and problem.m >= GROUP_ROWS and whole.any():
        keep = whole
    if not keep.any():
        keep = fits if fits.any() else np.ones_like(fits)
    tiles = tiles.take(keep)
    time_us = matmul_us(problem, tiles, hardware)
    per_sm, resident = occupancy(problem, tiles, hardware)
    at_once = per_sm <= resident
    # Whole rows make such large stages that three of them are enough.
    least = 3 if summed else 4
    in_flight = per_sm * shared_bytes(problem, tiles) * (tiles.num_stages >= least)
    in_flight = np.minimum(in_flight, _ENOUGH_IN_FLIGHT)
    swizzles = np.where(at_once, 2.0, 1.0)
    off_swizzle = np.log2(tiles.k * problem.lhs_bytes / _SWIZZLE_BYTES / swizzles)
    order = np.lexsort(
        (
            tiles.num_warps,
            -tiles.n,
            # Alone on its SM, a large tile wants a second warp group to hide behind.
            np.where(at_once & (tiles.m * tiles.n >= 16384), -tiles.num_warps, 0.0),
            np.where(at_once, -tiles.num_stages, 0.0),
            np.abs(off_swizzle),
            # Six stages of depth 128 instead of four: 1.12 to 1.2 (H200, 2026-11).
            np.where(at_once, -in_flight, -np.minimum(tiles.num_stages, 4.0)),
            np.floor(np.log(time_us / time_us.min()) / math.log(_TIE)),
        )
    )
    ranked = [
        _Choice(
            int(tiles.m[i]),
            int(tiles.n[i]),
            int(tiles.k[i]),
            int(tiles.num_warps[i]),
            int(tiles.num_stages[i]),
            float(time_us[i]),
        )
        for i in order
    ]
    return _different(ranked)


def _sums_rows_of(facts: Facts, dot: Dot) -> bool:
    """Whether the kernel reduces the product's rows."""
    return any(
        (axis.knob, axis.loop, axis.extent) == (dot.n.knob, dot.n.loop, dot.n.extent)
        for axis in facts.reduced
    )


def _split_choices(
    facts: Facts, dot: Dot, problem: Problem, split: Knob, hardware: Hardware
) -> list[_Choice]:
    """Tiles ranked as if each had as many splits as fill the SMs."""
    found: list[_Choice] = []
    for splits in (1, 2, 4, 8, 16, 32, 64, 128):
        if problem.k // splits < 64:
            break
        part = replace(
            problem, k=problem.k // splits, programs=problem.programs * splits
        )
        # Every split adds its tile to the result in L2, one after the other.
        adds = splits * problem.m * problem.n * problem.out_bytes
        added_us = adds / (hardware.l2_gb_per_s * 1e3) if splits > 1 else 0.0
        found += [
            replace(choice, time_us=choice.time_us + added_us)
            for choice in ranked_tiles(facts, dot, part, hardware)[:3]
        ]
    return _different(sorted(found, key=lambda choice: choice.time_us))


def _different(ranked: Sequence[_Choice]) -> list[_Choice]:
    """First one tile for each of the best shapes, then other depths and warps."""
    shapes: dict[tuple[int, int], _Choice] = {}
    for choice in ranked:
        shapes.setdefault((choice.m, choice.n), choice)
    chosen = list(shapes.values())[:_SHAPES]
    best = chosen[0]
    wanted: tuple[Callable[[_Choice], bool], ...] = (
        lambda c: c.k > best.k,
        lambda c: c.k < best.k,
        lambda c: c.num_warps != best.num_warps,
        lambda c: c.num_stages > best.num_stages and c.k == best.k,
    )
    for differs in wanted:
        for choice in ranked:
            same_shape = (choice.m, choice.n) == (best.m, best.n)
            if same_shape and differs(choice):
                chosen.append(choice)
                break
    return chosen


def _wanted_warps(
    dot: Dot, tiles: Tiles, problem: Problem, hardware: Hardware
) -> npt.NDArray[np.bool_]:
    """Two warps only where four would sum 8-bit products inexactly, or tiles are tiny;
    eight only for tiles that keep them busy."""
    depth = np.full_like(tiles.k, problem.k) if dot.carries else tiles.k
    long = np.asarray(depth > EXACT_FP8_SUM) & dot.is_fp8
    four = np.full_like(tiles.m, 4.0)
    inexact = sums_fp8_inexactly(hardware, tiles.m, tiles.num_warps) & long
    four_is_inexact = sums_fp8_inexactly(hardware, tiles.m, four) & long
    area = tiles.m * tiles.n
    two = (tiles.num_warps != 2) | four_is_inexact | (area <= 1024)
    eight = (tiles.num_warps != 8) | (area >= 8192)
    return np.asarray(~inexact & two & eight, dtype=np.bool_)


def _sizes(facts: Facts, axis: Axis, low: int, high: int) -> tuple[int, ...]:
    if axis.knob is None:
        return (max(1, axis.tile),)
    knob = facts.knobs[axis.knob]
    top = max(low, min(high, power_above(axis.extent)))
    sizes = tuple(c for c in knob.choices if low <= c <= top)
    return sizes or (knob.nearest(top),)


def _depths(facts: Facts, dot: Dot) -> tuple[int, ...]:
    widest = max(dot.lhs_bytes, dot.rhs_bytes)
    # 32 bytes: the depth of one instruction, 16 elements of 2 bytes or 32 of 1.
    low = max(16, 32 // widest)
    return _sizes(facts, dot.k, low, max(low, _MOST_DEPTH_BYTES // widest))


def _stages(facts: Facts, dot: Dot) -> tuple[int, ...]:
    """A product that no loop repeats has nothing to prefetch."""
    return (2, 3, 4, 5, 6) if dot.in_loop else (1,)


def problem_of(facts: Facts, dot: Dot, split: Knob | None) -> Problem:
    """The product as a whole, with the programs that other axes make."""
    mine = {dot.m.knob, dot.n.knob, dot.k.knob} - {None}
    programs = facts.fixed_programs
    for knob in facts.grid_knobs:
        if knob.slot not in mine and knob is not split:
            programs *= max(1, knob.extent)
    out_bytes = [a.item_bytes for a in facts.accesses if a.is_store]
    # The longest of unequal groups is several times the average, and rows that a whole
    # warp group multiplies cost no more than a few: 64 for 16 ran 1.2 times faster, and
    # as fast where groups were small (two kernels, H200, 2026-11).
    rows = dot.m.extent if dot.m.certain else max(GROUP_ROWS, dot.m.extent)
    return Problem(
        m=max(1, rows),
        n=max(1, dot.n.extent),
        k=max(1, dot.k.extent),
        programs=max(1, programs),
        lhs_bytes=dot.lhs_bytes,
        rhs_bytes=dot.rhs_bytes,
        out_bytes=max(out_bytes, default=2),
        rate=dot.rate,
        rows_on_grid=_on_grid(facts, dot.m),
        columns_on_grid=_on_grid(facts, dot.n),
    )


def _on_grid(facts: Facts, axis: Axis) -> bool:
    return axis.knob is None or facts.knobs[axis.knob].on_grid


def split_knob(facts: Facts, dot: Dot) -> Knob | None:
    """The knob that spreads the depth over programs, which then add atomically."""
    mine = {dot.m.knob, dot.n.knob, dot.k.knob, *(a.knob for a in dot.batch)}
    if not any(a.is_store and a.indexing_slot is None for a in facts.accesses):
        return None
    for knob in facts.grid_knobs:
        if knob.slot not in mine and knob.extent == dot.k.extent:
            return knob
    return None


def _split_size(
    facts: Facts, dot: Dot, split: Knob, choice: _Choice, hardware: Hardware
) -> int:
    tiles = math.ceil(dot.m.extent / choice.m) * math.ceil(dot.n.extent / choice.n)
    splits = power_below(max(1.0, hardware.n_sms / tiles))
    return split.nearest(max(choice.k, power_above(split.extent / splits)))


def other_blocks(facts: Facts, dot: Dot, split: Knob | None) -> dict[int, int]:
    """Knobs that carry no reuse in the product: as small as they get."""
    mine = {dot.m.knob, dot.n.knob, dot.k.knob}
    return {
        knob.slot: knob.choices[0]
        for knob in facts.knobs
        if knob.slot not in mine and knob is not split
    }


def _l2_grouping(problem: Problem, choice: _Choice, hardware: Hardware) -> int:
    """Group rows where a pass over all columns would flush the left operand from L2."""
    if not (problem.rows_on_grid and problem.columns_on_grid):
        return 1
    rows = math.ceil(problem.m / choice.m)
    columns = math.ceil(problem.n / choice.n)
    operands = problem.k * (
        problem.m * problem.lhs_bytes + problem.n * problem.rhs_bytes
    )
    if rows < 4 or columns < 4 or operands * 2 < hardware.l2_bytes:
        return 1
    return 8 if rows >= 16 else 4


def _words(dot: Dot, choice: _Choice, hardware: Hardware, split: Knob | None) -> str:
    tile = f"{choice.m} x {choice.n} accumulator"
    if uses_group_instruction(hardware, choice.m, choice.num_warps):
        how = f"{choice.num_warps // 4} warp group" + "s" * (choice.num_warps > 4)
    else:
        how = "warp-wide MMA"
    words = f"{choice.num_warps} warps: {tile}, {how}, {choice.num_stages} stages of "
    words += f"depth {choice.k}"
    if dot.is_fp8 and hardware.has_wgmma and not hardware.has_tcgen05:
        words += ", 8-bit sums kept in full registers"
    if split is not None:
        words += ", depth split to fill the SMs"
    return words
