"""The page: one HTML file that needs no network, no script and no reader's patience.

Made of `page_data` alone, so that a page can be drawn again from its numbers. Every
text that came from a log is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from costmodel.training.page_charts import LogAxis
from costmodel.training.page_charts import bars
from costmodel.training.page_charts import counted
from costmodel.training.page_charts import scatter
from costmodel.training.page_charts import times
from costmodel.training.page_style import STYLE
from costmodel.training.page_worst import worst_cards

Json = dict[str, Any]

_RULES = {
    "with": "Helion has a rule for the kernel",
    "without": "Helion has no rule for the kernel",
    "all": "All workloads",
}
_LEGEND = (
    ('<circle class="pick" cx="7" cy="7" r="5"/>', "our pick"),
    ('<circle class="kept" cx="7" cy="7" r="4"/>', "gate kept the default"),
    ('<rect class="norule" x="2" y="2" width="10" height="10"/>', "no Helion rule"),
    ('<path class="harm" d="M1 2h12l-6 11z"/>', "slower beyond noise, or failed"),
    ('<circle class="known" cx="7" cy="7" r="5"/>', "best of the measured configs"),
)


def page(data: Json) -> str:
    """The whole page.

    Args:
        data: Made by `page_data.page_data`.
    """
    about = data["provenance"]
    gpus = ", ".join(f"{name} ({n})" for name, n in about["gpus"].items())
    body = [
        "<header><h1>Configs picked without a benchmark, judged</h1>",
        f'<p class="lead">{about["n_workloads"]} workloads of {about["n_kernels"]} '
        f"kernels in {about['n_families']} families, {about['n_configs']:,} measured "
        f"configs, on {escape(gpus)}. Protocol: {escape(about['protocol'])}; no model "
        "saw the family that it is judged on.</p></header>",
        _headline(data),
        f'<p class="reading">{escape(data["reading"])}</p>',
        _classes(data),
        _every_workload(data),
        _worst(data),
        _gate(data["gate"]),
        _families(data),
        _coverage(data["coverage"], about["gpus"]),
        _importance(data["importance"]),
        _provenance(about),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # An icon of our own, or a browser asks for one.
        '<link rel="icon" href="data:,">'
        f"<title>helion-costmodel: {about['n_workloads']} workloads judged</title>"
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>"
        "\n"
    )


def _headline(data: Json) -> str:
    parts = data["headline"]
    if len(parts) == 2:  # one kind of kernel only: "all" says nothing more
        parts = parts[:1]
    return f'<div class="tiles">{"".join(map(_tile, parts))}</div>'


def _tile(one: Json) -> str:
    harmed = f"{one['n_harmed']} of {one['n']}"
    if one["n_harmed"]:
        harmed = f'<span class="bad">▼ {harmed}</span>'
    rows = [
        ("best of the measured configs", times(one["best"])),
        ("share of that headroom", f"{one['headroom_share']:.0%}"),
        ("pick differs from the default", f"{one['n_acted']} of {one['n']}"),
        ("slower beyond noise", harmed),
        ("of them failed to run", str(one["n_failed"])),
        ("worst", times(one["worst"])),
        ("without the gate", times(one["no_gate_speedup"])),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return (
        f'<section class="tile"><div class="of">{_RULES[one["rule"]]}</div>'
        f'<div class="big">{times(one["speedup"])}</div>'
        '<div class="of">over Helion\'s default; 95 % interval <span class="whole">'
        f"{one['low']:.2f}-{one['high']:.2f}</span></div><dl>{listed}</dl></section>"
    )


def _axis(rows: Sequence[Json]) -> LogAxis:
    keys = ("speedup", "low", "high", "best")
    return LogAxis.around([row[key] for row in rows for key in keys], 0.9, 1.5)


def _classes(data: Json) -> str:
    axis = _axis(data["classes"])
    parts = ["<h2>By kernel class</h2>"]
    parts.append(
        '<p class="note">Geometric mean of the speed-up over Helion\'s default; the '
        "line is a 95 % interval over kernels, the diamond the best of the measured "
        "configs. One scale for all, in logarithms.</p>"
    )
    for rule in ("with", "without"):
        rows = [one for one in data["classes"] if one["rule"] == rule]
        if rows:
            parts.append(f"<h3>{_RULES[rule]}</h3>{bars(rows, axis, 'name')}")
    return "".join(parts)


def _every_workload(data: Json) -> str:
    legend = "".join(
        f'<li><svg class="scatter" style="display:inline;border:0;background:none" '
        f'viewBox="0 0 14 14" aria-hidden="true">{shape}</svg>{words}</li>'
        for shape, words in _LEGEND
    )
    return (
        "<h2>Every workload</h2>"
        '<p class="note">Across: how long Helion\'s default takes. Up: how much faster '
        "our pick is, and the best of the measured configs. Point at a mark for its "
        f'kernel, times and reason.</p><ul class="legend">{legend}</ul>'
        f"{scatter(data['points'])}"
    )


def _worst(data: Json) -> str:
    head = "<h2>Where most was lost</h2>"
    if not data["worst"]:
        return f"{head}<p>No pick is behind the best known beyond noise.</p>"
    return (
        f'{head}<p class="note">Harm first, then what was missed. The best known is '
        "what was measured to be fastest; the model saw neither its time nor any of "
        f"its family.</p>{worst_cards(data['worst'])}"
    )


def _gate(gate: Json) -> str:
    head = "<h2>What the gate did</h2>"
    reasons = _reasons(gate["reasons"])
    if not gate["n"]:
        return f"{head}<p>Helion has a rule for none of these.</p>{reasons}"
    ways = gate["ways"]
    axis = LogAxis.around([one["speedup"] for one in ways], 0.9, 1.3)
    return (
        f"{head}<p>Where Helion has a rule the gate let the pick through in "
        f"{gate['n_acted']} of {gate['n']} workloads "
        f"({gate['n_acted'] / gate['n']:.0%}): {gate['n_acted_faster']} faster beyond "
        f"noise, {gate['n_acted_harmed']} slower"
        f"{_mean(gate['n_acted'], gate['acted_speedup'])}. It held back "
        f"{gate['n_held']}, where the model's first choice would have been slower in "
        f"{gate['n_spared']}{_mean(gate['n_spared'], gate['spared_speedup'])} and "
        f"faster in {gate['n_missed']}"
        f"{_mean(gate['n_missed'], gate['missed_speedup'])}.</p>"
        f"{bars(ways, axis, 'name')}"
        '<p class="note">A perfect gate takes the model\'s first choice exactly where '
        f"that is faster.</p>{reasons}"
    )


def _mean(n: int, speedup: float) -> str:
    return f" ({times(speedup)} in the mean)" if n else ""


def _reasons(reasons: Sequence[Json]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one['reason'].replace('_', ' '))}</td>"
        f'<td class="n">{one["n"]}</td>'
        f'<td class="n">{times(one["speedup"])}</td>'
        f'<td class="n">{times(one["no_gate_speedup"])}</td>'
        f'<td class="n">{times(one["best"])}</td></tr>'
        for one in reasons
    )
    return (
        '<table><thead><tr><th>reason</th><th class="n">n</th>'
        '<th class="n">pick</th><th class="n">no gate</th>'
        f'<th class="n">best</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _families(data: Json) -> str:
    rows = data["families"]
    return (
        f"<h2>By family</h2><details><summary><strong>{len(rows)} families</strong>"
        "<span>from the largest gain to the smallest</span></summary>"
        f'<div class="body">{bars(rows, _axis(rows), "name")}</div></details>'
    )


def _coverage(coverage: Json, gpus: Json) -> str:
    classes = coverage["classes"]
    listed = ", ".join(f"{name} ({counted(n, 'workload')})" for name, n in gpus.items())
    most = max(
        (cell["workloads"] for row in coverage["rows"] for cell in row["cells"]),
        default=1,
    )
    head = "".join(
        f'<th class="up" scope="col"><span>{escape(name.replace("_", " "))}</span></th>'
        for name in classes
    )
    head += "".join(
        f'<th class="up sum" scope="col"><span>{name}</span></th>'
        for name in ("all kernels", "all shapes")
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(row["family"])}</th>'
        + "".join(
            _cell(row["family"], name, cell, most)
            for name, cell in zip(classes, row["cells"], strict=True)
        )
        + "".join(
            f'<td class="sum">{sum(cell[key] for cell in row["cells"])}</td>'
            for key in ("kernels", "shapes")
        )
        + "</tr>"
        for row in coverage["rows"]
    )
    return (
        '<h2>What the data covers</h2><p class="note">Workloads by family and kernel '
        "class; point at a cell for kernels, shapes and configs. What is empty here "
        f"the model has never seen. GPUs: {escape(listed)}.</p>"
        f'<table class="map"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _cell(family: str, name: str, cell: Json, most: int) -> str:
    n = cell["workloads"]
    if not n:
        return "<td></td>"
    # From a tint to a shade on which the text still reads.
    strength = 0.10 + 0.35 * math.log1p(n) / math.log1p(most)
    title = (
        f"{family}, {name}: {n} workloads, {cell['kernels']} kernels, "
        f"{cell['shapes']} shapes, {cell['configs']:,} configs, {cell['gpus']} GPU"
        f"{'s' if cell['gpus'] != 1 else ''}"
    )
    return (
        f'<td style="background:rgba(var(--heat),{strength:.2f})" '
        f'title="{escape(title)}">{n}</td>'
    )


def _importance(features: Sequence[Json]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['feature'])}</code></td>"
        f'<td class="n">{one["share"]:.1%}</td></tr>'
        for one in features
    )
    return (
        "<h2>What the model looks at</h2><details><summary><strong>The "
        f"{len(features)} features with the largest share of the trees' gain</strong>"
        f'</summary><div class="body"><table><tbody>{rows}</tbody></table></div>'
        "</details>"
    )


def _provenance(about: Json) -> str:
    versions = ", ".join(f"{name} {found}" for name, found in about["versions"].items())
    rows = [
        ("protocol", about["protocol"]),
        ("corpus digest", about["corpus_digest"]),
        ("features", f"{about['n_features']}, schema {about['schema_hash']}"),
        ("versions", versions),
        ("noise floor", f"{about['noise_floor']:.1%} in the median"),
        *about["facts"].items(),
    ]
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in rows
    )
    return (
        f"<footer><dl>{listed}</dl><p>Speed-up: default time / pick time, of recorded "
        "times; a pick that failed counts as 0.1x. Harm: slower than the default by "
        "more than the noise of both. Best known: the fastest of the configs that were "
        "measured, and so a little lucky. Intervals: bootstrap over kernels.</p>"
        "</footer>"
    )
