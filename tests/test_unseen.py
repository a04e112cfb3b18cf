"""The bench's unseen kernels stay apart from what is recorded and trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from costmodel.arguments import format_argument
from costmodel.arguments import parse_argument
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.kernel_file import load_name

FOLDER = Path(__file__).parents[1] / "benchmarks" / "unseen"
FILES = sorted(FOLDER.glob("*.py"))


def _cases(path: Path) -> Sequence[KernelCase]:
    cases: Sequence[KernelCase] = load_name(path, "CASES")
    return cases


def test_no_unseen_kernel_or_family_is_registered() -> None:
    unseen = [case for path in FILES for case in _cases(path)]
    known = all_cases().values()
    names = [case.name for case in unseen]
    assert len(names) == len(set(names)) >= 50
    assert not set(names) & {case.name for case in known}
    assert not {one.family for one in unseen} & {case.family for case in known}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_argument_is_of_the_grammar(path: Path) -> None:
    for case in _cases(path):
        assert len(set(case.shapes)) == len(case.shapes) == 2, case.name
        for args in (case.tiny, *case.shapes):
            found = [format_argument(parse_argument(text)) for text in args]
            numbers = [parse_argument(text) for text in found]
            assert numbers == [parse_argument(text) for text in args], case.name
