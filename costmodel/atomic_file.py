"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str) -> bool:
    """Write text, unless the file holds it already.

    A reader sees the old content or the new one, never a part; an unchanged file keeps
    its time stamp, so that a second run changes nothing.

    Args:
        path: The file; missing folders above it are made.
        text: Its whole content.

    Returns:
        Whether the file changed.

    Raises:
        OSError: The folder cannot be written.
    """
    content = text.encode()
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=".part"
    )
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # As an ordinary new file would be, or as the file was.
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True
