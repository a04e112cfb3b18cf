"""Canonical configs: one spelling per program, with Helion's own ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.features.canonical import canonical_config
from costmodel.features.canonical import canonical_id
from costmodel.features.canonical import config_id
from costmodel.features.canonical import make_template

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"

METAS = {
    path.name.removesuffix(".meta.jsonl"): json.loads(path.read_text())
    for path in sorted(SAMPLE.glob("*.meta.jsonl"))
}
FULL = METAS["attn"]["configs"]["0c126ac4e1ac14bd"]
TEMPLATE = make_template(METAS["attn"]["configs"].values())

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(sorted({*FULL, "maxnreg", "num_sm_multiplier", "split_k"}))
configs = st.dictionaries(keys, anything, max_size=8)


@pytest.mark.parametrize("log", sorted(METAS))
def test_ids_are_helions_and_full_configs_keep_theirs(log):
    logged = METAS[log]["configs"]
    template = make_template(logged.values())
    for ident, config in logged.items():
        assert config_id(config) == ident
        if set(config) >= set(template) - {"maxnreg", "num_sm_multiplier"}:
            assert canonical_id(config, template) == ident


def test_a_sparse_seed_is_its_full_twin():
    sparse = {"block_sizes": [1, 256, 32], "num_warps": 4, "num_stages": 1}
    assert canonical_id(sparse, FULL) == "0c126ac4e1ac14bd"
    assert canonical_id(sparse, TEMPLATE) == "0c126ac4e1ac14bd"
    assert canonical_id(sparse) != "0c126ac4e1ac14bd"  # lengths are unknown


def test_absent_knobs_get_helions_fill_and_never_the_templates_value():
    template = {**FULL, "num_warps": 16, "indexing": ["tensor_descriptor"] * 4}
    full = canonical_config({"block_sizes": [1, 256, 32]}, template)
    assert full["num_warps"] == 4
    assert full["indexing"] == ["pointer"] * 4


@pytest.mark.parametrize(
    ("change", "same_as"),
    [
        ({"indexing": "pointer"}, {}),
        ({"load_eviction_policies": "last"}, {"load_eviction_policies": ["last"] * 3}),
        ({"range_num_stages": [0]}, {}),
        ({"num_sm_multiplier": 1}, {}),
        ({"maxnreg": None}, {}),
        ({"epilogue_subtile": None}, {}),
        ({"advanced_controls_file": ""}, {}),
        ({"host_tensor_descriptors": True}, {}),  # no descriptor to build
        ({"loop_orders": None}, {}),
        ({"l2_groupings": 1}, {}),
        (
            {"pid_type": "persistent_blocked"},
            {"pid_type": "persistent_blocked", "num_sm_multiplier": 1, "maxnreg": None},
        ),
        ({"indexing": ["pointer"] * 6}, {}),  # surplus entries are ignored
        ({"loop_orders": ((0, 1),)}, {}),
    ],
)
def test_spellings_of_one_program_have_one_id(change, same_as):
    assert canonical_id({**FULL, **change}, FULL) == canonical_id(
        {**FULL, **same_as}, FULL
    )


@pytest.mark.parametrize(
    "change",
    [
        {"num_warps": 8},
        {"num_stages": 2},
        {"loop_orders": [[1, 0]]},
        {"indexing": ["pointer"]},  # too short: an error in Helion, so not a twin
        {"pid_type": "xyz"},
        {"split_k": 4},
        {"range_num_stages": [0, 2]},
    ],
)
def test_different_programs_have_different_ids(change):
    assert canonical_id({**FULL, **change}, FULL) != canonical_id(FULL, FULL)


@given(configs, st.none() | st.just(FULL) | st.just(TEMPLATE))
def test_canonical_is_a_fixed_point_with_sorted_keys_and_never_raises(config, template):
    before = json.dumps(config, sort_keys=True)
    once = canonical_config(config, template)
    assert canonical_config(once, template) == once
    assert list(once) == sorted(once)
    assert json.dumps(config, sort_keys=True) == before  # not touched


@given(st.permutations(list(METAS["add"]["configs"].values())))
def test_a_template_does_not_depend_on_the_order_of_configs(ordered):
    assert make_template(ordered) == make_template(METAS["add"]["configs"].values())
