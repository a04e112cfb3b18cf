"""Compile one config after another in a process whose Triton has a stand-in ptxas.

Run as `python acf_cache_child.py KERNELS.py`; one JSON config on each line of stdin,
one line of facts for each on stdout. Triton's cache is on, as for a user.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from costmodel import fake_driver
from costmodel import helion_hook
from costmodel import triton_build
from costmodel.arguments import parse_argument
from costmodel.cubin import applied_controls
from costmodel.cubin import n_instructions
from costmodel.cubin import text_digest
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.target import bind


def facts_of(bound: Any, config: dict[str, Any]) -> dict[str, Any]:
    """What the real Helion and the real Triton make of a config."""
    with helion_hook.device_of(bound):
        (launch,) = helion_hook.capture_launches(bound, config)
        built = triton_build.build(launch)
    return {
        "code": text_digest(built.cubin),
        "instructions": n_instructions(built.cubin),
        "applied": applied_controls(built.cubin),
        # Nothing is heard where Triton took the code from its cache.
        "registers": None if built.report is None else built.report.registers,
    }


def main() -> None:
    """Serve until stdin ends."""
    torch.set_num_threads(1)
    hardware = load_hardware("H200")
    specs = [parse_argument("bf16[256,512]")]
    bound = bind(load_kernel(f"{sys.argv[1]}:twice"), specs, hardware)
    fake_driver.install(hardware)
    for line in sys.stdin:
        print(json.dumps(facts_of(bound, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
