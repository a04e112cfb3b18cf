"""Try a control file: does ptxas take it, and does the code change?

ptxas crashes on some control files that it accepts, and is silent about those of the
wrong stage. So every run is a child with a time limit, and what counts as taken is a
difference in the instructions of at least one program.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from costmodel import cubin
from costmodel.acf.probe_ptx import probe_programs
from costmodel.acf.toolchain import PtxasTool
from costmodel.errors import AcfSourceError
from costmodel.frozen import dataclass

DEFAULT_LIMIT_S = 30.0
"""Seconds for one program; each takes 0.3 s on an idle machine."""

DEFAULT_GPU = "sm_90a"
"""What to assemble for; control files are not bound to an architecture."""

_MAX_WORDS = 200  # characters of what ptxas says


class ProbeStatus(enum.StrEnum):
    """What became of a control file on the probes."""

    OK = "ok"
    UNCHANGED = "unchanged"
    """Accepted, but no program's code changed: made for another stage."""
    REFUSED = "refused"
    """ptxas says that it is not for this version, corrupt, or no control file."""
    UNREADABLE = "unreadable"
    """ptxas cannot open it."""
    CRASH = "crash"
    TIMEOUT = "timeout"
    NOT_APPLIED = "not_applied"
    """The cubin's note says that ptxas never saw it."""


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The answer of `Probe.check`.

    Attributes:
        status: Only `OK` is worth having.
        detail: Why, in one line.
        changed: Programs whose code it changed; the first one is enough to stop at.
    """

    status: ProbeStatus
    detail: str = ""
    changed: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Whether ptxas takes the file and heeds it."""
        return self.status is ProbeStatus.OK


@dataclass(frozen=True, slots=True)
class _Run:
    """How one run ended: code None means that time ran out."""

    code: int | None
    words: str
    digest: str = ""
    applied: str | None = None


class Probe:
    """Tries control files on programs of ours, and on the user's.

    Args:
        tool: The assembler.
        gpu: What to assemble for, as ptxas spells it.
        limit_s: Seconds that one program may take.
        programs: PTX of the user's own by name, tried after ours.
    """

    def __init__(
        self,
        tool: PtxasTool,
        gpu: str = DEFAULT_GPU,
        limit_s: float = DEFAULT_LIMIT_S,
        programs: Mapping[str, str] | None = None,
    ) -> None:
        self.tool = tool
        self._gpu = gpu
        self._limit_s = limit_s
        self._programs = {**probe_programs(), **(programs or {})}
        self._plain: dict[str, str] = {}

    def check(self, path: Path) -> ProbeVerdict:
        """Try one file.

        Args:
            path: Of the control file; without spaces, as Triton needs it.

        Raises:
            AcfSourceError: The assembler fails on a program without any control file.
        """
        for name, ptx in self._programs.items():
            run = self._run(ptx, path)
            if run.code is None:
                return ProbeVerdict(
                    ProbeStatus.TIMEOUT,
                    f"ptxas was not done with {name} within {self._limit_s:g} s",
                )
            if run.code != 0:
                return _failure(run, path)
            if run.applied is None or Path(run.applied).name != path.name:
                # The cubin's note repeats the command line that reached ptxas.
                return ProbeVerdict(
                    ProbeStatus.NOT_APPLIED,
                    "the cubin's note does not name the control file: a wrapper "
                    "around ptxas drops the option",
                )
            if run.digest != self.plain_digest(name):
                return ProbeVerdict(ProbeStatus.OK, changed=(name,))
        return ProbeVerdict(
            ProbeStatus.UNCHANGED,
            f"ptxas takes it and changes no code of {len(self._programs)} programs: "
            "made for another stage of the compiler, or for one kernel only "
            "(`--ptx FILE` adds that kernel's code to the programs)",
        )

    def plain_digest(self, name: str) -> str:
        """Digest of a program's code without any control file.

        Raises:
            AcfSourceError: The assembler fails on it.
        """
        if name not in self._plain:
            run = self._run(self._programs[name], None)
            if run.code != 0:
                raise AcfSourceError(
                    f"expected {self.tool.path} to assemble {name} for {self._gpu} "
                    f"without a control file, found: {run.words or 'no answer in time'}"
                )
            self._plain[name] = run.digest
        return self._plain[name]

    def _run(self, ptx: str, controls: Path | None) -> _Run:
        with tempfile.TemporaryDirectory(prefix="costmodel-acf-") as folder:
            source, made = Path(folder) / "probe.ptx", Path(folder) / "probe.cubin"
            source.write_text(ptx)
            option = [] if controls is None else ["--apply-controls", str(controls)]
            command = [str(self.tool.path), *option, f"--gpu-name={self._gpu}"]
            code, words = _run_limited(
                [*command, str(source), "-o", str(made)], self._limit_s
            )
            if code != 0:
                return _Run(code, words)
            content = made.read_bytes() if made.is_file() else b""
        return _Run(
            code, words, cubin.text_digest(content), cubin.applied_controls(content)
        )


def _run_limited(command: list[str], limit_s: float) -> tuple[int | None, str]:
    """Exit code and words of a child; it and what it started are dead afterwards."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, " ".join(said.decode(errors="replace").split())


def _failure(run: _Run, path: Path) -> ProbeVerdict:
    """What a run that ended badly says of the file."""
    assert run.code is not None
    words = run.words.replace(str(path), path.name)[:_MAX_WORDS]
    if run.code < 0:
        try:
            how = signal.Signals(-run.code).name
        except ValueError:
            how = f"signal {-run.code}"
        return ProbeVerdict(ProbeStatus.CRASH, f"ptxas ended with {how}")
    if "could not be opened" in words:
        return ProbeVerdict(ProbeStatus.UNREADABLE, words)
    if "Invalid compiler controls file" in words or "expected format" in words:
        return ProbeVerdict(
            ProbeStatus.REFUSED, f"another CUDA minor's, or corrupt: {words}"
        )
    return ProbeVerdict(ProbeStatus.REFUSED, f"ptxas code {run.code}: {words}")
