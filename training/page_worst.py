"""The worst workloads of the page, each with its reasons, as cards that open."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from costmodel.training.page_charts import micros
from costmodel.training.page_charts import times

Json = dict[str, Any]

_DECIDED = {
    "learned": "The model decided",
    "analytic": "Our analysis decided",
    "default": "Helion's default stayed",
}

# How `hybrid.decide` ends its line; the card has said it before.
_STAYS = "; Helion's default stays"


def worst_cards(worst: Sequence[Json]) -> str:
    """One card for each workload, the first open."""
    return "".join(_card(one, is_open=place == 0) for place, one in enumerate(worst))


def _card(one: Json, *, is_open: bool) -> str:
    said = times(one["speedup"])
    if one["is_harm"]:
        said = f'<span class="bad">▼ {"failed" if one["failed"] else said}</span>'
    kept = " (the default)" if one["source"] == "default" else ""
    return (
        f"<details{' open' if is_open else ''}><summary>"
        f"<strong>{escape(one['kernel'])}</strong>"
        f"<small>{escape(one['shapes'])}</small>"
        f'<span class="right">{said} of {times(one["best_speedup"])}</span></summary>'
        f'<div class="body"><p>Helion\'s default takes {micros(one["default_us"])}, '
        f"our pick{kept} {micros(one['pick_us'])}, the best known "
        f"{micros(one['best_us'])}. {escape(one['family'])}, "
        f"{escape(one['class'].replace('_', ' '))}, "
        f"{'with' if one['has_rule'] else 'without'} a Helion rule.</p>"
        f"<p><b>{_DECIDED.get(one['source'], escape(one['source']))}</b> "
        f"({escape(one['reason'].replace('_', ' '))}): "
        f"{escape(one['detail'].removesuffix(_STAYS))}. "
        f"{escape(_of_the_best(one))}</p>"
        f'<div class="pair">{_knobs(one)}{_contributions(one)}</div></div></details>'
    )


def _of_the_best(one: Json) -> str:
    """What the model thought of the config that turned out best."""
    if one["rank_of_best"] is None:
        return "The best known is Helion's default."
    words = (
        f"The model ranked the best known {one['rank_of_best']} of {one['n_ranked']}, "
        f"predicted {times(one['best_predicted'])} of it, at least "
        f"{times(one['best_lower'])}, and {one['best_valid']:.0%} that it runs well."
    )
    if one["best_guards"] and one["has_rule"]:
        words += f" A guard refuses it: {'; '.join(one['best_guards'])}."
    if one["best_outside"] > 0.0:
        words += (
            f" {one['best_outside']:.0%} of its features lie outside the training "
            "range."
        )
    return words


def _knobs(one: Json) -> str:
    if not one["knobs"]:
        return "<div><h3>Knobs</h3><p>The pick is the best known.</p></div>"
    rows = "".join(
        f"<tr><td>{escape(row['knob'])}</td><td><code>{escape(row['pick'])}</code></td>"
        f"<td><code>{escape(row['best'])}</code></td></tr>"
        for row in one["knobs"]
    )
    return (
        "<div><h3>Knobs that differ</h3><table><thead><tr><th>knob</th><th>pick</th>"
        f"<th>best known</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _contributions(one: Json) -> str:
    if not one["contributions"]:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(row['feature'])}</code></td>"
        f'<td class="n">{row["pick"]:.4g}</td><td class="n">{row["best"]:.4g}</td>'
        f'<td class="n">{_effect(row["log_slower"])}</td></tr>'
        for row in one["contributions"]
    )
    return (
        "<div><h3>Features that told them apart</h3><table><thead><tr><th>feature</th>"
        '<th class="n">pick</th><th class="n">best</th><th class="n">effect</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _effect(log_slower: float) -> str:
    """How a feature moved the best's predicted time against the pick's."""
    percent = 100.0 * abs(log_slower)
    return f"{percent:.1f} % {'slower' if log_slower > 0 else 'faster'}"
