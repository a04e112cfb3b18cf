"""Triton's cache knows a control file by its path: the hazard, and the cure.

Real Helion configs through the real Triton, in one child process with a stand-in for
ptxas; no GPU. Each step is as a user's process would take it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import standin_ptxas

from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import content_digest
from costmodel.acf.identity import to_helion
from costmodel.acf.toolchain import VARIABLES

pytest.importorskip("triton.backends.nvidia")

KERNELS = """
import helion
import helion.language as hl
import torch

@helion.kernel(static_shapes=True, autotune_effort="none")
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t] * 2
    return out
"""
CONFIG = {"block_sizes": [16, 64], "num_warps": 4}
FEWER, MORE = b"regs=-4 delta=8", b"regs=4 delta=16"

Compile = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compile]:
    folder = tmp_path_factory.mktemp("stale")
    (folder / "kernels.py").write_text(KERNELS)
    standin = str(standin_ptxas.install(folder))
    environment = {
        **os.environ,
        **dict.fromkeys(VARIABLES, standin),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("TRITON_ALWAYS_COMPILE", None)
    program = Path(__file__).with_name("acf_cache_child.py")
    with subprocess.Popen(
        [sys.executable, str(program), str(folder / "kernels.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def compiled(path: Path | str | None = None) -> dict[str, Any]:
            config = {**CONFIG, **({} if path is None else {KNOB: str(path)})}
            print(json.dumps(config), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, "the child died"
            return dict(json.loads(line))

        yield compiled
        process.stdin.close()


@pytest.fixture(scope="module")
def none(child: Compile) -> dict[str, Any]:
    """What ptxas makes of the config by itself."""
    return child()


def test_a_control_file_reaches_ptxas_and_changes_the_code(
    child: Compile, none: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "some.acf"
    path.write_bytes(FEWER)
    found = child(path)
    assert none["applied"] is None and found["applied"] == str(path)
    assert found["instructions"] == none["instructions"] + 8
    assert found["registers"] == none["registers"] - 4


def test_same_path_with_other_content_gives_the_old_code(
    child: Compile, none: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "some.acf"
    path.write_bytes(FEWER)
    first = child(path)
    path.write_bytes(MORE)
    # The hazard: if this ever fails, Triton keys by content, and the cure can go.
    stale = child(path)
    assert stale["code"] == first["code"] and stale["registers"] is None
    assert stale["instructions"] == none["instructions"] + 8
    path.unlink()
    assert child(path)["code"] == first["code"]


def test_a_path_by_content_gives_the_right_code(
    child: Compile, none: dict[str, Any], tmp_path: Path
) -> None:
    catalogue = AcfCatalogue.open(tmp_path / "kept")
    source = tmp_path / "some.acf"
    found = []
    for content in (FEWER, MORE, FEWER):
        source.write_bytes(content)  # the user's file changes in place
        acf_id = content_digest(source.read_bytes())
        catalogue.put(AcfEntry(acf_id, "13.3"), content)
        config, why = to_helion({KNOB: f"sha256:{acf_id}"}, catalogue, "13.3.73")
        assert why is None
        found.append(child(config[KNOB]))
        assert found[-1]["applied"] == str(catalogue.path(acf_id))
    assert [one["instructions"] - none["instructions"] for one in found] == [8, 16, 8]
    assert found[0]["code"] == found[2]["code"] != found[1]["code"]
