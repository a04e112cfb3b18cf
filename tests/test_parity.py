"""The parity law: a log and the live kernel behind it give the same features.

The log is written by Helion's own log sink and read by our own reader, so both the
text formats and the order of everything in them are part of the law.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import helion
import numpy as np
import parity_kernels
import pytest
from helion import _compat
from helion.autotuner.logger import AutotuneLogEntry
from helion.autotuner.logger import AutotuneLogSink
from helion.autotuner.metrics import KernelMetadata

from costmodel import helion_hook
from costmodel.datasets.helion_log import read_logs
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.types import Config

H200 = load_hardware("H200")


def _configs(bound: Any, default: Config) -> list[Config]:
    random.seed(7)
    with helion_hook.device_of(bound):
        generation = bound.config_spec.create_config_generation()
        drawn = [dict(generation.random_config().config) for _ in range(6)]
    return [default, *json.loads(json.dumps(drawn))]


def _text(config: Config) -> str:
    kept = {k: v for k, v in config.items() if v is not None}
    return json.dumps(kept, sort_keys=True)


def _write_log(bound: Any, configs: list[Config], base: Path) -> None:
    """One run as Helion logs it; times are made up."""
    args = helion_hook.cache_of(bound)["args"]
    tensors = [a for a in args if hasattr(a, "dtype")]
    with helion_hook.device_of(bound):
        metadata = KernelMetadata(
            kernel_name=bound.kernel.name,
            kernel_source=bound.kernel.kernel_source(),
            input_shapes=str([tuple(map(int, t.shape)) for t in tensors]),
            dtypes=str([str(t.dtype) for t in tensors]),
            hardware=_compat.get_device_name(tensors[0].device) or "",
            settings=bound.settings.to_dict(),
            _device_ir=bound.host_function.device_ir,
        )
        with AutotuneLogSink(str(base), metadata, collect_dataset=True) as sink:
            sink.start_run()
            for config in configs:
                made = helion.Config(**config)
                config_id = sink.register_config(made)
                for status, perf_ms in (("started", None), ("ok", 0.1)):
                    sink.record(
                        AutotuneLogEntry(0, status, perf_ms, 1.0, config_id, made)
                    )
            sink.end_run()


@pytest.mark.parametrize("name", sorted(parity_kernels.CASES))
def test_features_of_a_log_equal_those_of_the_live_kernel(
    name: str, tmp_path: Path
) -> None:
    bound = parity_kernels.bound_case(name)
    view = parity_kernels.view_of(name)
    configs = _configs(bound, view.default)
    _write_log(bound, configs, tmp_path / "run")
    (run,), _ = read_logs([tmp_path])
    assert run.record is not None
    logged = list(run.configs.values())
    assert len(logged) >= 2

    live = FeatureExtractor(KernelGraph.from_record(view.record), H200)
    read = FeatureExtractor(KernelGraph.from_record(run.record), H200)
    # Both make the analytic list by themselves: features say where a config stands.
    assert with_list(live, view.default) == with_list(read, view.default)
    # Helion drops knobs that are None from a config, and so from its log.
    ids = {_text(c): c for c in configs}
    same = [ids[_text(c)] for c in logged]

    expected = live.matrix(same, view.default)
    assert read.matrix(logged, view.default).tobytes() == expected.tobytes()
    assert np.isfinite(expected).all()


def test_the_law_covers_every_class_and_kind_of_loop() -> None:
    classes = {case.kernel_class for case in parity_kernels.CASES.values()}
    assert len(parity_kernels.CASES) >= 12
    assert len(classes) == 6
