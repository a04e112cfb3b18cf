"""The child that compiles a config once and assembles it with one control file after
another.

Run as `python -m costmodel.acf.effect_worker`. Speaks as `costmodel.compile_worker`
does, with `costmodel.acf.effects` at the other end, and two steps more once a config is
to be compiled:

3. said: `{"facts": without a control file, "ptx": digest or null}`.
4. heard: `{"controls": path, "limit_s": seconds}`; said: `{"facts": with it}`. Again,
   until `{"controls": null}` is heard.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any
from typing import TextIO

from costmodel import compile_worker
from costmodel import compiled_facts
from costmodel.acf import assembling
from costmodel.compile_worker import Compiler
from costmodel.compiled_facts import CompiledFacts
from costmodel.triton_build import BuiltKernel


def main() -> None:
    """Serve until stdin ends."""
    compile_worker.run(_serve)


def _serve(out: TextIO, compiler: Compiler, request: dict[str, Any]) -> None:
    started = time.monotonic()
    config = compile_worker.wanted(out, compiler, request["config"])
    if config is None:
        return
    facts, kernels = compiler.built(config, False, started)
    known = bool(kernels) and all(one.ptx and one.command for one in kernels)
    ptx = assembling.ptx_digest(kernels) if known else None
    compile_worker.say(out, {"facts": compiled_facts.to_json(facts), "ptx": ptx})
    if ptx is None:
        return
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["controls"] is None:
            return
        found = _with(compiler, kernels, asked["controls"], asked["limit_s"])
        compile_worker.say(out, {"facts": compiled_facts.to_json(found)})


def _with(
    compiler: Compiler, kernels: Sequence[BuiltKernel], controls: str, limit_s: float
) -> CompiledFacts:
    """Facts of a call's kernels with a control file; every failure is an answer."""
    started = time.monotonic()
    try:
        made = [assembling.assemble(one, controls, limit_s) for one in kernels]
    except assembling.AssemblyFailedError as error:
        seconds = time.monotonic() - started
        return compiler.facts(error.status, str(error), compile_s=seconds)
    return compiler.described(made, False, time.monotonic() - started)


if __name__ == "__main__":
    main()
