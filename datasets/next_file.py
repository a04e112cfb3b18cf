"""The list of what to record next: one line a workload, in order of value.

Written by whoever chose, read by the collector; a line names a workload by its id and
holds the configs to time, besides the default, which is always timed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CorruptRecordError
from costmodel.types import Config

NEXT_FILE = "next.jsonl"


def write_next(path: Path, chosen: Mapping[Workload, Sequence[Config]]) -> None:
    """Write the list, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {
                "workload_id": workload.workload_id,
                "kernel": workload.kernel,
                "arguments": workload.args,
                "configs": list(configs),
            }
        )
        for workload, configs in chosen.items()
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read_next(path: Path) -> dict[str, list[Config]]:
    """Configs by workload id, in the order of the list.

    Raises:
        CorruptRecordError: No such file, or a line that is not as `write_next` made it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptRecordError(
            f"{path}: expected a list of configs to record, cannot read it ({error}): "
            "make one with `costmodel collect OUT --next N`"
        ) from None
    found: dict[str, list[Config]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            body = json.loads(line)
            found[str(body["workload_id"])] = [dict(one) for one in body["configs"]]
        except (ValueError, KeyError, TypeError):
            raise CorruptRecordError(
                f"{path}:{number}: expected a workload id and configs, found "
                f"{line[:60]!r}: make the list again with `costmodel collect --next`"
            ) from None
    return found
