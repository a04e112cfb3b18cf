"""Load a Helion kernel from a Python file, as `FILE.py:KERNEL` names it.

The file is run, as `python FILE.py` would run it but for the `__main__` block.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from costmodel.errors import KernelFileError

SLOW_IMPORT_S = 20.0
"""Seconds; PyTorch, Helion and Triton together take 3 to 6 on an idle machine."""


def load_kernel(reference: str) -> Any:
    """Load the kernel that `reference` names.

    Args:
        reference: `FILE.py:KERNEL`, or `FILE.py` where it holds just one kernel.

    Returns:
        A `helion.kernel` object.

    Raises:
        KernelFileError: No such file, it does not import, or it has no such kernel.
    """
    path_text, name = _split(reference)
    if not path_text.endswith(".py"):
        raise KernelFileError(
            f"expected FILE.py:KERNEL, found {reference!r}: name a Python file, whose "
            "name ends in .py, and a kernel in it"
        )
    path = Path(path_text).expanduser()
    if not path.is_file():
        raise KernelFileError(
            f"expected FILE.py:KERNEL with an existing file, found {reference!r}: "
            f"there is no file {path_text}; name one that exists"
        )
    kernels = _kernels(_load_module(path))
    listed = ", ".join(kernels) or "none"
    if not name and len(kernels) == 1:
        return next(iter(kernels.values()))
    if not name or name not in kernels:
        wanted = f"a kernel {name!r}" if name else "exactly one kernel"
        raise KernelFileError(
            f"expected {wanted} in {path_text}, found {listed}: "
            "name one of its module-level helion kernels"
        )
    return kernels[name]


def load_name(path: Path, name: str) -> Any:
    """A module-level object of a Python file.

    Raises:
        KernelFileError: No such file, it does not import, or it has no such name.
    """
    if not path.is_file():
        raise KernelFileError(f"expected a Python file, found none at {path}")
    module = _load_module(path)
    if not hasattr(module, name):
        raise KernelFileError(
            f"expected {name!r} in {path}, found no such name: give one that the file "
            "defines at its top level"
        )
    return getattr(module, name)


def _split(reference: str) -> tuple[str, str]:
    """File and kernel name; a colon before the suffix belongs to the path."""
    path, colon, name = reference.rpartition(":")
    if colon and path.endswith(".py"):
        return path, name
    return reference, ""


def _load_module(path: Path) -> ModuleType:
    """Run the file as a module of its own; unchanged files are run once."""
    resolved = path.resolve()
    try:
        content = resolved.read_bytes()
    except OSError as error:
        raise KernelFileError(
            f"expected a readable kernel file, found {path}: {error.strerror}"
        ) from error
    digest = hashlib.sha256(str(resolved).encode() + b"\0" + content).hexdigest()[:12]
    # Helion's generated code imports the kernel's globals from `sys.modules`, so the
    # module stays there, under a name that no other file can have.
    name = f"_costmodel_kernels_{digest}_{resolved.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise KernelFileError(f"expected a Python file ending in .py, found {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # What the file prints is not our answer, which may be one JSON object.
        with (
            told_if_slow(path),
            _first_on_path(resolved.parent),
            contextlib.redirect_stdout(sys.stderr),
        ):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as error:  # a file may raise anything, SystemExit included
        del sys.modules[name]
        raise KernelFileError(_import_message(path, resolved, error)) from error
    return module


@contextlib.contextmanager
def told_if_slow(path: Path) -> Iterator[None]:
    """Say on stderr that a file is still being run; nothing but Ctrl-C ends it."""
    words = f"costmodel: {path}: still being imported; Ctrl-C stops it"
    timer = threading.Timer(SLOW_IMPORT_S, lambda: print(words, file=sys.stderr))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it could when run as a script."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(entry)


def _kernels(module: ModuleType) -> dict[str, Any]:
    import helion

    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, helion.Kernel)
    }


def _import_message(path: Path, resolved: Path, error: BaseException) -> str:
    """Where in the file it failed and why, in one line."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(resolved):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f"{path}:{line}" if line else str(path)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"expected a file that imports, {where} fails with {text}: fix the file"
