"""The numbers of a corpus, and the promise that its data card tells the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costmodel.cli import main
from costmodel.cli_data import class_of
from costmodel.datasets.describe import Description
from costmodel.datasets.describe import Group
from costmodel.datasets.describe import RunFacts
from costmodel.datasets.describe import description_of
from costmodel.datasets.describe import run_facts
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import record_of

CORPORA = Path(__file__).parent.parent / "datasets" / "corpora"
CARD = CORPORA / "h200" / "DATA_CARD.md"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load(CORPORA / "h200")


@pytest.fixture(scope="module")
def facts(corpus: Corpus) -> list[RunFacts]:
    return run_facts(corpus, lambda run: class_of(record_of(run)))


@pytest.fixture(scope="module")
def described(corpus: Corpus, facts: list[RunFacts]) -> Description:
    return description_of(facts, corpus.digest)


def _tables() -> dict[str, list[list[str]]]:
    """Rows of each table of the card, by the first cell of its head."""
    tables: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", CARD.read_text(), re.MULTILINE):
        head, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in block.splitlines()
        )
        tables[head[0]] = rows
    return tables


def _cells(groups: tuple[Group, ...]) -> Iterator[list[str]]:
    for one in groups:
        yield [
            one.name,
            str(one.n_workloads),
            str(one.n_kernels),
            str(one.n_judged),
            f"{one.headroom:.3f}",
            f"{one.headroom_max:.2f}",
            f"{100 * one.failed_share:.1f} %",
        ]


def test_the_card_counts_what_the_corpus_holds(described: Description) -> None:
    numbers = {
        "workloads": described.n_workloads,
        "kernels": described.n_kernels,
        "kernels with three shapes or more": described.n_kernels_with_shapes,
        "families": described.n_families,
        "attempts": described.n_attempts,
        "measurements": described.n_measurements,
        **{f"measurements: {k}": n for k, n in described.statuses.items()},
        "runs re-timed": described.n_retimed,
        "runs judged": described.n_judged,
        "interleaved readings": described.n_readings_interleaved,
        "fewest readings of a leader": described.fewest_rounds,
        **{f"runs in regime {k}": n for k, n in described.regimes.items()},
        "runs with a rule of Helion's": described.promoted["yes"],
        "runs without one": described.promoted["no"],
    }
    told = {name: int(number) for name, number in _tables()["what"]}
    assert told == numbers
    text = CARD.read_text()
    assert described.digest in text
    assert f"**{described.headroom:.3f}**" in text
    for line in described.without_default:
        assert line.split(" [[")[0] in text


def test_the_cards_tables_are_the_corpus(described: Description) -> None:
    tables = _tables()
    assert tables["class"] != []
    heads = {"rule of Helion": described.rules, "family": described.families}
    for head, groups in heads.items():
        assert tables[head] == list(_cells(groups))
    noise = [
        [regime, *(f"{100 * values[name]:.2f} %" for name in ("p50", "p90", "max"))]
        for regime, values in described.noise_log.items()
    ]
    assert tables["regime"] == noise


def test_the_cards_classes_are_the_corpus(described: Description) -> None:
    text = CARD.read_text()
    for cells in _cells(described.classes):
        assert f"| {' | '.join(cells)} |" in text
    for name, counts in described.failures.items():
        assert f"| {name} | {counts['error']} | {counts['timeout']} |" in text


def test_the_corpus_is_as_broad_as_it_must_be(described: Description) -> None:
    """Breadth that a first recording must have."""
    assert described.n_workloads >= 180
    assert described.n_kernels_with_shapes >= 60
    assert described.n_families >= 12
    assert described.n_attempts >= 8_000
    assert described.fewest_rounds >= 5
    assert described.n_retimed >= described.n_judged


def test_nothing_private_is_in_the_corpus(corpus: Corpus) -> None:
    text = json.dumps([corpus.runs.to_pylist(), corpus.attempts.to_pylist()])
    assert not re.search(r"[\"' ](?:/[a-z]+){2}|[A-Z]:\\\\|\w@\w+\.|https?:", text)


def _row(us: float | None, *, default: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "status": "ok" if us else "error",
        "latency_us": us,
        "label_quality": "interleaved" if us else "none",
        "n_readings": 6 if us else 0,
        "is_default": default,
        "config": json.dumps({"num_warps": 4, "block_sizes": [64, 128]}),
        **more,
    }


def _facts(run_id: str, rows: list[dict[str, Any]], headroom_log: float) -> RunFacts:
    run = {
        "run_key": run_id,
        "workload_id": run_id,
        "kernel_id": "k",
        "kernel": "kernel",
        "family": "family",
        "regime": "back_to_back",
        "gpu": "GPU",
        "promoted": None,
        "n_attempts": len(rows),
        "input_shapes": "[[2,2]]",
        "side": json.dumps({"noise_floor_log": 0.01}),
        "helion_version": "1.5.0",
    }
    timed = [row for row in rows if row["latency_us"]]
    best = None if math.isnan(headroom_log) else timed[-1]
    return RunFacts(run, rows, "matmul", timed, headroom_log, best)


def test_headroom_is_a_geometric_mean_over_those_that_have_one() -> None:
    four = _facts("a", [_row(40.0, default=True), _row(10.0)], math.log(4.0))
    one = _facts("b", [_row(5.0, default=True)], 0.0)
    none = _facts("c", [_row(None, default=True), _row(3.0)], math.nan)
    described = description_of([four, one, none], "digest")
    assert described.headroom == pytest.approx(2.0)
    (group,) = described.classes
    assert (group.n_workloads, group.n_judged) == (3, 2)
    assert group.failed_share == pytest.approx(0.2)
    assert described.without_default == (
        "family: kernel [[2,2]]: default error, 1 of 2 ok",
    )
    assert described.knobs["block_sizes"]["64"] == {"measured": 5, "best": 2}


def test_an_empty_corpus_has_a_description() -> None:
    described = description_of([], "digest")
    assert math.isnan(described.headroom)
    assert described.as_json()["headroom"] is None


def test_describe_prints_json_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = str(tmp_path / "corpus")
    assert main(["import", str(CORPORA / "h200_sample"), "--corpus", corpus]) == 0
    capsys.readouterr()
    plots = tmp_path / "plots"
    assert main(["corpus", "describe", corpus, "--json", "--plots", str(plots)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["n_workloads"], body["n_retimed"]) == (8, 0)
    assert body["headroom"] is None  # nothing was re-timed in the sample
    assert {file.name for file in plots.iterdir()} == {
        "headroom.png",
        "failures.png",
        "knobs.png",
    }
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in plots.iterdir())
    assert main(["corpus", "describe", corpus]) == 0
    out = capsys.readouterr().out
    assert "8 workloads of 8 kernels" in out
    assert "nan" not in out and "headroom of all: - over 0 runs" in out
    assert "none of their defaults was re-timed" in out


def test_describing_nothing_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "describe", str(tmp_path)]) == 1
    assert "costmodel import" in capsys.readouterr().err
