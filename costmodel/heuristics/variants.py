"""Knobs that a class's list leaves alone, set where there is a reason.

Each function takes one good draft and says what it would change and why; a kernel that
lacks the knob, or a target that lacks the feature, gives nothing.
"""

from __future__ import annotations

from costmodel.config_space import ConfigSpace
from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_entry
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.fill import programs_of
from costmodel.types import Config


def knob_variants(
    facts: Facts, draft: Draft, hardware: Hardware, space: ConfigSpace | None
) -> list[Draft]:
    """Structurally different versions of one draft, the most promising first."""
    found: list[Draft] = []
    config = draft.config
    for make in (_eviction, _descriptors, _persistent, _prefetch, _loop_order):
        found.extend(make(facts, config, hardware))
    return [
        Draft(variant.config, f"{variant.reason}; else {draft.reason}")
        for variant in found
        if variant.config != config
        and (space is None or not space.objections(variant.config))
    ]


def _descriptors(facts: Facts, config: Config, hardware: Hardware) -> list[Draft]:
    """Tensor memory accelerator for the operands that a loop streams."""
    if not hardware.has_tma or "indexing" not in config:
        return []
    tiled = [
        a
        for a in facts.accesses
        if a.indexing_slot is not None and not a.is_gather and len(a.axes) >= 2
    ]
    loads = [a for a in tiled if not a.is_store]
    stores = [a for a in tiled if a.is_store]
    found = []
    for chosen, words in (
        (loads, "tensor descriptors for loads: one thread issues a tile's copy"),
        (stores, "tensor descriptor for the store: no address registers"),
        (tiled, "tensor descriptors for loads and stores"),
    ):
        changed_config = config
        for access in chosen:
            changed_config = with_entry(
                changed_config,
                "indexing",
                access.indexing_slot or 0,
                "tensor_descriptor",
            )
        if chosen:
            found.append(Draft(changed_config, words))
    return found


def _eviction(facts: Facts, config: Config, hardware: Hardware) -> list[Draft]:
    """Keep what is read again, let pass what is not."""
    if not config.get("load_eviction_policies"):
        return []
    loads = [a for a in facts.accesses if a.eviction_slot is not None]
    readers: dict[str, int] = {}
    for access in loads:
        readers[access.tensor] = readers.get(access.tensor, 0) + 1
    largest = max((a.elements for a in loads), default=0)
    seen: dict[str, int] = {}
    result = config
    for access in loads:
        seen[access.tensor] = seen.get(access.tensor, 0) + 1
        policy = ""
        if readers[access.tensor] > 1:
            policy = "last" if seen[access.tensor] < readers[access.tensor] else "first"
        elif not facts.dots:
            small = access.elements * 8 <= largest
            policy = "last" if small else "first"
        if policy:
            result = with_entry(
                result, "load_eviction_policies", access.eviction_slot or 0, policy
            )
    if result == config:
        return []
    return [Draft(result, "caches keep what is read again and let the rest pass")]


def _persistent(facts: Facts, config: Config, hardware: Hardware) -> list[Draft]:
    """A fixed number of programs that walk the grid, where there are several waves."""
    if str(config.get("pid_type")) != "flat":
        return []
    blocks = dict(enumerate(config.get("block_sizes", ())))
    programs = programs_of(facts, blocks)
    if programs < 2 * hardware.n_sms:
        return []
    multipliers = (1, 2) if facts.dots else (4, 8)
    return [
        Draft(
            changed(config, pid_type="persistent_interleaved", num_sm_multiplier=m),
            f"{programs} programs as {m} an SM that walk the grid: no wave ends early",
        )
        for m in multipliers
        if programs > m * hardware.n_sms
    ]


def _prefetch(facts: Facts, config: Config, hardware: Hardware) -> list[Draft]:
    """Loops without products are pipelined only if they have stages of their own."""
    if not facts.loop_slots:
        return []
    inner = facts.loop_slots[-1]
    if facts.dots:
        return [
            Draft(
                with_entry(config, "range_multi_buffers", inner, False),
                "one accumulator buffer: fewer registers in the loop",
            ),
            Draft(
                with_entry(config, "range_flattens", inner, True),
                "inner loop flattened into the outer one",
            ),
        ]
    return [
        Draft(
            with_entry(config, "range_num_stages", inner, 2),
            "loop prefetches its next chunk: without a product only its own stages do",
        ),
        Draft(
            with_entry(config, "range_unroll_factors", inner, 2),
            "loop unrolled twice: two independent loads in flight",
        ),
    ]


def _loop_order(facts: Facts, config: Config, hardware: Hardware) -> list[Draft]:
    """Neighbouring programs share the other operand."""
    orders = config.get("loop_orders") or []
    if not orders or len(orders[0]) < 2:
        return []
    reverse = list(reversed(orders[0]))
    return [
        Draft(
            with_entry(config, "loop_orders", 0, reverse),
            "grid walked along the other axis: neighbours share the other operand",
        )
    ]
