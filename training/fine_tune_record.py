"""A fine-tuning as an MLflow run: before and after, weight by weight."""

from __future__ import annotations

import json
from collections.abc import Sequence

from costmodel.training.compare_show import figure
from costmodel.training.eval_table import to_html
from costmodel.training.fine_tune import ELSEWHERE
from costmodel.training.fine_tune import KERNELS
from costmodel.training.fine_tune import SHAPES
from costmodel.training.fine_tune import Attempted
from costmodel.training.fine_tune import FineTuned
from costmodel.training.no_worse import Part
from costmodel.training.run_extra import Extra
from costmodel.training.run_extra import Input
from costmodel.training.run_extra import NestedRun

KIND = "fine-tune"
_SHORT = {KERNELS: "your_kernels", SHAPES: "your_shapes", ELSEWHERE: "elsewhere"}
_NUMBERS = (
    *("n", "before", "after", "best", "change", "change_low", "change_high"),
    *("n_better", "n_worse", "n_harmed_before", "n_harmed_after"),
)


def fine_tune_extra(made: FineTuned, base: Input, mine: Input) -> Extra:
    """What a fine-tuning adds to the run of its training.

    Where every weight was refused the base alone was trained: then the run says why and
    registers nothing.

    Args:
        made: What came of it.
        base: The corpus that it started from.
        mine: The user's measurements.
    """
    last = made.attempts[-1]
    return Extra(
        kind=KIND,
        tags={
            "base_digest": base.digest,
            "logs_digest": mine.digest,
            "kept": "the base alone" if last.refusal else "with the logs",
            "refusal": last.refusal,
        },
        params={
            "fine_tune.weight": f"{made.weight:g}",
            "fine_tune.n_mine": str(made.n_mine),
            "fine_tune.n_replaced": str(made.n_replaced),
            "fine_tune.n_repeated": str(made.n_repeated),
        },
        metrics=_metrics(last.parts),
        files={
            "fine_tune/before_after.json": json.dumps(
                as_facts(made), indent=1
            ).encode(),
            **{
                f"fine_tune/{_SHORT[one.name]}.html": to_html(
                    [pair.b for pair in one.found.workloads], f"After: {one.name}"
                ).encode()
                for one in last.parts
            },
        },
        figures={
            f"plots/before_after_{_SHORT[one.name]}.png": figure(
                one.found, "before", f"after, weight {last.weight:g}"
            )
            for one in last.parts
        },
        nested=tuple(_attempt(one) for one in made.attempts),
        inputs=(base, mine),
        register=not last.refusal,
    )


def _as_bytes(facts: object) -> bytes:
    return json.dumps(facts, indent=1).encode()


def as_facts(made: FineTuned) -> list[dict[str, object]]:
    """Every weight that was tried, as JSON values."""
    return [
        {
            "weight": one.weight,
            "refusal": one.refusal,
            "comparisons": [each.as_json() for each in one.parts],
        }
        for one in made.attempts
    ]


def _metrics(parts: Sequence[Part]) -> dict[str, float]:
    found = {}
    for one in parts:
        facts = one.as_json()
        for name in _NUMBERS:
            found[f"fine_tune/{_SHORT[one.name]}/{name}"] = float(facts[name])
    return found


def _attempt(one: Attempted) -> NestedRun:
    return NestedRun(
        name=f"weight {one.weight:g}",
        tags={
            "kind": "attempt",
            "verdict": "refused" if one.refusal else "kept",
            "refusal": one.refusal,
        },
        params={"weight": f"{one.weight:g}"},
        metrics=_metrics(one.parts),
    )
