"""An old config field by field: what still holds, what can be repaired, what cannot.

Helion's knobs changed names, lengths and meaning between releases, and its own
`normalize` lets much through that cannot run. Every repair here is one that cannot make
a config illegal: a smaller legal value, the shape of a list, a type. What would be a
guess is refused, and the field then takes Helion's value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from costmodel.config_space import ConfigSpace
from costmodel.config_space import Knob
from costmodel.config_space import Slot
from costmodel.frozen import dataclass
from costmodel.types import Config

# Knobs of other code generators, by who reads them (Helion's docs/api/config.md).
_FOREIGN: Mapping[str, str] = {
    "waves_per_eu": "AMD GPUs",
    "matrix_instr_nonkdim": "AMD GPUs",
    "num_ctas": "the TileIR backend",
    "occupancy": "the TileIR backend",
}

# One entry for each memory operation of the kernel, in program order.
_PER_ACCESS = frozenset(
    {
        "indexing",
        "atomic_indexing",
        "load_eviction_policies",
        "load_cache_modifiers",
        "store_cache_modifiers",
    }
)

# Without these there is nothing to compile.
_ESSENTIAL = frozenset({"block_sizes"})

_BLOCK_POINTER = "block_ptr"


class FieldStatus(enum.StrEnum):
    """What became of a field, or of a whole config."""

    KEPT = "kept"
    REPAIRED = "repaired"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FieldReport:
    """One field of a config.

    Attributes:
        name: The key.
        status: What became of it; refused means that Helion's value takes its place.
        old: As it was.
        new: As it is now; None where it is refused.
        reason: Why, in words; "" where it is kept.
    """

    name: str
    status: FieldStatus
    old: Any
    new: Any = None
    reason: str = ""


def migrate_fields(
    config: Mapping[str, Any], space: ConfigSpace | None
) -> tuple[Config, tuple[FieldReport, ...]]:
    """Carry each field over to the installed Helion.

    Args:
        config: As some Helion wrote it.
        space: Knobs of the kernel on its GPU; None where no kernel is named, and then
            only what every kernel refuses is looked at.

    Returns:
        What is left of the config, and a report for each field in its order.
    """
    reports = []
    left: Config = {}
    for name, value in config.items():
        if name == "num_sm_multiplier" and _is_flat(config) and value not in (None, 1):
            report = FieldReport(
                name,
                FieldStatus.REFUSED,
                value,
                reason="means nothing without a persistent grid",
            )
        elif space is None:
            report = _without_kernel(name, value)
        else:
            report = _with_knob(name, value, space.knobs.get(name))
        reports.append(report)
        if report.status is not FieldStatus.REFUSED:
            left[name] = report.new
    return left, tuple(reports)


def essential_loss(reports: tuple[FieldReport, ...]) -> str:
    """Why nothing can be compiled any more, or ""."""
    for report in reports:
        if report.name in _ESSENTIAL and report.status is FieldStatus.REFUSED:
            return f"{report.name}: {report.reason}"
    return ""


def status_of(reports: tuple[FieldReport, ...]) -> FieldStatus:
    """A config's status from its fields': kept only if all are."""
    if all(report.status is FieldStatus.KEPT for report in reports):
        return FieldStatus.KEPT
    return FieldStatus.REPAIRED


def _is_flat(config: Mapping[str, Any]) -> bool:
    return str(config.get("pid_type", "flat")) in ("flat", "xyz")


def _without_kernel(name: str, value: Any) -> FieldReport:
    if name in _FOREIGN:
        return _refused(name, value, f"a knob of {_FOREIGN[name]}")
    new, reason = _as_number(value), ""
    if new != value:
        reason = "a number written as text"
    replaced = _replace_block_pointers(name, new)
    if replaced != new:
        new, reason = replaced, _POINTER_REASON
    status = FieldStatus.REPAIRED if reason else FieldStatus.KEPT
    return FieldReport(name, status, value, new, reason)


_POINTER_REASON = (
    "block pointers are gone: Triton makes pointer code of them, so old timings do not "
    "carry over"
)


def _replace_block_pointers(name: str, value: Any) -> Any:
    if name not in ("indexing", "atomic_indexing"):
        return value
    if isinstance(value, list):
        return ["pointer" if one == _BLOCK_POINTER else one for one in value]
    return "pointer" if value == _BLOCK_POINTER else value


def _with_knob(name: str, value: Any, knob: Knob | None) -> FieldReport:
    if name in _FOREIGN and (knob is None or not knob.slots):
        return _refused(name, value, f"a knob of {_FOREIGN[name]}")
    if knob is None:
        if value is None or value == []:
            return _refused(name, value, "no such knob here, and it says nothing")
        return _refused(
            name, value, "no knob of this kernel on this GPU: another kernel or release"
        )
    new: Any = _replace_block_pointers(name, value)
    reasons = [_POINTER_REASON] if new != value else []
    if knob.is_list:
        listed = _as_list(new, knob, reasons)
        if listed is None:
            return _refused(name, value, reasons[-1])
        new = [
            _fitted(one, slot, reasons)
            for one, slot in zip(listed, knob.slots, strict=True)
        ]
    else:
        new = _fitted(new, knob.slots[0], reasons)
    if not reasons:
        return FieldReport(name, FieldStatus.KEPT, value, new)
    unique = dict.fromkeys(reasons)
    return FieldReport(name, FieldStatus.REPAIRED, value, new, "; ".join(unique))


def _as_list(value: Any, knob: Knob, reasons: list[str]) -> list[Any] | None:
    """A list as long as the knob's; None, with the reason added, where none can be."""
    size = len(knob.slots)
    if not isinstance(value, list):
        if not (knob.spreads or size == 1):
            reasons.append(f"expected a list of {size}")
            return None
        reasons.append(f"one value became a list of {size}")
        return [value] * size
    if len(value) == size:
        return value
    if size == 0:
        if all(one in (None, False, 0, "") for one in value):
            reasons.append("says nothing here")
            return []
        reasons.append("this kernel on this GPU has none")
        return None
    if knob.name in _PER_ACCESS:
        fill = [slot.default for slot in knob.slots]
        words = "surplus entries cut" if len(value) > size else "missing entries added"
        reasons.append(
            f"{words}: {len(value)} for {size} memory operations, so they may have "
            "been made for others"
        )
        return [*value, *fill[len(value) :]][:size]
    reasons.append(f"expected {size} entries, found {len(value)}: another kernel")
    return None


def _fitted(value: Any, slot: Slot, reasons: list[str]) -> Any:
    """A value that this slot allows: itself, the next smaller, or Helion's."""
    if slot.allows(value):
        return value
    number = _as_number(value)
    if number != value or type(number) is not type(value):
        reasons.append("a number written as text")
        if slot.allows(number):
            return number
    legal = [c for c in (*slot.choices, *slot.extra) if type(c) is int]
    if type(number) is int and legal:
        smaller = [choice for choice in legal if choice <= number]
        fitted = max(smaller) if smaller else min(legal)
        reasons.append(f"{number} is not allowed, {fitted} is the nearest that is")
        return fitted
    reasons.append(f"{value!r} is not allowed, Helion's {slot.default!r} instead")
    return slot.default


def _as_number(value: Any) -> Any:
    """Numbers written as text, as numbers; lists entry by entry."""
    if isinstance(value, list):
        return [_as_number(one) for one in value]
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value


def _refused(name: str, value: Any, reason: str) -> FieldReport:
    return FieldReport(name, FieldStatus.REFUSED, value, reason=reason)
