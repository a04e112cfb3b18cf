"""Row and column reductions: norms, softmax, losses, quantisers and their backward.

1. A row stays in registers where it fits: one pass, each value read once. Longer rows
   are walked in chunks, which read a re-read row again from L2.
2. Short rows share a program until a thread has work, as long as the grid fills.
3. Warps leave a thread about 32 values of the row: fewer waste lanes in the final
   exchange, more spill once several tiles are live.
4. Where the reduced axis is not the contiguous one (a column sum), lanes go along the
   contiguous axis and the loop walks the other, in chunks that keep as many bytes in
   flight as memory needs to be busy: such loops have no other prefetch. Programs that
   share the walked axis want few warps, for each adds its own partial sums.
5. A loop over rows inside a block of rows (backward norms) takes few rows at a time,
   and the block is as large as one program for each SM slot allows. A loop over rows in
   a program that holds whole rows takes as many as registers do.
6. A loop along a row that reads one tensor leaves a thread twice the values, for
   nothing else brings its next loads forward.
"""

from __future__ import annotations

from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import Knob
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.fill import LINE_BYTES
from costmodel.heuristics.fill import busy_bytes
from costmodel.heuristics.fill import fixed_elements
from costmodel.heuristics.fill import knobs_of
from costmodel.heuristics.fill import programs_of
from costmodel.heuristics.fill import shrink_to_fill
from costmodel.heuristics.fill import tile_elements
from costmodel.heuristics.fill import warps_for
from costmodel.heuristics.fill import work_elements
from costmodel.types import Config

_VALUES_PER_THREAD = (
    32  # best on an H200 for rows of 5120 and 8192 (README of the data)
)
_TILE = 4096  # elements that short rows are packed to
_LONGEST_ROW = 16384  # in registers: 32 warps of 16 values, or 16 of 32
# Of a longer row. In chunks of 4096 seven kernels with long rows ran 1.08 to 1.68 times
# faster than Helion's 16384 at once (H200, 2026-11); with 16384 and half the warps 0.82
# to 1.47: more programs fit an SM, and one's exchange hides behind another's loads.
_CHUNK = 4096
# Where one tensor streams by, with four warps: 64 values a thread were best on six of
# seven such loops, 32 or fewer 1.0 to 1.3 times slower (H200, 2026-11).
_WALKED = 8192
_MOST_ADDS = 1024  # to one address: L2 does them one after the other
_LONGEST_COLUMN = 16384  # elements of a shared column sum's tile: 16 warps of 32 values
# Elements of another column sum's: 16 warps of 128 values, which stream by. On an H200
# 16 x 4096 ran 1.7 times faster than 16 x 1024 (half the SMs had a program; 2026-11).
_STREAMED_COLUMN = 65536
_COLUMN_LANES = (
    64  # contiguous elements of a column sum's tile: two 64-byte reads of bf16
)
_PROGRAMS_PER_SM = 4
# Times what an idle memory needs: latency grows under load, and nothing is in flight
# while a chunk is summed. 512 rows for 256 were 1.5 times faster (H200, 2026-11).
_IN_FLIGHT = 3.0


def propose_reduction(facts: Facts, base: Config, hardware: Hardware) -> list[Draft]:
    """Ranked drafts for a kernel that reduces; the first is the pick."""
    main = facts.widest()
    if main is None:
        return [Draft(base, "4 warps: nothing to tile")]
    if _splits(facts):
        return _split_drafts(facts, base, hardware)
    nested = _nested_rows(facts)
    # A column's values add up in one thread, so more of them cost no exchange.
    columns = any(k.slot == facts.lane_slot() for k in facts.grid_knobs)
    columns = columns or _walks_rows_it_holds(facts)
    lane = facts.lane_slot()
    alone = facts.loop_knobs if _walks_alone(facts) else ()
    drafts: list[Draft] = []
    for rows, chunk, values in _plans(facts):
        sizes = _sizes(facts, hardware, nested, rows, chunk)
        row_loops = [_row_loop(extent, chunk) for extent in facts.row_extents]
        tile = max(tile_elements(main, sizes), work_elements(facts, sizes))
        for extent, loop in zip(facts.row_extents, row_loops, strict=True):
            if loop is not None:
                tile = max(1, tile * loop // power_above(extent))
        walks = any(k.slot == lane and sizes[k.slot] < k.extent for k in alone)
        most = 16 if columns else 32
        num_warps = warps_for(tile, values * (2 if columns or walks else 1), most)
        config = changed(
            with_blocks(base, sizes),
            num_warps=num_warps,
            num_stages=1,
            reduction_loops=row_loops,
        )
        drafts.append(
            Draft(config, _words(facts, sizes, num_warps, tile, row_loops, chunk))
        )
    return drafts


def holds_rows(facts: Facts) -> bool:
    """Whether each program holds whole rows in registers and sums along them."""
    if _splits(facts) or _nested_rows(facts) is not None:
        return False
    lane = facts.lane_slot()
    columns = any(k.slot == lane for k in facts.grid_knobs)
    long = any(power_above(axis.extent) > _LONGEST_ROW for axis in facts.reduced)
    return not (columns or long or _walks_rows_it_holds(facts))


def _walks_alone(facts: Facts) -> bool:
    """Whether what walks along a row, where it is too long, is a loop of the kernel's
    own that reads one tensor and writes none.

    A reduction that Helion rolls keeps a value for each that it reads, and tensors that
    are handled together share the registers.
    """
    lane = facts.lane_slot()
    tensors = {a.tensor for a in facts.large_accesses()}
    return len(tensors) == 1 and any(k.slot == lane for k in _reduced_knobs(facts))


def _walks_rows_it_holds(facts: Facts) -> bool:
    """Whether programs add up whole rows, several at a time."""
    main = facts.widest()
    return (
        main is not None
        and facts.lane_slot() is None
        and fixed_elements(main) > _COLUMN_LANES
        and any(k.slot in knobs_of(main) for k in _reduced_knobs(facts))
    )


def _splits(facts: Facts) -> bool:
    """Whether programs share the reduced axis, and so add up in memory."""
    slots = {axis.knob for axis in facts.reduced if axis.knob is not None}
    return any(k.slot in slots for k in facts.grid_knobs)


def _split_drafts(facts: Facts, base: Config, hardware: Hardware) -> list[Draft]:
    """Tiles for a reduction that programs share: as few partial results as fill the
    SMs, lanes along the contiguous axis."""
    main = facts.widest()
    assert main is not None
    lane = facts.lane_slot()
    reduced = {axis.knob for axis in facts.reduced}
    fair = power_below(main.elements / (hardware.n_sms * _PROGRAMS_PER_SM))
    # Sums of columns stay in their threads, but each warp adds its own to memory: with
    # 64 x 64 and 1 or 2 warps three column sums ran 1.4 to 2.7 times faster than
    # Helion's 32 x 32 with 4, with 64 x 128 and 8 warps 0.9 to 1.4 (H200, 2026-11).
    columns = lane is not None and lane not in reduced
    usual = float(min(fair, _TILE if columns else 2 * _TILE))
    if columns:
        usual = max(usual, _least_column_tile(facts))
    few = 2 * _VALUES_PER_THREAD if columns else _VALUES_PER_THREAD
    drafts = []
    for share, values in (
        (1.0, few),
        (1.0, few / 2),
        (2.0, few),
        (0.5, few),
        (1.0, 2 * few),
        (0.25, few / 2),
        (4.0, 2 * few),
    ):
        tile = max(256.0, usual * share)
        tile = max(1.0, tile / fixed_elements(main))
        first = [] if lane is None else [lane]
        order = [*first, *(k.slot for k in reversed(facts.knobs) if k.slot != lane)]
        # Lanes whose results stay apart need no more than whole sectors.
        room = {slot: tile for slot in order}
        if lane is not None and lane not in reduced:
            room[lane] = float(_COLUMN_LANES)
        sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
        left = tile
        for slot in order:
            knob = facts.knobs[slot]
            size = min(power_below(left), power_above(knob.extent), room[slot])
            sizes[slot] = knob.nearest(size)
            left = max(1.0, left / sizes[slot])
        elements = tile_elements(main, sizes)
        for knob in facts.loop_knobs:
            if knob.slot not in knobs_of(main):
                size = power_below(max(1.0, 2.0 * _TILE / elements))
                sizes[knob.slot] = knob.nearest(min(size, power_above(knob.extent)))
        num_warps = warps_for(elements, values, most=16)
        programs = programs_of(facts, sizes)
        reason = (
            f"{num_warps} warps: {programs} partial results of {elements} values, "
            f"{elements / (32 * num_warps):g} values a thread"
        )
        config = changed(with_blocks(base, sizes), num_warps=num_warps)
        drafts.append(Draft(config, reason))
    return drafts


def _least_column_tile(facts: Facts) -> float:
    """Elements of a column sum's tile, so that few enough programs add to one place."""
    reduced = [axis for axis in facts.reduced if axis.knob is not None]
    extent = max((axis.extent for axis in reduced), default=1)
    rows = power_above(extent / _MOST_ADDS)
    return float(min(_LONGEST_COLUMN, _COLUMN_LANES * rows))


def _plans(facts: Facts) -> list[tuple[float, int, float]]:
    """(share of rows, longest row kept whole, values a thread), best first."""
    longest = _LONGEST_ROW
    return [
        (1.0, longest, _VALUES_PER_THREAD),
        (1.0, longest, 2 * _VALUES_PER_THREAD),
        (1.0, longest, _VALUES_PER_THREAD / 2),
        (2.0, longest, _VALUES_PER_THREAD),
        (0.5, longest, _VALUES_PER_THREAD),
        (1.0, _CHUNK, _VALUES_PER_THREAD / 2),
        (1.0, _CHUNK // 2, _VALUES_PER_THREAD / 2),
        (4.0, _CHUNK // 4, _VALUES_PER_THREAD / 2),
        (4.0, longest, _VALUES_PER_THREAD / 2),
        (1.0, 4 * longest, _VALUES_PER_THREAD),
    ]


def _row_loop(extent: int, longest: int) -> int | None:
    """Chunk of a rolled reduction, or None for the whole row."""
    if power_above(extent) <= longest:
        return None
    return min(longest, _WALKED)


def _reduced_knobs(facts: Facts) -> tuple[Knob, ...]:
    slots = {axis.knob for axis in facts.reduced if axis.knob is not None}
    return tuple(k for k in facts.knobs if k.slot in slots and not k.on_grid)


def _nested_rows(facts: Facts) -> tuple[Knob, Knob] | None:
    """A grid knob and a loop knob that walk the same rows, the loop inside."""
    lane = facts.lane_slot()
    for outer in facts.grid_knobs:
        for inner in facts.loop_knobs:
            same = inner.extent == outer.extent and inner.slot != lane
            touches = any(
                axis is not None and axis.knob == outer.slot
                for access in facts.accesses
                for axis in access.axes
            )
            if same and not touches:
                return outer, inner
    return None


def _sizes(
    facts: Facts,
    hardware: Hardware,
    nested: tuple[Knob, Knob] | None,
    rows: float,
    chunk: int,
) -> dict[int, int]:
    """Block sizes of one plan; a second loop over a row is cut as the first."""
    sizes = _first_sizes(facts, hardware, nested, rows, chunk)
    for knob in facts.loop_knobs:
        first = _walked_before(facts, knob)
        if first is not None:
            sizes[knob.slot] = knob.nearest(max(sizes[knob.slot], sizes[first.slot]))
    return sizes


def _walked_before(facts: Facts, knob: Knob) -> Knob | None:
    """The loop knob that walks the rows a knob of another loop walks again, if any."""
    lane, reduced = facts.lane_slot(), _reduced_knobs(facts)
    if knob in reduced or knob.slot == lane:
        return None
    return next(
        (
            first
            for first in facts.loop_knobs
            if (first in reduced or first.slot == lane)
            and first.extent == knob.extent
            and not any(
                {first.slot, knob.slot} <= {*knobs_of(a)} for a in facts.accesses
            )
        ),
        None,
    )


def _first_sizes(
    facts: Facts,
    hardware: Hardware,
    nested: tuple[Knob, Knob] | None,
    rows: float,
    chunk: int,
) -> dict[int, int]:
    """The same, where no loop walks what another walked before."""
    main = facts.widest()
    assert main is not None
    sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
    per_row = min(fixed_elements(main), max(1, chunk))
    reduced = _reduced_knobs(facts)
    lane = facts.lane_slot()
    if nested is not None:
        outer, inner = nested
        sizes[inner.slot] = inner.nearest(max(1.0, rows * _TILE / per_row))
        per_program = outer.extent / hardware.n_sms
        sizes[outer.slot] = outer.nearest(
            max(sizes[inner.slot], power_below(per_program))
        )
        return sizes
    for knob in facts.loop_knobs:
        is_inner = knob.slot == lane
        if is_inner or knob in reduced:
            whole = power_above(knob.extent)
            most = _WALKED if _walks_alone(facts) else _CHUNK
            longest = min(chunk, most) if whole > chunk else whole
            # A reduced axis that is not contiguous is walked: lanes go elsewhere, or
            # whole rows lie in the program. 4 rows of 4096 with 8 warps were best, 16
            # rows 0.22 of that (RMS norm backward, H200, 2026-11).
            held = max(1, min(_TILE // _COLUMN_LANES, _LONGEST_COLUMN // per_row))
            width = longest if is_inner else min(longest, held)
            sizes[knob.slot] = knob.nearest(width)
            per_row *= sizes[knob.slot]
    columns = [k for k in facts.grid_knobs if k.slot == lane]
    for knob in columns:
        # Lanes along the contiguous axis, which the reduction does not walk.
        sizes[knob.slot] = knob.nearest(
            min(power_above(knob.extent), _COLUMN_LANES * rows)
        )
        per_row *= sizes[knob.slot]
    walked = [k for k in facts.loop_knobs if k not in reduced and k.slot != lane]
    others = [*(k for k in facts.grid_knobs if k not in columns), *walked]
    left = max(1.0, rows * _TILE / per_row)
    for knob in _by_sharing(facts, others):
        sizes[knob.slot] = knob.nearest(
            min(power_below(left), power_above(knob.extent))
        )
        left = max(1.0, left / sizes[knob.slot])
    floors = {knob.slot: 16 for knob in columns}
    slots = [k.slot for k in (*_by_sharing(facts, others), *columns)]
    wanted = hardware.n_sms * _PROGRAMS_PER_SM / max(1.0, rows)
    sizes = shrink_to_fill(facts, sizes, slots, wanted, floors)
    if columns and len(reduced) == 1 and reduced[0].slot != lane:
        knob = reduced[0]
        deep = _rows_in_flight(facts, hardware, sizes, knob) * rows
        sizes[knob.slot] = knob.nearest(
            max(sizes[knob.slot], min(power_below(deep), power_above(knob.extent)))
        )
    return sizes


def _by_sharing(facts: Facts, knobs: list[Knob]) -> list[Knob]:
    """Knobs to pack rows along: first those that share weights, then inner ones.

    Rows shorter than a line of memory stay beside their neighbours instead.
    """
    main = facts.widest()
    if main is None or fixed_elements(main) * main.item_bytes < LINE_BYTES:
        return list(reversed(knobs))

    def shared(knob: Knob) -> int:
        loads = [a for a in facts.accesses if not a.is_store and len(knobs_of(a)) > 0]
        return sum(knob.slot not in knobs_of(access) for access in loads)

    return sorted(knobs, key=lambda knob: (-shared(knob), -knob.slot))


def _rows_in_flight(
    facts: Facts, hardware: Hardware, sizes: dict[int, int], knob: Knob
) -> float:
    """Rows of a column sum's chunk whose loads keep memory busy (Little's law)."""
    resident = min(programs_of(facts, sizes) / hardware.n_sms, 16.0)
    per_program = _IN_FLIGHT * busy_bytes(hardware) / max(resident, 0.5)
    row_bytes, elements = 0, 1
    for access in facts.accesses:
        slots = knobs_of(access)
        if knob.slot in slots and not access.is_store:
            lanes = 1
            for slot in slots:
                lanes *= sizes[slot] if slot != knob.slot else 1
            row_bytes += lanes * access.item_bytes
            elements = max(elements, lanes)
    return min(per_program / max(1, row_bytes), _STREAMED_COLUMN / elements)


def _words(
    facts: Facts,
    sizes: dict[int, int],
    num_warps: int,
    tile: int,
    row_loops: list[int | None],
    chunk: int,
) -> str:
    chunks = [loop for loop in row_loops if loop is not None]
    chunks += [sizes[k.slot] for k in _reduced_knobs(facts) if sizes[k.slot] < k.extent]
    how = f"rows in chunks of {chunks[0]}" if chunks else "rows in registers"
    per_thread = tile / (32 * num_warps)
    return (
        f"{num_warps} warps: {how}, {per_thread:g} values a thread, "
        f"{programs_of(facts, sizes)} programs"
    )
