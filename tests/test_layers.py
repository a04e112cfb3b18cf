"""Imports point one way: the layers of `docs/architecture.md`, read from the source."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("costmodel", "features", "datasets", "training")
HELION_PUBLIC = {"helion", "helion.language", "helion.exc", "helion.runtime"}


def _sources(*rooms: str) -> list[Path]:
    files = []
    for room in rooms:
        for file in sorted((ROOT / room).rglob("*.py")):
            parts = file.relative_to(ROOT).parts
            if parts[0] != "costmodel" or parts[1] not in ROOMS:
                files.append(file)
    return files


@functools.cache
def _imports(path: Path) -> tuple[str, ...]:
    """Dotted names of everything a file imports, `if TYPE_CHECKING` blocks excepted."""
    return tuple(_read_imports(path))


def _read_imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            assert node.module is not None
            yield node.module
        nodes.extend(ast.iter_child_nodes(node))


def _is(name: str, *packages: str) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in packages)


def _who_imports(files: list[Path], *packages: str) -> set[str]:
    return {
        str(file.relative_to(ROOT))
        for file in files
        if any(_is(name, *packages) for name in _imports(file))
    }


def _is_cli(path: Path) -> bool:
    return path.parent.name == "costmodel" and path.name.startswith("cli")


def test_the_checks_see_the_code() -> None:
    names = {file.relative_to(ROOT).as_posix() for file in _sources(*ROOMS)}
    assert "costmodel/helion_hook/records.py" in names
    assert "features/__init__.py" in names
    assert not any(name.startswith("costmodel/features") for name in names)
    assert "costmodel.arguments.parse_argument" in set(
        _imports(Path(__file__).with_name("test_target.py"))
    )


def test_only_the_hook_knows_helions_private_side() -> None:
    found = {
        (str(file.relative_to(ROOT)), name)
        for file in _sources(*ROOMS)
        if file.parent != ROOT / "costmodel" / "helion_hook"
        for name in _imports(file)
        if _is(name, "helion")
        and not any(name == p or name.rpartition(".")[0] == p for p in HELION_PUBLIC)
    }
    assert not found


def test_what_runs_at_compile_time_knows_no_training() -> None:
    serving = [file for file in _sources("costmodel") if not _is_cli(file)]
    ours = ("costmodel.datasets", "costmodel.training")
    forbidden = (*ours, "mlflow", "pyarrow", "fsspec", "dask", "distributed")
    assert not _who_imports(serving, *forbidden)


def test_mlflow_has_one_room() -> None:
    assert not _who_imports(_sources("costmodel", "features", "datasets"), "mlflow")


def test_features_are_numbers_from_facts() -> None:
    allowed = (
        "costmodel.errors",
        "costmodel.features",
        "costmodel.frozen",
        "costmodel.hardware",
        "costmodel.types",
    )
    for file in _sources("features"):
        for name in _imports(file):
            if _is(name, "costmodel"):
                assert _is(name, *allowed) or name == "costmodel", (file, name)
            else:
                top = name.partition(".")[0]
                assert top == "numpy" or top in sys.stdlib_module_names, (file, name)


@pytest.mark.parametrize(
    "module", ["types.py", "errors.py", "frozen.py", "hardware.py"]
)
def test_the_foundation_stands_on_nothing(module: str) -> None:
    (file,) = [f for f in _sources("costmodel") if f.name == module]
    ours = {name for name in _imports(file) if _is(name, "costmodel")}
    beside = ("costmodel.types", "costmodel.errors", "costmodel.frozen")
    assert all(_is(name, *beside) for name in ours), ours


@pytest.mark.parametrize("room", ["heuristics"])
def test_heuristics_and_features_do_not_know_helion(room: str) -> None:
    files = [*_sources("features"), *_sources(f"costmodel/{room}")]
    assert not _who_imports(
        files, "helion", "costmodel.helion_hook", "costmodel.target"
    )


def test_what_scores_does_not_know_helion() -> None:
    names = {"learned.py", "gate.py", "hybrid.py", "scorer.py"}
    files = [file for file in _sources("costmodel") if file.name in names]
    assert not _who_imports(files, "helion", "torch", "costmodel.helion_hook")


def test_datasets_do_not_know_training() -> None:
    assert not _who_imports(_sources("datasets"), "costmodel.training")


def test_no_second_identity() -> None:
    """`import features` at the root would be another module than ours."""
    assert not _who_imports(
        [*_sources(*ROOMS), *(ROOT / "tests").glob("*.py")],
        "features",
        "datasets",
        "training",
    )


def test_nothing_is_pickled() -> None:
    assert not _who_imports(_sources(*ROOMS), "pickle", "joblib", "dill", "cloudpickle")


def _loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


HEAVY = {"torch", "helion", "triton", "xgboost", "sklearn", "mlflow", "pandas", "numpy"}


def test_importing_the_package_is_light() -> None:
    assert not _loaded_by("import costmodel") & HEAVY


def test_reading_a_gpu_or_an_argument_is_light() -> None:
    loaded = _loaded_by(
        "import costmodel.hardware as h; h.load_hardware('H200');"
        "import costmodel.arguments as a; a.parse_argument('bf16[4,4]')"
    )
    assert not loaded & HEAVY
