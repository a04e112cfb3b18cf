"""Compile configs for a GPU that is not there, and say what came of each.

Helion to Triton to PTX to machine code needs no device. Compilers abort and hang, so
all of it happens in a child process: it binds the kernel once and compiles config after
config, dies when one takes too long, and is started again for the next. Results are
kept by content (`compile_cache.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any
from typing import Self

from costmodel import compiled_facts
from costmodel import kernel_origin
from costmodel.acf.identity import to_record
from costmodel.child_process import ChildDiedError
from costmodel.child_process import ChildProcess
from costmodel.child_process import ChildTimeoutError
from costmodel.compile_cache import CompileCache
from costmodel.compile_cache import cache_folder
from costmodel.compile_cache import cache_key
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.errors import BindError
from costmodel.frozen import dataclass
from costmodel.hardware import load_hardware
from costmodel.kernel_origin import KernelFile
from costmodel.kernel_origin import KernelText
from costmodel.kernel_origin import Origin
from costmodel.program_key import Tools
from costmodel.program_key import tools_for
from costmodel.program_key import what_limits
from costmodel.types import Config

DEFAULT_LIMIT_S = 60.0
"""Seconds for one config; of those that run well, 99 of 100 compile in 8."""

HEAVY_SPILL_BYTES = 1024
"""A thread that spills more was never over 3 % faster than Helion's default; one that
spills less sometimes is the best there is (2,100 measured configs on an H200)."""

_BIND_LIMIT_S = 180.0  # imports and binding; seconds, on an idle machine


@dataclass(frozen=True, slots=True)
class Checked:
    """A config as given, or Helion's default, and what the compiler made of it."""

    config: Config
    facts: CompiledFacts
    from_cache: bool


class CompileChecker:
    """Compiles configs of one kernel for one GPU; use it in a `with` block.

    Args:
        kernel: `FILE.py:KERNEL`, or where else a child gets it from.
        arguments: One text for each argument, such as "bf16[4096,5120]".
        gpu: A name that `load_hardware` knows.
        limit_s: Seconds that one config may take.
        folder: Where results are kept; None keeps them in the user's cache.
        disassemble: Whether facts hold what the machine code is made of; a quarter of
            a second for each config.
        expected_keys: Key of the program that each config, by `config_text`, must
            become; what is missing here may become any.

    Raises:
        UnknownHardwareError: No such GPU.
    """

    _worker = "costmodel.compile_worker"
    """What a child runs."""

    def __init__(
        self,
        kernel: str | Origin,
        arguments: Sequence[str],
        gpu: str,
        limit_s: float = DEFAULT_LIMIT_S,
        folder: Path | None = None,
        disassemble: bool = False,
        expected_keys: Mapping[str, str] | None = None,
    ) -> None:
        self._origin = KernelFile(kernel) if isinstance(kernel, str) else kernel
        self._hardware = load_hardware(gpu)
        self._opening = {
            "kernel": kernel_origin.to_json(self._origin),
            "arguments": list(arguments),
            "gpu": self._hardware.name,
        }
        self._name = kernel if isinstance(kernel, str) else "the kernel"
        self._tools: Tools | None = None
        self._expected_keys = expected_keys or {}
        self._limit_s = limit_s
        self._cache = CompileCache(cache_folder() if folder is None else folder)
        self._disassemble = disassemble
        self._child: ChildProcess | None = None
        self._starting: ChildProcess | None = None
        self._is_stopped = False
        self._toolchain = Toolchain("unknown", "unknown", "unknown", "unknown")
        self._scratch = tempfile.mkdtemp(prefix="costmodel-compile-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files; cached results stay."""
        for child in (self._starting, self._child):
            if child is not None:
                child.close()
        self._starting = self._child = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def stop(self) -> None:
        """Kill the child; a thread that waits for it gets an error as its answer."""
        self._is_stopped = True
        for child in (self._starting, self._child):
            if child is not None:
                child.kill()

    def check(self, config: Config | None) -> Checked:
        """Compile one config; None means Helion's default.

        Raises:
            BindError: The kernel does not load or bind, or not as expected.
        """
        request = {"config": config, "disassemble": self._disassemble}
        kept_as = self._key_of_text(config)
        known = kept_as and self._cache.get(kept_as, self._limit_s)
        if config is not None and known:
            return Checked(config, known, True)
        checked, key = self._asked(request)
        if key is not None and not checked.from_cache:
            self._cache.put(key, checked.facts)
        if kept_as is not None:
            self._cache.put(kept_as, checked.facts)
        wanted = self._expected_keys.get(config_text(config or {}), key)
        if key is not None and key != wanted:
            raise BindError(
                "expected the child to generate the program that this process "
                "generates, found another one: the kernel depends on what only this "
                "process knows"
            )
        return checked

    def _asked(self, request: dict[str, Any]) -> tuple[Checked, str | None]:
        """The child's answer, and the key of the program where it got that far."""
        child = self._started()
        key: str | None = None
        asked: Config = request["config"] or {}
        try:
            child.tell(request)
            said = child.hear(self._limit_s)
            asked = said["config"] or asked
            if "facts" in said:
                return Checked(asked, self._facts(said["facts"]), False), None
            key = cache_key({**said["program"], "disassembled": self._disassemble})
            known = self._cache.get(key, self._limit_s)
            child.tell({"go": known is None})
            if known is not None:
                return Checked(asked, known, True), key
            facts = self._facts(child.hear(self._limit_s)["facts"])
        except ChildTimeoutError:
            self._child = None
            words = f"not compiled within {self._limit_s:g} s"
            facts = self._failed(CompileStatus.TIMEOUT, words)
        except ChildDiedError as death:
            self._child = None
            # An abort while Triton compiles is an assertion in one of its passes.
            aborted = key is not None and "signal SIGABRT" in str(death)
            status = CompileStatus.MLIR if aborted else CompileStatus.ERROR
            facts = self._failed(status, str(death))
        return Checked(asked, facts, False), key

    def _key_of_text(self, config: Config | None) -> str | None:
        """A key that needs no child: where the kernel's text says all there is."""
        if config is None or not isinstance(self._origin, KernelText):
            return None
        if self._tools is None:
            try:
                self._tools = tools_for(self._hardware)
            except Exception:  # no Triton here; the child will say so
                return None
        return cache_key(
            {
                **self._opening,
                **what_limits(self._hardware, self._tools),
                # A control file counts by its content.
                "config": to_record(config),
                "disassembled": self._disassemble,
            }
        )

    def check_all(self, configs: Iterable[Config]) -> Iterator[Checked]:
        """Compile configs one after another, each answer as soon as it is there."""
        for config in configs:
            yield self.check(config)

    def _started(self) -> ChildProcess:
        if self._child is not None:
            return self._child
        command = [sys.executable, "-m", self._worker]
        child = ChildProcess(command, self._environment())
        self._starting = child
        if self._is_stopped:
            child.kill()
        try:
            child.tell(self._opening)
            said = child.hear(_BIND_LIMIT_S)
        except (ChildTimeoutError, ChildDiedError) as error:
            raise BindError(
                f"expected {self._name} to bind in a child process, the "
                f"child {error}: run `costmodel doctor`"
            ) from None
        if "failed" in said:
            child.close()
            raise BindError(str(said["failed"]))
        self._toolchain = Toolchain(**said["ready"])
        self._child, self._starting = child, None
        return child

    def _environment(self) -> dict[str, str]:
        """Ours, with caches of its own: a cached kernel has no assembler's words."""
        fixed = {
            "TRITON_CACHE_DIR": os.path.join(self._scratch, "triton"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(self._scratch, "inductor"),
            "TRITON_ALWAYS_COMPILE": "1",
            # One compile at a time; threads would only disturb the neighbours.
            "OMP_NUM_THREADS": "1",
            # A module of the user's may touch the GPU, or pick a config itself.
            "CUDA_VISIBLE_DEVICES": "",
            "COSTMODEL_DISABLE": "1",
        }
        # What Triton 3.9 does anyway, with a warning; later ones must agree.
        asked = {"TRITON_DEFAULT_FP_FUSION": "1"}
        return {**asked, **os.environ, **fixed}

    def _facts(self, body: dict[str, Any]) -> CompiledFacts:
        return replace(compiled_facts.from_json(body), limit_s=self._limit_s)

    def _failed(self, status: CompileStatus, detail: str) -> CompiledFacts:
        return CompiledFacts(
            status, detail, self._hardware.arch, self._toolchain, limit_s=self._limit_s
        )


def config_text(config: Config) -> str:
    """Equal for equal configs, in whatever order their knobs come."""
    return json.dumps(config, sort_keys=True, default=str)


def is_sound(facts: CompiledFacts) -> bool:
    """Whether a config can be handed out: it compiles, and spills little if at all.

    "Never spills" would be too strict: the best config of some kernels does, outside
    its loop.
    """
    if facts.status is not CompileStatus.OK:
        return False
    return facts.spill_bytes is None or facts.spill_bytes <= HEAVY_SPILL_BYTES


def first_sound(
    checker: CompileChecker, ranking: Iterable[Config]
) -> tuple[Checked | None, tuple[Checked, ...]]:
    """Walk down a ranking until a config is sound.

    Returns:
        The first sound one, or None, and all that were compiled on the way.
    """
    seen = []
    for checked in checker.check_all(ranking):
        seen.append(checked)
        if is_sound(checked.facts):
            return checked, tuple(seen)
    return None, tuple(seen)
