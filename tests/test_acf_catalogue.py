"""The catalogue of control files: by content, whole or not at all, and never trusted.

A stub stands in for the trial where only the keeping is looked at; the assembler that
Triton brings says what it thinks of files that are no control files; a stand-in for one
takes text files, since no real control file may be in a repository.
"""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import standin_ptxas
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.acf import entry as entries
from costmodel.acf import here
from costmodel.acf import toolchain
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import content_digest
from costmodel.acf.probe import Probe
from costmodel.acf.probe import ProbeStatus
from costmodel.acf.probe import ProbeVerdict
from costmodel.acf.toolchain import PtxasTool
from costmodel.acf.toolchain import find_ptxas
from costmodel.acf.toolchain import ptxas_at
from costmodel.cli import main
from costmodel.errors import AcfSourceError
from costmodel.errors import CostModelError
from costmodel.errors import NoAcfToolchainError
from costmodel.errors import UnknownAcfError
from costmodel.hardware import load_hardware

H200 = load_hardware("H200")
A100 = load_hardware("A100")
STORE = ".visible .entry store(.param .u64 p) {\n" + (
    ".reg .b64 %a<2>;\n ld.param.u64 %a1, [p];\n st.global.u32 [%a1], 7;\n ret;\n}\n"
)


class Willing(Probe):
    """A trial that everything passes, on an assembler that is not there."""

    def __init__(self, version: str = "13.3.73") -> None:
        super().__init__(PtxasTool(Path("nowhere/ptxas"), version))

    def check(self, path: Path) -> ProbeVerdict:
        assert " " not in str(path)
        return ProbeVerdict(ProbeStatus.OK, changed=("stream",))


@pytest.fixture()
def catalogue(tmp_path: Path) -> AcfCatalogue:
    return AcfCatalogue.open(tmp_path / "kept")


@pytest.fixture()
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "a pack"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.acf").write_text(f"delta=1 #{name}")
    return folder


def _files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_adding_twice_changes_nothing(catalogue: AcfCatalogue, pack: Path) -> None:
    first = catalogue.add(pack, probe=Willing())
    assert [one.name for one in first.added] == ["one", "two"]
    before = _files(catalogue.root)
    stamps = {path: path.stat().st_mtime_ns for path in catalogue.root.rglob("*.*")}
    again = catalogue.add(pack, probe=Willing())
    assert not again.added and len(again.unchanged) == 2
    assert _files(catalogue.root) == before
    assert stamps == {p: p.stat().st_mtime_ns for p in catalogue.root.rglob("*.*")}


def test_the_path_is_the_content_and_cannot_be_written(
    catalogue: AcfCatalogue, pack: Path
) -> None:
    catalogue.add(pack, probe=Willing())
    ids = [one.acf_id for one in catalogue.entries()]
    assert ids == sorted(ids)
    for acf_id in ids:
        path = catalogue.path(acf_id)
        assert path.name == f"{acf_id}.acf" and path.parent.name == "ptxas-13.3"
        assert content_digest(path.read_bytes()) == acf_id
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222
    with pytest.raises(UnknownAcfError, match="costmodel acf add"):
        catalogue.path("0" * 64)


def test_a_catalogue_with_a_space_in_its_path_is_refused(
    tmp_path: Path, pack: Path
) -> None:
    catalogue = AcfCatalogue.open(tmp_path / "with space")
    with pytest.raises(AcfSourceError, match="COSTMODEL_ACF_DIR"):
        catalogue.add(pack, probe=Willing())
    assert not catalogue.root.exists()


def test_the_folder_follows_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COSTMODEL_ACF_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert AcfCatalogue.open().root == tmp_path / "helion-costmodel" / "acf"
    monkeypatch.setenv("COSTMODEL_ACF_DIR", str(tmp_path / "mine"))
    assert AcfCatalogue.open().root == tmp_path / "mine"
    assert AcfCatalogue.open().entries() == ()
    assert not (tmp_path / "mine").exists()


def test_damage_is_reported_and_mended_by_adding_again(
    catalogue: AcfCatalogue, pack: Path
) -> None:
    catalogue.add(pack, probe=Willing())
    first, second = (catalogue.path(one.acf_id) for one in catalogue.entries())
    first.chmod(0o644)
    first.write_bytes(b"other")
    second.with_suffix(".json").write_text("{")
    assert catalogue.entries() == () and len(catalogue.problems) == 2
    with pytest.raises(UnknownAcfError):
        catalogue.path(first.stem)
    assert len(catalogue.add(pack, probe=Willing()).added) == 2
    assert len(catalogue.entries()) == 2 and catalogue.problems == ()


def test_many_writers_at_once_leave_whole_files(
    catalogue: AcfCatalogue, pack: Path
) -> None:
    for i in range(6):
        (pack / f"{i}.acf").write_text(f"#{i}")
    with ThreadPoolExecutor(8) as threads:
        tasks = [
            threads.submit(AcfCatalogue.open(catalogue.root).add, pack, probe=Willing())
            for _ in range(8)
        ]
        reports = [task.result() for task in tasks]
    assert sum(len(report.added) for report in reports) == 8
    assert len(catalogue.entries()) == 8 and catalogue.problems == ()
    assert not list(catalogue.root.rglob("*.part"))


def test_removing_takes_the_first_digits(catalogue: AcfCatalogue, pack: Path) -> None:
    catalogue.add(pack, probe=Willing())
    first, second = catalogue.entries()
    for wrong in ("", "x", first.acf_id + "0"):
        with pytest.raises(UnknownAcfError, match="found"):
            catalogue.remove(wrong)
    assert catalogue.remove(first.acf_id[:8]) == first
    assert catalogue.entries() == (second,)


def test_our_list_says_what_each_is_for(catalogue: AcfCatalogue, pack: Path) -> None:
    digest = content_digest((pack / "one.acf").read_bytes())
    (pack / "three.acf").write_text("#3")
    (pack / "acf.toml").write_text(
        'cuda = "13.3"\nnotice = "from a friend"\n'
        f'[[acf]]\nfile = "one.acf"\nsha256 = "{digest}"\nkernels = ["mat*", "bmm"]\n'
        'gpus = ["sm_90a"]\nname = "wide"\n'
        f'[[acf]]\nfile = "two.acf"\nsha256 = "{digest}"\n'
        '[[acf]]\nfile = "../kept"\n[[acf]]\nfile = "gone.acf"\n'
    )
    report = catalogue.add(pack, probe=Willing())
    (found,) = report.added
    assert (found.name, found.notice, found.cuda) == ("wide", "from a friend", "13.3")
    assert found.applies("matmul", H200) and found.applies("_helion_matmul", H200)
    assert not found.applies("softmax", H200) and not found.applies("matmul", A100)
    why = {one.label: one.why for one in report.rejected}
    assert "expected digest" in why["two.acf"] and "not listed" in why["three.acf"]
    assert "outside" in why["acf.toml entry 3"] and "cannot be read" in why["gone.acf"]


@pytest.mark.parametrize(
    "body",
    [
        ["one.acf", "two.acf"],
        {"acfs": [{"path": "one.acf", "cuda_version": "13.3"}, "two.acf"]},
        {"ctk": "CUDA 13.3", "files": {"one.acf": {"gpu": "H200"}, "two.acf": {}}},
        {"entries": [{"acf": "one.acf", "kernel": "a"}, {"file": "two.acf"}]},
    ],
)
def test_packs_list_their_files_in_several_ways(
    catalogue: AcfCatalogue, pack: Path, body: object
) -> None:
    (pack / "manifest.json").write_text(json.dumps(body))
    assert len(catalogue.add(pack, probe=Willing()).added) == 2


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"file": "one.acf", "stage": "nvcc"}, "without a word"),
        ({"file": "one.acf", "cuda": "13.5"}, "nvidia-cuda-nvcc==13.5"),
        ({"file": "one.acf", "cuda": "new"}, "CUDA minor"),
        ({"file": "one.acf", "sha256": "abc"}, "64 hex digits"),
        ({"file": "one.acf", "kernels": 3}, "expected texts"),
        ({"file": 3}, "expected text"),
        ({}, "names no file"),
        (3, "expected a table"),
    ],
)
def test_what_a_list_spells_wrongly_is_not_taken(
    catalogue: AcfCatalogue, pack: Path, entry: object, why: str
) -> None:
    (pack / "manifest.json").write_text(json.dumps({"files": [entry]}))
    report = catalogue.add(pack, probe=Willing())
    assert not report.added and any(why in one.why for one in report.rejected)


def test_a_key_that_our_list_does_not_know_is_named(
    catalogue: AcfCatalogue, pack: Path
) -> None:
    listed = '[[acf]]\nfile = "one.acf"\n'
    (pack / "acf.toml").write_text(f'{listed}kernal = "a"\n')
    report = catalogue.add(pack, probe=Willing())
    assert not report.added and any("kernal" in one.why for one in report.rejected)
    (pack / "acf.toml").write_text(f'notise = "a"\n{listed}')
    with pytest.raises(AcfSourceError, match="notise"):
        catalogue.add(pack, probe=Willing())


@pytest.mark.parametrize("text", ["{", "[", "{}", '{"files": 3}', "3", "\xff"])
def test_a_list_that_is_none_is_one_line(
    catalogue: AcfCatalogue, pack: Path, text: str
) -> None:
    (pack / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(AcfSourceError) as error:
        catalogue.add(pack, probe=Willing())
    assert "\n" not in str(error.value)


def test_one_file_in_two_entries_is_for_both(
    catalogue: AcfCatalogue, pack: Path
) -> None:
    (pack / "manifest.json").write_text(
        json.dumps([{"file": "one.acf", "kernel": k} for k in ("a", "b")])
    )
    (found,) = catalogue.add(pack, probe=Willing()).added
    assert found.kernels == ("a", "b")


def test_a_file_belongs_to_one_cuda_minor(catalogue: AcfCatalogue, pack: Path) -> None:
    catalogue.add(pack, probe=Willing())
    other = catalogue.add(pack, probe=Willing("13.5.37"))
    assert not other.added and "ptxas-13.3" in other.rejected[0].why
    assert len(catalogue.applicable("k", H200, "13.3.33")) == 2
    assert catalogue.applicable("k", H200, "13.30.1") == ()
    assert catalogue.applicable("k", H200, "13.5.37") == ()
    skipped = catalogue.verify(Willing("13.5.37"))
    assert skipped.is_ok and {one.status for one in skipped.verdicts} == {"skipped"}


names = st.text(max_size=8)


@settings(deadline=None)
@given(names, st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_an_entry_survives_json(name: str, kernels: list[str], gpus: list[str]) -> None:
    one = AcfEntry(
        "ab" * 32, "13.3", "ptxas", tuple(kernels), tuple(gpus), name, name * 2
    )
    assert entries.from_json(json.loads(json.dumps(entries.to_json(one)))) == one
    for key in entries.to_json(one):
        with pytest.raises((KeyError, TypeError, ValueError)):
            entries.from_json({**entries.to_json(one), key: 3})


@pytest.mark.parametrize(
    "gpu", ["NVIDIA H200", "nvidia_h200", "h200", "sm90", "SM_90", "sm_90a"]
)
def test_gpus_are_known_however_they_are_spelled(gpu: str) -> None:
    one = AcfEntry("ab" * 32, "13.3", gpus=(gpu,))
    assert one.applies("k", H200) and not one.applies("k", A100)
    assert replace(one, gpus=("sm9",)).applies("k", H200) is False


# --- assemblers -----------------------------------------------------------------------


def _bundled() -> PtxasTool:
    tool = toolchain.triton_ptxas()
    if tool is None or not tool.cuda >= "13.3":
        pytest.skip("this Triton brings no ptxas that takes control files")
    return tool


@pytest.fixture()
def standin(tmp_path: Path) -> PtxasTool:
    tool = ptxas_at(standin_ptxas.install(tmp_path))
    assert tool is not None and tool.version == "13.3.73"
    return tool


def test_the_assembler_triton_brings_refuses_what_is_no_control_file(
    tmp_path: Path,
) -> None:
    probe = Probe(_bundled())
    contents = {
        "empty": b"",
        "text": b"--opt-level 3\n",
        "garbage": bytes(range(256)) * 9,
        "short": bytes(16),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        verdict = probe.check(tmp_path / name)
        assert verdict.status is ProbeStatus.REFUSED, (name, verdict)
        assert str(tmp_path) not in verdict.detail and "\n" not in verdict.detail
    assert probe.check(tmp_path / "gone").status is ProbeStatus.UNREADABLE


def test_what_crashes_hangs_or_does_nothing_is_not_taken(
    standin: PtxasTool, catalogue: AcfCatalogue, tmp_path: Path
) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    for words in ("delta=2", "noop", "crash", "cuda=13.5 delta=1", "what"):
        (folder / f"{words.split('=')[0]}.acf").write_text(words)
    (folder / "empty.acf").write_bytes(b"")
    (folder / "large.acf").write_bytes(bytes((1 << 20) + 1))
    report = catalogue.add(folder, probe=Probe(standin, limit_s=120))
    assert [one.name for one in report.added] == ["delta"]
    why = {one.label.partition(".")[0]: one.why for one in report.rejected}
    assert why["noop"].startswith("unchanged: ") and "--ptx" in why["noop"]
    assert why["crash"] == "crash: ptxas ended with SIGSEGV"
    assert why["cuda"].startswith("refused: ") and why["what"].startswith("refused: ")
    assert "empty" in why["empty"] and "at most" in why["large"]
    (folder / "hang.acf").write_text("hang")
    hung = Probe(standin, limit_s=1).check(folder / "hang.acf")
    assert hung.status is ProbeStatus.TIMEOUT


def test_the_cubins_note_must_name_the_file(standin: PtxasTool, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text(f'#!/bin/sh\nshift 2\nexec "{standin.path}" "$@"\n')
    deaf.chmod(0o755)
    (tmp_path / "some.acf").write_text("delta=2")
    probe = Probe(PtxasTool(deaf, "13.3.73"))
    assert probe.check(tmp_path / "some.acf").status is ProbeStatus.NOT_APPLIED


def test_programs_of_the_users_are_tried_too(
    standin: PtxasTool, tmp_path: Path
) -> None:
    (tmp_path / "noop.acf").write_text("noop")
    bad = Probe(standin, programs={"mine": "no ptx"})
    assert bad.check(tmp_path / "noop.acf").status is ProbeStatus.REFUSED
    ptx = f".version 8.0\n.target sm_80\n.address_size 64\n{STORE}"
    good = Probe(standin, programs={"mine": ptx}).check(tmp_path / "noop.acf")
    assert good.status is ProbeStatus.UNCHANGED and "4 programs" in good.detail


def test_an_assembler_too_old_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    old = standin_ptxas.install(tmp_path, "13.1.80")
    new = standin_ptxas.install(tmp_path, "13.3.73")
    for name in toolchain.VARIABLES:
        monkeypatch.setenv(name, str(old))
    with pytest.raises(NoAcfToolchainError) as error:
        find_ptxas()
    for words in ("13.1.80", "nvidia-cuda-nvcc==13.3", *toolchain.VARIABLES):
        assert words in str(error.value)
    for name in toolchain.VARIABLES:
        monkeypatch.setenv(name, str(new))
    assert find_ptxas() == PtxasTool(new, "13.3.73")
    assert find_ptxas(arch=80).version == "13.3.73"
    with pytest.raises(NoAcfToolchainError, match=r">= 13\.5"):
        find_ptxas("13.5")


def test_the_doctor_tells_of_a_variable_that_triton_does_not_heed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, catalogue: AcfCatalogue, pack: Path
) -> None:
    monkeypatch.setenv("COSTMODEL_ACF_DIR", str(catalogue.root))
    tool = PtxasTool(tmp_path / "ptxas", "13.3.73")
    monkeypatch.setattr(here, "triton_ptxas", lambda: tool)
    for name in toolchain.VARIABLES:
        monkeypatch.setenv(name, str(tool.path))
    assert here.ptxas_line() == f"13.3.73 at {tool.path}"
    monkeypatch.setenv(toolchain.VARIABLES[0], "/other/ptxas")
    assert f"{toolchain.VARIABLES[0]} names another" in here.ptxas_line()
    assert here.control_files_line() == f"none in {catalogue.root}"
    catalogue.add(pack, probe=Willing())
    (catalogue.root / "ptxas-13.3" / "x.json").write_text("{")
    line = here.control_files_line()
    assert line.startswith("2 in ") and "2 of them" in line and "1 damaged" in line


def test_what_is_no_assembler_is_none(tmp_path: Path) -> None:
    assert ptxas_at(tmp_path) is None and ptxas_at(tmp_path / "gone") is None
    assert ptxas_at(Path("/bin/true")) is None


# --- the command ----------------------------------------------------------------------


def test_the_command_adds_lists_verifies_and_removes(
    standin: PtxasTool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "good.acf").write_text("regs=-4 delta=2")
    (tmp_path / "pack" / "bad.acf").write_text("bad")
    kept = ["--dir", str(tmp_path / "kept"), "--json"]
    tool = ["--ptxas", str(standin.path)]
    assert main(["acf", "add", str(tmp_path / "pack"), *tool, *kept]) == 0
    said = json.loads(capsys.readouterr().out)
    (added,) = said["added"]
    assert added["name"] == "good" and said["rejected"][0]["file"] == "bad.acf"
    assert main(["acf", "list", "--kernel", "any", "--gpu", "H200", *kept]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["entries"]
    assert os.path.basename(listed["path"]) == f"{added['acf_id']}.acf"
    assert main(["acf", "verify", *tool, *kept]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main(["acf", "remove", added["acf_id"][:6], *kept]) == 0
    assert main(["acf", "list", "--dir", str(tmp_path / "kept")]) == 0
    empty = capsys.readouterr().out
    assert "costmodel acf add" in empty
    assert "Triton would run" in empty.splitlines()[-1]


def test_the_commands_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["add", str(tmp_path / "gone"), "--ptxas", "/bin/true"],
        ["remove", "abc", "--dir", str(tmp_path)],
        ["add", str(tmp_path), "--gpu", "abacus"],
    ):
        assert main(["acf", *words]) == 1
        said = capsys.readouterr()
        assert said.err.count("\n") == 1 and not said.out
    assert issubclass(AcfSourceError, CostModelError)
