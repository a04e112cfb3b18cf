"""Find every kernel case and workload: each module of this folder with a `CASES`."""

from __future__ import annotations

import importlib
import pkgutil

import costmodel.datasets.workloads
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.datasets.workloads.workload import Workload

_PACKAGE = costmodel.datasets.workloads


def families() -> tuple[str, ...]:
    """Names of the family modules, sorted."""
    names = (module.name for module in pkgutil.iter_modules(_PACKAGE.__path__))
    return tuple(sorted(set(names) - {"workload", "registry"}))


def all_cases() -> dict[str, KernelCase]:
    """Every kernel case by its reference `module:kernel`, in sorted order.

    Importing the family modules imports torch and Helion.
    """
    cases = {}
    for name in families():
        module = importlib.import_module(f"{_PACKAGE.__name__}.{name}")
        for case in module.CASES:
            cases[f"{name}:{case.name}"] = case
    return dict(sorted(cases.items()))


def all_workloads() -> tuple[Workload, ...]:
    """Every workload of every case: cases in sorted order, shapes as listed."""
    return tuple(
        Workload(kernel=ref, args=args, family=case.family, variant=case.variant)
        for ref, case in all_cases().items()
        for args in case.shapes
    )
