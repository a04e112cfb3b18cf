"""An analysis as tables for a person."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from costmodel.analyse import Analysis
from costmodel.analyse import block_name
from costmodel.analyse import shape_text
from costmodel.analyse import size_text
from costmodel.analyse_config import ConfigFacts
from costmodel.features.loops import BoundKind
from costmodel.features.nest import AxisFact
from costmodel.features.reuse import AccessFact
from costmodel.features.traits import KernelTraits
from costmodel.types import WorkloadRecord

_WIDTH = 120  # characters; a table in a log must not depend on a terminal
_MIB = 2.0**20


def show(
    found: Analysis,
    pick: Mapping[str, str],
    measured_us: Mapping[str, float],
    source: str,
) -> None:
    """Print everything of one workload."""
    console = Console(width=_WIDTH, highlight=False)
    _headline(console, found, pick, source)
    console.print(_nest_table(found))
    if found.knobs:
        console.print(_knob_table(found))
    console.print(_access_table(found))
    _operations(console, found)
    if found.problem is not None:
        console.print(f"no estimates: {found.problem}", markup=False)
    if found.configs:
        console.print(_estimates(found, measured_us))
        console.print(_live_table(found))


def show_list(rows: Sequence[tuple[str, WorkloadRecord, KernelTraits]]) -> None:
    """One line a run."""
    table = Table()
    for name in ("run", "kernel", "shapes", "class", "traits"):
        table.add_column(name)
    for run, record, traits in rows:
        shapes = " ".join(str(list(shape)) for shape in record.input_shapes)
        words = " ".join(traits.traits)
        table.add_row(run, record.kernel_name, shapes, _class(traits), words)
    Console(width=_WIDTH, highlight=False).print(table, markup=False)


def _class(traits: KernelTraits) -> str:
    if not traits.is_mixture:
        return traits.kind.value
    return f"{traits.kind.value} ({' + '.join(part.value for part in traits.parts)})"


def _headline(
    console: Console, found: Analysis, pick: Mapping[str, str], source: str
) -> None:
    record, hardware = found.graph.record, found.hardware
    arguments = ", ".join(
        f"{dtype.removeprefix('torch.')}{list(shape)}"
        for dtype, shape in zip(record.dtypes, record.input_shapes, strict=False)
    )
    lines = [
        ("kernel", f"{record.kernel_name} ({source})"),
        ("tensors", arguments),
        ("GPU", f"{hardware.name} ({hardware.arch}), not needed to analyse"),
        ("class", _class(found.traits)),
        ("traits", ", ".join(found.traits.traits) or "none"),
    ]
    if pick:
        lines.append(("pick", f"{pick['source']} ({pick['reason']}): {pick['detail']}"))
    for label, text in lines:
        console.print(f"{label + ':':<10}{text}", markup=False)


def _nest_table(found: Analysis) -> Table:
    table = Table(title="Loop nest", title_justify="left")
    for name in ("level", "axis", "tile by", "elements"):
        table.add_column(name, no_wrap=name != "elements")
    for facts in found.configs:
        table.add_column(f"trips, {_label(facts)}", justify="right")
    table.add_column("carries to the next trip")
    for index, level in enumerate(found.nest):
        first = "  " * level.depth + level.kind
        carries = "; ".join(
            f"{shape_text(found.graph, c.shape)} {c.dtype.removeprefix('torch.')} "
            f"({c.kind.value})"
            for c in level.carries
        )
        rows = [
            (
                block_name(found.graph, axis.block),
                axis.driver,
                _elements(found, axis),
                *(_trips(axis, f.trips[index][i]) for f in found.configs),
            )
            for i, axis in enumerate(level.axes)
        ] or [("", "", "", *("" for _ in found.configs))]
        for row in rows:
            table.add_row(first, *row, carries)
            first = carries = ""
    return table


def _elements(found: Analysis, axis: AxisFact) -> str:
    if axis.bound is BoundKind.INSIDE and axis.outer is not None:
        return f"in a tile of {block_name(found.graph, axis.outer)}"
    if axis.bound is BoundKind.PREFIX and axis.outer is not None:
        return f"up to {block_name(found.graph, axis.outer)}'s tile of {axis.extent}"
    known = "" if axis.trips.value != "unknown" else "memory decides, about "
    return f"{known}{axis.extent}"


def _trips(axis: AxisFact, trips: float) -> str:
    return {"exact": "", "bounded": "mean ", "unknown": "~"}[axis.trips.value] + (
        f"{trips:,.0f}"
    )


def _knob_table(found: Analysis) -> Table:
    table = Table(title="Which tile each knob drives", title_justify="left")
    has_dots = bool(found.graph.dots)
    names = ["knob", "name", "place", "elements", "dimensions"]
    for name in (*names, *(["sides of products"] if has_dots else [])):
        table.add_column(name, no_wrap=name == "knob")
    for facts in found.configs:
        table.add_column(_label(facts), justify="right")
    for knob in found.knobs:
        sides = " ".join(f"{side}{dot}" for dot, side in knob.sides)
        table.add_row(
            knob.knob,
            block_name(found.graph, knob.block),
            knob.place,
            f"{'' if knob.is_known else '~'}{knob.extent}",
            " ".join(f"{tensor}.{dim}" for tensor, dim in knob.walks),
            *([sides] if has_dots else []),
            *(str(facts.blocks[knob.block]) for facts in found.configs),
        )
    return table


def _access_table(found: Analysis) -> Table:
    table = Table(title="Loads and stores", title_justify="left")
    names = ("slot", "what", "tile", "contiguous", "aligned", "read again by")
    for name in names:
        table.add_column(name)
    for facts in found.configs:
        table.add_column(f"MiB, {_label(facts)}", justify="right")
    for index, fact in enumerate(found.accesses):
        access = fact.access
        dtype = access.dtype.removeprefix("torch.")
        table.add_row(
            str(access.slot),
            f"{access.kind.value} {access.tensor} {dtype}",
            shape_text(found.graph, access.shape),
            _contiguity(found, fact),
            f"{fact.aligned_bytes} B{', TMA' if fact.may_use_descriptor else ''}",
            _reuse(found, fact),
            *(_moved(facts, index) for facts in found.configs),
        )
    return table


def _contiguity(found: Analysis, fact: AccessFact) -> str:
    if fact.access.gathers:
        return "memory decides"
    if not fact.access.shape:
        return "one element"
    if not fact.lanes:
        return "strided"
    return "along " + ", ".join(size_text(found.graph, part) for part in fact.lanes)


def _reuse(found: Analysis, fact: AccessFact) -> str:
    parts = []
    if fact.shared_by:
        names = ", ".join(block_name(found.graph, key) for key in fact.shared_by)
        parts.append(f"programs along {names}")
    if fact.repeated_by:
        names = ", ".join(block_name(found.graph, key) for key in fact.repeated_by)
        parts.append(f"trips of {names}")
    return "; ".join(parts) or "-"


def _moved(facts: ConfigFacts, index: int) -> str:
    moved = facts.moved[index]
    mark = " d" if moved.indexing == "tensor_descriptor" else ""
    return f"{moved.total_bytes / _MIB:,.2f}{mark}"


def _operations(console: Console, found: Analysis) -> None:
    ops = found.ops
    groups = (
        ("products", ops.dots),
        ("special functions", ops.special),
        ("conversions", ops.conversions),
        ("reductions", ops.reductions),
    )
    for label, counts in groups:
        if counts:
            words = ", ".join(f"{n} {name}" for name, n in counts)
            console.print(f"{label + ':':<19}{words}", markup=False)
    console.print(f"{'other arithmetic:':<19}{ops.n_elementwise} operations on tiles")


_Value = Callable[[ConfigFacts], float | str]

_ROWS: tuple[tuple[str, _Value], ...] = (
    ("programs", lambda f: float(f.programs)),
    ("threads", lambda f: f.resources["threads"]),
    ("registers of a thread, needed", lambda f: f.resources["regs_per_thread"]),
    ("  of them spilled", lambda f: f.resources["spill_registers"]),
    ("shared memory, bytes", lambda f: f.resources["smem_bytes"]),
    ("programs on an SM", lambda f: f.resources["occupancy_ctas"]),
    ("  by threads", lambda f: f.resources["ctas_by_threads"]),
    ("  by registers", lambda f: f.resources["ctas_by_registers"]),
    ("  by shared memory", lambda f: f.resources["ctas_by_shared_memory"]),
    ("bytes read, MiB", lambda f: f.traffic["load_bytes"] / _MIB),
    ("bytes written, MiB", lambda f: f.traffic["store_bytes"] / _MIB),
    ("  moved over distinct bytes", lambda f: f.traffic["reread_ratio"]),
    ("bytes a thread moves at once", lambda f: f.traffic["vector_bytes"]),
    ("padded over useful work", lambda f: f.traffic["padding_waste"]),
    ("waves", lambda f: f.launch["waves"]),
    ("  filled by the last one", lambda f: f.launch["tail_share"]),
    ("estimated time, us", lambda f: f.times_us["total_us"]),
    ("  launch", lambda f: f.times_us["launch_us"]),
    ("  memory", lambda f: f.times_us["memory_us"]),
    ("  compute", lambda f: f.times_us["compute_us"]),
    ("    tensor cores", lambda f: f.times_us["tensor_us"]),
    ("    arithmetic", lambda f: f.times_us["arithmetic_us"]),
    ("    L2", lambda f: f.times_us["l2_us"]),
    ("  latency", lambda f: f.times_us["latency_us"]),
    ("  not hidden by the slowest", lambda f: f.times_us["exposed_us"]),
    ("slowest", lambda f: f.roofline.slowest),
    ("roofline: operations a byte", lambda f: f.roofline.intensity),
    ("  ridge", lambda f: f.roofline.ridge),
    ("  under the roof of", lambda f: f.roofline.side),
    ("  no launch is faster than, us", lambda f: f.roofline.floor_us),
    ("  share of peak bandwidth", lambda f: f.roofline.bandwidth_share),
    ("  share of peak rate", lambda f: f.roofline.compute_share),
)


def _estimates(found: Analysis, measured_us: Mapping[str, float]) -> Table:
    table = Table(title="Estimates, not measurements", title_justify="left")
    table.add_column("quantity")
    for facts in found.configs:
        table.add_column(_label(facts), justify="right")
    for name, value in _ROWS:
        table.add_row(name, *(_number(value(facts)) for facts in found.configs))
    if measured_us:
        cells = (measured_us.get(facts.label) for facts in found.configs)
        table.add_row("measured, us", *(_number(v) if v else "-" for v in cells))
    return table


def _live_table(found: Analysis) -> Table:
    table = Table(title="Tiles alive where registers are fullest", title_justify="left")
    table.add_column("config")
    table.add_column("tile")
    for name in ("elements", "bytes each", "how many", "KiB"):
        table.add_column(name, justify="right")
    for facts in found.configs:
        first = _label(facts)
        for tile in facts.live:
            elements = 1
            for size in tile.sizes:
                elements *= size
            table.add_row(
                first,
                shape_text(found.graph, tile.shape),
                f"{elements:,}",
                str(elements * tile.itemsize),
                str(tile.count),
                f"{tile.total_bytes / 1024:,.1f}",
            )
            first = ""
    return table


def _label(facts: ConfigFacts) -> str:
    return facts.label.removeprefix("helion_").removeprefix("our_").replace("_", " ")


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) >= 1.0:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.3g}"
