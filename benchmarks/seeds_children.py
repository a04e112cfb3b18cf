"""Processes of the seeding experiment: one job each, caches of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


class Children:
    """Processes for one job each; the next one imports while one is at work."""

    def __init__(self, script: Path, log: Path) -> None:
        """A child runs `script`; what it prints besides answers goes to `log`."""
        self._script = script
        self._log_path = log
        self._spare: subprocess.Popen[str] | None = None
        self._work: Any = None
        self._number = 0

    def __enter__(self) -> Children:
        self._work = tempfile.TemporaryDirectory(prefix="seeds-")
        self._log = self._log_path.open("a", encoding="utf-8")
        self._spare = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._spare is not None:
            kill(self._spare)
        self._log.close()
        with contextlib.suppress(OSError):
            self._work.cleanup()

    def folder(self) -> Path:
        """A fresh folder for a job's files."""
        self._number += 1
        made = Path(self._work.name) / f"job-{self._number}"
        made.mkdir()
        return made

    def _start(self) -> subprocess.Popen[str]:
        caches = self.folder()
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "HELION_CACHE_DIR": str(caches / "helion"),
            "HELION_SKIP_CACHE": "1",
            "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        }
        return subprocess.Popen(
            [sys.executable, str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a job, or {"error": why there is none}."""
        child = self._spare or self._start()
        self._spare = self._start()
        try:
            said, _ = child.communicate(json.dumps(job) + "\n", timeout=seconds)
        except subprocess.TimeoutExpired:
            kill(child)
            return {"error": f"killed after {seconds:.0f} s"}
        kill(child)
        lines = said.splitlines()
        if not lines:
            return {"error": f"the process ended with {child.returncode}: see the log"}
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


def kill(child: subprocess.Popen[str]) -> None:
    """End a child with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        child.communicate()
