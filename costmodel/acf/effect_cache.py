"""What ptxas made of pairs, kept by content: PTX, control file and assembler.

A second link leads from a program to its PTX, so that a pair that is known needs
neither a child process nor Triton.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.atomic_file import write_atomically
from costmodel.compile_cache import CompileCache
from costmodel.compile_cache import cache_folder
from costmodel.compile_cache import cache_key
from costmodel.compiled_facts import CompiledFacts


class EffectCache:
    """A folder of facts, the compile cache's own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = cache_folder() if folder is None else folder
        self._facts = CompileCache(self._folder)

    def base(
        self, program: Mapping[str, Any], limit_s: float
    ) -> tuple[CompiledFacts, str | None] | None:
        """Facts of a program without a control file and its PTX's digest, or None."""
        key = cache_key({**program, "step": "ptx"})
        facts = self._facts.get(key, limit_s)
        if facts is None:
            return None
        try:
            ptx = json.loads(self._link(key).read_text(encoding="utf-8"))["ptx"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return (facts, ptx) if ptx is None or isinstance(ptx, str) else None

    def put_base(
        self, program: Mapping[str, Any], facts: CompiledFacts, ptx: str | None
    ) -> None:
        """Keep both, if they would come out the same another time."""
        if not facts.status.is_of_the_config:
            return
        key = cache_key({**program, "step": "ptx"})
        self._facts.put(key, facts)
        try:
            write_atomically(self._link(key), json.dumps({"ptx": ptx}))
        except OSError:
            return  # the next run pays, this one not

    def pair(
        self, ptx: str, acf_id: str, ptxas: str, limit_s: float
    ) -> CompiledFacts | None:
        """Facts of PTX with a control file, or None."""
        return self._facts.get(_pair_key(ptx, acf_id, ptxas), limit_s)

    def put_pair(self, ptx: str, acf_id: str, ptxas: str, facts: CompiledFacts) -> None:
        """Keep them."""
        self._facts.put(_pair_key(ptx, acf_id, ptxas), facts)

    def _link(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.ptx.json"


def _pair_key(ptx: str, acf_id: str, ptxas: str) -> str:
    return cache_key({"ptx": ptx, "acf": acf_id, "ptxas": ptxas})
