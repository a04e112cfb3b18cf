"""The parent's side of one recording process: start, give a job, watch, kill."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import IO
from typing import Any

from costmodel.datasets.gpu_turn import COMPILE
from costmodel.datasets.gpu_turn import MEASURE
from costmodel.datasets.gpu_turn import WAIT

START = "start"
# Silence for longer means a hang. Between configs there is a beat; one config takes at
# most a few launches. Compiling is silent for as long as the slowest compiles take.
_STALL_LIMITS_S = {START: 180.0, COMPILE: 180.0, MEASURE: 60.0, WAIT: float("inf")}
_POLL_S = 0.5
_STDERR_TAIL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one job.

    Attributes:
        summary: Fields of the worker's summary, or None if the job failed.
        error: Why it failed, in one line.
        worth_retrying: The process died or hung: another try in isolation may work.
    """

    summary: Mapping[str, Any] | None = None
    error: str = ""
    worth_retrying: bool = False


@dataclass(slots=True)
class WorkerProcess:
    """One worker, started again whenever it is gone.

    Attributes:
        command: What to run; talks as `collect_worker` does.
        folder: Working folder, where the recorded files go.
        environment: Its whole environment.
        stderr_path: Where its stderr is appended.
        stall_limits_s: Seconds of silence by phase that mean a hang; None means those
            of a recording.
    """

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    stderr_path: Path
    stall_limits_s: Mapping[str, float] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _unread: bytes = field(default=b"", init=False)

    def start(self) -> None:
        """Start if it does not run; returns at once, importing takes seconds."""
        if self._process is not None and self._process.poll() is None:
            return
        self._unread = b""
        with self.stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    def run(self, job: Mapping[str, Any], kill_at_s: float) -> Outcome:
        """Do one job; returns when it is done, failed, hung or out of time.

        Args:
            job: One JSON object for the worker.
            kill_at_s: Unix time after which the worker is killed.
        """
        self.start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self.kill()
            return Outcome(error=self._died())
        return self._watch(process, kill_at_s)

    def _watch(self, process: subprocess.Popen[bytes], kill_at_s: float) -> Outcome:
        assert process.stdout is not None
        phase = START
        heard = time.monotonic()
        while True:
            for message in self._messages(process.stdout):
                heard = time.monotonic()
                if message["event"] == "done":
                    return Outcome(summary=message)
                if message["event"] == "failed":
                    if message["broken"]:
                        # It is about to exit: a next job would die with it.
                        self.kill()
                    return Outcome(
                        error=message["error"], worth_retrying=message["broken"]
                    )
                phase = message.get("phase", phase)
            if time.time() > kill_at_s:
                self.kill()
                return Outcome(error="out of time")
            if process.poll() is not None:
                self.kill()
                return Outcome(error=self._died(), worth_retrying=True)
            limits_s = self.stall_limits_s or _STALL_LIMITS_S
            if time.monotonic() - heard > limits_s[phase]:
                self.kill()
                return Outcome(error=f"hung in phase {phase!r}", worth_retrying=True)

    def _messages(self, stdout: IO[bytes]) -> list[dict[str, Any]]:
        """Whole lines that arrive within one poll."""
        ready, _, _ = select.select([stdout], [], [], _POLL_S)
        if ready:
            self._unread += os.read(stdout.fileno(), 1 << 16)
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def kill(self) -> None:
        """End it and what it started; a lock it held is free afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def last_words(self, n_lines: int) -> str:
        """The last lines of its stderr; empty if it has said nothing."""
        if not self.stderr_path.exists():
            return ""
        text = self.stderr_path.read_bytes()[-_STDERR_TAIL_BYTES:]
        lines = text.decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-n_lines:])

    def _died(self) -> str:
        return f"worker died: {' | '.join(self.last_words(3).splitlines())}"


def worker_command(lock: Path, compile_jobs: int, hardware: str | None) -> list[str]:
    """Command line of a worker, run by this very Python."""
    command = [sys.executable, "-m", "costmodel.datasets.collect_worker"]
    command += ["--lock", str(lock), "--compile-jobs", str(compile_jobs)]
    return command if hardware is None else [*command, "--hardware", hardware]


def worker_environment(root: Path, work: Path) -> dict[str, str]:
    """This environment with our root on the path and caches of the recording's own."""
    paths = [str(root)]
    paths += [
        os.path.abspath(one)
        for one in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if one
    ]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": str(work / "cache-triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(work / "cache-inductor"),
        # Threads of the libraries would fight with the compilers for the cores.
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
