"""The marks around our part of an ahead-of-time file, and whether it is still ours."""

from __future__ import annotations

import hashlib
import re

BEGIN = "# costmodel export, begin: "
END = "# costmodel export, end: "


def marked(name: str, body: str) -> str:
    """A kernel's part of the file with its marks."""
    return f"{BEGIN}{name} {_digest(body)}\n{body}{END}{name}\n"


def span_of(text: str, name: str) -> tuple[int, int] | None:
    """Where a kernel's part begins and ends; None where there is none."""
    begin = re.search(rf"^{re.escape(BEGIN + name)} \w+\n", text, re.MULTILINE)
    if begin is None:
        return None
    end = re.compile(rf"^{re.escape(END + name)}\n?", re.MULTILINE)
    found = end.search(text, begin.end())
    return None if found is None else (begin.start(), found.end())


def is_unchanged(section: str) -> bool:
    """Whether a part is as we wrote it."""
    first, _, rest = section.partition("\n")
    body = rest[: rest.rindex(END)]
    return first.rpartition(" ")[2] == _digest(body)


def without_ours(text: str, name: str) -> str | None:
    """The file without our part for a kernel; None where it holds none of ours.

    A part that somebody changed is theirs.
    """
    span = span_of(text, name)
    if span is None or not is_unchanged(text[span[0] : span[1]]):
        return None
    return text[: span[0]] + text[span[1] :]


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
