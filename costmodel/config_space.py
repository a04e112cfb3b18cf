"""Which configs a kernel may have, as plain data that moves can be made on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.frozen import dataclass
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Slot:
    """One choice a search makes.

    Attributes:
        choices: Every value Helion's own search may put here, in rising or declared
            order, spelled as in a config; None among them is a value like any other.
        default: Helion's value where no heuristic speaks.
        extra: Values that are legal but never searched, such as a block size under
            the search's floor.
    """

    choices: tuple[Any, ...]
    default: Any
    extra: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether a config may have this value here; 1 and True are not the same."""
        kind = type(value)
        for choice in (*self.choices, *self.extra):  # a loop: asked very often
            if type(choice) is kind and choice == value:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Knob:
    """One key of a config: a list with a slot for each element, or one scalar.

    Attributes:
        name: The key.
        slots: One for each element, exactly one for a scalar.
        is_list: Whether a config spells it as a list.
        spreads: Whether a config may give one value for the whole list.
    """

    name: str
    slots: tuple[Slot, ...]
    is_list: bool
    spreads: bool = False


@dataclass(frozen=True, slots=True)
class ConfigSpace:
    """Every knob of one bound kernel on its GPU, in Helion's order."""

    knobs: Mapping[str, Knob]

    def objections(self, config: Config) -> list[str]:
        """What Helion's search would not write this way, one line for each.

        A key that is absent is no objection (Helion fills it in), a key that is
        unknown here is.
        """
        found = []
        for name, value in config.items():
            knob = self.knobs.get(name)
            if knob is None:
                found.append(f"{name}: not a knob of this kernel on this GPU")
                continue
            values = value if knob.is_list else [value]
            if knob.spreads and not isinstance(value, list):
                values = [value] * len(knob.slots)
            if not isinstance(values, list) or len(values) != len(knob.slots):
                found.append(f"{name}: expected {len(knob.slots)} values, got {value}")
                continue
            for index, (slot, item) in enumerate(zip(knob.slots, values, strict=True)):
                if not slot.allows(item):
                    where = f"{name}[{index}]" if knob.is_list else name
                    found.append(f"{where}: {item!r} is not among {slot.choices}")
        return found
