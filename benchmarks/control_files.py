"""What control files for ptxas do to a kernel of this repository; needs no GPU.

Run as `python benchmarks/control_files.py DIR`, where DIR holds control files of yours:
`docs/control-files.md` says which. They are tried and kept in a catalogue under
`build/`, then each is compiled with Helion's default config of a kernel, and without.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from costmodel.cli import main as costmodel

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "datasets" / "workloads" / "attention.py"
ARGUMENTS = ("bf16[32,1024,64]", "bf16[32,1024,64]", "bf16[32,1024,64]", "0.125")


def main() -> int:
    """Add, list, compare; the exit code of the first step that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--kernel", default=f"{KERNEL}:attention_full")
    parser.add_argument("--arg", action="append", default=[], dest="args")
    parser.add_argument("--dir", default=str(ROOT / "build" / "acf"))
    options = parser.parse_args()
    arguments = options.args or ARGUMENTS
    here = ["--dir", options.dir]
    for command in (
        ["add", str(options.folder), "--gpu", options.gpu, *here],
        ["list", "--gpu", options.gpu, *here],
        [
            *("effects", options.kernel, "--gpu", options.gpu, *here),
            *(word for text in arguments for word in ("--arg", text)),
        ],
    ):
        print(f"$ costmodel acf {command[0]}", flush=True)
        code = costmodel(["acf", *command])
        if code != 0:
            return code
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
