"""The page: what it says, that it needs no network, and how a browser sees it."""

from __future__ import annotations

import dataclasses
import html.parser
import itertools
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli import main
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.fit import FitSettings
from costmodel.training.judge import judge
from costmodel.training.page import page
from costmodel.training.page_charts import LogAxis
from costmodel.training.page_data import page_data
from costmodel.training.page_explain import changed_knobs
from costmodel.types import KernelClass

QUICK = FitSettings(n_bags=2, n_trees=15, n_validity_trees=8, learning_rate=0.3)
HOSTILE = "<script>alert(1)</script>\"'&"
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
)


@pytest.fixture(scope="module")
def judged():
    """Kernels with and without a rule, one of them named to break a page."""
    ruled = make_corpus(3, planted=True, n_families=5, n_shapes=2, n_configs=30)
    unruled = [
        dataclasses.replace(
            one,
            workload_id=f"unruled-{one.workload_id}",
            kernel=HOSTILE,
            family=f"unruled {one.family}",
            source_digest=f"unruled-{one.source_digest}",
        )
        for one in make_corpus(
            4, planted=True, n_families=2, n_configs=30, promoted=False
        )
    ]
    # Every class there is, and names as long as names get.
    classes = list(KernelClass)
    corpus = [
        dataclasses.replace(
            one,
            kernel_class=classes[place % len(classes)],
            family=f"{one.family}_of_a_rather_long_name",
        )
        for place, one in enumerate([*ruled, *unruled])
    ]
    results = cross_fit(corpus, family_folds(corpus), SCHEMA, QUICK)
    return judge("leave one family out", results, SCHEMA), results


@pytest.fixture(scope="module")
def data(judged):
    evaluation, results = judged
    labels = {evaluation.judged[0].workload.workload_id: "bfloat16[4096, 8192]"}
    return page_data(
        evaluation, results, SCHEMA, corpus_digest="c0ffee" * 10, labels=labels
    )


@pytest.fixture(scope="module")
def text(data):
    return page(data)


class _Reader(html.parser.HTMLParser):
    """Checks nesting and keeps what a browser would fetch."""

    _VOID = frozenset({"meta", "link", "br", "circle", "line", "path", "rect"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href") and v]
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self._VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_well_formed_and_fetches_nothing(text) -> None:
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.fetched == ["data:,"]
    assert not reader.tags & {"script", "img", "iframe", "object", "embed"}
    assert "@import" not in text and "url(" not in text and "http" not in text


def test_names_from_logs_are_text(text, data) -> None:
    assert any(one["kernel"] == HOSTILE for one in data["points"])
    assert "<script" not in text
    reader = _Reader()
    reader.feed(text)
    assert HOSTILE in "".join(reader.text)


def test_numbers_are_plain_json_and_draw_the_same_page(data, text) -> None:
    again = json.loads(json.dumps(data, allow_nan=False))
    assert page(again) == text


def test_parts_add_up_to_the_evaluation(data, judged) -> None:
    evaluation, _ = judged
    n = len(evaluation.judged)
    assert len(data["points"]) == n
    assert sum(one["n"] for one in data["classes"]) == n
    assert sum(one["n"] for one in data["families"]) == n
    with_rule, without, everything = data["headline"]
    assert with_rule["n"] + without["n"] == everything["n"] == n
    logs = [math.log(one["speedup"]) for one in data["points"] if one["has_rule"]]
    assert math.log(with_rule["speedup"]) == pytest.approx(sum(logs) / len(logs))
    cells = [cell for row in data["coverage"]["rows"] for cell in row["cells"]]
    assert sum(cell["workloads"] for cell in cells) == n
    gate = data["gate"]
    assert gate["n_acted"] + gate["n_held"] == gate["n"] == with_rule["n"]
    ways = {one["name"]: one["speedup"] for one in gate["ways"]}
    assert ways["model, perfect gate"] >= max(1.0, ways["model, no gate"])
    assert ways["best known"] >= ways["model, perfect gate"]


def test_the_worst_come_first_and_say_why(data) -> None:
    worst = data["worst"]
    assert 0 < len(worst) <= 10
    harms = [one["is_harm"] for one in worst]
    assert harms == sorted(harms, reverse=True)
    missed = [
        one["best_speedup"] / one["speedup"] for one in worst if not one["is_harm"]
    ]
    assert missed == sorted(missed, reverse=True)
    for one in worst:
        assert one["detail"]
        assert one["knobs"], "pick and best known differ in no knob"


def test_contributions_explain_the_models_difference(data, judged) -> None:
    # All of them, not only the largest, sum to the difference of the two predictions.
    from costmodel.training import page_explain

    evaluation, results = judged
    first = data["worst"][0]
    one = next(
        j for j in evaluation.judged if j.workload.workload_id == first["workload"]
    )
    fold = next(
        result
        for result in results
        if any(p.workload is one.workload for p in result.predictions)
    )
    workload, pick = one.workload, one.choice.index
    best = int(workload.log_ratio.argsort()[0])
    said = fold.forest.predict(workload.features).gain_log
    page_explain.N_CONTRIBUTIONS, kept = 10_000, page_explain.N_CONTRIBUTIONS
    try:
        parts = page_explain.contributions(fold, one, pick, best, SCHEMA)
    finally:
        page_explain.N_CONTRIBUTIONS = kept
    total = sum(part["log_slower"] for part in parts)
    assert total == pytest.approx(float(said[pick] - said[best]), abs=1e-3)


def test_changed_knobs_are_those_that_differ() -> None:
    knobs = changed_knobs({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 4], "c": "x"})
    assert knobs == [
        {"knob": "b", "pick": "[1, 2]", "best": "[1, 4]"},
        {"knob": "c", "pick": "unset", "best": '"x"'},
    ]


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [([0.1, 38.7], 0.8, 2.0), ([1.0], 0.9, 1.5), ([1.0], 10.0, 100.0)],
)
def test_an_axis_holds_its_values_and_keeps_ticks_apart(values, least, most) -> None:
    axis = LogAxis.around(values, least, most)
    places = [axis.at(one) for one in sorted([*values, least, most])]
    assert 0.0 < places[0] <= places[-1] < 1.0
    assert places == sorted(places)
    ticks = axis.ticks()
    assert not axis.low < 1.0 < axis.high or 1.0 in ticks
    gaps = [axis.at(b) - axis.at(a) for a, b in itertools.pairwise(ticks)]
    assert all(gap > 0.1 for gap in gaps)


def test_a_page_can_be_drawn_again_from_its_numbers(data, text, tmp_path) -> None:
    numbers, output = tmp_path / "numbers.json", tmp_path / "page.html"
    numbers.write_text(json.dumps(data))
    assert main(["report", "--numbers", str(numbers), "--output", str(output)]) == 0
    assert output.read_text() == text
    assert [one.name for one in tmp_path.glob("*.html")] == ["page.html"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"page_format": 1}', '{"page_format": 99}', "\xff"]
)
def test_numbers_that_are_none_are_one_line(content, tmp_path, capsys) -> None:
    numbers = tmp_path / "numbers.json"
    numbers.write_bytes(content.encode("latin-1"))
    output = tmp_path / "page.html"
    assert main(["report", "--numbers", str(numbers), "--output", str(output)]) == 1
    err = capsys.readouterr().err.strip()
    assert err.startswith("costmodel: ") and "\n" not in err
    assert "`costmodel report" in err
    assert ("not JSON" in err) == (content in ("", "{", "\xff"))
    assert not output.exists()


def test_nothing_to_judge_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report"])
    assert stop.value.code == 2


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys) -> None:
    output = tmp_path / "none" / "page.html"
    assert main(["report", str(tmp_path), "--output", str(output)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def _browser() -> str:
    """A headless browser of this machine, or a skip that says what would help."""
    names = (os.environ.get("COSTMODEL_BROWSER", ""), *BROWSERS)
    for name in names:
        found = shutil.which(name) if name else None
        if found:
            return found
    pytest.skip(
        f"no browser found ({', '.join(BROWSERS)}): install one, or name it in "
        "COSTMODEL_BROWSER"
    )


# A frame has the width it is given, which a window of a headless browser may not.
_MEASURE = """<!DOCTYPE html><meta charset="utf-8"><body>
<iframe id="f" width="{width}" height="900" srcdoc="{page}"></iframe><script>
onload = () => {{
  const w = document.getElementById("f").contentWindow, d = w.document;
  const seen = (q) => [...d.querySelectorAll(q)].filter(
    (e) => e.getBoundingClientRect().width > 0);
  const wide = [...d.querySelectorAll("main *")].filter(
    (e) => e.getBoundingClientRect().right > w.innerWidth + 0.5);
  const small = [...d.querySelectorAll("p,td,dd,small")].filter(
    (e) => parseFloat(w.getComputedStyle(e).fontSize) < 11.5);
  document.title = "measured " + JSON.stringify({{
    inner: w.innerWidth, scroll: d.documentElement.scrollWidth,
    wide: wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 80)),
    small: small.length, scatters: seen("svg[role=img]").length,
    marks: seen("svg[role=img] g").length, bars: seen(".bar").length,
    label: seen("svg[role=img] text")[0].getBoundingClientRect().height,
  }});
}};</script></body>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_whole(width, text, data, tmp_path) -> None:
    browser = _browser()
    frame = tmp_path / "frame.html"
    frame.write_text(_MEASURE.format(width=width, page=html.escape(text)))
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,1000",
            "--virtual-time-budget=5000",
            "--dump-dom",
            Path(frame).as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    start = done.stdout.find("<title>measured ")
    assert start >= 0, f"the page did not load: {done.stderr[-500:]}"
    found, _ = json.JSONDecoder().raw_decode(
        html.unescape(done.stdout[start + len("<title>measured ") :])
    )
    assert found["inner"] == width
    assert found["scroll"] <= width, found["wide"]
    assert found["wide"] == []
    assert found["small"] == 0, "text smaller than 11.5 px"
    assert found["scatters"] == 1  # the wide one or the narrow one
    assert found["marks"] == len(data["points"])
    assert found["bars"] > len(data["classes"])
    assert found["label"] > 11.0, "the scatter's labels are too small to read"
