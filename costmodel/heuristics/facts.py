"""What the decision lists need to know about a kernel, and nothing else.

Everything is stated in terms of what a config can set: an axis is driven by an entry
of `block_sizes` (a *knob*), by an entry of `reduction_loops`, or by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.frozen import dataclass
from costmodel.types import KernelClass


@dataclass(frozen=True, slots=True)
class Knob:
    """One entry of `block_sizes`.

    Attributes:
        slot: Its index there.
        extent: Iterations of its axis; a size hint where data decides.
        certain: Whether shapes alone decide the extent.
        on_grid: Whether programs are spread along it; else a loop walks it.
        choices: Legal sizes, ascending; powers of two.
        searched: Those that Helion's own search would use, ascending.
        inside: Slot of the knob whose tile bounds this one's loop, or None: Helion
            cuts a larger size down to that tile.
    """

    slot: int
    extent: int
    certain: bool
    on_grid: bool
    choices: tuple[int, ...]
    searched: tuple[int, ...]
    inside: int | None = None

    def nearest(self, size: float) -> int:
        """The largest legal size that is not above `size`, else the smallest."""
        below = [c for c in self.choices if c <= size]
        return below[-1] if below else self.choices[0]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a tile.

    Attributes:
        knob: Entry of `block_sizes` that drives it, or None.
        loop: Entry of `reduction_loops` that drives it, or None.
        extent: Elements along it; a size hint where data decides.
        tile: Elements a program holds of it where nothing drives it, or drives it
            only as long as `reduction_loops` says so.
        certain: Whether shapes alone decide the extent.
    """

    knob: int | None
    loop: int | None
    extent: int
    tile: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Dot:
    """One matrix product on tiles.

    Attributes:
        m: Rows of the left operand.
        n: Columns of the right operand.
        k: What is summed over.
        batch: Leading axes.
        lhs_bytes: Bytes of an element of the left operand.
        rhs_bytes: Bytes of an element of the right operand.
        rate: Key of `Hardware.peak_tflops`.
        is_fp8: Whether both operands are 8-bit floats.
        carries: Whether it adds to a value that a loop carries.
        rescaled: Whether that value is multiplied before it is added to.
        in_loop: Whether a device loop holds it.
    """

    m: Axis
    n: Axis
    k: Axis
    batch: tuple[Axis, ...]
    lhs_bytes: int
    rhs_bytes: int
    rate: str
    is_fp8: bool
    carries: bool
    rescaled: bool
    in_loop: bool


@dataclass(frozen=True, slots=True)
class Maps:
    """Operations by element that are done on tiles of one shape.

    Attributes:
        axes: Of the tile.
        around: Slots of the knobs whose loops repeat it.
        n_plain: Operations an element on the usual units.
        n_special: Operations an element on the special function unit.
    """

    axes: tuple[Axis, ...]
    around: frozenset[int]
    n_plain: int
    n_special: int


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of device memory, in the order that code is emitted.

    Attributes:
        tensor: Name of the host tensor.
        is_store: Whether it writes.
        item_bytes: Bytes of an element.
        axes: Axis under each dimension of the tensor, or None for a scalar index.
        strides: In elements, by dimension of the tensor.
        is_gather: Whether an index comes from data.
        is_scattered: Whether neighbours in the tile are looked up one by one.
        shifted: Slots of knobs along which it is read beside the tile's own place.
        indexing_slot: Its entry of `indexing`, or None for an atomic.
        eviction_slot: Its entry of `load_eviction_policies`, or None.
        in_loop: Whether a device loop repeats it.
    """

    tensor: str
    is_store: bool
    item_bytes: int
    axes: tuple[Axis | None, ...]
    strides: tuple[int, ...]
    is_gather: bool
    is_scattered: bool
    shifted: frozenset[int]
    indexing_slot: int | None
    eviction_slot: int | None
    in_loop: bool

    @property
    def elements(self) -> int:
        """Elements it touches over the whole kernel, gathered ones counted once."""
        total = 1
        for axis, stride in zip(self.axes, self.strides, strict=False):
            if axis is not None and stride != 0:
                total *= axis.extent
        return total

    @property
    def contiguous(self) -> Axis | None:
        """The axis along which neighbours are adjacent in memory."""
        for axis, stride in zip(self.axes, self.strides, strict=False):
            if stride == 1 and axis is not None and axis.extent > 1:
                return axis
        return None


@dataclass(frozen=True, slots=True)
class Facts:
    """A kernel as the decision lists see it.

    Attributes:
        kernel_class: Which list applies.
        knobs: By slot of `block_sizes`.
        row_extents: Extent of each entry of `reduction_loops`.
        reduced: Axes that a reduction sums over, without repeats.
        dots: In program order.
        maps: Operations by element, by the shape of their tile.
        accesses: Loads, stores and atomics of the unrolled variant, as emitted.
        fixed_programs: Programs along grid axes that no knob drives, at least 1.
        work_slots: Knobs that the largest tile of arithmetic spans.
        active: Slots that the grid bodies in question use; a list leaves the rest.
        parts: The same for each grid body alone, where there are several.
        n_special: Operations on the special function unit.
        loop_slots: Entries of the `range_*` lists that are device loops.
        grid_slots: Entries of the `range_*` lists that are grids.
    """

    kernel_class: KernelClass
    knobs: tuple[Knob, ...]
    row_extents: tuple[int, ...]
    reduced: tuple[Axis, ...]
    dots: tuple[Dot, ...]
    maps: tuple[Maps, ...]
    accesses: tuple[Access, ...]
    fixed_programs: int
    work_slots: tuple[int, ...]
    active: frozenset[int]
    parts: tuple[Facts, ...]
    n_special: int
    loop_slots: tuple[int, ...]
    grid_slots: tuple[int, ...]

    @property
    def grid_knobs(self) -> tuple[Knob, ...]:
        """Knobs that spread programs."""
        return tuple(k for k in self.knobs if k.on_grid and k.slot in self.active)

    @property
    def loop_knobs(self) -> tuple[Knob, ...]:
        """Knobs that a device loop walks."""
        return tuple(k for k in self.knobs if not k.on_grid and k.slot in self.active)

    def passes(self) -> tuple[Knob, ...]:
        """Loops along rows of memory, such as one for a norm's factor."""
        lanes = {a.contiguous.knob for a in self.accesses if a.contiguous is not None}
        return tuple(k for k in self.loop_knobs if k.slot in lanes)

    def bounded(self, blocks: Sequence[int]) -> list[int]:
        """Block sizes with loops inside a tile cut to that tile, as Helion does."""
        sizes = list(blocks)
        for knob in self.knobs:
            if knob.inside is not None:
                sizes[knob.slot] = min(sizes[knob.slot], sizes[knob.inside])
        return sizes

    def lane_slot(self) -> int | None:
        """Knob along which the largest tensor is contiguous; None for a fixed row."""
        main = self.widest()
        axis = None if main is None else main.contiguous
        return None if axis is None else axis.knob

    def widest(self) -> Access | None:
        """The access that covers the most elements; of equals, the widest type."""
        real = [a for a in self.accesses if a.axes]
        return max(real, key=lambda a: (a.elements, a.item_bytes), default=None)

    def large_accesses(self) -> tuple[Access, ...]:
        """Accesses that move at least an eighth of what the largest one does."""
        main = self.widest()
        least = 0 if main is None else main.elements / 8
        return tuple(a for a in self.accesses if a.axes and a.elements >= least)

    @property
    def scatters(self) -> bool:
        """Whether a loop looks up the elements of a tile one by one.

        Stages gain such loads nothing: each element is copied to shared memory alone.
        """
        return any(
            a.in_loop and a.is_scattered and not a.is_store for a in self.accesses
        )

    def stencil_slot(self) -> int | None:
        """Knob along which one tensor is read at several offsets, lanes left out."""
        lane = self.lane_slot()
        reads: dict[tuple[str, int], int] = {}
        for access in self.accesses:
            for slot in access.shifted - {lane}:
                if not access.is_store:
                    key = access.tensor, slot
                    reads[key] = reads.get(key, 0) + 1
        repeated = [slot for (_, slot), count in reads.items() if count > 1]
        return min(repeated, default=None)

    def contiguous_slots(self) -> tuple[int, ...]:
        """Knobs along which some tensor is contiguous, the most accesses first."""
        votes: dict[int, int] = {}
        for access in self.accesses:
            axis = access.contiguous
            if axis is not None and axis.knob is not None and not access.is_gather:
                # A store that is not coalesced costs a read as well (sectors of 32 B).
                votes[axis.knob] = votes.get(axis.knob, 0) + 1 + access.is_store
        return tuple(sorted(votes, key=lambda slot: (-votes[slot], -slot)))


def power_below(value: float) -> int:
    """Largest power of two that is not above `value`, at least 1."""
    return 1 << max(0, int(value).bit_length() - 1) if value >= 1 else 1


def power_above(value: float) -> int:
    """Smallest power of two that is not below `value`, at least 1."""
    return 1 << max(0, int(-(-value // 1)) - 1).bit_length()
