"""Where another process gets a kernel from: its text, its module or its file.

The text is the best origin, where `kernel_source` takes it: nothing of the user's is
run. A module is imported again by its name, as `multiprocessing` does it. A file is run
again; the file of the running program only if all it does is to define things.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import TypeAlias

from costmodel.errors import KernelFileError
from costmodel.frozen import dataclass
from costmodel.kernel_file import load_kernel
from costmodel.kernel_source import defined
from costmodel.kernel_source import parse_kernel
from costmodel.rebuild import CODE_SETTINGS
from costmodel.rebuild import kernel_settings
from costmodel.types import WorkloadRecord

_INERT_STATEMENTS = (
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
    ast.Pass,
)


@dataclass(frozen=True, slots=True)
class KernelFile:
    """`FILE.py:KERNEL`, as on the command line."""

    reference: str


@dataclass(frozen=True, slots=True)
class KernelModule:
    """A kernel of a module that Python can import.

    Attributes:
        module: Dotted name.
        name: The kernel's name in it; dotted inside a class.
        search_path: Where to look for modules, as `sys.path`.
    """

    module: str
    name: str
    search_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel whose source says all, as in Helion's logs.

    Attributes:
        source: Text of the function, decorators and indentation allowed.
        settings: Helion's settings as its logs spell them.
    """

    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)


Origin: TypeAlias = KernelFile | KernelModule | KernelText

_KINDS: dict[str, type[KernelFile] | type[KernelModule] | type[KernelText]] = {
    "file": KernelFile,
    "module": KernelModule,
    "text": KernelText,
}


def to_json(origin: Origin) -> dict[str, Any]:
    """As JSON values."""
    kind = next(name for name, known in _KINDS.items() if isinstance(origin, known))
    return {kind: asdict(origin)}


def from_json(body: Mapping[str, Any]) -> Origin:
    """The inverse of `to_json`."""
    ((kind, fields),) = body.items()
    if kind == "module":
        fields = {**fields, "search_path": tuple(fields["search_path"])}
    return _KINDS[kind](**fields)


@contextmanager
def loaded(origin: Origin) -> Iterator[Any]:
    """The kernel, of use while in the block.

    Raises:
        KernelFileError: There is no such kernel, or its file or module does not import.
    """
    if isinstance(origin, KernelFile):
        yield load_kernel(origin.reference)
    elif isinstance(origin, KernelModule):
        yield _imported(origin)
    else:
        with _rebuilt(origin) as kernel:
            yield kernel


def origin_of_record(record: WorkloadRecord) -> KernelText:
    """The kernel of a log's record, without its arguments.

    Raises:
        KernelFileError: The source reaches beyond itself or is no plain kernel.
    """
    return _text(record.kernel_source, record.settings)


def origin_of_kernel(kernel: Any, record: WorkloadRecord) -> Origin:
    """Where another process gets a live kernel from.

    Args:
        kernel: A `helion.kernel` object.
        record: Of one of its bound kernels.

    Raises:
        KernelFileError: Nowhere; says why.
    """
    try:
        return origin_of_record(record)
    except KernelFileError:
        pass
    module = sys.modules.get(str(kernel.fn.__module__))
    name = None if module is None else _name_in(module, kernel)
    if module is None or name is None:
        raise KernelFileError(
            f"expected kernel {record.kernel_name!r} at the top of its module or free "
            "of names from outside, found neither: another process cannot make it"
        )
    file = getattr(module, "__file__", None)
    if _is_importable(module):
        return KernelModule(module.__name__, name, tuple(sys.path))
    if file is None or not Path(file).is_file():
        raise KernelFileError(
            f"expected a file that defines kernel {record.kernel_name!r}, found none, "
            "and its source uses names from outside: move it into a file"
        )
    if module.__name__ == "__main__":
        _check_only_defines(Path(file))
    return KernelFile(f"{Path(file).resolve()}:{name}")


def _text(source: str, settings: Mapping[str, Any]) -> KernelText:
    if parse_kernel(source) is None or kernel_settings(settings) is None:
        raise KernelFileError(
            "expected the source of one kernel that reaches for nothing but tensor "
            "functions and its arguments, found other: name its file instead"
        )
    kept = (*CODE_SETTINGS, "index_dtype")
    return KernelText(source, {k: settings[k] for k in kept if k in settings})


@contextmanager
def _rebuilt(origin: KernelText) -> Iterator[Any]:
    import helion

    function = parse_kernel(origin.source)
    settings = kernel_settings(origin.settings)
    if function is None or settings is None:
        raise KernelFileError("expected the source of one plain kernel, found other")
    with defined(function) as fn:
        yield helion.kernel(fn, **settings)


def _imported(origin: KernelModule) -> Any:
    import helion

    known = set(sys.path)
    sys.path.extend(path for path in origin.search_path if path not in known)
    try:
        found: Any = importlib.import_module(origin.module)
        for part in origin.name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module may raise anything
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise KernelFileError(
            f"expected {origin.module}.{origin.name} to import in another process, "
            f"found {words}"
        ) from error
    if not isinstance(found, helion.Kernel):
        raise KernelFileError(
            f"expected a kernel at {origin.module}.{origin.name}, found "
            f"{type(found).__name__}"
        )
    return found


def _name_in(module: ModuleType, kernel: Any) -> str | None:
    """What the module calls the kernel; one with the same function will do."""
    for name, value in vars(module).items():
        if value is kernel or getattr(value, "fn", None) is kernel.fn:
            return name
    return None


def _is_importable(module: ModuleType) -> bool:
    """Whether its name leads to its file in a fresh process, too."""
    name, file = module.__name__, getattr(module, "__file__", None)
    parent = sys.modules.get(name.rpartition(".")[0])
    where = getattr(parent, "__path__", None)
    if name == "__main__" or file is None or ("." in name and where is None):
        return False
    try:
        spec = importlib.machinery.PathFinder.find_spec(name, where)
    except Exception:  # a finder of the user's
        return False
    return spec is not None and spec.origin == file


def _check_only_defines(path: Path) -> None:
    """Refuse a script that would do its work a second time."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        raise KernelFileError(f"expected to read {path}, found {error}") from error
    for statement in body:
        if not _is_inert(statement):
            raise KernelFileError(
                f"expected a program that only defines things outside `if __name__ == "
                f"'__main__'`, found a statement that runs at {path}:"
                f"{statement.lineno}: move the kernel into a module"
            )


def _is_inert(statement: ast.stmt) -> bool:
    if isinstance(statement, _INERT_STATEMENTS):
        return True
    if isinstance(statement, ast.If):
        return "__name__" in ast.unparse(statement.test) and not statement.orelse
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
        calls = (ast.Call, ast.Await, ast.comprehension)
        return not any(isinstance(node, calls) for node in ast.walk(statement))
    return False
