"""The folders, the links and what goes into the wheel say the same thing.

Why the layout is this way: each top-level folder holds its code, the build map gives it
its import name, and the link in `costmodel/` is for editors and type checkers.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "tool"
]["setuptools"]
LINKED = ("datasets", "features", "training")


def _import_name(folder: Path) -> str:
    parts = folder.relative_to(ROOT).parts
    return ".".join(parts if parts[0] == "costmodel" else ("costmodel", *parts))


def _folders_with_code() -> set[str]:
    found = set()
    for top in ("costmodel", *LINKED):
        for file in (ROOT / top).rglob("*.py"):
            relative = file.relative_to(ROOT)
            # The links repeat the top-level folders.
            if relative.parts[:2] not in {("costmodel", name) for name in LINKED}:
                found.add(_import_name(file.parent))
    return found


def test_every_folder_with_code_is_in_the_wheel() -> None:
    assert set(SETUPTOOLS["packages"]) == _folders_with_code()


def test_the_build_map_leads_to_the_folders() -> None:
    mapped = SETUPTOOLS["package-dir"]
    assert mapped == {
        "costmodel": "costmodel",
        **{f"costmodel.{name}": name for name in LINKED},
    }


@pytest.mark.parametrize("name", LINKED)
def test_each_link_is_its_folder(name: str) -> None:
    link = ROOT / "costmodel" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name


def test_no_file_makes_datasets_a_regular_package() -> None:
    # It would win over an installed Hugging Face `datasets` at the repository root.
    assert not (ROOT / "datasets" / "__init__.py").exists()
    assert not (ROOT / "tests" / "__init__.py").exists()


@pytest.mark.parametrize(
    "pattern", ["hardware/*.toml", "models/*.ubj", "models/*.json"]
)
def test_data_files_are_in_the_wheel(pattern: str) -> None:
    assert pattern in SETUPTOOLS["package-data"]["costmodel"]


def test_every_data_file_is_covered_by_a_pattern() -> None:
    patterns = SETUPTOOLS["package-data"]
    for top in ("costmodel", *LINKED):
        covered: set[Path] = set()
        for name, globs in patterns.items():
            if name.split(".")[-1] == top or name == top:
                for pattern in globs:
                    covered |= set((ROOT / top).glob(pattern))
        for file in (ROOT / top).rglob("*.toml"):
            inside_link = any(parent.is_symlink() for parent in file.parents)
            if not inside_link:
                assert file in covered, f"{file.relative_to(ROOT)} is not in the wheel"


def test_from_the_root_the_packages_are_ours() -> None:
    code = (
        "import costmodel.features, costmodel.training, costmodel.datasets.workloads;"
        "print(costmodel.__file__, costmodel.features.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "costmodel" in done.stdout and "features" in done.stdout
