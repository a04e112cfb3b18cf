"""Compile a list of configs in parallel, one child process each, answers in order.

Threads here only wait; the children work. Which child finishes first decides nothing:
answers come in the order of the list, and whoever has heard enough stops listening.
"""

from __future__ import annotations

import functools
import os
import queue
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic
from typing import Protocol
from typing import TypeVar

from costmodel.compile_check import DEFAULT_LIMIT_S
from costmodel.compile_check import Checked
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import config_text
from costmodel.kernel_origin import Origin
from costmodel.types import Config

MOST_PROCESSES = 8
"""More at once gain little for a shortlist of sixteen, and each holds 0.6 GB."""


Answer = TypeVar("Answer")
Said = TypeVar("Said", covariant=True)


class Checker(Protocol[Said]):
    """What compiles one config after another, as `CompileChecker` does."""

    def check(self, config: Config) -> Said:
        """Compile one config."""
        ...

    def stop(self) -> None:
        """End what it is doing; any thread may ask."""
        ...

    def close(self) -> None:
        """Give back all it holds."""
        ...


def default_processes() -> int:
    """Cores that this process may use, shared with the other ranks of the machine."""
    cores = len(os.sched_getaffinity(0))
    try:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        ranks = 1
    return max(1, min(cores // max(1, ranks), MOST_PROCESSES))


def compile_many(
    kernel: str | Origin,
    arguments: Sequence[str],
    gpu: str,
    configs: Sequence[Config],
    n_processes: int | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    disassemble: bool = False,
    folder: Path | None = None,
) -> list[Checked]:
    """Compile configs of one kernel for a GPU that need not be there.

    Args:
        kernel: `FILE.py:KERNEL`, or an origin: `kernel_origin.origin_of_record` makes
            one of a log's record.
        arguments: One text for each argument; `rebuild.rebuilt_arguments` tells those
            of a record.
        gpu: A name that `load_hardware` knows.
        configs: Equal ones are compiled once.
        n_processes: At most so many children at once; None means `default_processes`.
        limit_s: Seconds that one config may take.
        disassemble: Whether facts hold what the machine code is made of.
        folder: Where results are kept; None keeps them in the user's cache.

    Returns:
        One answer for each config, in their order; every failure is an answer.

    Raises:
        UnknownHardwareError: No such GPU.
        BindError: The kernel does not load or bind, so nothing can be said.
    """
    make = functools.partial(
        CompileChecker, kernel, arguments, gpu, limit_s, folder, disassemble
    )
    with CompilePool(make, n_processes) as pool:
        return list(pool.check_in_order(configs))


class CompilePool(Generic[Answer]):
    """Owns the checkers; use it in a `with` block.

    Args:
        make_checker: Makes one more; nothing is started before it is needed.
        n_processes: At most so many at once; None means `default_processes`.
    """

    def __init__(
        self,
        make_checker: Callable[[], Checker[Answer]],
        n_processes: int | None = None,
    ) -> None:
        self._make = make_checker
        self._n_processes = n_processes or default_processes()
        self._free: queue.LifoQueue[Checker[Answer]] = queue.LifoQueue()
        self._made: list[Checker[Answer]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._is_stopped = False

    def __enter__(self) -> CompilePool[Answer]:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all children, whatever they are doing."""
        self._is_stopped = True
        for checker in list(self._made):
            checker.stop()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for checker in self._made:
            checker.close()

    def check_in_order(
        self, configs: Sequence[Config]
    ) -> Generator[Answer, None, None]:
        """Compile in parallel, answer in order, each as soon as those before it.

        Closing the iterator early ends the children that are still at work, and the
        pool with them.

        Raises:
            BindError: As of `CompileChecker.check`.
        """
        if not configs:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._n_processes, "costmodel-compile")
        asked: dict[str, Future[Answer]] = {}
        is_done = False
        try:
            keys = [config_text(config) for config in configs]
            for key, config in zip(keys, configs, strict=True):
                if key not in asked:
                    asked[key] = self._threads.submit(self._check, config)
            for key in keys:
                yield asked[key].result()
            is_done = True
        finally:
            if not is_done:
                self.close()

    def _check(self, config: Config) -> Answer:
        try:
            checker = self._free.get_nowait()
        except queue.Empty:
            checker = self._make()
            self._made.append(checker)
            if self._is_stopped:
                checker.stop()
        try:
            return checker.check(config)
        finally:
            self._free.put(checker)
