"""One key, one program: the law that lets candidates and labels be merged."""

from __future__ import annotations

import random
import re
from typing import Any

import parity_kernels
import pytest

from costmodel import helion_hook
from costmodel.config_space import ConfigSpace
from costmodel.features.canonical import canonical_config
from costmodel.features.effective import EffectiveKeys
from costmodel.features.effective import effective_key
from costmodel.features.graph import KernelGraph
from costmodel.types import Config

_SAMPLED = 24
_KERNELS = (
    "attention",
    "broadcast_add",
    "chunk_scan",
    "gather_rows",
    "packed_int4_product",
    "row_norm",
    "split_product",
    "two_grids",
    "two_pass_softmax",
)


def _graph(name: str) -> KernelGraph:
    return KernelGraph.from_record(parity_kernels.view_of(name).record)


def _mutated(space: ConfigSpace, config: Config, rng: random.Random) -> Config:
    """Up to three knobs at any of their values, launch knobs more often than tiles."""
    result = dict(config)
    for _ in range(rng.choice((1, 1, 2, 3))):
        names = [n for n in space.knobs if n != "block_sizes" or rng.random() < 0.3]
        knob = space.knobs[rng.choice(names)]
        if not knob.slots:
            continue
        index = rng.randrange(len(knob.slots))
        value = rng.choice(knob.slots[index].choices)
        if knob.is_list:
            items = list(result.get(knob.name) or [s.default for s in knob.slots])
            items[index] = value
            result[knob.name] = items
        elif value is None:
            result.pop(knob.name, None)
        else:
            result[knob.name] = value
    return result


def _program(bound: Any, config: Config) -> str:
    """Generated code without comments; stages count only where something loops."""
    lines = helion_hook.triton_code(bound, config).splitlines()
    code = "\n".join(line for line in lines if not line.strip().startswith("#"))
    device = code.split("@triton.jit")[1].split("\ndef ")[1]
    if not re.search(r"\b(for|while)\b", device):
        code = re.sub(r"num_stages=\d+", "", code)
    return code


@pytest.mark.parametrize("name", _KERNELS)
def test_configs_of_one_key_generate_one_program(name: str) -> None:
    bound = parity_kernels.bound_case(name)
    space = helion_hook.space(bound)
    default = parity_kernels.view_of(name).default
    keys = EffectiveKeys(_graph(name), default)
    rng = random.Random(name)
    descriptors = ["tensor_descriptor"] * len(default.get("indexing", ()))
    starts = [default, {**default, "indexing": descriptors}]
    programs: dict[str, tuple[str, Config]] = {}
    n_seen = 0
    while n_seen < _SAMPLED:
        start = rng.choice(starts)
        config = helion_hook.normalize(bound, _mutated(space, start, rng))
        if config is None:
            continue
        n_seen += 1
        program = _program(bound, config)
        known, first = programs.setdefault(keys.key(config), (program, config))
        assert program == known, (first, config)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        # Slots of the rolled alternative, while rows are whole.
        ("row_norm", {"indexing": ["pointer"] * 3 + ["tensor_descriptor"] * 4}),
        ("row_norm", {"load_eviction_policies": ["", "", "last", "first", "last"]}),
        # A flat grid has no loop of its own.
        ("product", {"range_unroll_factors": [4, 0], "range_num_stages": [3, 0]}),
        # A row of 2048 elements is more than a descriptor's box may have.
        ("broadcast_add", {"indexing": ["tensor_descriptor"] * 3}),
        ("broadcast_add", {"host_tensor_descriptors": True}),
        ("broadcast_add", {"num_stages": 3}),
        ("broadcast_add", {"indexing": ["block_ptr"] * 3}),
        # Device descriptors and a staged loop exclude each other.
        ("gather_rows", {"indexing": ["tensor_descriptor", "pointer", "pointer"]}),
    ],
)
def test_a_dead_knob_changes_no_key(name: str, change: Config) -> None:
    graph = _graph(name)
    default = parity_kernels.view_of(name).default
    changed = {**default, **change}
    assert effective_key(graph, changed, default) == effective_key(
        graph, default, default
    )


def test_a_flattened_grid_has_no_groups() -> None:
    graph = _graph("broadcast_add")
    default = parity_kernels.view_of("broadcast_add").default
    flat = {**default, "flatten_loops": [True]}
    grouped = {**flat, "l2_groupings": [16]}
    assert effective_key(graph, flat, default) == effective_key(graph, grouped, default)
    assert effective_key(graph, flat, default) != effective_key(graph, default, default)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_warps": 2}, "warps"),
        ({"block_sizes": [64, 64, 64]}, "blocks"),
        ({"num_stages": 2}, "stages of a loop with a product"),
        ({"pid_type": "persistent_interleaved", "num_sm_multiplier": 1}, "pid type"),
        ({"loop_orders": [[1, 0]]}, "order"),
        ({"range_flattens": [None, True]}, "hint of a device loop"),
        ({"load_eviction_policies": ["last", ""]}, "eviction of an emitted load"),
    ],
)
def test_a_live_knob_changes_the_key(change: Config, why: str) -> None:
    graph = _graph("product")
    default = parity_kernels.view_of("product").default
    changed = {**default, **change}
    assert effective_key(graph, changed, default) != effective_key(
        graph, default, default
    ), why


def test_a_partial_config_and_its_full_form_share_a_key() -> None:
    bound = parity_kernels.bound_case("product")
    graph = _graph("product")
    default = parity_kernels.view_of("product").default
    partial = {"block_sizes": [64, 64, 64], "num_warps": 8, "indexing": "pointer"}
    full = helion_hook.normalize(bound, partial)
    assert full is not None
    assert effective_key(graph, partial, default) == effective_key(graph, full, default)


def test_keys_and_parts_agree() -> None:
    keys = EffectiveKeys(_graph("product"))
    default = parity_kernels.view_of("product").default
    other = {**default, "num_warps": 2}
    assert keys.parts_of_full(default) == keys.parts_of_full(dict(default))
    assert hash(keys.parts_of_full(default)) == hash(keys.parts_of_full(dict(default)))
    assert keys.parts_of_full(default) != keys.parts_of_full(other)
    assert keys.key_of_full(default) != keys.key_of_full(other)


@pytest.mark.parametrize("name", _KERNELS)
def test_tokens_are_equal_exactly_where_keys_are(name: str) -> None:
    default = canonical_config(parity_kernels.view_of(name).default)
    keys = EffectiveKeys(_graph(name), default)
    space = helion_hook.space(parity_kernels.bound_case(name))
    rng = random.Random(name)
    descriptors = ["tensor_descriptor"] * len(default.get("indexing", ()))
    starts: list[Config] = [default, {**default, "indexing": descriptors}]
    for _ in range(300):
        # Neighbours of neighbours, so that values are shared as candidates share them.
        changed = _mutated(space, rng.choice(starts), rng)
        starts.append(canonical_config(changed) if rng.random() < 0.3 else changed)
    parts_by_token: dict[Any, Any] = {}
    token_by_parts: dict[Any, Any] = {}
    for config in [*starts, *(dict(reversed(one.items())) for one in starts)]:
        parts, token = keys.parts_of_full(config), keys.token(config)
        assert parts_by_token.setdefault(token, parts) == parts
        assert token_by_parts.setdefault(parts, token) == token
    assert 1 < len(parts_by_token) < len(starts)


@pytest.mark.parametrize("name", _KERNELS)
def test_a_token_of_any_spelling_is_that_of_the_full_config(name: str) -> None:
    default = canonical_config(parity_kernels.view_of(name).default)
    keys = EffectiveKeys(_graph(name), default)
    space = helion_hook.space(parity_kernels.bound_case(name))
    rng = random.Random(name)
    config = default
    for _ in range(120):
        config = _mutated(space, config if rng.random() < 0.8 else default, rng)
        left_out = {key for key in config if rng.random() < 0.2} - {"block_sizes"}
        partial = {key: one for key, one in config.items() if key not in left_out}
        for spelled in (config, partial):
            full = canonical_config(spelled, default)
            assert keys.token_of_any(spelled) == keys.token(full)
            assert keys.token_of_any(spelled) == keys.token_of_any(full)


@pytest.mark.parametrize("name", _KERNELS)
def test_one_changed_value_gives_the_structure_of_the_whole(name: str) -> None:
    default = canonical_config(parity_kernels.view_of(name).default)
    keys, afresh = EffectiveKeys(_graph(name), default), EffectiveKeys(_graph(name))
    space = helion_hook.space(parity_kernels.bound_case(name))
    rng = random.Random(name)
    tile = tuple(default.get("block_sizes", ()))
    by_delta: dict[Any, Any] = {}
    by_whole: dict[Any, Any] = {}
    for _ in range(120):
        one = _mutated(space, default, rng)
        other = _mutated(space, one, rng)
        differ = [key for key in one if one.get(key) != other.get(key)]
        if list(one) != list(other) or len(differ) != 1:
            continue
        found = keys.structure_beside(keys.structure(one), other, differ[0])
        token = keys.token_of(found, tile, 4, other["num_stages"])
        whole = afresh.token_of(afresh.structure(other), tile, 4, other["num_stages"])
        assert by_delta.setdefault(token, whole) == whole
        assert by_whole.setdefault(whole, token) == token
        assert keys.token_of(keys.structure(other), tile, 4, other["num_stages"]) == (
            token
        )
    assert len(by_delta) > 5


def test_what_was_said_of_a_config_is_its_token() -> None:
    default = canonical_config(parity_kernels.view_of("product").default)
    keys = EffectiveKeys(_graph("product"), default)
    config = {**default, "num_warps": 2}
    token = keys.token(config)
    keys.know_tokens([(token, config)])
    assert keys.token_of_any(config) is token
    assert keys.token_of_any(dict(config)) == token
