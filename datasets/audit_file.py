"""The audit of everything imported into a corpus, kept beside its tables.

A training on a stored corpus can then say, and record, what was kept and dropped of the
logs the corpus was made from, although the logs themselves may be gone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from costmodel.datasets.audit import Audit
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.errors import StoreError

AUDIT_FILE = "audit.json"


def read_audit(directory: Path | str) -> Audit:
    """What is known of a corpus's imports; empty where nothing readable is kept.

    The tables are the corpus; a lost or damaged audit makes it no less usable.
    """
    try:
        rows = json.loads((Path(directory) / AUDIT_FILE).read_text(encoding="utf-8"))
        return Audit(_finding(row) for row in rows)
    except (OSError, ValueError, TypeError, KeyError):
        return Audit()


def add_to_audit(directory: Path | str, findings: Iterable[Finding]) -> None:
    """Add one import's findings, in place of older ones about the same runs.

    The file is replaced whole or left alone.

    Raises:
        StoreError: It cannot be written.
    """
    path = Path(directory) / AUDIT_FILE
    new = list(findings)
    seen_again = {_run(one) for one in new}
    kept = (one for one in read_audit(directory) if _run(one) not in seen_again)
    audit = Audit([*kept, *new])
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(audit.rows(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: expected to write the audit, found {error.strerror or error}: "
            "the measurements are stored; free some space and import once more"
        ) from None


def _run(finding: Finding) -> tuple[str, str]:
    return finding.file, finding.run_id


def _finding(row: dict[str, object]) -> Finding:
    fields = dict(row)
    stage = Stage(str(fields.pop("stage")))
    outcome = Outcome(str(fields.pop("outcome")))
    return Finding(stage, outcome, **fields)  # type: ignore[arg-type]
