"""Splits that leave out a whole family, kernel or shape; never single rows.

Rows of one workload know each other's times: a split by row would measure memory.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import GroupKFold
from sklearn.model_selection import LeaveOneGroupOut

from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import NotEnoughDataError

Indices = npt.NDArray[np.int64]
Split = tuple[str, Indices, Indices]
"""What is left out, positions to train on, positions left out."""

GroupOf = Callable[[WorkloadData], str]


def by_family(data: WorkloadData) -> str:
    """Group for leave-one-family-out."""
    return data.family


def by_kernel(data: WorkloadData) -> str:
    """Group for leave-one-kernel-out: all shapes of one source."""
    return data.kernel_id


def by_workload(data: WorkloadData) -> str:
    """Group of the runs of one workload."""
    return data.workload_id


def leave_one_group_out(groups: Sequence[Hashable]) -> list[Split]:
    """One split per group, sorted by group.

    Args:
        groups: Group of each position.

    Raises:
        NotEnoughDataError: Fewer than two groups.
    """
    labels, codes = _codes(groups)
    _check(len(labels), "leave one group out")
    splits = LeaveOneGroupOut().split(codes, groups=codes)
    return [(labels[codes[held_out[0]]], train, held_out) for train, held_out in splits]


def group_k_fold(groups: Sequence[Hashable], n_folds: int) -> list[Split]:
    """Folds that keep every group whole; for more groups than are worth a fold each.

    Raises:
        NotEnoughDataError: Fewer than two groups.
    """
    labels, codes = _codes(groups)
    _check(len(labels), "fold by group")
    n_folds = min(n_folds, len(labels))
    splits = GroupKFold(n_splits=n_folds).split(codes, groups=codes)
    return [
        (f"fold {number}", train, held_out)
        for number, (train, held_out) in enumerate(splits)
    ]


def leave_one_family_out(workloads: Sequence[WorkloadData]) -> list[Split]:
    """One split per family.

    Raises:
        NotEnoughDataError: Fewer than two families.
    """
    return leave_one_group_out([by_family(one) for one in workloads])


def leave_one_kernel_out(workloads: Sequence[WorkloadData]) -> list[Split]:
    """One split per kernel source.

    Raises:
        NotEnoughDataError: Fewer than two kernels.
    """
    return leave_one_group_out([by_kernel(one) for one in workloads])


def leave_one_shape_out(workloads: Sequence[WorkloadData]) -> list[Split]:
    """One split per workload that has sibling shapes of the same kernel to learn from.

    Raises:
        NotEnoughDataError: No kernel has two shapes.
    """
    shapes: dict[str, set[str]] = {}
    for one in workloads:
        shapes.setdefault(by_kernel(one), set()).add(by_workload(one))
    n_with_siblings = sum(len(ids) for ids in shapes.values() if len(ids) > 1)
    if not n_with_siblings:
        raise NotEnoughDataError(
            "leave one shape out: expected a kernel with two shapes, found "
            f"{len(shapes)} kernels with one each: record more shapes"
        )
    return [
        split
        for split in leave_one_group_out([by_workload(one) for one in workloads])
        if len(shapes[by_kernel(workloads[split[2][0]])]) > 1
    ]


def iter_groups(
    workloads: Sequence[WorkloadData], group_of: GroupOf
) -> Iterator[tuple[str, list[WorkloadData]]]:
    """Workloads by group, groups sorted."""
    groups: dict[str, list[WorkloadData]] = {}
    for one in workloads:
        groups.setdefault(group_of(one), []).append(one)
    yield from sorted(groups.items())


def _codes(groups: Sequence[Hashable]) -> tuple[list[str], Indices]:
    names = [str(one) for one in groups]
    labels = sorted(set(names))
    position = {label: code for code, label in enumerate(labels)}
    return labels, np.array([position[name] for name in names], dtype=np.int64)


def _check(n_groups: int, what: str) -> None:
    if n_groups < 2:
        raise NotEnoughDataError(
            f"{what}: expected at least two groups, found {n_groups}: record more, or "
            "add the bundled corpus (costmodel train datasets/corpora/h200 YOUR_LOGS)"
        )
