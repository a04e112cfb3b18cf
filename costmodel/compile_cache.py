"""Compiled facts kept on disk, by what went into the compiler.

One small JSON file for each program. Writing is atomic, and what cannot be read is
compiled again, so several processes may share a folder and killing one harms none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel import compiled_facts
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus

CACHE_VARIABLE = "XDG_CACHE_HOME"
_SCHEMA_VERSION = 1


def user_cache() -> Path:
    """This project's folder among the user's caches."""
    base = os.environ.get(CACHE_VARIABLE)
    root = Path(base) if base else Path.home() / ".cache"
    return root / "helion-costmodel"


def cache_folder() -> Path:
    """Where facts are kept unless a caller says otherwise."""
    return user_cache() / "compiled"


def cache_key(program: Mapping[str, Any]) -> str:
    """64 hex digits over everything that decides about the machine code."""
    text = json.dumps({"schema": _SCHEMA_VERSION, **program}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class CompileCache:
    """A folder of facts; made on the first write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, limit_s: float) -> CompiledFacts | None:
        """Facts of a program, or None.

        Args:
            key: From `cache_key`.
            limit_s: Seconds that compiling may take now; a timeout of a shorter limit
                says nothing.
        """
        try:
            body = json.loads(self._path(key).read_text(encoding="utf-8"))
            facts = compiled_facts.from_json(body)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if facts.status is CompileStatus.TIMEOUT and facts.limit_s < limit_s:
            return None
        return facts

    def put(self, key: str, facts: CompiledFacts) -> None:
        """Keep facts, if they would come out the same another time.

        A folder that cannot be written costs the next run time, and this one nothing.
        """
        if not facts.status.is_of_the_config:
            return
        path = self._path(key)
        text = json.dumps(compiled_facts.to_json(facts), sort_keys=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(name, path)
            except OSError:
                os.unlink(name)
                raise
        except OSError:
            return

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
