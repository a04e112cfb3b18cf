"""One config for many shapes and buckets of token counts, on real Helion kernels."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import costmodel
from costmodel import helion_hook
from costmodel import shapes as shapes_module
from costmodel import token_buckets
from costmodel.arguments import format_argument
from costmodel.errors import ArgumentSpecError
from costmodel.errors import NoCommonConfigError
from costmodel.features.canonical import canonical_config
from costmodel.hardware import load_hardware
from costmodel.provider import Provider
from costmodel.shape_losses import LossTable
from costmodel.shape_losses import ShapeCase
from costmodel.shape_losses import make_loss_table
from costmodel.shapes import one_config
from costmodel.shapes import spec_of
from costmodel.token_buckets import probe_counts

H200 = load_hardware("H200")


@helion.kernel(static_shapes=True)
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc.to(a.dtype)
    return out


COUNTS = (1, 64, 4096)


def arguments(tokens: int) -> tuple[str, ...]:
    return f"bf16[{tokens},1024]", "bf16[1024,2048]"


@pytest.fixture(scope="module")
def table() -> LossTable:
    cases = [ShapeCase(tuple(map(spec_of, arguments(n)))) for n in COUNTS]
    return make_loss_table(product, cases, H200, Provider())


@pytest.fixture
def cached(table: LossTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables made of the rows of one, so that each shape is bound once."""

    def rows_of(_kernel: Any, cases: Any, *_args: Any, **_options: Any) -> LossTable:
        wanted = [format_argument(case.arguments[0]) for case in cases]
        known = [format_argument(case.arguments[0]) for case in table.cases]
        rows = [known.index(one) for one in wanted]
        return LossTable(
            tuple(cases),
            tuple(table.picks[row] for row in rows),
            table.configs,
            table.loss_log[rows],
            tuple(table.own[row] for row in rows),
            tuple(table.default[row] for row in rows),
            tuple(table.bound[row] for row in rows),
        )

    for module in (shapes_module, token_buckets):
        monkeypatch.setattr(module, "make_loss_table", rows_of)


def test_each_shapes_own_pick_loses_nothing_and_defaults_run(table: LossTable) -> None:
    assert (table.loss_log >= 0.0).all()
    for row, pick in enumerate(table.picks):
        own, default = table.own[row], table.default[row]
        assert table.configs[own] == canonical_config(pick.config)
        assert table.configs[default] == canonical_config(pick.default or {})
        assert table.loss_log[row, own] == 0.0
        assert math.isfinite(table.loss_log[row, default])
        assert table.generates(row, own)
    texts = [json.dumps(config, sort_keys=True) for config in table.configs]
    assert len(set(texts)) == len(texts)


def test_what_is_said_to_run_is_taken_by_helion(table: LossTable) -> None:
    """Blocks over the extent included: three shapes' picks at every shape."""
    for row, bound in enumerate(table.bound):
        for column in {*table.own, *table.default}:
            if math.isfinite(table.loss_log[row, column]):
                assert helion_hook.normalize(bound, table.configs[column]) is not None
                assert table.generates(row, column)


def test_one_shape_gets_what_it_gets_alone(cached: None, table: LossTable) -> None:
    for tokens, pick in zip(COUNTS, table.picks, strict=True):
        found = costmodel.pick_shapes(product, [(arguments(tokens), 2.0)], gpu="H200")
        assert found.config == canonical_config(pick.config)
        assert found.mean_loss_log == found.worst_loss_log == 0.0
        assert found.keeps_bound


@pytest.mark.parametrize("weights", [(1, 1, 1), (9, 1, 1), (1, 1, 9)])
def test_no_shapes_pick_or_default_serves_all_better(
    cached: None, table: LossTable, weights: tuple[float, ...]
) -> None:
    shapes = [(arguments(n), w) for n, w in zip(COUNTS, weights, strict=True)]
    found = costmodel.pick_shapes(product, shapes, gpu="H200")
    share = np.array(weights) / sum(weights)
    for column in {*table.own, *table.default}:
        assert found.mean_loss_log <= share @ table.loss_log[:, column] + 1e-9
    assert found.mean_loss_log == pytest.approx(
        sum(w * s.loss_log for w, s in zip(share, found.shares, strict=True))
    )
    assert found.worst_loss_log == max(share.loss_log for share in found.shares)
    backwards = costmodel.pick_shapes(product, shapes[::-1], gpu="H200")
    assert backwards.config == found.config


def test_a_bound_on_the_worst_is_kept_or_admitted(
    cached: None, table: LossTable
) -> None:
    shapes = [(arguments(n), w) for n, w in zip(COUNTS, (50, 1, 1), strict=True)]
    free = costmodel.pick_shapes(product, shapes, gpu="H200")
    bound = math.expm1(free.worst_loss_log) * 0.9
    tight = costmodel.pick_shapes(product, shapes, gpu="H200", worst_loss=bound)
    assert tight.worst_loss_log <= free.worst_loss_log
    assert tight.keeps_bound == (tight.worst_loss_log <= math.log1p(bound))
    none = costmodel.pick_shapes(product, shapes, gpu="H200", worst_loss=0.0)
    assert none.worst_loss_log == pytest.approx(table.loss_log.max(axis=0).min())


def test_what_generates_no_code_is_passed_over(
    table: LossTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = one_config(table)
    monkeypatch.setattr(
        LossTable, "generates", lambda _s, _row, column: column != first
    )
    assert one_config(table) != first
    monkeypatch.setattr(LossTable, "generates", lambda *_args: False)
    with pytest.raises(NoCommonConfigError, match="3 shapes"):
        one_config(table)


def test_more_buckets_are_never_worse_and_every_count_is_in_one(
    cached: None, table: LossTable
) -> None:
    found = [
        costmodel.buckets(
            {1: 5.0, 64: 1.0, 4096: 3.0},
            limit,
            kernel=product,
            arguments=arguments,
            gpu="H200",
            compile_cost_log=0.0,
        )
        for limit in (1, 2, 3)
    ]
    for one in found:
        assert one.buckets[0].low == 1
        for left, right in itertools.pairwise(one.buckets):
            assert right.low == left.high + 1
        for tokens in (1, 2, 64, 65, 4096, 10**6):
            mine = [b for b in one.buckets if b.low <= min(tokens, 4096) <= b.high]
            assert mine == [one.of(tokens)]
    for fewer, more in itertools.pairwise(found):
        assert more.mean_loss_log <= fewer.mean_loss_log
    assert found[2].mean_loss_log == 0.0
    assert len(found[2].buckets) <= len(set(table.own)) == found[2].n_picks


def test_a_bucket_must_pay_for_its_compilation(cached: None) -> None:
    found = costmodel.buckets(
        [1, 64, 64, 4096],
        3,
        kernel=product,
        arguments=arguments,
        gpu="H200",
        compile_cost_log=1e3,
    )
    assert len(found.buckets) == 1


@pytest.mark.parametrize("counts", [[], [0, 1], {}, {5: 0.0}])
def test_counts_that_are_none_are_refused(counts: Any) -> None:
    with pytest.raises(ArgumentSpecError):
        costmodel.buckets(counts, 2, kernel=product, arguments=arguments, gpu="H200")


@given(
    st.lists(st.integers(1, 2**20), min_size=1, max_size=200, unique=True),
    st.integers(2, 24),
)
def test_every_count_has_a_probe_at_least_as_large(
    counts: list[int], limit: int
) -> None:
    counts = sorted(counts)
    probes = probe_counts(counts, limit)
    assert set(probes) <= set(counts)
    assert probes == sorted(set(probes))
    assert len(probes) <= limit + 1
    assert probes[-1] == counts[-1]
    if len(counts) <= limit:
        assert probes == counts


def test_arguments_are_read_from_tensors_numbers_and_text() -> None:
    tensor = torch.empty(8, 4, dtype=torch.float16, device="meta").t()
    values = [tensor, "bf16[2]", 3, 1e-5, True, None, [1, (tensor,)], torch.float16]
    texts = [format_argument(spec_of(value)) for value in values]
    assert texts == [
        "f16[4,8]:1,4",
        "bf16[2]",
        "3",
        "1e-05",
        "true",
        "none",
        "[1,(f16[4,8]:1,4,)]",
        "dtype:f16",
    ]
    with pytest.raises(ArgumentSpecError, match="found"):
        spec_of(object())


def test_a_gpu_must_be_named_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentSpecError, match="gpu="):
        costmodel.pick_shapes(product, [(arguments(1), 1.0)])


def test_without_a_model_the_defaults_of_helions_rules_stand(tmp_path: Path) -> None:
    cases = [ShapeCase(tuple(map(spec_of, arguments(n)))) for n in (64, 4096)]
    made = make_loss_table(product, cases, H200, Provider(tmp_path / "none.ubj"))
    assert made.own == made.default
    for row in range(2):
        others = np.delete(made.loss_log[row], made.own[row])
        assert (others > 0.0).all()
