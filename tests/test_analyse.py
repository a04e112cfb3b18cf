"""What `analyse` says is consistent, and the same for a log and the live kernel."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import meta_line
from log_builder import write_text

from costmodel import helion_hook
from costmodel.analyse import Analysis
from costmodel.analyse import analyse
from costmodel.analyse_json import as_json
from costmodel.candidates import make_candidates
from costmodel.cli import main
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.hybrid import choose
from costmodel.types import CandidateOrigin
from costmodel.types import Config

H200 = load_hardware("H200")
KERNEL = """
import torch, helion
import helion.language as hl

@helion.kernel(static_shapes=True)
def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        v = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((v * v).mean(-1) + 1e-6)
        out[rows, :] = (v * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out
"""
ARGS = ["--arg", "bf16[4096,5120]", "--shape", "bf16[5120]"]
KEYS = {
    "source",
    "kernel",
    "input_shapes",
    "dtypes",
    "gpu",
    "class",
    "parts",
    "traits",
    "nest",
    "knobs",
    "accesses",
    "dots",
    "ops",
    "problem",
    "configs",
    "pick",
    "measured_us",
}


@pytest.fixture
def kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # The name lies on purpose: nothing may read it.
    (tmp_path / "attention.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    return "attention.py:plain"


def answer_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What `costmodel analyse ... --json` prints."""
    assert main(["analyse", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@functools.cache
def analysed(name: str) -> Analysis:
    """A parity kernel with its default."""
    view = parity_kernels.view_of(name)
    return analyse(view.record, H200, {"default": view.default})


NAMES = ("attention", "grouped_product", "product", "row_norm", "two_pass_softmax")


def test_one_object_with_stable_keys(
    kernel_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer_of(capsys, kernel_file, *ARGS)
    assert set(found) == KEYS
    assert found["class"] == "reduction"
    assert found["traits"][:2] == ["row_reduction", "single_pass"]
    assert found["gpu"] == "NVIDIA H200"
    assert set(found["configs"]) == {"helion_default", "our_pick"}
    assert [knob["knob"] for knob in found["knobs"]] == [
        "block_sizes[0]",
        "reduction_loops[0]",
    ]
    assert [a["tensor"] for a in found["accesses"]] == ["x", "w", "out"]
    assert found["accesses"][1]["shared_by_programs_along"] == ["B0"]
    assert found["ops"]["special"] == {"rsqrt": 1}
    assert found["pick"]["source"] in {"learned", "analytic", "default"}


def test_a_person_sees_every_part(
    kernel_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", kernel_file, *ARGS, "--gpu", "B200"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "NVIDIA B200",
        "reduction",
        "Loop nest",
        "Which tile each knob drives",
        "block_sizes[0]",
        "Loads and stores",
        "along R0",
        "registers of a thread",
        "share of peak bandwidth",
        "Tiles alive where registers are fullest",
        "pick",
        "default",
    ):
        assert words in printed


def write_log_of(name: str, folder: Path) -> Path:
    """A log of a live kernel's default, as Helion writes it; times are made up."""
    view = parity_kernels.view_of(name)
    record = view.record
    tries = [Try(view.default, perf_ms=0.05)]
    base = folder / name
    folder.mkdir(exist_ok=True)
    write_text(base, ".csv", csv_text(csv_rows(tries)))
    meta = meta_line(
        tries,
        kernel_name=record.kernel_name,
        kernel_source=record.kernel_source,
        input_shapes=str([tuple(shape) for shape in record.input_shapes]),
        dtypes=str(list(record.dtypes)),
        hardware=record.hardware,
        settings=dict(record.settings),
        ir_graph=record.ir_graph,
    )
    write_text(base, ".meta.jsonl", meta)
    return base


@pytest.mark.parametrize("name", ["grouped_product", "row_norm"])
def test_a_log_and_the_live_kernel_get_the_same_estimates(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = answer_of(capsys, str(write_log_of(name, tmp_path)))
    live = as_json(analysed(name))
    assert read["measured_us"]["helion_default"] == pytest.approx(50.0)
    for key in set(live) - {"configs"}:
        assert read[key] == live[key], key
    logged = read["configs"]["helion_default"]
    assert logged["times_us"] == live["configs"]["default"]["times_us"]
    assert logged["resources"] == live["configs"]["default"]["resources"]
    assert logged["roofline"] == live["configs"]["default"]["roofline"]


def test_a_folder_of_logs_is_listed_and_one_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("row_norm", "product"):
        write_log_of(name, tmp_path / name)
    listed = answer_of(capsys, str(tmp_path))["runs"]
    assert {(one["kernel"], one["class"]) for one in listed} == {
        ("row_norm", "reduction"),
        ("product", "matmul"),
    }
    assert answer_of(capsys, str(tmp_path), "--run", "product")["kernel"] == "product"


HOSTILE = {
    "wrong kernel name": (["attention.py:other", *ARGS], "plain"),
    "no arguments": (["attention.py:plain"], "missing a required argument"),
    "unknown GPU": (["attention.py:plain", *ARGS, "--gpu", "H9000"], "H9000"),
    "odd argument": (["attention.py:plain", "--arg", "bf16[4"], "bf16[4"),
    "empty file": (["empty.py:k", "--arg", "f32[4]"], "found none"),
    "no file": (["nothing.py:k"], "nothing.py"),
    "no logs": (["nowhere"], "nowhere"),
    "empty folder": (["empty"], "empty"),
    "no such run": (["logs", "--run", "zebra"], "zebra"),
    "logs with shapes": (["logs", "--arg", "f32[4]"], "--arg"),
    "no model": (["attention.py:plain", *ARGS, "--model", "no.ubj"], "no.ubj"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_input_is_one_line_and_exit_1(
    name: str, kernel_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, told = HOSTILE[name]
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "empty").mkdir()
    if words[0] == "logs":
        write_log_of("row_norm", tmp_path / "logs")
    assert main(["analyse", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("costmodel: ")
    assert told in line


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_an_analysis_agree_with_each_other(name: str) -> None:
    found = analysed(name)
    [facts] = found.configs
    times, resources, roofline = facts.times_us, facts.resources, facts.roofline
    slowest = max(times[f"{term}_us"] for term in ("memory", "compute", "latency"))
    assert times["total_us"] == pytest.approx(
        times["launch_us"] + slowest + times["exposed_us"]
    )
    limits = [value for key, value in resources.items() if key.startswith("ctas_by")]
    fit = min(*limits, H200.max_ctas_per_sm)
    assert resources["occupancy_ctas"] == max(1, fit)
    assert 0.0 < roofline.bandwidth_share <= 1.0
    assert 0.0 <= roofline.compute_share <= 1.0
    assert roofline.floor_us <= times["total_us"]
    assert facts.traffic["reread_ratio"] >= 1.0 - 1e-9
    grid = [
        (level, facts.trips[index])
        for index, level in enumerate(found.nest)
        if level.kind == "grid"
    ]
    programs = 0.0
    for level, trips in grid:
        total = 1.0
        for axis, n in zip(level.axes, trips, strict=True):
            assert n * facts.blocks[axis.block] >= axis.extent
            total *= n
        programs += total
    assert programs == facts.programs
    [total_us] = FeatureExtractor(found.graph, H200).analytic_us([facts.config])
    assert times["total_us"] == total_us


@pytest.mark.parametrize("name", NAMES)
def test_live_tiles_fill_what_registers_are_said_to_hold(name: str) -> None:
    [facts] = analysed(name).configs
    held = sum(tile.total_bytes for tile in facts.live)
    assert held == pytest.approx(facts.resources["live_bytes"])


def moved_with(config: Config, **changes: Any) -> Sequence[float]:
    record = parity_kernels.view_of("product").record
    [facts] = analyse(record, H200, {"one": {**config, **changes}}).configs
    return [moved.total_bytes for moved in facts.moved]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([16, 32, 64]), min_size=3, max_size=3))
def test_a_larger_tile_saves_the_reads_it_is_said_to_save(blocks: list[int]) -> None:
    found = analysed("product")
    facts = {fact.access.tensor: fact for fact in found.accesses}
    config = parity_kernels.view_of("product").default
    before = moved_with(config, block_sizes=blocks)
    for knob in found.knobs:
        slot = int(knob.knob[-2])
        larger = [2 * b if i == slot else b for i, b in enumerate(blocks)]
        after = moved_with(config, block_sizes=larger)
        for fact, old, new in zip(found.accesses, before, after, strict=True):
            saves = knob.block in facts[fact.access.tensor].shared_by
            assert new == (old / 2 if saves else old)


@settings(max_examples=20, deadline=None)
@given(st.floats(1.0, 8.0), st.sampled_from(NAMES))
def test_more_bandwidth_never_raises_the_floor(more: float, name: str) -> None:
    faster = dataclasses.replace(H200, dram_gb_per_s=H200.dram_gb_per_s * more)
    view = parity_kernels.view_of(name)
    [before] = analysed(name).configs
    [after] = analyse(view.record, faster, {"default": view.default}).configs
    assert after.roofline.floor_us <= before.roofline.floor_us
    assert after.roofline.ridge <= before.roofline.ridge
    assert after.roofline.intensity == before.roofline.intensity


def test_structure_is_told_where_configs_cannot_be_evaluated() -> None:
    record = parity_kernels.view_of("product").record
    found = analyse(record, H200, {"foreign": {"block_sizes": [16]}})
    assert found.configs == ()
    assert found.problem is not None
    assert "block_sizes" in found.problem
    assert as_json(found)["class"] == "matmul"


@functools.cache
def candidates_of(name: str) -> tuple[Any, ...]:
    view = parity_kernels.view_of(name)
    extractor = FeatureExtractor(KernelGraph.from_record(view.record), H200)
    space = helion_hook.space(parity_kernels.bound_case(name))
    return extractor, make_candidates(view, space, extractor, limit=60)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["product", "row_norm"]), st.randoms(use_true_random=False))
def test_permuting_candidates_permutes_the_ranking(
    name: str, rng: random.Random
) -> None:
    extractor, candidates = candidates_of(name)
    proposed = [c for c in candidates if c.origin is CandidateOrigin.ANALYTIC]
    rest = [c for c in candidates[1:] if c.origin is not CandidateOrigin.ANALYTIC]
    rng.shuffle(rest)
    # Proposals come ranked; wherever the others stand, the answer is one.
    others = [*proposed, *rest]
    place = rng.randrange(len(rest) + 1)
    shuffled = [candidates[0], *rest[:place], *proposed, *rest[place:]]
    plain = [candidates[0], *others]
    first = choose(extractor, plain, model=None, promoted=False)
    second = choose(extractor, shuffled, model=None, promoted=False)
    assert second == first
    assert len(first.shortlist) > 1
