"""The model of control files, made beside a training whose logs hold some."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from costmodel.acf.pair_model import pair_model_path
from costmodel.datasets.workload_data import WorkloadData
from costmodel.training.acf_fit import publish_pairs
from costmodel.training.acf_fit import too_little
from costmodel.training.acf_fit import train_pairs
from costmodel.training.acf_rows import all_recorded_pairs


def publish_pair_model(recorded: Iterable[WorkloadData], path: Path) -> dict[str, Any]:
    """Train on recorded pairs of a config and a control file, if there are enough.

    Compiles what the logs measured with the control files of this machine's catalogue.
    Why a pair is left out, and why no model is made, is a line on stderr.

    Args:
        recorded: Workloads, with rows of all kinds.
        path: Of the published first stage; an old model of pairs beside it goes.

    Returns:
        Facts for the answer; empty where the logs hold no control file.

    Raises:
        StoreError: The folder cannot be written.
    """
    held = [one for one in recorded if one.has_acf.any()]
    if not held:
        publish_pairs(None, path)
        return {}
    print(
        f"compiling what {len(held)} runs measured with control files ...",
        file=sys.stderr,
    )
    found = all_recorded_pairs(held)
    for reason in found.skipped:
        print(f"costmodel: control files left out: {reason}", file=sys.stderr)
    trained = train_pairs(found.pairs)
    publish_pairs(trained, path)
    if trained is None:
        why = str(too_little(found.pairs))
        print(f"costmodel: no model of control files: {why}", file=sys.stderr)
        return {"control_files": {"model": None, "why": why}}
    card = trained.model.card
    return {
        "control_files": {
            "model": str(pair_model_path(path)),
            "n_kernels": card.n_kernels,
            "n_pairs": card.n_pairs,
            "margin_log": card.margin_log,
            "metrics": dict(card.metrics),
        }
    }
