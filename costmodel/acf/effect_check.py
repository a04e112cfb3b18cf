"""Ask child processes what control files do to configs: PTX once, ptxas for each file.

As the compile check does, and with its pool: children die alone, each run of ptxas has
a time limit, and what is known by content is not asked again.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.acf.effect_cache import EffectCache
from costmodel.acf.effects import Effect
from costmodel.acf.effects import judged
from costmodel.arguments import describe_argument
from costmodel.arguments import format_argument
from costmodel.child_process import ChildDiedError
from costmodel.child_process import ChildTimeoutError
from costmodel.compile_check import DEFAULT_LIMIT_S
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import config_text
from costmodel.compile_pool import CompilePool
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.errors import BindError
from costmodel.hardware import Hardware
from costmodel.helion_hook.records import bind_args
from costmodel.kernel_origin import Origin
from costmodel.kernel_origin import origin_of_kernel
from costmodel.program_key import Tools
from costmodel.program_key import program_of
from costmodel.program_key import tools_for
from costmodel.types import Config

ACF_LIMIT_S = 20.0
"""Seconds for one run of ptxas with a control file; without one 99 of 100 take 8, and
a file that multiplies that is none to have."""

_MOST_LAUNCHES = 10  # of one call; more than any kernel seen makes
_GRACE_S = 10.0  # a child ends a ptxas itself; this long after, it hangs as well

Effects = tuple[Effect, ...]
Programs = dict[str, Mapping[str, Any]]
"""What decides about a config's machine code, by `config_text`."""


class EffectChecker(CompileChecker):
    """Compiles configs of one kernel, and assembles each with every control file.

    Args:
        kernel: As of `CompileChecker`.
        arguments: As of `CompileChecker`.
        gpu: As of `CompileChecker`.
        controls: Path of each control file, by its id, in the order that counts.
        limit_s: Seconds for one config without a control file.
        acf_limit_s: Seconds for one run of ptxas with one.
        folder: Where results are kept; None keeps them in the user's cache.
        expected: The program each config must become, where another process said so.

    Raises:
        UnknownHardwareError: No such GPU.
    """

    _worker = "costmodel.acf.effect_worker"

    def __init__(
        self,
        kernel: str | Origin,
        arguments: Sequence[str],
        gpu: str,
        controls: Mapping[str, str],
        limit_s: float = DEFAULT_LIMIT_S,
        acf_limit_s: float = ACF_LIMIT_S,
        folder: Path | None = None,
        expected: Programs | None = None,
    ) -> None:
        super().__init__(kernel, arguments, gpu, limit_s, folder)
        self._controls = dict(controls)
        self._acf_limit_s = acf_limit_s
        self._effects = EffectCache(folder)
        self._expected = {} if expected is None else expected

    def effects(self, config: Config | None) -> Effects:
        """A config's pairs, that without a control file first.

        Args:
            config: Without a control file; None means Helion's default.

        Raises:
            BindError: The kernel does not load or bind, or not as expected.
        """
        child = self._started()
        asked: Config = config or {}
        try:
            child.tell({"config": config})
            said = child.hear(self._limit_s)
            asked = said["config"] or asked
            if "facts" in said:
                return judged(asked, self._facts(said["facts"]), {})
            program = said["program"]
            self._compare(asked, program)
            known = known_effects(
                self._effects,
                program,
                asked,
                self._controls,
                self._limit_s,
                self._acf_limit_s,
            )
            child.tell({"go": known is None})
            if known is not None:
                return known
            said = child.hear(self._limit_s)
        except ChildTimeoutError:
            self._child = None
            words = f"not compiled within {self._limit_s:g} s"
            return judged(asked, self._failed(CompileStatus.TIMEOUT, words), {})
        except ChildDiedError as death:
            self._child = None
            return judged(asked, self._failed(CompileStatus.ERROR, str(death)), {})
        none, ptx = self._facts(said["facts"]), said["ptx"]
        self._effects.put_base(program, none, ptx)
        found = {} if ptx is None else self._assembled(program["ptxas"], ptx)
        return judged(asked, none, found)

    def _compare(self, config: Config, program: Mapping[str, Any]) -> None:
        wanted = self._expected.get(config_text(config), program)
        if wanted != program:
            raise BindError(
                "expected the child to generate the program that this process "
                "generates, found another one: the kernel depends on what only this "
                "process knows"
            )

    def _assembled(self, ptxas: str, ptx: str) -> dict[str, CompiledFacts]:
        """Facts by control file; those the child did not live to see are failures."""
        found = {}
        why = ""
        for acf_id, path in self._controls.items():
            known = self._effects.pair(ptx, acf_id, ptxas, self._acf_limit_s)
            if known is None and not why:
                try:
                    known = self._one(path)
                except (ChildTimeoutError, ChildDiedError) as error:
                    self._child, why = None, str(error)
                else:
                    self._effects.put_pair(ptx, acf_id, ptxas, known)
            found[acf_id] = known or self._failed(CompileStatus.ERROR, why)
        if self._child is not None:
            try:
                self._child.tell({"controls": None})
            except ChildDiedError:  # all was said; the next config gets another
                self._child = None
        return found

    def _one(self, path: str) -> CompiledFacts:
        assert self._child is not None
        self._child.tell({"controls": path, "limit_s": self._acf_limit_s})
        # A call may launch several kernels, each with a ptxas of its own.
        said = self._child.hear(_MOST_LAUNCHES * self._acf_limit_s + _GRACE_S)
        return replace(self._facts(said["facts"]), limit_s=self._acf_limit_s)


class EffectPool:
    """Owns children that answer in parallel; use it in a `with` block.

    Args:
        make_checker: Makes one more `EffectChecker`.
        n_processes: At most so many at once; None means the compile pool's number.
    """

    def __init__(self, make_checker: Any, n_processes: int | None = None) -> None:
        self._pool = CompilePool(lambda: _Asked(make_checker()), n_processes)

    def __enter__(self) -> EffectPool:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pool.close()

    def effects(self, configs: Sequence[Config]) -> list[Effects]:
        """Of each config, in their order.

        Raises:
            BindError: As of `EffectChecker.effects`.
        """
        return list(self._pool.check_in_order(configs))


class _Asked:
    """An `EffectChecker` as a pool wants it."""

    def __init__(self, checker: EffectChecker) -> None:
        self._checker = checker
        self.stop = checker.stop
        self.close = checker.close

    def check(self, config: Config) -> Effects:
        return self._checker.effects(config)


def known_effects(
    cache: EffectCache,
    program: Mapping[str, Any],
    config: Config,
    controls: Mapping[str, str],
    limit_s: float = DEFAULT_LIMIT_S,
    acf_limit_s: float = ACF_LIMIT_S,
) -> Effects | None:
    """A config's pairs where the cache holds every one of them."""
    base = cache.base(program, limit_s)
    if base is None:
        return None
    none, ptx = base
    found = {}
    for acf_id in controls if ptx is not None else ():
        facts = cache.pair(str(ptx), acf_id, program["ptxas"], acf_limit_s)
        if facts is None:
            return None
        found[acf_id] = facts
    return judged(config, none, found)


def live_effects(
    bound: Any,
    args: Sequence[object] | None,
    hardware: Hardware,
    configs: Sequence[Config],
    controls: Mapping[str, str],
    n_processes: int | None = None,
    folder: Path | None = None,
) -> list[Effects]:
    """Pairs of a live bound kernel's configs, in children where they are not known.

    Args:
        bound: A bound kernel.
        args: The call's arguments; None takes those it was bound with.
        hardware: Its GPU.
        configs: Without control files.
        controls: As of `EffectChecker`.
        n_processes: As of `EffectPool`.
        folder: As of `EffectChecker`.

    Raises:
        Exception: As `costmodel.live_compile.LiveCompiler` does.
    """
    values = bind_args(bound) if args is None else list(args)
    arguments = [format_argument(describe_argument(value)) for value in values]
    tools = tools_for(hardware)
    cache = EffectCache(folder)
    expected = _programs(bound, configs, arguments, hardware, tools)
    known = []
    for config in configs:
        program = expected.get(config_text(config))
        known.append(program and known_effects(cache, program, config, controls))
    unknown = [c for c, found in zip(configs, known, strict=True) if not found]
    if not unknown:
        return [one for one in known if one]
    record = helion_hook.record_of(bound, args)
    make = functools.partial(
        EffectChecker,
        origin_of_kernel(bound.kernel, record),
        arguments,
        hardware.name,
        controls,
        folder=folder,
        expected=expected,
    )
    with EffectPool(make, n_processes) as pool:
        answers = iter(pool.effects(unknown))
        return [found or next(answers) for found in known]


def _programs(
    bound: Any,
    configs: Sequence[Config],
    arguments: Sequence[str],
    hardware: Hardware,
    tools: Tools,
) -> Programs:
    """Of those that Helion generates code for; the child says why of the others."""
    found: Programs = {}
    for config in configs:
        with contextlib.suppress(Exception):  # Helion raises what it likes
            found[config_text(config)] = program_of(
                bound, config, arguments, hardware, tools
            )
    return found
