"""The child that compiles: bind one kernel once, then one config after another.

Run as `python -m costmodel.compile_worker`. Speaks JSON lines over stdin and stdout,
with `costmodel.compile_check` at the other end:

1. heard: kernel (as `kernel_origin` spells it), arguments, gpu; said: `{"ready":
   versions}` or `{"failed": words}`.
2. heard: `{"config": {...} or null, "disassemble": bool}`; said: `{"program": {...},
   "config": {...}}`, all that decides about the code, or `{"facts": ...}` at once
   where there is none.
3. heard: `{"go": bool}`, since the other side may know the answer; said if so:
   `{"facts": ...}`. Then step 2 again.

It installs a fake driver and is good for nothing else afterwards.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import TextIO

from costmodel import compiled_facts
from costmodel import disassembly
from costmodel import fake_driver
from costmodel import helion_hook
from costmodel import kernel_origin
from costmodel import ptxas
from costmodel import triton_build
from costmodel.arguments import parse_argument
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.cubin import launch_digest
from costmodel.cubin import n_instructions
from costmodel.errors import CostModelError
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.program_key import program_of
from costmodel.program_key import tools_for
from costmodel.target import bind
from costmodel.triton_build import BuiltKernel
from costmodel.types import Config

_MAX_DETAIL = 300  # characters; MLIR likes to print whole modules


def main() -> None:
    """Serve until stdin ends."""
    run(_serve)


def run(serve: Callable[[TextIO, Compiler, dict[str, Any]], None]) -> None:
    """Bind what the first line names, then serve each line that follows."""
    # Whatever a compiler prints goes to the log, the protocol to the old stdout.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    opening = json.loads(sys.stdin.readline())
    try:
        compiler = Compiler(opening)
    except CostModelError as error:
        say(out, {"failed": str(error)})
        return
    say(out, {"ready": dataclasses.asdict(compiler.toolchain)})
    for line in sys.stdin:
        serve(out, compiler, json.loads(line))


def _serve(out: TextIO, compiler: Compiler, request: dict[str, Any]) -> None:
    started = time.monotonic()
    config = wanted(out, compiler, request["config"])
    if config is None:
        return
    facts = compiler.compile(config, request["disassemble"], started)
    say(out, {"facts": compiled_facts.to_json(facts)})


def wanted(out: TextIO, compiler: Compiler, config: Config | None) -> Config | None:
    """Say what program a config becomes; the config, if that shall be compiled."""
    try:
        if config is None:
            config = helion_hook.default_config(compiler.bound)
        program = compiler.program(config)
    except Exception as error:  # Helion raises what it likes
        facts = compiler.facts(CompileStatus.REFUSED, _words(error))
        say(out, {"facts": compiled_facts.to_json(facts), "config": config})
        return None
    say(out, {"program": program, "config": config})
    return config if json.loads(sys.stdin.readline())["go"] else None


def say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


class Compiler:
    """One kernel bound for one GPU, and Triton told to compile for it."""

    def __init__(self, opening: dict[str, Any]) -> None:
        self.hardware = load_hardware(opening["gpu"])
        self.arguments: list[str] = opening["arguments"]
        # Never left: generated code looks the kernel's module up by name.
        self._loading = kernel_origin.loaded(kernel_origin.from_json(opening["kernel"]))
        kernel = self._loading.__enter__()
        specs = [parse_argument(text) for text in self.arguments]
        self.bound = bind(kernel, specs, self.hardware)
        fake_driver.install(self.hardware)
        self._tools = tools_for(self.hardware)
        self.toolchain = self._tools.toolchain

    def program(self, config: Config) -> dict[str, Any]:
        """Everything that decides about the machine code of a config."""
        return program_of(
            self.bound, config, self.arguments, self.hardware, self._tools
        )

    def facts(self, status: CompileStatus, detail: str, **more: Any) -> CompiledFacts:
        """Facts with what every one of ours has."""
        arch = self.hardware.arch
        return CompiledFacts(status, detail, arch, self.toolchain, **more)

    def compile(
        self, config: Config, with_code: bool, started_s: float
    ) -> CompiledFacts:
        """Compile a config; every failure is an answer."""
        return self.built(config, with_code, started_s)[0]

    def built(
        self, config: Config, with_code: bool, started_s: float
    ) -> tuple[CompiledFacts, list[BuiltKernel]]:
        """The same, and the kernels; [] where there are none."""
        try:
            with helion_hook.device_of(self.bound):
                launches = helion_hook.capture_launches(self.bound, config)
                kernels = [triton_build.build(launch) for launch in launches]
        except Exception as error:  # Triton and host code raise what they like
            seconds = time.monotonic() - started_s
            return self.facts(*_failure(error), compile_s=seconds), []
        if not kernels:
            return self.facts(CompileStatus.ERROR, "a call launches no kernel"), []
        seconds = time.monotonic() - started_s
        return self.described(kernels, with_code, seconds), kernels

    def described(
        self, kernels: Sequence[BuiltKernel], with_code: bool, seconds: float
    ) -> CompiledFacts:
        """Facts of a call's kernels, at least one, that were built in `seconds`."""
        status, detail = _fits(kernels, self.hardware)
        reports = [kernel.report for kernel in kernels if kernel.report is not None]
        known = len(reports) == len(kernels)
        longest = max(kernels, key=lambda kernel: n_instructions(kernel.cubin))
        return self.facts(
            status,
            detail,
            registers=max(r.registers for r in reports) if known else None,
            spill_store_bytes=sum(r.spill_store_bytes for r in reports)
            if known
            else None,
            spill_load_bytes=sum(r.spill_load_bytes for r in reports)
            if known
            else None,
            stack_bytes=sum(r.stack_bytes for r in reports) if known else None,
            smem_bytes=max(kernel.smem_bytes for kernel in kernels),
            tmem_columns=max(kernel.tmem_columns for kernel in kernels),
            num_warps=max(kernel.num_warps for kernel in kernels),
            n_launches=len(kernels),
            n_instructions=sum(n_instructions(kernel.cubin) for kernel in kernels),
            code_digest=launch_digest(kernel.cubin for kernel in kernels),
            code=_disassembled(longest.cubin) if with_code else None,
            compile_s=seconds,
        )


def _fits(
    kernels: Sequence[BuiltKernel], hardware: Hardware
) -> tuple[CompileStatus, str]:
    """What a launch would say of the resources."""
    for kernel in kernels:
        if kernel.smem_bytes > hardware.smem_per_cta_bytes:
            return CompileStatus.SHARED_MEMORY, (
                f"a CTA needs {kernel.smem_bytes} bytes of shared memory, "
                f"{hardware.name} has {hardware.smem_per_cta_bytes}"
            )
        if kernel.tmem_columns > hardware.tmem_columns:
            return CompileStatus.TENSOR_MEMORY, (
                f"a CTA needs {kernel.tmem_columns} columns of tensor memory, "
                f"{hardware.name} has {hardware.tmem_columns}"
            )
        threads = kernel.num_warps * hardware.warp_size
        if threads > hardware.max_threads_per_cta:
            return CompileStatus.THREADS, (
                f"a CTA of {threads} threads, {hardware.name} launches at most "
                f"{hardware.max_threads_per_cta}"
            )
        registers = 0 if kernel.report is None else kernel.report.registers
        if threads * registers > hardware.regs_per_sm:
            return CompileStatus.REGISTERS, (
                f"{threads} threads of {registers} registers, an SM of "
                f"{hardware.name} has {hardware.regs_per_sm}"
            )
    return CompileStatus.OK, ""


def _failure(error: Exception) -> tuple[CompileStatus, str]:
    """Who failed, as far as the words tell."""
    words = _words(error)
    if isinstance(error, triton_build.AssemblerError):
        if ptxas.is_register_failure(str(error)):
            return CompileStatus.REGISTERS, words
        return CompileStatus.PTXAS, words
    if "PassManager::run failed" in str(error):
        return CompileStatus.MLIR, words
    if type(error).__module__.startswith("triton."):
        return CompileStatus.MLIR, words
    return CompileStatus.ERROR, words


def _words(error: BaseException) -> str:
    """What went wrong, in one line of many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Triton shows source first and says what is wrong in the last line, Helion and
    # PyTorch say it in the first; the assembler ends by saying that there were errors.
    is_assembler = isinstance(error, triton_build.AssemblerError)
    is_last = is_assembler or type(error).__module__.startswith("triton.")
    named = [line for line in lines if re.search(r"\b(error|fatal)\s*:", line)]
    if is_assembler and named:
        lines = named[:1]
    words = (lines or [""])[-1 if is_last else 0]
    return f"{type(error).__name__}: {words}"[:_MAX_DETAIL]


def _disassembled(cubin: bytes) -> disassembly.CodeShape | None:
    tool = disassembly.disassembler()
    if tool is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return disassembly.disassemble(path, tool)


if __name__ == "__main__":
    main()
