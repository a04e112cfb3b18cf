"""A child process that answers JSON lines, each within a time limit.

Compilers abort, hang and print megabytes: none of it may reach us. The child gets a
process group of its own, so that killing it takes the assembler along, and a file for
everything it prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_READ_BYTES = 1 << 16
_TAIL_BYTES = 4096


class ChildTimeoutError(Exception):
    """No answer within the limit; the child is dead."""


class ChildDiedError(Exception):
    """The child ended without an answer; the message says how, in one line."""


class ChildProcess:
    """A running child; `close` ends it, whatever it is doing."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the child)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environment),
            start_new_session=True,
        )
        self._received = b""

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send one object.

        Raises:
            ChildDiedError: Nobody is there to read it.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # a broken pipe, or one that we closed
            raise ChildDiedError(self._how_it_ended()) from None

    def hear(self, limit_s: float) -> dict[str, Any]:
        """Wait for one object.

        Raises:
            ChildTimeoutError: None came within `limit_s` seconds.
            ChildDiedError: The child ended first, or said something else.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._received:
                rest_s = deadline - time.monotonic()
                if rest_s <= 0 or not selector.select(rest_s):
                    self.close()
                    raise ChildTimeoutError(f"no answer within {limit_s:g} s")
                data = os.read(pipe, _READ_BYTES)
                if not data:
                    raise ChildDiedError(self._how_it_ended())
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise ChildDiedError("expected a JSON object from the child, found other")
        return answer

    def kill(self) -> None:
        """End the child and everything it started; any thread may do so.

        Pipes stay open: another thread may be reading, and must not find somebody
        else's file under its number.
        """
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the child and give back all it used."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _how_it_ended(self) -> str:
        """Exit code or signal, and the last thing it said."""
        code = self._process.wait()
        said = self._last_words()
        self.close()
        try:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        except ValueError:
            how = f"signal {-code}"
        return f"ended with {how}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """The last line that names an error, else the last line, of what it printed."""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - _TAIL_BYTES))
        text = self._log.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [s for s in lines if "error" in s.lower() or "assertion" in s.lower()]
        return (errors or lines or [""])[-1]
