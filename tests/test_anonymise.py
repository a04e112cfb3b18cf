"""A shared corpus tells nothing private, and the same features to the byte."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import numpy as np
import pyarrow as pa
import pytest
import torch
from helion.autotuner import PowerOfTwoFragment
from hypothesis import given
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel import target
from costmodel.arguments import parse_argument
from costmodel.cli import main
from costmodel.datasets.anonymise import Names
from costmodel.datasets.anonymise import anonymise
from costmodel.datasets.anonymise_source import anonymous_source
from costmodel.datasets.anonymise_source import private_words
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import ATTEMPTS_SCHEMA
from costmodel.datasets.store_schema import RUNS_SCHEMA
from costmodel.datasets.store_schema import record_of
from costmodel.datasets.store_schema import to_json
from costmodel.errors import UnreadableKernelError
from costmodel.features.canonical import config_id
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.heuristics.rules import has_promoted_rule
from costmodel.types import Config
from costmodel.types import WorkloadRecord

CORPORA = Path(__file__).parent.parent / "datasets" / "corpora"
H200 = load_hardware("H200")
ZEBRA_LIMIT = 4


# The word that must not be found anywhere afterwards is "zebra".
@helion.kernel(static_shapes=True, autotune_effort="none")
def zebra_products(
    zebra_left: torch.Tensor, zebra_right: torch.Tensor, zebra_scale: float
) -> torch.Tensor:
    """A zebra's docstring,
    on two lines."""
    rows, zebra_depth = zebra_left.size()
    columns = zebra_right.size(1)  # a zebra's comment
    parts = hl.register_tunable("zebra_parts", PowerOfTwoFragment(1, ZEBRA_LIMIT))
    assert rows > 0, f"no zebra of {rows} {'zebra'} rows"
    zebra_out = torch.zeros([rows, columns], dtype=torch.float32, device="cuda")
    chunk = helion.next_power_of_2(helion.cdiv(zebra_depth, parts))
    for zebra_i, zebra_j, zebra_outer in hl.tile(
        [rows, columns, zebra_depth], block_size=[None, None, chunk]
    ):
        zebra_sum = hl.zeros([zebra_i, zebra_j], dtype=torch.float32)
        for zebra_k in hl.tile(zebra_outer.begin, zebra_outer.end):
            zebra_sum = torch.addmm(
                zebra_sum, zebra_left[zebra_i, zebra_k], zebra_right[zebra_k, zebra_j]
            )
        hl.atomic_add(zebra_out, [zebra_i, zebra_j], zebra_sum * zebra_scale)
    return zebra_out


def _run(record: WorkloadRecord, default: Config) -> dict[str, Any]:
    """A row as somebody's private corpus has it."""
    return {
        "run_key": "zebra-key",
        "workload_id": "zebra-workload",
        "run_id": "zebra-run",
        "run_ordinal": 3,
        "log": "zebra_of_host_17",
        "kernel": record.kernel_name,
        "kernel_id": "zebra-kernel",
        "family": "zebra_family",
        "variant": "zebra_variant",
        "gpu": record.hardware,
        "regime": "back_to_back",
        "default_config_id": config_id(default),
        "default_how": "side_file",
        "promoted": True,
        "n_attempts": 2,
        "helion_version": "1.5.1",
        "started_at_s": 1796048449.0,
        "kernel_source": record.kernel_source,
        "input_shapes": to_json(record.input_shapes),
        "dtypes": to_json(record.dtypes),
        "settings": to_json({**record.settings, "autotune_log": "/home/zebra/x.log"}),
        "ir_graph": to_json(record.ir_graph),
        "side": to_json(
            {
                "kernel": "zebra.py:zebra_products",
                "family": "zebra_family",
                "arguments": ["bf16[256,512]", "0.5", "str:zebra"],
                "scalars": {"zebra_scale": 0.5, "zebra_mode": "zebra"},
                "gpu": {"name": record.hardware, "uuid_digest": "zebra123"},
                "default_config_id": config_id(default),
                "default_config": default,
                "seed_config_ids": [config_id(default)],
                "noise_floor_log": 0.01,
                "zebra_field": "zebra",
            }
        ),
    }


def _row(run: dict[str, Any], config: Config, us: float | None) -> dict[str, Any]:
    common = ("run_key", "workload_id", "run_id", "run_ordinal", "kernel", "family")
    return {
        **{name: run[name] for name in common},
        "config_id": config_id(config),
        "canonical_id": config_id(config),
        "config": to_json(config),
        "spelled": to_json(config),
        "twin_ids": [config_id(config)],
        "status": "ok" if us else "error",
        "latency_us": us,
        "readings_us": [us] if us else [],
        "n_readings": int(us is not None),
        "n_failures": 0,
        "label_quality": "single",
        "is_default": config_id(config) == run["default_config_id"],
        "regime": "back_to_back",
        "gpu": run["gpu"],
        "code_digest": "zebra0123",
        "acf_id": "zebra.acf",
    }


@pytest.fixture(scope="module")
def private() -> Corpus:
    specs = [parse_argument(one) for one in ("bf16[256,512]", "bf16[512,128]", "0.5")]
    bound = target.bind(zebra_products, specs, H200)
    default = helion_hook.view(bound).default
    record = helion_hook.record_of(bound)
    assert "zebra_parts" in default
    other = {**default, "zebra_parts": 4, "num_warps": 2}
    with_file = {**default, "advanced_controls_file": "/home/zebra/zebra.acf"}
    run = _run(record, default)
    rows = [_row(run, default, 20.0), _row(run, other, 10.0), _row(run, with_file, 0)]
    return Corpus(
        Path("private"),
        pa.Table.from_pylist([run], RUNS_SCHEMA),
        pa.Table.from_pylist(rows, ATTEMPTS_SCHEMA),
    )


def _corpus(made: Any) -> Corpus:
    return Corpus(
        Path("shared"),
        pa.Table.from_pylist(list(made.runs), RUNS_SCHEMA),
        pa.Table.from_pylist(list(made.attempts), ATTEMPTS_SCHEMA),
    )


def test_no_private_word_is_left(private: Corpus) -> None:
    made = anonymise(private)
    assert not made.left_out
    text = json.dumps([made.runs, made.attempts])
    assert "zebra" not in text.lower()
    assert not re.search(r"/home|host_17|test_anonymise", text)
    private_only = {"rows", "columns", "chunk", "parts", "zebra_left"}
    source = made.runs[0]["kernel_source"]
    assert not private_only & set(re.findall(r"\w+", source))


def _features(corpus: Corpus) -> dict[float, bytes]:
    """Feature rows of each workload's timed configs, by time."""
    found = {}
    for one in corpus.workloads():
        extractor = FeatureExtractor(KernelGraph.from_record(one.record), H200)
        default = one.configs[one.default_index or 0]
        with_list(extractor, default)
        rows = extractor.matrix(one.configs, default)
        analytic = extractor.analytic_us(one.configs)
        for i in np.flatnonzero(one.is_ok):
            told = rows[i].tobytes() + analytic[i].tobytes()
            found[float(one.latency_us[i])] = told
    return found


def test_features_are_the_same_to_the_byte(private: Corpus) -> None:
    before, after = _features(private), _features(_corpus(anonymise(private)))
    assert len(before) == 2
    assert before == after
    assert len(set(after.values())) == 2


def test_the_renamed_tunable_is_one_word_everywhere(private: Corpus) -> None:
    made = anonymise(private)
    run, *_ = made.runs
    graph = KernelGraph.from_record(record_of(run))
    (tunable,) = graph.tunables
    for row in made.attempts:
        config = json.loads(row["config"])
        assert tunable in config
        assert row["config_id"] == config_id(config)
    default = next(row for row in made.attempts if row["is_default"])
    assert default["config_id"] == run["default_config_id"]
    side = json.loads(run["side"])
    assert side["seed_config_ids"] == [default["config_id"]]
    assert side["arguments"] == ["bf16[256,512]", "0.5", "none"]


def _sources() -> list[str]:
    runs = Corpus.load(CORPORA / "h200").runs
    return sorted(set(runs["kernel_source"].to_pylist()))


def test_every_kernels_source_keeps_its_lines_and_its_shape() -> None:
    for source in _sources():
        edited = anonymous_source(source, Names(private_words(source)))
        assert len(edited.splitlines()) == len(source.splitlines())
        old, new = (
            [(type(node).__name__, getattr(node, "lineno", 0)) for node in _body(text)]
            for text in (source, edited)
        )
        assert old == new


def _body(source: str) -> list[ast.AST]:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return [
        node
        for statement in function.body
        for node in ast.walk(statement)
        if not isinstance(node, ast.JoinedStr | ast.FormattedValue)
    ]


def _check_recorded(corpus: Corpus, step: int) -> None:
    """Features of every `step`-th recorded workload, before and after."""
    keys = sorted(corpus.runs["run_key"].to_pylist())[::step]
    part = Corpus(
        corpus.directory,
        corpus.runs.filter(pa.compute.is_in(corpus.runs["run_key"], pa.array(keys))),
        corpus.attempts.filter(
            pa.compute.is_in(corpus.attempts["run_key"], pa.array(keys))
        ),
    )
    after = {_times(one): one for one in _corpus(anonymise(part)).workloads()}
    checked = 0
    for old in part.workloads():
        new = after[_times(old)]
        assert old.canonical_ids == new.canonical_ids
        try:
            first = FeatureExtractor(KernelGraph.from_record(old.record), H200)
        except UnreadableKernelError:
            with pytest.raises(UnreadableKernelError):
                FeatureExtractor(KernelGraph.from_record(new.record), H200)
            continue
        second = FeatureExtractor(KernelGraph.from_record(new.record), H200)
        default = old.configs[old.default_index or 0]
        assert len(with_list(first, default)) == len(with_list(second, default))
        before = first.matrix(old.configs, default)
        assert before.tobytes() == second.matrix(new.configs, default).tobytes()
        assert first.kernel_class == second.kernel_class
        assert has_promoted_rule(first.graph, H200) == has_promoted_rule(
            second.graph, H200
        )
        checked += 1
    assert checked > 0.9 * len(keys)


def _times(one: Any) -> tuple[float, ...]:
    return tuple(np.nan_to_num(one.latency_us))


def test_features_of_recorded_kernels_stay() -> None:
    _check_recorded(Corpus.load(CORPORA / "h200"), step=25)


@pytest.mark.slow
def test_features_of_all_recorded_kernels_stay() -> None:
    _check_recorded(Corpus.load(CORPORA / "h200"), step=1)


@given(st.sets(st.text(min_size=1), min_size=1))
def test_new_names_sort_as_the_old_ones(words: set[str]) -> None:
    names = Names(words)
    assert [names(word) for word in sorted(words)] == sorted(map(names, words))
    assert len({names(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n  match x:\n    case {'a': zebra, **zebras}:\n      pass\n",
        "class Zebra:\n    pass\n",
        "async def zebra(x):\n    pass\n",
    ],
)
def test_syntax_that_could_leak_is_refused(source: str) -> None:
    names = Names({*private_words(source), "zebra"})
    with pytest.raises(UnreadableKernelError, match="leave the run out"):
        anonymous_source(source, names)


def test_what_is_not_python_becomes_nothing() -> None:
    assert anonymous_source("zebra = = 1", str) == ""


def test_export_writes_a_corpus_that_can_be_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, shared = str(tmp_path / "corpus"), tmp_path / "shared"
    assert main(["import", str(CORPORA / "h200_sample"), "--corpus", corpus]) == 0
    assert main(["corpus", "export", corpus, str(shared)]) == 1
    assert "--anonymise" in capsys.readouterr().err
    assert main(["corpus", "export", corpus, str(shared), "--anonymise"]) == 0
    assert "0 left out" in capsys.readouterr().out
    assert main(["corpus", "describe", str(shared), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_families"] == 8
    assert main(["corpus", "export", corpus, str(shared), "--anonymise"]) == 1
    assert "empty folder" in capsys.readouterr().err
