"""Which configs of a run are one program, spelled or compiled differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Mapping

from costmodel.datasets.identity import digest_of
from costmodel.datasets.record import RecordedRun
from costmodel.types import Config

KeyOf = Callable[[Config], str]
"""Equal for full configs that make one program; `canonical.config_id` if not given."""

# Knobs that change nothing but the machine code and its shared memory: not the grid,
# not the threads of a block, not what a descriptor of the host's describes.
_CODE_ONLY = frozenset(
    {
        "atomic_indexing",
        "indexing",
        "load_cache_modifiers",
        "load_eviction_policies",
        "num_stages",
        "range_flattens",
        "range_multi_buffers",
        "range_num_stages",
        "range_unroll_factors",
        "range_warp_specializes",
        "static_ranges",
        "store_cache_modifiers",
    }
)


def twin_groups(
    run: RecordedRun, full: Mapping[str, Config], key_of: KeyOf
) -> list[tuple[str, ...]]:
    """Config ids that are one program: by canonical form, then by machine code."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one, config in full.items():
        groups[key_of(config)].append(one)
    owner_of: dict[str, str] = {}
    for key in sorted(groups):
        codes = [_code_key(run, one, full[one]) for one in sorted(groups[key])]
        known = [code for code in codes if code is not None]
        owner = next((owner_of[code] for code in known if code in owner_of), key)
        owner_of.update(dict.fromkeys(known, owner))
        if owner != key:
            groups[owner] += groups.pop(key)
    return [tuple(sorted(ids)) for ids in groups.values()]


def _code_key(run: RecordedRun, one: str, full: Config) -> str | None:
    """Equal for configs with the same machine code, shared memory and launch."""
    facts = run.side.attempts.get(one) if run.side is not None else None
    if facts is None or facts.code_digest is None:
        return None
    launch = {key: value for key, value in full.items() if key not in _CODE_ONLY}
    return digest_of([facts.code_digest, facts.smem_bytes, facts.acf_id, launch])
