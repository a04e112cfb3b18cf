"""Judge a published model on logs: rank each run's attempts, compare with its default.

The ranking sees what serving sees, the workload and the configs, and never a status or
a time; those only judge the pick afterwards. A pick whose attempt failed has speed-up
0.1 and counts as harm. A run that cannot be read is a row with an `error` and counts as
the default, because that is what serving would have compiled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.datasets.clean import CleanRun
from costmodel.datasets.default import Baseline
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError
from costmodel.errors import NotEnoughDataError
from costmodel.features.feasible import feasible
from costmodel.hybrid import Choice
from costmodel.hybrid import canonical_text
from costmodel.hybrid import decide
from costmodel.hybrid import merit_of
from costmodel.learned import LearnedModel
from costmodel.training.label import extractor_of
from costmodel.training.label import harm_floor_log
from costmodel.training.label import is_promoted
from costmodel.training.label import noise_floor_log
from costmodel.training.label import ranked_by_analysis
from costmodel.training.metrics import Outcome
from costmodel.training.metrics import outcome
from costmodel.training.metrics import summary
from costmodel.training.trained_on import seen_in_training
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import PickSource

# Length of the short list that the report names.
_TOP = 5
_US_PER_MS = 1000.0

Row = dict[str, Any]


def evaluate_logs(
    runs: Iterable[CleanRun], model: LearnedModel, baseline: Baseline = "auto"
) -> dict[str, Any]:
    """Pick among the attempts of each run, and report against default and best.

    Args:
        runs: Cleaned runs, those with a problem included, their default resolved by
            `baseline`.
        model: What ranks and gates.
        baseline: How the default was found, to be repeated in the answer.

    Returns:
        JSON values: `aggregate`, and `workloads` with one row per run.
        `seen_in_training` of the first says in words whether the model was trained on
        what judges it; "" where its card does not say so.
    """
    runs = list(runs)
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    kernels: list[str] = []
    for run in runs:
        row, judged = _evaluate_run(run, model)
        rows.append(row)
        outcomes.append(judged)
        kernels.append(str(row["kernel"]))
    numbers = summary(outcomes, kernels)
    sources = Counter(row["source"] for row in rows)
    aggregate: dict[str, Any] = {
        **numbers,
        "n_workloads": len(rows),
        "n_errors": sum("error" in row for row in rows),
        "n_harmed": sum(one.is_harm for one in outcomes),
        "sources": dict(sorted(sources.items())),
        "baseline": baseline,
        "model_id": model.model_id,
        "seen_in_training": seen_in_training(
            [run for run in runs if run.run.problem is None], model.card
        ),
    }
    return {"aggregate": aggregate, "workloads": rows}


def _evaluate_run(run: CleanRun, model: LearnedModel) -> tuple[Row, Outcome]:
    """One row; whatever goes wrong inside becomes the row's `error`."""
    row = _empty_row(run)
    try:
        if run.run.problem is not None:
            raise CorruptRecordError(run.run.problem)
        recorded = WorkloadData.from_clean_run(run).without_acfs()
        row.update(_measured_facts(recorded))
        if recorded.default_index is None:
            raise NotEnoughDataError("the log does not hold Helion's default")
        if not _has_time(recorded)[recorded.default_index]:
            raise NotEnoughDataError("Helion's default was not measured")
        choice = choose_among(recorded, model)
        judged = _judge(recorded, choice)
        row.update(_picked_facts(recorded, choice, judged))
        return row, judged
    except Exception as error:
        # One bad run must not cost the others their row: it gets a row with
        # an error, "never a crash".
        words = " ".join(str(error).split())
        known = isinstance(error, CostModelError)
        row["error"] = words if known else f"{type(error).__name__}: {words}"
        row["detail"] = row["error"]
        row["reason"] = "unknown_kernel" if known else "internal_error"
        return row, _as_default(row)


def _empty_row(run: CleanRun) -> Row:
    """Every field of a row, as far as a run tells without being readable."""
    default_id = run.run.default_config_id
    return {
        "log": run.run.log,
        "run_id": run.run.run_id,
        "run_ordinal": run.run.run_ordinal,
        "kernel": run.run.kernel_name,
        "family": run.family,
        "n_attempts": run.run.n_attempts,
        "default_config_id": default_id,
        "default_how": run.run.default_how.value,
        "default_ms": None,
        "pick_config_id": default_id,
        "pick_ms": None,
        "best_config_id": None,
        "best_ms": None,
        "speedup": 1.0,
        "regret": None,
        "source": PickSource.DEFAULT.value,
        "reason": "",
        "detail": "",
        "top5_config_ids": [],
    }


def _measured_facts(recorded: WorkloadData) -> Row:
    """Default and best as measured; the default is the pick until one is made."""
    times_us = np.where(_has_time(recorded), recorded.latency_us, np.inf)
    facts: Row = {}
    if np.isfinite(times_us).any():
        best = int(np.argmin(times_us))
        facts["best_config_id"] = recorded.config_ids[best]
        facts["best_ms"] = times_us[best] / _US_PER_MS
    default = recorded.default_index
    if default is not None:
        facts["default_config_id"] = recorded.config_ids[default]
        facts["pick_config_id"] = recorded.config_ids[default]
        if np.isfinite(times_us[default]):
            facts["default_ms"] = times_us[default] / _US_PER_MS
            facts["pick_ms"] = facts["default_ms"]
            facts["regret"] = float(times_us[default] / times_us.min() - 1.0)
    return facts


def _has_time(recorded: WorkloadData) -> np.ndarray:
    """bool[n]: ran correctly and was timed; a copied time counts for judging."""
    return np.isfinite(recorded.latency_us) & ~recorded.is_failure


def choose_among(recorded: WorkloadData, model: LearnedModel) -> Choice:
    """Rank all attempts of a run and decide, without their statuses and times.

    Args:
        recorded: A run whose default is known.
        model: What ranks and gates.

    Returns:
        The choice, as indices into `recorded.configs`.

    Raises:
        UnreadableKernelError: Its features cannot be computed.
        UnknownHardwareError: Nothing is known of its device.
    """
    extractor = extractor_of(recorded)
    configs = list(recorded.configs)
    default = recorded.default_index
    assert default is not None
    fits = np.asarray(feasible(extractor, configs), dtype=bool)
    fits[default] = True
    kept = np.flatnonzero(fits)
    candidates = [Candidate(configs[i], CandidateOrigin.LOG) for i in kept]
    keys = [canonical_text(one.config) for one in candidates]
    features = extractor.matrix([one.config for one in candidates], configs[default])
    default_index = int(np.searchsorted(kept, default))
    promoted = is_promoted(recorded, extractor)
    analytic_order = ranked_by_analysis(extractor, [one.config for one in candidates])
    scores = model.score(features)
    merit = merit_of(
        model.score,
        model.layout,
        features,
        scores,
        default_index=default_index,
        promoted=promoted,
        analytic_order=analytic_order,
    )
    choice = decide(
        features,
        scores,
        merit,
        model.gate,
        default_index=default_index,
        promoted=promoted,
        analytic_order=analytic_order,
        keys=keys,
        estimate_us=lambda some: extractor.analytic_us(
            [candidates[i].config for i in some]
        ),
    )
    return Choice(
        index=int(kept[choice.index]),
        source=choice.source,
        reason=choice.reason,
        detail=choice.detail,
        order=tuple(int(kept[i]) for i in choice.order),
    )


def _judge(recorded: WorkloadData, choice: Choice) -> Outcome:
    default = recorded.default_index
    assert default is not None
    has_time = _has_time(recorded)
    log_ratio = np.log(np.where(has_time, recorded.latency_us, 1.0))
    return outcome(
        log_ratio - log_ratio[default],
        has_time,
        default,
        choice.index,
        _pick_first(choice, default),
        noise_floor_log(recorded),
        harm_floor_log(recorded),
    )


def _pick_first(choice: Choice, default: int) -> Sequence[int]:
    """The ranking with the pick in front and without the default."""
    ranking = (choice.index, *(i for i in choice.order if i != choice.index))
    return [i for i in ranking if i != default]


def _picked_facts(recorded: WorkloadData, choice: Choice, judged: Outcome) -> Row:
    default = recorded.default_index
    assert default is not None
    pick_ms = None
    if not judged.failed:
        pick_ms = float(recorded.latency_us[choice.index]) / _US_PER_MS
    best_us = float(recorded.default_us) / judged.best_speedup
    charged_us = float(recorded.default_us) / judged.speedup
    ids = recorded.config_ids
    return {
        "pick_config_id": ids[choice.index],
        "pick_ms": pick_ms,
        "speedup": judged.speedup,
        "regret": charged_us / best_us - 1.0,
        "harm_floor": math.expm1(judged.harm_floor_log),
        "is_harm": judged.is_harm,
        "source": choice.source.value,
        "reason": choice.reason.value,
        "detail": choice.detail,
        "top5_config_ids": [ids[i] for i in _pick_first(choice, default)[:_TOP]],
    }


def _as_default(row: Row) -> Outcome:
    """What a run without a pick counts for: Helion's default, as far as measured."""
    regret = row["regret"] or 0.0
    ks = (1, 3, 5)
    return Outcome(
        speedup=1.0,
        regret=regret,
        regret_at=dict.fromkeys(ks, regret),
        best_speedup=1.0 + regret,
        harm_floor_log=0.0,
        failed=False,
    )
