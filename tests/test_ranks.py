"""Two processes of one group pick the same with no communication of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.helion, pytest.mark.slow]

N_RANKS = 2
SECONDS = 300  # importing Helion twice at once on a busy machine

RANK = """
import json, os, sys
from datetime import timedelta

import torch
from torch import distributed
from torch._subclasses.fake_tensor import FakeTensorMode

import helion.runtime
from helion_rig import norm_rows, product
import costmodel
from costmodel import helion_hook
from costmodel.hardware import load_hardware
from costmodel.target import targeting

rank, folder = int(sys.argv[1]), sys.argv[2]
# The ranks are unlike in all that must not matter: hash seed, folder, enabling, order.
helion.runtime.default_launcher = lambda *a, **k: None
distributed.init_process_group(
    "gloo", f"file://{folder}/group", rank=rank, world_size=2, timeout=timedelta(0, 240)
)
mine = []
with targeting(load_hardware("H200")), helion_hook.aligned_fakes():
    mode = FakeTensorMode()
    def bf16(*shape):
        with mode:
            return torch.empty(shape, device="cuda", dtype=torch.bfloat16)
    work = [
        (norm_rows, (bf16(2048, 5120), bf16(5120))),
        (product, (bf16(64, 4096), bf16(4096, 2048))),
    ]
    found = {}
    for fn, args in work if rank == 0 else reversed(work):
        if rank == 0:
            kernel = helion.kernel(fn, static_shapes=True)
            costmodel.enable()
        else:
            kernel = helion.kernel(
                fn, static_shapes=True, autotuner_fn=costmodel.autotuner()
            )
        with mode:
            kernel(*args)
            bound = kernel.bind(args)
        found[fn.__name__] = helion_hook.normalize(bound, dict(bound._config.config))
        costmodel.disable()
told = [None, None]
distributed.all_gather_object(told, found)
distributed.destroy_process_group()
print(json.dumps({"told": told, "stats": costmodel.stats()}))
"""


def test_two_ranks_of_a_group_run_the_same_configs(tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parent)
    path = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    children = []
    for rank in range(N_RANKS):
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(rank + 1),
            "HELION_CACHE_DIR": str(tmp_path / f"cache-{rank}"),
            "HELION_AUTOTUNE_EFFORT": "full",
        }
        # Into files: a full pipe of one rank would make the other wait for ever.
        with (tmp_path / f"rank-{rank}.txt").open("w", encoding="utf-8") as said:
            command = [sys.executable, "-c", RANK, str(rank), str(tmp_path)]
            children.append(
                subprocess.Popen(
                    command,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=tmp_path,
                )
            )
    try:
        for child in children:
            child.wait(SECONDS)
    finally:
        for child in children:
            child.kill()
    answers: list[dict[str, Any]] = []
    for rank, child in enumerate(children):
        text = (tmp_path / f"rank-{rank}.txt").read_text(encoding="utf-8")
        assert child.returncode == 0, text[-2000:]
        told = [line for line in text.splitlines() if line.startswith('{"told"')]
        answers.append(json.loads(told[-1]))
    for answer in answers:
        first, second = answer["told"]
        assert set(first) == {"norm_rows", "product"}
        assert first == second
    assert answers[0]["stats"] == answers[1]["stats"]
    assert sum(answers[0]["stats"].values()) == len(answers[0]["told"][0])
