"""The wheel holds every room and the data files, and imports from anywhere."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        elif path.is_file():
            copy.write_bytes(path.read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", str(out), str(source)),
        ],
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_every_room_and_no_stranger(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"costmodel"}
    for expected in (
        "costmodel/features/graph.py",
        "costmodel/datasets/helion_log.py",
        "costmodel/datasets/workloads/registry.py",
        "costmodel/training/train.py",
        "costmodel/heuristics/propose.py",
        "costmodel/hardware/h200.toml",
        "costmodel/py.typed",
    ):
        assert expected in names
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_the_wheel_imports_from_elsewhere(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import costmodel.datasets.load, costmodel.features.extract;"
        "import costmodel.hardware;"
        "import costmodel; print(costmodel.__file__);"
        "print(costmodel.hardware.load_hardware('H200').n_sms)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found[0].startswith(str(tmp_path))
    assert found[1] == "132"
