"""Who a control file is in logs, corpora and exports: its content, or nobody.

Logs come from Helion's own log sink, through its search with a stubbed benchmark.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import ClassVar

import numpy as np
import pytest
from helion.autotuner import search_algorithms
from helion.autotuner.base_search import BaseSearch
from helion_rig import Rig
from helion_rig import product
from helion_rig import rig
from log_builder import RUN_ID
from log_builder import full_config

import costmodel
from costmodel import helion_hook
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import acf_id_of
from costmodel.acf.identity import content_digest
from costmodel.acf.identity import record_name
from costmodel.acf.identity import to_helion
from costmodel.acf.identity import to_record
from costmodel.acf.identity import without_acf
from costmodel.cli_kernel import decorator_line
from costmodel.compile_cache import cache_key
from costmodel.compiled_facts import Toolchain
from costmodel.datasets.acf_names import AcfNames
from costmodel.datasets.load import LoadedLogs
from costmodel.datasets.load import load_logs
from costmodel.datasets.side_file import AttemptFacts
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.store import Corpus
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import WrongArgumentError
from costmodel.export_controls import ControlNames
from costmodel.features.canonical import canonical_id
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.program_key import Tools
from costmodel.program_key import program_of
from costmodel.training.label import label

H200 = load_hardware("H200")
WIDE, NARROW = b"regs=8 delta=4", b"regs=-8 delta=4"


class PairSearch(BaseSearch):
    """Helion's default with no control file, then with each of its list."""

    configs: ClassVar[list[dict[str, Any]]] = []

    def _autotune(self) -> Any:
        default = self.config_spec.default_config()
        pairs = [default]
        for path in self.settings.autotune_search_acf:
            pairs.append(type(default)(**{**default.config, KNOB: path}))
        results = self.benchmark_batch(pairs)
        return min(results, key=lambda one: one.perf).config


@pytest.fixture()
def helion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setitem(search_algorithms, "PairSearch", PairSearch)
    with rig(tmp_path, monkeypatch) as made:
        monkeypatch.setenv("HELION_AUTOTUNER", "PairSearch")
        yield made


def _tuned(helion: Rig, folder: Path, files: list[Path]) -> Any:
    """A log of Helion's of a search over control files; the kernel, bound."""
    folder.mkdir(parents=True)
    kernel = helion.kernel(
        product,
        autotune_effort="quick",
        autotune_search_acf=[str(path) for path in files],
        autotune_log=str(folder / "run"),
        autotune_log_details=True,
    )
    args = helion.args((256, 512), (512, 128))
    helion.call(kernel, args)
    return helion.bound(kernel, args)


def _names(logs: LoadedLogs) -> list[str | None]:
    (run,) = logs.clean_runs
    return sorted(
        (one.canonical.get(KNOB) for one in run.measurements), key=lambda n: n or ""
    )


def test_a_log_of_helions_is_read_by_content(helion: Rig, tmp_path: Path) -> None:
    files = [tmp_path / "wide.acf", tmp_path / "narrow.acf", tmp_path / "again.acf"]
    for path, content in zip(files, (WIDE, NARROW, WIDE), strict=True):
        path.write_bytes(content)
    bound = _tuned(helion, tmp_path / "logs", files)
    text = (tmp_path / "logs" / "run.meta.jsonl").read_text()
    assert str(files[0]) in text  # what Helion writes is the path
    logs = load_logs([tmp_path / "logs"])
    # The file that is there twice is one; none stays apart.
    names = [f"sha256:{content_digest(one)}" for one in (WIDE, NARROW)]
    assert _names(logs) == [None, *sorted(names)]
    (run,) = logs.clean_runs
    assert {one.status.value for one in run.measurements} == {"ok"}
    assert len({one.canonical_id for one in run.measurements}) == 3

    corpus = Corpus.load(tmp_path / "corpus", create=True)
    corpus.append(logs.clean_runs)
    rows = corpus.attempts.to_pylist()
    assert {row["acf_id"] for row in rows} == {
        None,
        content_digest(WIDE),
        content_digest(NARROW),
    }
    assert str(tmp_path) not in json.dumps(rows)

    # Features do not see control files: such rows are left out of the first stage.
    data = WorkloadData.from_clean_run(run)
    assert data.has_acf.sum() == 2 and len(data.without_acfs()) == 1
    assert len(label(data).configs) == 1
    record = helion_hook.record_of(bound)
    extractor = FeatureExtractor(KernelGraph.from_record(record), H200)
    default = data.configs[data.default_index or 0]
    with_list(extractor, default)
    both = extractor.base([default, {**default, KNOB: names[0]}])
    assert np.array_equal(both[0], both[1])


def test_a_log_of_a_catalogue_needs_no_files(helion: Rig, tmp_path: Path) -> None:
    catalogue = AcfCatalogue.open(tmp_path / "kept")
    for content in (WIDE, NARROW):
        catalogue.put(AcfEntry(content_digest(content), "13.3"), content)
    paths = [catalogue.path(one.acf_id) for one in catalogue.entries()]
    _tuned(helion, tmp_path / "logs", paths)
    shutil.rmtree(catalogue.root)
    names = [f"sha256:{path.stem}" for path in paths]
    assert _names(load_logs([tmp_path / "logs"])) == [None, *names]


def test_a_file_that_is_gone_or_changed_is_unknown(helion: Rig, tmp_path: Path) -> None:
    files = [tmp_path / "gone.acf", tmp_path / "changed.acf"]
    for path in files:
        path.write_bytes(WIDE)
    _tuned(helion, tmp_path / "logs", files)
    files[0].unlink()
    files[1].write_bytes(NARROW)
    written = (tmp_path / "logs" / "run.csv").stat().st_mtime
    os.utime(files[1], (written + 60, written + 60))
    logs = load_logs([tmp_path / "logs"])
    names = _names(logs)
    # Rows are kept, apart from each other and from none.
    assert names[0] is None and len(set(names)) == 3
    assert all(str(one).startswith("unknown:") for one in names[1:])
    assert any("control file" in one.reason for one in logs.audit)


def test_compile_facts_are_kept_by_content(helion: Rig, tmp_path: Path) -> None:
    """Ours must not do what Triton's cache does."""
    bound = helion.bound(helion.kernel(product), helion.args((256, 512), (512, 128)))
    tools = Tools(Toolchain("1.5.1", "2.13", "3.9", "13.3.73"), "V13.3.73")
    default = helion_hook.default_config(bound)
    path = tmp_path / "x.acf"

    def key(config: dict[str, Any]) -> str:
        with helion.mode:
            return cache_key(program_of(bound, config, [], H200, tools))

    keys = []
    for content in (WIDE, NARROW, WIDE):
        path.write_bytes(content)
        keys.append(key({**default, KNOB: str(path)}))
    assert keys[0] == keys[2] != keys[1]
    assert key(default) == key({**default, KNOB: ""}) not in keys


def test_what_the_recorder_noted_comes_first(tmp_path: Path) -> None:
    noted = SideFacts(RUN_ID, attempts={"c1": AttemptFacts(acf_id="ab" * 32)})
    wrong = SideFacts(RUN_ID, attempts={"c2": AttemptFacts(acf_id="wide.acf")})
    names = AcfNames([noted, wrong], None)
    path = tmp_path / "some.acf"
    path.write_bytes(WIDE)
    config = {"num_warps": 4, KNOB: str(path)}
    assert names.named("c1", config)[KNOB] == f"sha256:{'ab' * 32}"
    assert names.named("c2", config)[KNOB] == f"sha256:{content_digest(WIDE)}"
    assert names.named("c1", {"num_warps": 4}) == {"num_warps": 4}


def test_ids_depend_on_content_and_not_on_the_path(tmp_path: Path) -> None:
    ids = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "x.acf"
        path.write_bytes(WIDE)
        ids.add(canonical_id(to_record(full_config(**{KNOB: str(path)}))))
    plain = canonical_id(full_config())
    assert len(ids) == 1 and plain not in ids
    assert canonical_id(to_record(full_config(**{KNOB: ""}))) == plain
    path.write_bytes(NARROW)
    assert canonical_id(to_record(full_config(**{KNOB: str(path)}))) not in ids


@pytest.mark.parametrize("config", [{}, {KNOB: ""}, {KNOB: None}, {"num_warps": 4}])
def test_configs_without_one_stay_as_they_are(
    config: dict[str, Any], tmp_path: Path
) -> None:
    assert to_record(config) is config
    assert to_helion(config, AcfCatalogue.open(tmp_path)) == (config, None)


def test_names_are_stable_and_carry_no_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.acf", Path("zebra\0.acf")):
        name = record_name(str(path))
        assert name.startswith("unknown:") and "zebra" not in name
        assert record_name(name) == name
        assert acf_id_of({KNOB: name}) is None
    large = tmp_path / "large.acf"
    large.write_bytes(bytes((1 << 20) + 1))
    assert record_name(str(large)).startswith("unknown:")


def test_another_machine_finds_it_or_goes_without(tmp_path: Path) -> None:
    here = AcfCatalogue.open(tmp_path / "here")
    acf_id = content_digest(WIDE)
    here.put(AcfEntry(acf_id, "13.3"), WIDE)
    exported = to_record({"num_warps": 4, KNOB: str(here.path(acf_id))})
    assert json.loads(json.dumps(exported)) == exported
    assert str(tmp_path) not in json.dumps(exported)

    there = AcfCatalogue.open(tmp_path / "there")
    config, why = to_helion(exported, there)
    assert config == {"num_warps": 4} == without_acf(exported)
    assert why is not None and acf_id[:12] in why and "\n" not in why
    there.put(AcfEntry(acf_id, "13.3"), WIDE)
    assert to_helion(exported, there) == (
        {"num_warps": 4, KNOB: str(there.path(acf_id))},
        None,
    )
    config, why = to_helion(exported, there, "13.5.37")
    assert KNOB not in config and "13.5.37" in str(why)
    config, why = to_helion({KNOB: "unknown:0123"}, there)
    assert not config and "nobody knows" in str(why)


def test_an_export_tells_what_a_chosen_config_came_with(tmp_path: Path) -> None:
    path = tmp_path / "x.acf"
    path.write_bytes(WIDE)
    name = f"sha256:{content_digest(WIDE)}"
    one = {"block_sizes": [64, 128], "num_warps": 8, KNOB: str(path)}  # sparse
    names = ControlNames([one, full_config(128), full_config(32, **{KNOB: "gone"})])
    assert all(KNOB not in config for config in names.configs)
    assert names.name_of(full_config(64, num_warps=8)) == name
    assert names.name_of(full_config(128)) is None
    assert str(names.name_of(full_config(32))).startswith("unknown:")
    assert names.name_of(full_config(16)) is None
    both = ControlNames([one, {**one, KNOB: ""}])
    assert both.name_of(full_config(64, num_warps=8)) is None


def test_the_line_to_paste_finds_it_or_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COSTMODEL_ACF_DIR", str(tmp_path / "kept"))
    acf_id = content_digest(WIDE)
    line = decorator_line({"num_warps": 4, KNOB: f"sha256:{acf_id}"})
    inside = f"advanced_controls_file=costmodel.control_file('sha256:{acf_id}')"
    assert inside in line and "sha256" not in decorator_line({"num_warps": 4})
    monkeypatch.setattr("costmodel.acf.here.triton_ptxas", lambda: None)
    assert costmodel.control_file(f"sha256:{acf_id}") == ""
    assert "costmodel acf add" in caplog.text
    catalogue = AcfCatalogue.open()
    catalogue.put(AcfEntry(acf_id, "13.3"), WIDE)
    assert costmodel.control_file(f"sha256:{acf_id}") == ""
    assert "made for ptxas 13.3" in caplog.text
    found = _Tool()
    monkeypatch.setattr("costmodel.acf.here.triton_ptxas", lambda: found)
    path = costmodel.control_file(f"sha256:{acf_id}")
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == acf_id
    with pytest.raises(WrongArgumentError, match="found 3"):
        costmodel.control_file(3)


class _Tool:
    version = "13.3.73"
