"""What is demanded of a challenger: of its evaluation and of the model itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException

from costmodel.code_model import CodeModel
from costmodel.code_model import code_model_path
from costmodel.errors import CostModelError
from costmodel.errors import PromotionError
from costmodel.features.schema import FeatureSchema
from costmodel.learned import LearnedModel
from costmodel.training.compare import Comparison
from costmodel.training.compare import Verdict
from costmodel.training.eval_table import Row
from costmodel.training.golden_rows import n_changed
from costmodel.training.golden_rows import read_golden
from costmodel.training.mlflow_store import Store
from costmodel.training.recipe import Bounds
from costmodel.training.run_files import GOLDEN
from costmodel.training.run_files import PUBLISHED
from costmodel.training.run_files import artifact

# As many as serving ranks at most.
_N_CANDIDATES = 512
# The best of so many on a busy machine is what an idle one takes.
_N_TIMED = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One demand on a challenger.

    Attributes:
        name: What is asked.
        ok: Whether it is met.
        found: What was found, in words.
        demanded: What is demanded, in words.
    """

    name: str
    ok: bool
    found: str
    demanded: str


def evaluation_checks(
    rows: Sequence[Row], found: Comparison | None, bounds: Bounds
) -> list[Check]:
    """Demands on what the challenger did to held-out workloads.

    Args:
        rows: Its evaluation.
        found: Against the champion; None where there is none.
        bounds: What it must keep to.
    """
    checks = []
    if found is not None:
        all_ = found.overall
        checks += [
            Check(
                "same evaluation",
                found.same_evaluation,
                "the same" if found.same_evaluation else "measurements or folds differ",
                "the champion's measurements, folds and protocol",
            ),
            Check(
                "better than the champion",
                all_.verdict is Verdict.BETTER,
                f"{all_.ratio:.3f}x ({all_.low:.3f} to {all_.high:.3f}): "
                f"{all_.verdict.value}",
                "better beyond noise",
            ),
        ]
        checks += [
            Check(
                f"class {one.name} against the champion",
                one.ratio >= bounds.worst_class_ratio
                or abs(np.log(one.ratio)) <= one.noise_log,
                f"{one.ratio:.3f}x",
                f"{bounds.worst_class_ratio:.3f}x, or within noise",
            )
            for one in found.of("class")
        ]
    share = _harm_share(rows)
    checks.append(
        Check(
            "harm",
            share <= bounds.max_harm_share,
            f"{share:.1%} of {len(rows)}",
            f"at most {bounds.max_harm_share:.1%}",
        )
    )
    for kind in sorted({row["kernel_class"] for row in rows}):
        some = [row for row in rows if row["kernel_class"] == kind]
        share = _harm_share(some)
        allowed = bounds.classes.get(kind, bounds.max_class_harm_share)
        checks.append(
            Check(
                f"harm to {kind}",
                share <= allowed,
                f"{share:.1%} of {len(some)}",
                f"at most {allowed:.1%}",
            )
        )
    return checks


def _harm_share(rows: Sequence[Row]) -> float:
    return sum(bool(row["is_harm"]) for row in rows) / max(1, len(rows))


def model_checks(
    store: Store, version: Any, bounds: Bounds, schema: FeatureSchema
) -> list[Check]:
    """Demands on the model itself, loaded as serving loads it."""
    try:
        model = published_model(store, version, schema)
        golden = artifact(store, version.run_id, GOLDEN)
        changed, n = n_changed(model, golden)
        rows, _ = read_golden(golden, model.card.feature_names)
    except (CostModelError, MlflowException, OSError) as error:
        found = " ".join(str(error).split())[:160]
        return [Check("loads in this build", False, found, "the published files")]
    spent_ms = score_ms(model, rows)
    return [
        Check("loads in this build", True, f"model {model.model_id}", "no error"),
        Check(
            "golden rows",
            changed == 0 and n > 0,
            f"{changed} of {n} answered differently",
            "what it said when it was trained",
        ),
        Check(
            f"scoring {_N_CANDIDATES} candidates",
            spent_ms <= bounds.max_score_ms,
            f"{spent_ms:.1f} ms",
            f"at most {bounds.max_score_ms:g} ms",
        ),
    ]


def published_model(store: Store, version: Any, schema: FeatureSchema) -> LearnedModel:
    """The model that a version was published as, read back from its run.

    A second stage that was published with it must load too; no more is asked of it.

    Raises:
        CostModelError: Damaged, of another schema, or of another training.
    """
    with tempfile.TemporaryDirectory() as folder:
        listed = store.client.list_artifacts(version.run_id, PUBLISHED)
        for suffix in (".ubj", ".json", ".code.ubj", ".code.json"):
            path = f"{PUBLISHED}/{version.name}{suffix}"
            if suffix.startswith(".code") and path not in {one.path for one in listed}:
                continue  # not every model has a second stage
            content = artifact(store, version.run_id, path)
            (Path(folder) / f"model{suffix}").write_bytes(content)
        trees = Path(folder) / "model.ubj"
        model = LearnedModel.load(trees, schema)
        if code_model_path(trees).exists():
            CodeModel.load(trees, model.model_id)
    judged = version.tags.get("model_id")
    if judged != model.model_id:
        raise PromotionError(
            f"expected model {judged} as it was judged, found {model.model_id}"
        )
    return model


def score_ms(model: LearnedModel, rows: np.ndarray) -> float:
    """Milliseconds of scoring 512 candidates, the best of ten."""
    some = rows[np.arange(_N_CANDIDATES) % len(rows)]
    spent = []
    for _ in range(_N_TIMED):
        start = time.perf_counter()
        model.score(some)
        spent.append(time.perf_counter() - start)
    return 1000.0 * min(spent)
