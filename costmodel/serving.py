"""Config files for an engine's kernels that have none for this GPU, for a while.

Some engines look every kernel's config up in a file per kernel and GPU, and switch a
kernel off where its GPU has no file. `write_missing` makes the missing files, with no
measurement; `fill_missing` does so for the length of a `with` block and leaves the
folder as it was. Neither touches a file that exists. Both only act when called.

The files are an engine's "one folder for each kernel" layout; see
`costmodel.export_json`. Call this before the engine starts its GPU work: torch is made
to describe the target while configs are chosen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import ExportError
from costmodel.export_json import gpu_file_name
from costmodel.export_json import merge_folder_file
from costmodel.export_plan import plan_export
from costmodel.frozen import dataclass
from costmodel.provider import Provider
from costmodel.provider import is_disabled
from costmodel.shape_list import DEFAULT_CONFIGS
from costmodel.shape_list import make_cases
from costmodel.shape_losses import ShapeCase
from costmodel.shapes import target_of

log = logging.getLogger("costmodel")


@dataclass(frozen=True, slots=True)
class ServedKernel:
    """A kernel of somebody else's engine, and what it will be called with.

    Attributes:
        name: Its folder, as the engine names it.
        kernel: A `helion.kernel` object, or the plain function that the engine makes
            one of, which is then bound as engines do, with `static_shapes=False`.
        cases: The shapes to have entries for; their keys are what the engine looks up.
        max_configs: Most distinct configs, hence programs to compile.
    """

    name: str
    kernel: Any
    cases: tuple[ShapeCase, ...]
    max_configs: int = DEFAULT_CONFIGS


def served(
    name: str,
    kernel: Any,
    arguments: Sequence[object],
    sizes: Mapping[str, Sequence[int]],
    *,
    max_configs: int = DEFAULT_CONFIGS,
) -> ServedKernel:
    """Describe a kernel by argument templates with named sizes.

    Example:
        >>> served("silu_mul", silu_mul, ["bf16[num_tokens,2*hidden]"],
        ...        {"num_tokens": [1, 64, 4096], "hidden": [4096]})

    Args:
        name: Its folder, as the engine names it.
        kernel: A `helion.kernel` object or a plain function.
        arguments: In the argument grammar; sizes stand by name.
        sizes: Values of each size, named as in the engine's keys.
        max_configs: Most distinct configs.

    Raises:
        ExportError: A size is missing or unused.
        ArgumentSpecError: An argument cannot be read.
    """
    cases = tuple(make_cases(arguments, sizes))
    return ServedKernel(name, kernel, cases, max_configs)


def write_missing(
    folder: str | os.PathLike[str],
    kernels: Sequence[ServedKernel],
    *,
    gpu: str | None = None,
    gpu_file: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
) -> tuple[Path, ...]:
    """Write a file for every kernel that has none for this GPU.

    Args:
        folder: The engine's config folder.
        kernels: What may be missing.
        gpu: The target's name; None means the GPU of this machine.
        gpu_file: What the engine calls it, such as "nvidia_h200"; None means the
            usual name.
        model_path: A published model; None means the provider's usual one.

    Returns:
        The files that were written; none where nothing is missing or
        `COSTMODEL_DISABLE` is set.

    Raises:
        ExportError: The folder does not exist, or a shape has no key.
        NoCommonConfigError: So few configs cannot serve all shapes.
        BindError: Helion refuses a shape.
        OSError: The folder cannot be written.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ExportError(f"expected the engine's config folder, found no {root}")
    hardware = target_of(gpu)
    file_name = f"{gpu_file or gpu_file_name(hardware)}.json"
    missing = [one for one in kernels if not (root / one.name / file_name).exists()]
    if not missing or is_disabled():
        return ()
    provider = Provider(model_path)
    texts = {}
    for one in missing:
        plan = plan_export(
            _as_kernel(one.kernel),
            one.cases,
            hardware,
            provider,
            max_configs=one.max_configs,
            name=one.name,
        )
        texts[root / one.name / file_name] = merge_folder_file(None, plan, {}).text
    # Planned first, written last: a kernel that fails leaves nothing behind.
    written = []
    try:
        for path, text in texts.items():
            if _create(path, text):
                written.append(path)
                log.info("costmodel: %s: predicted configs, not tuned", path)
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return tuple(written)


@contextlib.contextmanager
def fill_missing(
    folder: str | os.PathLike[str],
    kernels: Sequence[ServedKernel],
    *,
    gpu: str | None = None,
    gpu_file: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[Path, ...]]:
    """`write_missing` for the length of a `with` block.

    Leaving it removes what was written, and the folders made for it, whatever happened
    inside; a file that somebody changed meanwhile stays and is named in the log.

    Example:
        >>> with costmodel.serving.fill_missing(configs, kernels, gpu="H200"):
        ...     engine = start_engine()
    """
    root = Path(folder)
    before = {path for path in root.rglob("*") if path.is_dir()}
    written = write_missing(
        folder, kernels, gpu=gpu, gpu_file=gpu_file, model_path=model_path
    )
    contents = {path: path.read_bytes() for path in written}
    try:
        yield written
    finally:
        for path, content in contents.items():
            with contextlib.suppress(FileNotFoundError):
                if path.read_bytes() != content:
                    log.warning("costmodel: %s was changed and stays", path)
                    continue
                path.unlink()
            if path.parent not in before:
                with contextlib.suppress(OSError):  # not empty: somebody uses it
                    path.parent.rmdir()


def _as_kernel(kernel: Any) -> Any:
    import helion

    if isinstance(kernel, helion.Kernel):
        return kernel
    return helion.kernel(kernel, static_shapes=False)


def _create(path: Path, text: str) -> bool:
    """Make a file whole, unless somebody else, such as another rank, was first."""
    path.parent.mkdir(exist_ok=True)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=".part"
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        _take_name(Path(name), path)
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True


def _take_name(made: Path, path: Path) -> None:
    """Give a whole file its name; FileExistsError where the name is taken."""
    try:
        # A rename would replace what is there.
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with path.open("x", encoding="utf-8") as file:
            file.write(made.read_text(encoding="utf-8"))
