"""Exported files are what Helion reads, and nobody else's part of them is lost."""

from __future__ import annotations

import copy
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helion.autotuner import aot_compile
from helion.autotuner.aot_cache import AOTAutotuneCache
from helion.autotuner.aot_kernel import HeuristicKeyFunction
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.arguments import parse_argument
from costmodel.errors import ExportError
from costmodel.export_aot import _READ_SHAPE
from costmodel.export_aot import aot_section
from costmodel.export_aot import merge_aot
from costmodel.export_aot import shape_signature
from costmodel.export_files import write_export
from costmodel.export_json import MANIFEST
from costmodel.export_json import key_text
from costmodel.export_json import merge_folder_file
from costmodel.export_json import merge_kernel_file
from costmodel.export_plan import ExportEntry
from costmodel.export_plan import KernelExport
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.shape_list import make_cases
from costmodel.target import bind
from costmodel.target import targeting

H200 = load_hardware("H200")

KERNELS = """
import torch, helion
import helion.language as hl

@helion.aot_kernel()
def add_scaled(x: torch.Tensor, y: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile] * scale
    return out

@helion.aot_kernel(key=lambda x: (x.size(0), x.dtype))
def halve(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 0.5
    return out

@helion.kernel(autotune_cache="AOTAutotuneCache")
def negate(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = -x[tile]
    return out
"""
TOKENS = [1, 64, 4096]
BLOCKS = [[4, 512], [1, 256], [2, 1024]]


def config(blocks: list[int], warps: int = 4) -> dict[str, Any]:
    return {"block_sizes": blocks, "num_warps": warps}


def export_of(name: str, args: list[str], indices: list[int]) -> KernelExport:
    cases = make_cases(args, {"tokens": TOKENS})
    return KernelExport(
        name=name,
        hardware=H200,
        configs=tuple(config(blocks) for blocks in BLOCKS),
        entries=tuple(
            ExportEntry(case, index, 0.0, "default")
            for case, index in zip(cases, indices, strict=True)
        ),
        mean_loss_log=0.0,
        worst_loss_log=0.0,
        default_fails_at=(),
        is_exact=True,
        model_id=None,
    )


ADD = export_of("add_scaled", ["bf16[tokens,4096]"] * 2, [1, 2, 0])
HALVE = export_of("halve", ["bf16[tokens,4096]"], [1, 1, 2])
NEGATE = export_of("negate", ["f32[tokens,128]"], [2, 0, 0])


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "src" / "ops.py"
    path.parent.mkdir()
    path.write_text(KERNELS)
    monkeypatch.setenv("HELION_AOT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("HELION_HEURISTIC_DIR", raising=False)
    _forget()
    yield path
    _forget()


def _forget() -> None:
    AOTAutotuneCache.clear_caches()
    HeuristicKeyFunction.clear_cache()


def bound_of(kernel: Any, *args: str) -> Any:
    """The kernel bound on an H200, with what `aot_kernel` pinned on the original."""
    bound = bind(kernel, [parse_argument(arg) for arg in args], H200)
    bound.kernel._aot_user_key = getattr(kernel, "_aot_user_key", None)
    return bound


def helions_answer(bound: Any, *args: str) -> dict[str, Any]:
    """What Helion's own lookup returns for a call with these arguments."""
    example = [
        torch.empty(shape_of(arg), dtype=dtype_of(arg), device="meta") for arg in args
    ]
    with targeting(H200), pytest.MonkeyPatch.context() as patch:
        # The example lies nowhere, so nothing may ask for the GPU it lies on.
        patch.setattr(bound.kernel, "specialization_key", lambda _args: ())
        tuner = bound.settings.autotuner_fn(bound, tuple(example))
        assert isinstance(tuner, AOTAutotuneCache)
        return dict(tuner.autotune())


def shape_of(arg: str) -> list[int]:
    return [int(size) for size in arg.partition("[")[2].rstrip("]").split(",")]


def dtype_of(arg: str) -> torch.dtype:
    return torch.bfloat16 if arg.startswith("bf16") else torch.float32


def test_helion_reads_what_was_exported(source: Path) -> None:
    kernels = [load_kernel(f"{source}:{n}") for n in ("add_scaled", "halve", "negate")]
    pairs = list(zip(kernels, (ADD, HALVE, NEGATE), strict=True))
    (change,) = write_export(pairs, source.parent, "aot")
    assert change.path.name == "_helion_aot_ops_cuda_sm90.py"
    bound = [bound_of(k, *e.entries[0].case.label.split()) for k, e in pairs]
    for one, (_, export) in zip(bound, pairs, strict=True):
        for entry in export.entries:
            answer = helions_answer(one, *entry.case.label.split())
            assert answer == export.configs[entry.index]
    # Between the listed shapes the nearest one speaks, by ratio.
    for tokens, index in ((2, 1), (7, 1), (9, 2), (500, 2), (513, 0), (10**5, 0)):
        arg = f"bf16[{tokens},4096]"
        assert helions_answer(bound[0], arg, arg) == ADD.configs[index]
    # A dtype that was not listed gets the default entry.
    assert helions_answer(bound[0], "f32[64,4096]", "f32[64,4096]") == ADD.configs[0]


def test_helion_finds_it_by_environment_and_ignores_other_architectures(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel(f"{source}:negate")
    folder = tmp_path / "elsewhere"
    write_export([(kernel, NEGATE)], folder, "aot")
    bound = bound_of(kernel, "f32[1,128]")
    default = helions_answer(bound, "f32[1,128]")
    assert default != NEGATE.configs[2]
    _forget()
    monkeypatch.setenv("HELION_HEURISTIC_DIR", str(folder))
    assert helions_answer(bound, "f32[1,128]") == NEGATE.configs[2]


def test_shapes_with_one_config_share_one_program(source: Path) -> None:
    kernel = load_kernel(f"{source}:halve")
    write_export([(kernel, HALVE)], source.parent, "aot")
    x = [torch.empty(n, 16, dtype=torch.bfloat16, device="meta") for n in TOKENS]
    with targeting(H200):
        keys = [kernel._key_fn(one) for one in x]
    assert keys == [1, 1, 2]


def test_helions_standalone_compiler_takes_the_lookup(source: Path) -> None:
    kernel = load_kernel(f"{source}:add_scaled")
    other = load_kernel(f"{source}:negate")
    sections = {
        "negate": aot_section(other, NEGATE),
        "add_scaled": aot_section(kernel, ADD),
    }
    text, _ = merge_aot(None, sections)
    body = aot_compile._extract_heuristic_body(text, "add_scaled")
    space: dict[str, Any] = {}
    exec(body, space)
    x = torch.empty(64, 4096, dtype=torch.bfloat16)
    assert space["key_add_scaled"](x, x, 2.0) == 2
    assert "key_negate" not in space
    # A second call is answered from memory, alike; lists are read each time.
    assert space["key_add_scaled"](x, x, 2.0) == 2
    assert space["key_add_scaled"](x, [x], 2.0) == 0
    assert space["key_add_scaled"](x[:1], x[:1], 2.0) == 1
    path = source.with_name("module.py")
    path.write_text(text)
    module = AOTAutotuneCache._load_heuristic_module(path, None)
    configs = AOTAutotuneCache._parse_configs_from_autotune(module, "add_scaled")
    assert configs == list(ADD.configs)


ARGUMENTS = st.recursive(
    st.sampled_from(
        [
            "bf16[3,5]",
            "f32[7]",
            "f32[]",
            "i64[2,2]:1,2",
            "12",
            "0",
            "-3",
            "1e-5",
            "true",
            "none",
            "str:silu",
            "dtype:bf16",
        ]
    ),
    lambda inner: st.lists(inner, max_size=3).map(
        lambda items: f"({','.join(_quoted(one) for one in items)},)" if items else "[]"
    ),
    max_leaves=5,
)


def _quoted(item: str) -> str:
    return f"'{item[4:]}'" if item.startswith("str:") else item


@settings(max_examples=60)
@given(st.lists(ARGUMENTS, min_size=1, max_size=3))
def test_the_written_function_reads_calls_as_the_export_does(args: list[str]) -> None:
    """Else a listed shape would be found by nearness only, or not at all."""
    specs = [parse_argument(arg) for arg in args]
    kernel = types.SimpleNamespace(name="any", fn=lambda *values: None)
    kinds, sizes = shape_signature(kernel, specs)
    space: dict[str, Any] = {}
    source = ["def read(*args):", *_READ_SHAPE, "    return shape"]
    exec("\n".join(source), space)
    values = [spec.materialize("cpu", torch.Generator()) for spec in specs]
    assert space["read"](*values) == (kinds, *sizes)


FOREIGN = (
    "import os\n\ndef autotune_negate(*args):\n    return {'block_sizes': [8, 8]}\n"
)


def test_an_aot_file_keeps_what_is_not_ours(source: Path) -> None:
    kernel = load_kernel(f"{source}:add_scaled")
    other = load_kernel(f"{source}:negate")
    both = [(kernel, ADD), (other, NEGATE)]
    path = source.parent / "_helion_aot_ops_cuda_sm90.py"
    path.write_text(FOREIGN)
    (change,) = write_export(both, source.parent, "aot")
    assert change.kept == ("negate",)
    assert path.read_text().startswith(FOREIGN)
    bound = bound_of(other, "f32[1,128]")
    assert helions_answer(bound, "f32[1,128]") == {"block_sizes": [8, 8]}
    stamp = path.stat().st_mtime_ns
    (again,) = write_export(both, source.parent, "aot")
    assert not again.changed
    assert path.stat().st_mtime_ns == stamp


def test_an_aot_section_is_replaced_unless_someone_changed_it(source: Path) -> None:
    kernel = load_kernel(f"{source}:add_scaled")
    moved = export_of("add_scaled", ["bf16[tokens,4096]"] * 2, [2, 2, 2])
    first, _ = merge_aot(FOREIGN, {"add_scaled": aot_section(kernel, ADD)})
    first += "\n# the end\n"
    second, refused = merge_aot(first, {"add_scaled": aot_section(kernel, moved)})
    assert not refused
    assert second.count("def autotune_add_scaled") == 1
    assert second.startswith(FOREIGN)
    assert second.endswith("# the end\n")
    edited = first.replace("[1, 256]", "[1, 128]")
    kept, refused = merge_aot(edited, {"add_scaled": aot_section(kernel, moved)})
    assert kept == edited
    assert refused == ["add_scaled"]


@pytest.mark.parametrize("layout", ["folders", "kernels"])
def test_engines_files_keep_tuned_entries_and_follow_ours(
    tmp_path: Path, layout: str
) -> None:
    tuned = config([8, 8]) | {"split_k": 4}
    if layout == "folders":
        path = tmp_path / "halve" / "nvidia_h200.json"
        before: Any = [
            {"key": {"tokens": 64}, "config": tuned, "note": "tuned in May"},
            {"key": {"tokens": 7}, "config": tuned},
        ]
    else:
        path = tmp_path / "halve.json"
        before = {
            "nvidia_h200": {"tokens_64": tuned, "tokens_7": tuned},
            "nvidia_b200": {"default": tuned},
        }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(before))
    (change,) = write_export([(None, HALVE)], tmp_path, layout)
    assert change.kept == ("tokens_64",)
    after = json.loads(path.read_text())
    assert lookup(after, {}) == HALVE.configs[0]
    assert lookup(after, {"tokens": 4096}) == HALVE.configs[2]
    assert lookup(after, {"tokens": 64}) == lookup(after, {"tokens": 7}) == tuned
    if layout == "folders":
        assert after[:2] == before
    else:
        assert after["nvidia_b200"] == before["nvidia_b200"]
    files = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    (again,) = write_export([(None, HALVE)], tmp_path, layout)
    assert not again.changed
    assert files == {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    # A later model says something else: ours move, the tuned ones stay.
    moved = export_of("halve", ["bf16[tokens,4096]"], [2, 2, 0])
    write_export([(None, moved)], tmp_path, layout)
    after = json.loads(path.read_text())
    assert lookup(after, {"tokens": 4096}) == HALVE.configs[0]
    assert lookup(after, {"tokens": 64}) == tuned


def lookup(content: Any, key: dict[str, int]) -> Any:
    """As an engine would, in either layout."""
    if isinstance(content, list):
        (found,) = [entry["config"] for entry in content if entry["key"] == key]
        return found
    return content["nvidia_h200"][key_text(key)]


def test_what_we_wrote_and_someone_tuned_since_is_theirs(tmp_path: Path) -> None:
    write_export([(None, HALVE)], tmp_path, "folders")
    path = tmp_path / "halve" / "nvidia_h200.json"
    content = json.loads(path.read_text())
    tuned = copy.deepcopy(content)
    tuned[1]["config"]["num_warps"] = 16
    path.write_text(json.dumps(tuned))
    moved = export_of("halve", ["bf16[tokens,4096]"], [2, 2, 0])
    for _ in range(2):
        (change,) = write_export([(None, moved)], tmp_path, "folders")
        assert change.kept == ("tokens_1",)
    assert json.loads(path.read_text())[1] == tuned[1]


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.dictionaries(
                st.sampled_from(["tokens", "width"]),
                st.sampled_from([1, 64, 4096, "x", None]),
            ),
            "config": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        }
    ),
    max_size=6,
)


@settings(max_examples=30)
@given(ENTRIES)
def test_no_entry_of_others_is_ever_lost(entries: list[dict[str, Any]]) -> None:
    merged = merge_folder_file(json.dumps(entries), HALVE, {})
    after = json.loads(merged.text)
    assert after[: len(entries)] == entries
    answered = {key_text(entry["key"]) for entry in after}
    assert {"default", "tokens_1", "tokens_64", "tokens_4096"} <= answered
    assert set(merged.ours).isdisjoint(merged.kept)
    by_gpu = {"nvidia_h200": {f"e{i}": e["config"] for i, e in enumerate(entries)}}
    merged = merge_kernel_file(json.dumps(by_gpu), "nvidia_h200", HALVE, {})
    assert (
        by_gpu["nvidia_h200"].items() <= json.loads(merged.text)["nvidia_h200"].items()
    )


@pytest.mark.parametrize(
    ("layout", "content"),
    [
        ("folders", "{"),
        ("folders", '{"nvidia_h200": {}}'),
        ("folders", '[{"config": {}}]'),
        ("kernels", "[]"),
        ("kernels", '{"nvidia_h200": 3}'),
        ("aot", "def ("),
    ],
)
def test_an_unreadable_file_stops_all_writing(
    source: Path, tmp_path: Path, layout: str, content: str
) -> None:
    names = {
        "folders": "halve/nvidia_h200.json",
        "kernels": "halve.json",
        "aot": "_helion_aot_ops_cuda_sm90.py",
    }
    out = tmp_path / "out"
    path = out / names[layout]
    path.parent.mkdir(parents=True)
    path.write_text(content)
    pairs = [
        (load_kernel(f"{source}:negate"), NEGATE),
        (load_kernel(f"{source}:halve"), HALVE),
    ]
    with pytest.raises(ExportError, match=path.name):
        write_export(pairs, out, layout)
    assert [f for f in out.rglob("*") if f.is_file()] == [path]
    assert path.read_text() == content


def test_a_damaged_manifest_is_not_guessed_around(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(ExportError, match="remove it"):
        write_export([(None, HALVE)], tmp_path, "folders")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    (change,) = write_export([(None, HALVE)], tmp_path / "out", "folders", dry_run=True)
    assert change.changed
    assert not (tmp_path / "out").exists()
