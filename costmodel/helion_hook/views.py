"""Everything we need of a bound kernel, as plain data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from costmodel.frozen import dataclass
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.records import record_of
from costmodel.types import Config
from costmodel.types import WorkloadRecord


@dataclass(frozen=True, slots=True)
class HelionView:
    """What Helion says about one bound kernel.

    Attributes:
        record: The same facts as a line of Helion's log.
        default: Helion's own config, in full form.
        seeds: Configs of Helion's heuristics in their order, in full form.
        promoted: Whether a heuristic made the default; if not, it is a guess.
        backend: Code generator, such as "triton".
        device_type: Where the arguments are, such as "cuda".
    """

    record: WorkloadRecord
    default: Config
    seeds: tuple[Config, ...]
    promoted: bool
    backend: str
    device_type: str


def view(bound: Any, args: Sequence[object] | None = None) -> HelionView:
    """Everything we need of a bound kernel, as plain data.

    Raises:
        UnreadableKernelError: Helion has no IR graph for it.
    """
    spec = bound.config_spec
    with device_of(bound):
        return HelionView(
            record=record_of(bound, args),
            default=default_config(bound),
            seeds=seed_configs(bound),
            promoted=getattr(spec, "compiler_default_config", None) is not None,
            backend=str(spec.backend_name),
            device_type=str(bound.env.device.type),
        )


def default_config(bound: Any) -> Config:
    """What Helion compiles with `autotune_effort="none"`, in full form."""
    with device_of(bound):
        return plain_config(bound.config_spec.default_config())


def seed_configs(bound: Any) -> tuple[Config, ...]:
    """Configs of Helion's heuristics as its search would start from them."""
    with device_of(bound):
        generation = bound.config_spec.create_config_generation()
        _remember_flat_parts(generation)
        pairs = generation.seed_flat_config_pairs()
        return tuple(plain_config(config) for _flat, config in pairs)


def _remember_flat_parts(generation: Any) -> None:
    """Spare Helion what it makes anew for every seed, or nothing where it changed.

    Seeds are laid over the flat form of the fragments' defaults, which is shrunk to
    Triton's limits symbol by symbol and is the same for all; what a seed is in the end
    is flattened again, and nobody here looks at that.
    """
    names = ("_fragment_default_flat", "_flat_fields", "unflatten")
    if not all(hasattr(generation, name) for name in (*names, "canonicalize_flat")):
        return
    fields, default = generation._flat_fields(), generation._fragment_default_flat()
    generation._flat_fields = lambda: fields
    generation._fragment_default_flat = lambda: copy.deepcopy(default)
    generation.canonicalize_flat = lambda flat: (
        flat,
        generation.unflatten(copy.deepcopy(flat)),
    )
