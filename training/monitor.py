"""Has what we serve left what the model was trained for?

Two sources tell. New logs say what their workloads look like to the model's gate, and
what its picks would have gained against what they promised. Counters of a provider say
how often it had to refuse. Each becomes a check with a value, a limit and a verdict:
fine, drift, or too little to tell. A promise is broken only beyond noise.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.training.metrics import bootstrap_interval
from costmodel.training.monitor_runs import SeenRun
from costmodel.types import ReasonCode

# One workload in twenty may be strange: of the families left out in calibration none
# was stranger than the gate's limit, so that any share is news, and one is an anecdote.
MAX_STRANGE_SHARE = 0.05
# What the gate's margins are calibrated to (`calibrate.MAX_HARM_SHARE`).
MAX_HARM_SHARE = 0.03
# Fewer kernels than this make no interval.
MIN_KERNELS = 3
# A provider that refuses more than this for reasons of its own is not at work.
MAX_FAILURE_SHARE = 0.0

_STRANGE = (ReasonCode.OUT_OF_RANGE,)
_UNREADABLE = (ReasonCode.UNKNOWN_KERNEL,)
_OTHER_GPU = (ReasonCode.UNKNOWN_GPU,)
_OURS = (ReasonCode.INTERNAL_ERROR, ReasonCode.MODEL_REFUSED, ReasonCode.NO_MODEL)


class Verdict(enum.StrEnum):
    """What a check found."""

    FINE = "fine"
    DRIFT = "drift"
    TOO_LITTLE = "too little to tell"


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer.

    Attributes:
        name: A word for scripts and metrics.
        verdict: The answer.
        value: What was found.
        limit: Beyond it is drift.
        n: Of how many.
        detail: In words.
    """

    name: str
    verdict: Verdict
    value: float
    limit: float
    n: int
    detail: str


def checks_of_runs(runs: Sequence[SeenRun]) -> list[Check]:
    """Checks of new logs."""
    readable = [one for one in runs if one.outside_share is not None]
    strange = [one for one in readable if one.is_outside]
    unread = [one for one in runs if one.is_unreadable]
    foreign = [one for one in runs if one.gpu_kind not in ("", "exact")]
    names = Counter(name for one in strange for name in one.outside)
    most = ", ".join(f"{name} ({n})" for name, n in names.most_common(3))
    gpus = ", ".join(sorted({one.hardware for one in foreign}))
    return [
        _share("outside_range", len(strange), len(readable), MAX_STRANGE_SHARE, most),
        _share("unknown_kernel", len(unread), len(runs), MAX_STRANGE_SHARE, ""),
        _share("unknown_gpu", len(foreign), len(runs), 0.0, gpus),
        *_promises([one for one in runs if one.realised_log is not None]),
    ]


def checks_of_counts(counts: Mapping[str, int]) -> list[Check]:
    """Checks of what a provider counted, by reason code."""
    total = sum(counts.values())

    def of(codes: Sequence[ReasonCode]) -> int:
        return sum(counts.get(code.value, 0) for code in codes)

    ours = {code.value: counts[code.value] for code in _OURS if counts.get(code.value)}
    words = ", ".join(f"{name} ({n})" for name, n in ours.items())
    return [
        _share("served_outside_range", of(_STRANGE), total, MAX_STRANGE_SHARE, ""),
        _share("served_unknown_kernel", of(_UNREADABLE), total, MAX_STRANGE_SHARE, ""),
        _share("served_unknown_gpu", of(_OTHER_GPU), total, 0.0, ""),
        _share("served_failures", of(_OURS), total, MAX_FAILURE_SHARE, words),
    ]


def _share(name: str, n_found: int, n: int, limit: float, which: str) -> Check:
    """A share of all that must stay below a limit."""
    if n == 0:
        return Check(name, Verdict.TOO_LITTLE, 0.0, limit, 0, "nothing to look at")
    share = n_found / n
    detail = f"{n_found} of {n}" + (f": {which}" if which and n_found else "")
    verdict = Verdict.DRIFT if share > limit else Verdict.FINE
    return Check(name, verdict, share, limit, n, detail)


def _promises(acted: Sequence[SeenRun]) -> list[Check]:
    """Realised gains against predicted ones, where the gate let a pick through."""
    n = len(acted)
    kernels = {one.kernel_id for one in acted}
    harmed = sum(one.is_harm for one in acted)
    allowed = max(1, int(MAX_HARM_SHARE * n))
    harm = Check(
        "harm",
        Verdict.TOO_LITTLE
        if n == 0
        else Verdict.DRIFT
        if harmed > allowed
        else Verdict.FINE,
        harmed / n if n else 0.0,
        MAX_HARM_SHARE,
        n,
        f"{harmed} of {n} picks slower than the default beyond noise",
    )
    if len(kernels) < MIN_KERNELS:
        words = f"{n} picks of {len(kernels)} kernels; {MIN_KERNELS} kernels are needed"
        return [Check("gain", Verdict.TOO_LITTLE, 0.0, 0.0, n, words), harm]
    kept = np.array([one.realised_log or 0.0 for one in acted])
    promised = np.array([one.predicted_log or 0.0 for one in acted])
    floor = float(np.median([one.noise_floor_log for one in acted]))
    short = kept - promised
    low, high = bootstrap_interval(
        list(np.exp(short)), [one.kernel_id for one in acted]
    )
    fell = float(np.log(high)) < -floor
    detail = (
        f"predicted {np.exp(promised.mean()):.2f}x, realised {np.exp(kept.mean()):.2f}x"
        f"; ratio {np.exp(short.mean()):.2f} ({low:.2f}-{high:.2f}), noise floor "
        f"{floor:.1%}"
    )
    gain = Check(
        "gain",
        Verdict.DRIFT if fell else Verdict.FINE,
        float(np.exp(short.mean())),
        float(np.exp(-floor)),
        n,
        detail,
    )
    return [gain, harm]


def as_json(
    checks: Sequence[Check], runs: Sequence[SeenRun], model_id: str
) -> dict[str, Any]:
    """Everything, as JSON values."""
    return {
        "model_id": model_id,
        "drift": any(one.verdict is Verdict.DRIFT for one in checks),
        "checks": [asdict(one) for one in checks],
        "runs": [one.as_json() for one in runs],
    }


def metrics_of(checks: Sequence[Check]) -> dict[str, float]:
    """Numbers for a tracking store: each check's value, and 1 where it is drift."""
    found: dict[str, float] = {}
    for one in checks:
        if one.n:
            found[f"drift_{one.name}"] = one.value
        found[f"drift_{one.name}_found"] = float(one.verdict is Verdict.DRIFT)
    return found
