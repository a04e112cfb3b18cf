"""A synthetic corpus: labelled workloads with a known law, no Helion and no GPU.

`planted` corpora follow one law of the features in all families, so that a family left
out can be predicted; `noise` corpora follow none. The schema stands in for the real one
with the few columns that the gate and the null scorers read by name.
"""

from __future__ import annotations

import numpy as np

from costmodel.features.schema import Feature
from costmodel.features.schema import FeatureSchema
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import KernelClass

BASE = (
    "analytic_us_log2",
    "num_warps_log2",
    "is_persistent",
    "smem_share",
    "x0",
    "x1",
    "x2",
    "spill_registers_log2",
    "loop_spill_registers_log2",
)
WORKLOAD = ("w_n_dots", "w_itemsize_min", "w_dot_itemsize", "w_n_loops", "w_0", "w_1")


def make_schema(version: int = 1) -> FeatureSchema:
    """A schema of 24 features; another version, another hash."""
    return FeatureSchema(
        (
            *(Feature(name, "", "base") for name in BASE),
            *(Feature(f"d_{name}", "", "difference") for name in BASE),
            *(Feature(name, "", "workload") for name in WORKLOAD),
        ),
        version,
    )


SCHEMA = make_schema()


def make_corpus(
    seed: int,
    *,
    planted: bool,
    n_families: int = 8,
    n_shapes: int = 1,
    n_configs: int = 40,
    gain: float = 0.5,
    noise: float = 0.01,
    failure_share: float = 0.1,
    promoted: bool = True,
) -> list[LabelledWorkload]:
    """One kernel per family, each with some shapes.

    Args:
        seed: Of everything.
        planted: Whether times follow the features.
        n_families: Families, one kernel each; every other one has dots.
        n_shapes: Workloads per kernel.
        n_configs: Configs per workload.
        gain: Log gain of the best planted config over the default, about.
        noise: Standard deviation of log readings.
        failure_share: Share of configs that fail.
        promoted: Whether Helion has a rule for the kernels.
    """
    rng = np.random.default_rng(seed)
    return [
        _make_workload(
            rng, family, shape, planted, n_configs, gain, noise, failure_share, promoted
        )
        for family in range(n_families)
        for shape in range(n_shapes)
    ]


def _make_workload(
    rng: np.random.Generator,
    family: int,
    shape: int,
    planted: bool,
    n_configs: int,
    gain: float,
    noise: float,
    failure_share: float,
    promoted: bool,
) -> LabelledWorkload:
    has_dots = family % 2 == 0
    x = rng.choice([0.0, 1.0, 2.0, 3.0], size=(n_configs, 3))
    warps = rng.choice([1.0, 2.0, 3.0, 4.0], size=n_configs, p=[0.1, 0.4, 0.4, 0.1])
    x[0] = [1.0, 1.0, 1.0]
    warps[0] = 2.0
    if planted:
        law = -0.5 * gain * x[:, 0] + 0.25 * gain * np.abs(x[:, 1] - 1.0)
        slow = law + 0.3 * np.abs(warps - 2.0)
    else:
        slow = rng.normal(0.0, 0.15, n_configs)
        slow[0] = 0.0
    slow = slow + rng.normal(0.0, noise, n_configs)
    is_ok = rng.random(n_configs) >= failure_share
    is_ok[0] = True
    log_ratio = np.where(is_ok, slow - slow[0], np.nan)
    analytic = 3.0 + slow + rng.normal(0.0, 0.5, n_configs)
    persistent = rng.random(n_configs) < 0.1
    persistent[0] = False
    smem = rng.uniform(0.0, 0.9, n_configs)
    spills = np.zeros((n_configs, 2))
    base = np.column_stack([analytic, warps, persistent, smem, x, spills])
    base = base.astype(np.float32)
    drawn = rng.uniform(0, 4, size=2)
    facts = np.array([float(has_dots), 2.0, 2.0 * has_dots, 1.0, *drawn])
    workload = np.tile(facts.astype(np.float32), (n_configs, 1))
    features = np.concatenate([base, base - base[0], workload], axis=1)
    configs = tuple({"index": i, "family": family} for i in range(n_configs))
    return LabelledWorkload(
        workload_id=f"family{family}-shape{shape}",
        kernel=f"kernel{family}",
        family=f"family{family}",
        kernel_class=KernelClass.MATMUL if has_dots else KernelClass.REDUCTION,
        shape_id=str(shape),
        source_digest=f"source{family}",
        hardware="Synthetic GPU",
        promoted=promoted,
        default_index=0,
        features=np.ascontiguousarray(features),
        log_ratio=log_ratio,
        is_ok=is_ok,
        analytic_us=2.0**analytic,
        analytic_order=tuple(map(int, np.argsort(analytic, kind="stable"))),
        default_us=100.0,
        noise_floor_log=max(0.01, 3.0 * noise),
        harm_floor_log=max(0.01, 3.0 * noise),
        configs=configs,
        config_ids=tuple(f"{family:02d}{shape:02d}{i:012d}" for i in range(n_configs)),
    )
