"""Compile configs of a live bound kernel in child processes, or say why it cannot be.

The kernel is found again by its text, module or file (`kernel_origin`), its arguments
by what can be said of them (`arguments`). This process generates each program, too:
that finds what was compiled before without starting a child, and tells a child that
makes another program of the kernel than we do.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.arguments import describe_argument
from costmodel.arguments import format_argument
from costmodel.compile_cache import CompileCache
from costmodel.compile_cache import cache_folder
from costmodel.compile_cache import cache_key
from costmodel.compile_check import DEFAULT_LIMIT_S
from costmodel.compile_check import Checked
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import config_text
from costmodel.compile_pool import CompilePool
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.errors import UnknownHardwareError
from costmodel.hardware import match_hardware
from costmodel.helion_hook.records import bind_args
from costmodel.kernel_origin import origin_of_kernel
from costmodel.program_key import program_of
from costmodel.program_key import tools_for
from costmodel.types import Config

_MAX_DETAIL = 300  # characters, of whatever Helion says


class LiveCompiler:
    """Owns a pool of children for one bound kernel; use it in a `with` block.

    Args:
        bound: A bound kernel, on its GPU or as `costmodel.target.bind` made it.
        args: The call's arguments; None takes those it was bound with.
        n_processes: Children at once; None means `compile_pool.default_processes`.
        limit_s: Seconds that one config may take.
        folder: Where results are kept; None keeps them in the user's cache.
        disassemble: Whether facts hold what the machine code is made of.

    Raises:
        UnknownHardwareError: The kernel's GPU is not described.
        KernelFileError: Another process cannot get the kernel.
        ArgumentSpecError: Or not an argument.
        Exception: Whatever Triton raises where it cannot compile for the GPU.
    """

    def __init__(
        self,
        bound: Any,
        args: Sequence[object] | None = None,
        n_processes: int | None = None,
        limit_s: float = DEFAULT_LIMIT_S,
        folder: Path | None = None,
        disassemble: bool = False,
    ) -> None:
        record = helion_hook.record_of(bound, args)
        match = match_hardware(record.hardware)
        if match.kind == "fallback":
            raise UnknownHardwareError(match.why)
        values = bind_args(bound) if args is None else list(args)
        self._bound = bound
        self._hardware = match.hardware
        self._limit_s = limit_s
        self._disassemble = disassemble
        self._cache = CompileCache(cache_folder() if folder is None else folder)
        self._arguments = [format_argument(describe_argument(v)) for v in values]
        self._tools = tools_for(self._hardware)
        self._keys: dict[str, str] = {}
        make_checker = functools.partial(
            CompileChecker,
            origin_of_kernel(bound.kernel, record),
            self._arguments,
            self._hardware.name,
            limit_s,
            folder,
            disassemble,
            expected_keys=self._keys,
        )
        self._pool = CompilePool(make_checker, n_processes)

    def __enter__(self) -> LiveCompiler:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pool.close()

    def check_in_order(
        self, configs: Sequence[Config]
    ) -> Generator[Checked, None, None]:
        """What the compiler says of each; closing the iterator early ends it all.

        Raises:
            BindError: A child cannot bind the kernel, or makes another one of it.
        """
        known = [self._known(config) for config in configs]
        unknown = [c for c, found in zip(configs, known, strict=True) if found is None]
        with closing(self._pool.check_in_order(unknown)) as answers:
            for found in known:
                yield found or next(answers)

    def _known(self, config: Config) -> Checked | None:
        """What can be said without a child."""
        try:
            program = program_of(
                self._bound, config, self._arguments, self._hardware, self._tools
            )
        except Exception as error:  # Helion raises what it likes
            words = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_DETAIL]
            status, arch = CompileStatus.REFUSED, self._hardware.arch
            facts = CompiledFacts(status, words, arch, self._tools.toolchain)
            return Checked(config, facts, False)
        key = cache_key({**program, "disassembled": self._disassemble})
        self._keys[config_text(config)] = key
        facts_or_none = self._cache.get(key, self._limit_s)
        return None if facts_or_none is None else Checked(config, facts_or_none, True)
