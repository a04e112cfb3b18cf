"""Run the tests marked `helion` against other versions of Helion, and name what fails.

Run as `make test-helion` from a checkout that is installed. Each version is installed
without its dependencies into a folder of its own under `build/` and put before the
environment's; torch and Triton stay as they are. Nothing else is changed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

VERSIONS = ("1.4.0", "1.5.0", "1.5.1")
ROOT = Path(__file__).resolve().parents[1]


def installed(version: str, folder: Path) -> Path:
    """Where that version is, installed on first use."""
    target = folder / f"helion-{version}"
    if not (target / "helion" / "__init__.py").exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
        subprocess.run(
            [*pip, "--target", str(target), f"helion=={version}"], check=True
        )
    return target


def run(version: str, folder: Path, options: list[str]) -> tuple[str, list[str]]:
    """Pytest's last line, and what failed, erred or was skipped as missing there."""
    paths = [str(installed(version, folder)), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "helion", "-rfEs"),
            *("-p", "no:cacheprovider", *options),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    named = [line for line in lines if re.match(r"(FAILED|ERROR|SKIPPED) ", line)]
    last = lines[-1] if lines else done.stderr.strip()[-300:]
    return last.strip("= "), named


def main() -> int:
    """One line for each version, then what did not run there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"default: {', '.join(VERSIONS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "helion")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="for pytest")
    arguments = parser.parse_args()
    worst = 0
    for version in arguments.versions or VERSIONS:
        summary, named = run(version, arguments.folder, arguments.tests)
        print(f"helion {version}: {summary}", flush=True)
        for line in named:
            print(f"  {line[:160]}")
        worst |= " failed" in summary or " passed" not in summary
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
