"""Sessions of one workload as one, and bench results as sessions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import bench_builder
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import cli
from costmodel import cli_bench_import
from costmodel.datasets.bench_file import append_result
from costmodel.datasets.bench_import import bench_runs
from costmodel.datasets.record import LabelQuality
from costmodel.features.schema import SCHEMA
from costmodel.training.joined import joined
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import KernelClass
from costmodel.types import WorkloadRecord

_TIMES = {"d": 10.0, "a": 8.0, "b": 5.0, "e": 12.5, "f": 20.0}


def _session(
    names: str, *, scale: float = 1.0, failed: str = "", shape: str = "s"
) -> LabelledWorkload:
    """A session of configs by name, all slower by a factor; d is the default."""
    features = np.zeros((len(names), len(SCHEMA)), dtype=np.float32)
    features[:, SCHEMA.index("proposal_place")] = 16.0
    if "a" in names:
        features[names.index("a"), SCHEMA.index("proposal_place")] = 0.0
        features[names.index("a"), SCHEMA.index("is_proposed")] = 1.0
    logs = np.log([scale * _TIMES[n] / (scale * _TIMES["d"]) for n in names])
    ok = np.array([n not in failed for n in names])
    return LabelledWorkload(
        workload_id=f"{shape}/{names}",
        kernel="k",
        family="f",
        kernel_class=KernelClass.POINTWISE,
        shape_id=shape,
        source_digest="k",
        hardware="NVIDIA H200",
        promoted=True,
        default_index=names.index("d"),
        features=features,
        log_ratio=np.where(ok, logs, np.nan),
        is_ok=ok,
        analytic_us=np.array([_TIMES[n] for n in names]),
        analytic_order=tuple(range(len(names))),
        default_us=10.0 * scale,
        noise_floor_log=0.01,
        harm_floor_log=0.01,
        configs=tuple(
            bench_builder.config("x" * (1 + "dabef".index(n))) for n in names
        ),
        config_ids=tuple(names),
    )


def _ratios(one: LabelledWorkload) -> dict[str, float]:
    return {
        name: round(float(one.log_ratio[i]), 12)
        for i, name in enumerate(one.config_ids)
        if one.is_ok[i]
    }


@settings(max_examples=40, deadline=None)
@given(
    sessions=st.lists(
        st.sets(st.sampled_from("abef")).map(lambda s: "d" + "".join(sorted(s))),
        min_size=1,
        max_size=4,
    ),
    scale=st.floats(0.5, 2.0),
)
def test_every_config_keeps_its_ratio_whatever_the_session(
    sessions: list[str], scale: float
) -> None:
    [one] = joined(_session(names, scale=scale**i) for i, names in enumerate(sessions))
    assert set(one.config_ids) == set("".join(sessions))
    assert len(one.config_ids) == len(set(one.config_ids)) == one.n_rows
    expected = {n: round(float(np.log(_TIMES[n] / 10.0)), 12) for n in one.config_ids}
    assert _ratios(one) == pytest.approx(expected)
    assert one.config_ids[one.default_index] == "d"
    assert sorted(one.analytic_order) == list(range(one.n_rows))


def test_two_opinions_are_averaged_and_a_failure_is_outvoted_by_a_time() -> None:
    slow = _session("dab")
    fast = replace(slow, log_ratio=slow.log_ratio - [0.0, 0.2, 0.0], workload_id="2")
    [one] = joined([slow, fast])
    assert one.log_ratio[1] == pytest.approx(np.log(0.8) - 0.1)
    [one] = joined([_session("dabe", failed="b"), _session("db")])
    assert one.is_ok.all()
    assert one.log_ratio[2] == pytest.approx(np.log(0.5))


def test_what_is_proposed_comes_first_and_the_rest_by_estimate() -> None:
    [one] = joined([_session("dfe"), _session("da")])
    assert [one.config_ids[i] for i in one.analytic_order] == ["a", "d", "e", "f"]


def test_other_shapes_and_other_defaults_stay_apart() -> None:
    assert len(joined([_session("dab"), _session("dab", shape="other")])) == 2
    other = replace(_session("dab"), default_index=1, workload_id="2")
    assert [one.n_rows for one in joined([_session("dabe"), other])] == [4]


_RECORD = WorkloadRecord(
    kernel_name="gemm",
    kernel_source="def gemm(): ...",
    input_shapes=((4,),),
    dtypes=("torch.float32",),
    hardware="NVIDIA H200",
    settings={},
    ir_graph={},
)


def test_a_bench_becomes_a_run_with_the_best_labels() -> None:
    result = bench_builder.result(
        {"pick": ["a"], "top2": ["d", "a", "b"]},
        [{"d": 10.0, "a": 8.0, "b": 5.0}, {"d": 10.2, "a": 8.1, "b": 5.1}] * 3,
    )
    [run], left_out = bench_runs([result], lambda workload: _RECORD)
    assert not left_out
    assert run.family == result.planned.workload.family
    assert run.default_index is not None
    by_name = {one.canonical["name"]: one for one in run.measurements}
    assert by_name["d"].is_default
    assert by_name["b"].latency_us == pytest.approx(5.05)
    assert {m.label_quality for m in run.measurements} == {LabelQuality.INTERLEAVED}

    none, said = bench_runs([result], lambda workload: None)
    assert not none
    assert len(said) == 1
    assert "no record" in said[0]


def test_a_workload_measured_twice_is_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        cli_bench_import, "_records", lambda corpus, gpu: lambda workload: _RECORD
    )
    once = bench_builder.result({"pick": ["a"]}, [{"d": 10.0, "a": 8.0}] * 3)
    places = []
    for name, at_s in (("monday", 1.0), ("tuesday", 2.0)):
        places.append(tmp_path / name)
        places[-1].mkdir()
        again = replace(once, started_at_s=at_s)
        append_result(places[-1] / "bench-0.jsonl", again)
    words = ["bench", "import", *map(str, places), "--corpus", str(tmp_path / "c")]
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_added"] == 2
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_known"] == 2
