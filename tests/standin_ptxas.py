#!/usr/bin/env python3
"""A ptxas that takes control files of plain text, for tests without a real one.

It runs the real ptxas that Triton brings, without the control file, and then alters
what came out by the file's words, separated by blanks:

* `regs=-8`: registers reported by `-v`, relative;
* `spill=16`: bytes of spill stores, spill loads and stack, relative;
* `delta=3`: instructions that do nothing, added to the code;
* `noop`: nothing changes, as with a control file of another stage;
* `crash`: ends by a signal; `hang`: sleeps for ten minutes;
* `cuda=13.3`: is refused by another minor;
* words that begin with `#` say nothing and make another file of it.

Anything else is refused in the real one's words. `STANDIN_PTXAS_VERSION` is the version
it claims, `STANDIN_PTXAS_REAL` the real one, `STANDIN_PTXAS_LOG` a file that gets one
line for each assembly: the control file's path or `-`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEFAULT_VERSION = "13.3.73"
_NEWEST_PTX = (9, 4)  # of the ptxas that Triton 3.9 brings
_NOP = struct.pack("<QQ", 0x7918, 0x000FC00000000000)
_NUMBER = re.compile(r"(regs|spill|delta)=(-?\d+)")


def real_ptxas() -> Path | None:
    """The newest assembler that the installed Triton brings."""
    named = os.environ.get("STANDIN_PTXAS_REAL")
    if named:
        return Path(named)
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return None
    tools = Path(found.origin).parent / "backends" / "nvidia" / "bin"
    names = [tools / "ptxas-blackwell", tools / "ptxas"]
    return next((path for path in names if path.is_file()), None)


def install(folder: Path, version: str = DEFAULT_VERSION) -> Path:
    """Write a quick starter of this file into `folder`, for Triton's two variables."""
    path = folder / f"ptxas-{version}"
    path.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, runpy\n"
        f"os.environ.setdefault('STANDIN_PTXAS_REAL', {str(real_ptxas())!r})\n"
        f"os.environ.setdefault('STANDIN_PTXAS_VERSION', {version!r})\n"
        f"runpy.run_path({str(Path(__file__).resolve())!r}, run_name='__main__')\n"
    )
    path.chmod(0o755)
    return path


def main(arguments: list[str]) -> int:
    """Assemble; returns the exit code."""
    version = os.environ.get("STANDIN_PTXAS_VERSION", DEFAULT_VERSION)
    if "--version" in arguments:
        cuda = ".".join(version.split(".")[:2])
        print("ptxas: a stand-in for tests")
        print(f"Cuda compilation tools, release {cuda}, V{version}")
        return 0
    controls, rest = _without_controls(arguments)
    log = os.environ.get("STANDIN_PTXAS_LOG")
    if log:
        with Path(log).open("a") as file:
            file.write(f"{controls if controls is not None else '-'}\n")
    changes: dict[str, int] = {}
    if controls is not None:
        words = _words(controls, version)
        if isinstance(words, str):
            print(f"ptxas fatal   : {words}", file=sys.stderr)
            return 255
        if "crash" in words:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in words:
            time.sleep(600)
        for word in words:
            number = _NUMBER.fullmatch(word)
            if number is not None:
                changes[number[1]] = int(number[2])
    return _assemble(rest, controls, changes)


def _without_controls(arguments: list[str]) -> tuple[str | None, list[str]]:
    for i, argument in enumerate(arguments):
        if argument.lstrip("-") == "apply-controls":
            return arguments[i + 1], arguments[:i] + arguments[i + 2 :]
    return None, arguments


def _words(path: str, version: str) -> list[str] | str:
    """The file's words, or what ptxas would say of it."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return f"File '{path}' could not be opened"
    if not content:
        return f"Input file '{path}' not in expected format"
    words = content.decode(errors="replace").split()
    for word in words:
        plain = word in ("noop", "crash", "hang") or word.startswith("#")
        right = word.startswith("cuda=") and version.startswith(f"{word[5:]}.")
        if not (plain or right or _NUMBER.fullmatch(word)):
            return f"Invalid compiler controls file '{path}'"
    return words


def _assemble(
    arguments: list[str], controls: str | None, changes: dict[str, int]
) -> int:
    real = real_ptxas()
    if real is None:
        print("ptxas fatal   : no real ptxas to stand in for", file=sys.stderr)
        return 255
    with tempfile.TemporaryDirectory() as folder:
        command = [_readable(argument, Path(folder)) for argument in arguments]
        done = subprocess.run([str(real), *command], capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    sys.stderr.write(_altered_words(done.stderr, changes))
    if done.returncode == 0 and controls is not None and "-o" in arguments:
        made = Path(arguments[arguments.index("-o") + 1])
        nops = _NOP * changes.get("delta", 0)
        made.write_bytes(_altered_cubin(made.read_bytes(), nops, controls))
    return done.returncode


def _readable(argument: str, folder: Path) -> str:
    """PTX for a newer assembler than the real one, as the real one can read it."""
    if not argument.endswith(".ptx"):
        return argument
    text = Path(argument).read_text()
    found = re.search(r"^\.version (\d+)\.(\d+)", text, re.MULTILINE)
    if found is None or (int(found[1]), int(found[2])) <= _NEWEST_PTX:
        return argument
    older = folder / Path(argument).name
    newest = ".version {}.{}".format(*_NEWEST_PTX)
    older.write_text(text.replace(found[0], newest, 1))
    return str(older)


def _altered_words(words: str, changes: dict[str, int]) -> str:
    def more(change: str) -> object:
        def replaced(found: re.Match[str]) -> str:
            return f"{max(0, int(found[1]) + changes.get(change, 0))}{found[2]}"

        return replaced

    words = re.sub(
        r"(?<=Used )(\d+)( registers)",
        more("regs"),  # type: ignore[arg-type]
        words,
    )
    return re.sub(
        r"(\d+)( bytes (?:stack frame|spill stores|spill loads))",
        more("spill"),  # type: ignore[arg-type]
        words,
    )


def _altered_cubin(cubin: bytes, nops: bytes, controls: str) -> bytes:
    """Longer code, and a note of the command line, in sections moved to the end."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    made = bytearray(cubin)

    def field(section: int, offset: int) -> int:
        return int(struct.unpack_from("<Q", cubin, table + section * size + offset)[0])

    for i in range(count):
        (name_offset,) = struct.unpack_from("<I", cubin, table + i * size)
        start = field(names, 24) + name_offset
        name = cubin[start : cubin.index(b"\0", start)]
        data = cubin[field(i, 24) : field(i, 24) + field(i, 32)]
        if name.startswith(b".text") and nops:
            data += nops
        elif name == b".note.nv.tkinfo":
            data += f" -apply-controls {controls} \0".encode()
        else:
            continue
        made += b"\0" * (-len(made) % 128)
        struct.pack_into("<QQ", made, table + i * size + 24, len(made), len(data))
        made += data
    return bytes(made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
