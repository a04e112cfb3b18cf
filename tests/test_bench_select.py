"""Words of a command line become workloads, and a plan becomes a file."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from costmodel import cli
from costmodel.datasets.bench_file import read_plan
from costmodel.datasets.bench_select import OWN_FILE
from costmodel.datasets.bench_select import load_foreign
from costmodel.datasets.bench_select import read_foreign
from costmodel.datasets.bench_select import resolve
from costmodel.datasets.bench_select import select
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import ArgumentSpecError
from costmodel.errors import KernelFileError

KNOWN = [
    Workload(f"{family}:{kernel}", (f"f32[{size}]",), family, "plain")
    for family in ("matmul", "scan")
    for kernel in ("one", "two")
    for size in (8, 16, 32)
]
SCALE = "gated_activation:clamped_swiglu bf16[64,512] bf16[64,512] 7.5"


def test_ids_kernels_and_families_are_words() -> None:
    one = KNOWN[4]
    assert select([one.workload_id], KNOWN) == [one]
    assert set(select(["scan:two"], KNOWN)) == set(KNOWN[9:])
    assert set(select(["matmul"], KNOWN)) == set(KNOWN[:6])
    assert set(select([], KNOWN)) == set(KNOWN)


def test_named_workloads_come_first_and_once() -> None:
    last = KNOWN[-1]
    found = select(["scan", last.workload_id, "scan:two"], KNOWN)
    assert found[0] == last
    assert sorted(found, key=KNOWN.index) == KNOWN[6:]


def test_the_first_few_are_broad() -> None:
    found = select([], KNOWN, limit=4)
    assert len({one.kernel for one in found}) == 4
    shallow = select([], KNOWN, per_kernel=1)
    assert sorted(shallow, key=KNOWN.index) == KNOWN[::3]


def test_a_kernel_with_arguments_is_one_workload() -> None:
    (found,) = select(["matmul:one f32[5] 1e-5"], KNOWN)
    assert found == Workload("matmul:one", ("f32[5]", "1e-5"), "matmul", "plain")
    (own,) = select(["mine.py:kernel f32[5]"], KNOWN)
    assert (own.kernel, own.family) == ("mine.py:kernel", OWN_FILE)


@pytest.mark.parametrize(
    "word", ["", " ", "nothing", "nobody:kernel f32[4]", "matmul:one f3["]
)
def test_a_word_that_names_nothing_is_refused(word: str) -> None:
    with pytest.raises(ArgumentSpecError):
        select([word], KNOWN)


def test_a_kernel_of_a_file_has_no_reference_to_be_judged_by(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        textwrap.dedent(
            """
            import helion
            import helion.language as hl
            import torch

            @helion.kernel(static_shapes=True)
            def double(x: torch.Tensor) -> torch.Tensor:
                out = torch.empty_like(x)
                for tile in hl.tile(x.size(0)):
                    out[tile] = x[tile] * 2.0
                return out

            def eager(x):
                return x * 2.0
            """
        )
    )
    workload = Workload(f"{path}:double", ("f32[64]",), OWN_FILE, OWN_FILE)
    found = resolve(workload, {})
    assert found.kernel.name == "double" and found.reference is None
    places = read_foreign([f"{workload.kernel}={path}:eager"])
    assert load_foreign(places[workload.kernel])["eager"](3.0) == 6.0
    with pytest.raises(KernelFileError, match="nobody"):
        load_foreign({"x": f"{path}:nobody"})


def test_a_file_that_lists_cases_is_a_word_and_judges_its_kernels(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cases.py"
    path.write_text(
        textwrap.dedent(
            """
            import helion
            import helion.language as hl
            import torch

            from costmodel.datasets.workloads.workload import KernelCase

            @helion.kernel(static_shapes=True)
            def halve(x: torch.Tensor) -> torch.Tensor:
                out = torch.empty_like(x)
                for tile in hl.tile(x.size(0)):
                    out[tile] = x[tile] * 0.5
                return out

            def eager(x):
                return x * 0.5

            shapes = (("f32[64]",), ("f32[7]",))
            CASES = (
                KernelCase(halve, eager, "own", "plain", ("f32[4]",), shapes, 0.5),
            )
            """
        )
    )
    found = select([str(path)], KNOWN)
    kernel = f"{path}:halve"
    assert found == [
        Workload(kernel, (t,), "own", "plain") for t in ("f32[64]", "f32[7]")
    ]
    assert select([str(path)], KNOWN, per_kernel=1) == found[:1]
    made = resolve(found[0], {})
    assert made.reference is not None and made.reference(3.0) == 1.5
    assert made.kernel.name == "halve" and made.rtol == 0.5
    # Other arguments of the same kernel have the same judge.
    (other,) = select([f"{kernel} f32[9]"], KNOWN)
    assert resolve(other, {}).reference is made.reference
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(KernelFileError, match="CASES"):
        select([str(empty)], KNOWN)


@pytest.mark.parametrize("text", ["kernel", "k=file.py", "k=file:f", "=file.py:f"])
def test_a_foreign_option_is_read_or_refused(text: str) -> None:
    with pytest.raises(ArgumentSpecError, match=r"FILE\.py:FUNCTION"):
        read_foreign([text])


def choose_twice(bound: object, workload: Workload, pick: object) -> list[dict]:
    """A further way to choose, for `--column`."""
    config = pick.config  # type: ignore[attr-defined]
    return [config, {**config, "num_warps": 8}]


def test_the_plan_command_writes_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "choices.jsonl"
    (workload,) = select([SCALE], [*KNOWN, Workload(SCALE.split()[0], (), "f", "v")])
    choice = {"num_warps": 2}
    elsewhere.write_text(
        json.dumps({"workload_id": workload.workload_id, "configs": [choice]}) + "\n"
    )
    path = tmp_path / "plan.jsonl"
    command = ["bench", "plan", SCALE, "--output", str(path)]
    command += ["--column", f"mine={elsewhere}"]
    command += ["--column", "twice=test_bench_select:choose_twice"]
    assert cli.main(command) == 0
    plan = read_plan(path)
    (planned,) = plan.planned
    columns = {one.name: one for one in planned.columns}
    assert {"default", "pick", "analytic", "mine", "twice"} <= set(columns)
    # What Helion refuses stays as it was given, to fail as it would for a user.
    assert columns["mine"].configs == (choice,)
    assert [one["num_warps"] for one in columns["twice"].configs] == [4, 8]
    assert planned.model_id
    assert plan.facts["gpu"] == "NVIDIA H200"
    assert "1 workloads, 0 refused" in capsys.readouterr().err


def test_a_plan_is_not_begun_where_it_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert cli.main(["bench", "plan", SCALE, "--output", str(folder)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"expected a file, found the folder {folder}" in line
    assert list(tmp_path.iterdir()) == [folder] and not list(folder.iterdir())
