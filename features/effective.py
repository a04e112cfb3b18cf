"""One key per program: knobs that change nothing in the generated code are left out.

Only what was checked on generated code is merged, and whatever is in doubt stays in
the key: two configs with one key are one program, the reverse is not promised. Rules
from Helion 1.5.1, `indexing_strategy.py`, `tile_strategy.py` and `config_spec.py`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from costmodel.features.blocks import BlockKind
from costmodel.features.canonical import SCALAR_FILL
from costmodel.features.canonical import canonical_config
from costmodel.features.emission import EmittedAccess
from costmodel.features.emission import emission_regions
from costmodel.features.emission import emitted_accesses
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import next_power_of_2
from costmodel.frozen import dataclass
from costmodel.types import Config

_DESCRIPTOR_BYTES = 16  # what the tensor memory accelerator moves at least
_DESCRIPTOR_BLOCK = 256  # most elements of a descriptor's box along one axis
_DESCRIPTOR_DIMS = range(2, 6)
_PERSISTENT = ("persistent_blocked", "persistent_interleaved")

_RANGE_NEUTRAL: Mapping[str, Any] = {
    "range_unroll_factors": 0,
    "range_warp_specializes": None,
    "range_num_stages": 0,
    "range_multi_buffers": None,
    "range_flattens": None,
}


@dataclass(frozen=True, slots=True)
class _Box:
    """One axis of a descriptor's box.

    Attributes:
        knob: Entry of `block_sizes` that sizes it, or None.
        size: Size where no knob does; None where it is not known.
        extent: Host size, or None.
        is_outer: Whether some stride lies between this axis's and 1.
        is_contiguous: Whether its stride is 1.
    """

    knob: int | None
    size: int | None
    extent: int | None
    is_outer: bool
    is_contiguous: bool


@dataclass(frozen=True, slots=True)
class _Operation:
    """One slot of `indexing`.

    Attributes:
        never: Whether no config gives it a descriptor.
        needs_host: Whether only descriptors made on the host can do it.
        boxes: Axes whose sizes may rule a descriptor out.
        item_bytes: Bytes of an element.
        eviction_slot: For a load.
    """

    never: bool
    needs_host: bool
    boxes: tuple[_Box, ...]
    item_bytes: int
    eviction_slot: int | None


Tile: TypeAlias = tuple[int, ...] | None
"""Block sizes, or None in a config without them."""


class Structure(NamedTuple):
    """What configs have in common that differ only in their tile.

    Attributes:
        code: Number of all that the tile does not decide; None where some operation
            asks for a descriptor.
        pipelines: Whether the number of stages changes anything.
        codes: Such numbers there, by who is left without, and by whether it pipelines.
        example: One of them; while its values live, no other object can be mistaken
            for one of them.
        parts: What `code` is the number of; where that is open, so is what they say
            of descriptors and ranges.
    """

    code: int | None
    pipelines: bool
    codes: dict[tuple[tuple[bool, ...], bool], int]
    example: Config
    parts: tuple[Any, ...]


class EffectiveKeys:
    """Keys for the configs of one kernel; made once, asked many times."""

    def __init__(self, graph: KernelGraph, template: Config | None = None) -> None:
        """Read what the rules need.

        Args:
            graph: The kernel.
            template: A full config of it, such as its default; without one, configs
                are taken to be full.
        """
        self._template = template
        emitted = emitted_accesses(graph)
        memory = [e for e in emitted if e.kind is not OpKind.ATOMIC]
        self._operations = tuple(_operation(graph, entry) for entry in memory)
        self._n_loads = sum(e.eviction_slot is not None for e in memory)
        self._grid_slots, self._n_ranges = range_slots(graph)
        self._one_root = len(graph.root_ids()) == 1
        self._lost: dict[tuple[tuple[int, ...], bool], tuple[bool, ...]] = {}
        self._structures: dict[tuple[Any, ...], Structure] = {}
        # The same for configs that need not be full, which keep their values alive.
        self._spelled: dict[tuple[Any, ...], Structure] = {}
        self._kept: list[Config] = []
        self._known: dict[int, tuple[tuple[Any, ...], Config]] = {}
        self._codes: dict[tuple[Any, ...], int] = {}
        self._loops = any(r.kind is RegionKind.LOOP for r in graph.regions.values())

    def key(self, config: Config) -> str:
        """Key of a config in any spelling."""
        return self.key_of_full(canonical_config(config, self._template))

    def key_of_full(self, full: Config) -> str:
        """Key of a config in canonical form; 32 hex digits."""
        parts = repr(self.parts_of_full(full)).encode()
        return hashlib.blake2b(parts, digest_size=16).hexdigest()

    def indexing(self, full: Config) -> tuple[str, ...]:
        """Indexing of each emitted memory operation as the code has it."""
        asked = list(full.get("indexing") or ())
        blocks = full.get("block_sizes") or ()
        on_host = bool(full.get("host_tensor_descriptors"))
        lost = self._pointers_only(tuple(blocks), on_host)
        found = []
        for index, value in enumerate(asked):
            if value == "block_ptr":
                value = "pointer"  # Triton 3.9 has no block pointers
            elif index < len(lost) and lost[index]:
                value = "pointer"
            found.append(value)
        if _rolls(full):
            return tuple(found)
        return tuple(found[: len(self._operations)])

    def _pointers_only(
        self, blocks: tuple[int, ...], on_host: bool
    ) -> tuple[bool, ...]:
        """For each memory operation, whether a descriptor surely ends as pointers."""
        known = self._lost.get((blocks, on_host))
        if known is None:
            # Between two grid bodies even an unused descriptor still adds a fence.
            known = tuple(
                self._one_root and _falls_back(operation, blocks, on_host)
                for operation in self._operations
            )
            self._lost[blocks, on_host] = known
        return known

    def parts_of_full(self, full: Config) -> tuple[Any, ...]:
        """What the key is made of, hashable: equal exactly where keys are equal."""
        atomics = full.get("atomic_indexing") or ()
        asks = "tensor_descriptor" in (full.get("indexing") or ()) or (
            "tensor_descriptor" in atomics
        )
        indexing = self.indexing(full) if asks else ()
        has = "tensor_descriptor" in indexing or "tensor_descriptor" in atomics
        persistent = full.get("pid_type") in _PERSISTENT
        rolled = _rolls(full)
        stages = full.get("num_stages")
        if not (self._loops or rolled or persistent):
            stages = 1  # nothing to pipeline
        return (
            indexing if has else (),
            self._evictions(full, rolled),
            has and bool(full.get("host_tensor_descriptors")),
            self._ranges(full, asks, persistent),
            stages,
            self._groupings(full),
            *[(key, _frozen(full[key])) for key in _live_keys(tuple(full), persistent)],
        )

    def token(self, full: Config) -> tuple[Any, ...]:
        """Equal exactly where `parts_of_full` is, and much quicker to make."""
        blocks = full.get("block_sizes")
        tile = tuple(blocks) if type(blocks) is list else blocks
        structure = self.structure(full)
        return self.token_of(
            structure, tile, full.get("num_warps"), full.get("num_stages")
        )

    def know_tokens(self, made: Iterable[tuple[tuple[Any, ...], Config]]) -> None:
        """Say what the tokens of some configs are, which must not change any more."""
        self._known = {id(one[1]): one for one in made}

    def token_of_any(self, config: Config) -> tuple[Any, ...]:
        """The token of a config in any spelling: equal exactly where `key` is."""
        said = self._known.get(id(config))
        if said is not None:
            return said[0]
        values = [value for key, value in config.items() if key not in _TILE_KEYS]
        identity = (*config, *map(id, values))
        known = self._structures.get(identity) or self._spelled.get(identity)
        if known is None:
            full = canonical_config(config, self._template)
            known = self._spelled[identity] = self.structure(full)
            self._kept.append(config)
        warps, stages = config.get("num_warps"), config.get("num_stages")
        blocks = config.get("block_sizes")
        return self.token_of(
            known,
            tuple(blocks) if isinstance(blocks, list | tuple) else blocks,
            SCALAR_FILL["num_warps"] if warps is None else warps,
            SCALAR_FILL["num_stages"] if stages is None else stages,
        )

    def structure(self, full: Config) -> Structure:
        """All of a config but its tile.

        Hundreds of moves around one config share the objects that are its values; it
        is looked up by their identity.
        """
        values = [value for key, value in full.items() if key not in _TILE_KEYS]
        identity = (*full, *map(id, values))
        known = self._structures.get(identity)
        if known is None:
            known = self._structures[identity] = self._new_structure(full)
        return known

    def token_of(
        self, structure: Structure, tile: Tile, num_warps: Any, num_stages: Any
    ) -> tuple[Any, ...]:
        """The token of a config with this structure and this tile."""
        code = structure.code
        if code is None:
            # Whether a descriptor survives is the tile's matter, too.
            on_host = bool(structure.example.get("host_tensor_descriptors"))
            lost = self._pointers_only(tile or (), on_host)
            place = (lost, int(num_stages or 1) > 1)
            code = structure.codes.get(place)
            if code is None:
                full = {**structure.example, "num_stages": num_stages}
                if tile is not None:
                    full["block_sizes"] = tile
                parts = self._with_descriptors(structure.parts, full)
                code = self._codes.setdefault(parts, len(self._codes))
                structure.codes[place] = code
        return code, tile, num_warps, num_stages if structure.pipelines else 1

    def _new_structure(self, full: Config) -> Structure:
        asks = "tensor_descriptor" in (full.get("indexing") or ()) or (
            "tensor_descriptor" in (full.get("atomic_indexing") or ())
        )
        persistent = full.get("pid_type") in _PERSISTENT
        parts = _without_tile(self.parts_of_full(full))
        return Structure(
            code=None if asks else self._codes.setdefault(parts, len(self._codes)),
            pipelines=self._loops or _rolls(full) or persistent,
            codes={},
            example=full,
            parts=parts,
        )

    def structure_beside(self, known: Structure, full: Config, key: str) -> Structure:
        """The structure of a config that differs from another in one key's value.

        Args:
            known: Of the other, which spells the same keys.
            full: The config.
            key: What differs, beside the tile.
        """
        if key in _READ_WITH_OTHERS:
            return self.structure(full)
        code, pipelines, _codes, example, parts = known
        changed = list(parts)
        if key == "load_eviction_policies":
            changed[_EVICTIONS_PART] = self._evictions(full, _rolls(full))
        elif key == "l2_groupings":
            changed[_GROUPINGS_PART] = self._groupings(full)
        elif key in _RANGE_NEUTRAL:
            persistent = full.get("pid_type") in _PERSISTENT
            changed[_RANGES_PART] = self._ranges(full, False, persistent)
        else:
            place = parts.index((key, _frozen(example[key])), _N_FIRST_PARTS - 1)
            changed[place] = (key, _frozen(full[key]))
        parts = tuple(changed)
        if code is not None:
            code = self._codes.setdefault(parts, len(self._codes))
        return Structure(code, pipelines, {}, full, parts)

    def _with_descriptors(
        self, parts: tuple[Any, ...], full: Config
    ) -> tuple[Any, ...]:
        """Parts of a config that asks for descriptors, from those of another tile."""
        indexing = self.indexing(full)
        has = "tensor_descriptor" in indexing or (
            "tensor_descriptor" in (full.get("atomic_indexing") or ())
        )
        persistent = full.get("pid_type") in _PERSISTENT
        return (
            indexing if has else (),
            parts[_EVICTIONS_PART],
            has and bool(full.get("host_tensor_descriptors")),
            self._ranges(full, True, persistent),
            *parts[_GROUPINGS_PART:],
        )

    def _evictions(self, full: Config, rolled: bool) -> tuple[str, ...]:
        """Policies of emitted loads."""
        asked = full.get("load_eviction_policies") or ()
        # Fewer entries than loads: some load has a policy of its own and no slot, and
        # which one is not known.
        if rolled or len(asked) < self._n_loads:
            return tuple(asked)
        return tuple(asked[: self._n_loads])

    def _ranges(self, full: Config, asks: bool, persistent: bool) -> tuple[Any, ...]:
        """The `range_*` knobs after Helion's own resets."""
        found = [tuple(full.get(name) or ()) for name in _RANGE_NAMES]
        if not persistent and self._grid_slots:
            for index, values in enumerate(found):
                if len(values) == self._n_ranges:
                    neutral = _RANGE_VALUES[index]
                    for slot in self._grid_slots:
                        if values[slot] != neutral:
                            values = (*values[:slot], neutral, *values[slot + 1 :])
                    found[index] = values
        if asks:
            if not full.get("host_tensor_descriptors"):
                found[_RANGE_STAGES] = (0,) * len(found[_RANGE_STAGES])
            if int(full.get("num_stages") or 1) > 1:
                found[_RANGE_UNROLL] = (0,) * len(found[_RANGE_UNROLL])
        return tuple(found)

    def _groupings(self, full: Config) -> tuple[Any, ...]:
        """L2 grouping; a flattened grid has none."""
        groups = full.get("l2_groupings") or ()
        if self._one_root and len(groups) == 1 and full.get("flatten_loops") == [True]:
            return (1,)
        return tuple(groups)


_HANDLED = frozenset(
    {
        "indexing",
        "load_eviction_policies",
        "host_tensor_descriptors",
        "num_stages",
        "l2_groupings",
        *_RANGE_NEUTRAL,
    }
)
_TILE_KEYS = frozenset({"block_sizes", "num_warps", "num_stages"})
# Of `parts_of_full`: how many come before the live keys, and which is the stages.
_N_FIRST_PARTS = 6
_STAGES_PART = 4
# The same without the tile and the stages.
_EVICTIONS_PART = 1
_RANGES_PART = 3
_GROUPINGS_PART = 4
# Keys that decide what others come to, or are in a key only beside others.
_READ_WITH_OTHERS = frozenset(
    {
        "indexing",
        "atomic_indexing",
        "host_tensor_descriptors",
        "pid_type",
        "num_sm_multiplier",
        "maxnreg",
        "reduction_loops",
        "flatten_loops",
        *_TILE_KEYS,
    }
)
_ONLY_PERSISTENT = frozenset({"num_sm_multiplier", "maxnreg"})
_RANGE_NAMES = tuple(_RANGE_NEUTRAL)
_RANGE_VALUES = tuple(_RANGE_NEUTRAL.values())
_RANGE_STAGES = _RANGE_NAMES.index("range_num_stages")
_RANGE_UNROLL = _RANGE_NAMES.index("range_unroll_factors")


def _without_tile(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """All of `parts_of_full` but the values that a token holds itself."""
    live = [p if p[0] not in _TILE_KEYS else p[0] for p in parts[_N_FIRST_PARTS:]]
    return (*parts[:_STAGES_PART], *parts[_STAGES_PART + 1 : _N_FIRST_PARTS], *live)


def effective_key(
    graph: KernelGraph, config: Config, template: Config | None = None
) -> str:
    """Key that configs share only if Helion generates the same code for them.

    Args:
        graph: The kernel.
        config: Full or partial.
        template: A full config of the same kernel, such as its default.

    Returns:
        32 hex digits. Configs with one key also launch alike (warps, stages).
    """
    return EffectiveKeys(graph, template).key(config)


def range_slots(graph: KernelGraph) -> tuple[tuple[int, ...], int]:
    """Which entries of the `range_*` lists are grids, and how many entries there are.

    A grid has one entry for all its axes, a device loop one for each of its blocks;
    they stand in program order.
    """
    grids: list[int] = []
    seen: set[int] = set()
    n_entries = 0
    for graph_id in emission_regions(graph):
        region = graph.regions[graph_id]
        if region.kind is RegionKind.ROOT:
            grids.append(n_entries)
            n_entries += 1
        elif region.kind is RegionKind.LOOP:
            new = [b for b in region.block_ids if b not in seen]
            seen.update(new)
            n_entries += len(new)
    return tuple(grids), n_entries


def _rolls(full: Config) -> bool:
    """Whether a reduction is rolled: then slots count another program."""
    loops = full.get("reduction_loops")
    return bool(loops) and loops != [None] * len(loops or ())


@functools.lru_cache(maxsize=256)
def _live_keys(keys: tuple[str, ...], persistent: bool) -> tuple[str, ...]:
    """Keys that enter the key as they are, sorted."""
    return tuple(
        sorted(
            key
            for key in keys
            if key not in _HANDLED and (persistent or key not in _ONLY_PERSISTENT)
        )
    )


def _frozen(value: Any) -> Any:
    if type(value) is not list:
        return value
    if value and type(value[0]) is list:
        return tuple(map(tuple, value))
    return tuple(value)


def _operation(graph: KernelGraph, entry: EmittedAccess) -> _Operation:
    """What can make a descriptor fall back to pointers."""
    access = entry.access
    if access is None or not access.exact:
        return _Operation(False, False, (), 1, entry.eviction_slot)
    strides = [literal(dim.stride) for dim in access.dims]
    n_unit = sum(stride == 1 for stride in strides)
    aligned = all(
        stride is None
        or stride == 1
        or stride * access.itemsize % _DESCRIPTOR_BYTES == 0
        for stride in strides
    )
    known = all(stride is not None for stride in strides)
    never = len(access.dims) not in _DESCRIPTOR_DIMS
    never = never or not aligned or (known and n_unit != 1)
    boxes = []
    for dim, stride in zip(access.dims, strides, strict=True):
        knob, size = _box_size(graph, dim.kind, dim.tile)
        is_outer = any(
            other is not None and stride is not None and 1 < other < stride
            for other in strides
        )
        boxes.append(
            _Box(
                knob=knob,
                size=size,
                extent=literal(dim.size),
                is_outer=is_outer or not known,
                is_contiguous=stride == 1,
            )
        )
    return _Operation(
        never=never,
        needs_host=any(dim.kind is DimKind.GATHER for dim in access.dims),
        boxes=tuple(boxes),
        item_bytes=access.itemsize,
        eviction_slot=entry.eviction_slot,
    )


def _box_size(
    graph: KernelGraph, kind: DimKind, tile: str
) -> tuple[int | None, int | None]:
    """Knob that sizes a box's axis, or its size, or neither."""
    if kind in (DimKind.SCALAR, DimKind.CONST):
        return None, 1
    if kind in (DimKind.GATHER, DimKind.AFFINE):
        return None, None
    number = literal(tile)
    if number is not None:
        return None, next_power_of_2(number)
    key = graph.by_symbol.get(tile)
    if key is None:
        return None, None
    block = graph.blocks[key]
    if block.kind is BlockKind.TUNABLE:
        return block.slot, None
    if block.kind is BlockKind.FIXED and block.fixed_size is not None:
        return None, block.fixed_size
    if block.kind is BlockKind.REDUCTION and block.slot is None:
        return None, next_power_of_2(block.extent)
    return None, None


def _falls_back(operation: _Operation, blocks: Sequence[int], on_host: bool) -> bool:
    """Whether Helion surely writes pointer code for a descriptor that was asked."""
    if operation.never or (operation.needs_host and not on_host):
        return True
    for box in operation.boxes:
        size = box.size
        if box.knob is not None and box.knob < len(blocks):
            size = int(blocks[box.knob])
        if size is None:
            continue
        is_index = box.knob is None and box.size == 1
        if box.is_contiguous and size * operation.item_bytes < _DESCRIPTOR_BYTES:
            return True
        if is_index:
            continue
        if size > _DESCRIPTOR_BLOCK or (box.extent is not None and size > box.extent):
            return True
        if not box.is_outer and size * operation.item_bytes < _DESCRIPTOR_BYTES:
            return True
    return False
