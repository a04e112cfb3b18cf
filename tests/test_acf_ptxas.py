"""What real assemblers say of files that are no control files, and of none.

`make test-acf` fetches the two that are named here into a folder and points
`COSTMODEL_TEST_PTXAS_DIR` at it. No control file is needed: they belong to users, and
none may be in a repository. The assembler that Triton brings is looked at elsewhere,
in tests that always run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costmodel.acf.adding import verify
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import content_digest
from costmodel.acf.probe import Probe
from costmodel.acf.probe import ProbeStatus
from costmodel.acf.probe_ptx import probe_programs
from costmodel.acf.toolchain import PtxasTool
from costmodel.acf.toolchain import ptxas_at
from costmodel.cli import main

FOLDER = os.environ.get("COSTMODEL_TEST_PTXAS_DIR", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="`make test-acf` fetches the assemblers"),
]


@pytest.fixture(scope="module", params=["13.3.73", "13.5.37"])
def tool(request: pytest.FixtureRequest) -> PtxasTool:
    found = ptxas_at(Path(FOLDER) / request.param / "nvidia" / "cu13" / "bin" / "ptxas")
    assert found is not None and found.version == request.param
    return found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not in expected format"),
        (b"--opt-level 3\n", "Payload is not valid"),
        (bytes(range(256)) * 9, "Invalid compiler controls file"),
        (bytes(2224), "Invalid compiler controls file"),
        (b"\x7f" * 16, "Invalid compiler controls file"),
    ],
    ids=["empty", "text", "garbage", "zeros", "short"],
)
def test_what_is_no_control_file_is_refused(
    tool: PtxasTool, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "some.acf"
    path.write_bytes(content)
    verdict = Probe(tool).check(path)
    assert verdict.status is ProbeStatus.REFUSED and words in verdict.detail


def test_what_is_not_there_is_unreadable(tool: PtxasTool, tmp_path: Path) -> None:
    for path in (tmp_path / "gone.acf", tmp_path):
        verdict = Probe(tool).check(path)
        assert not verdict.is_ok, verdict
    assert Probe(tool).check(tmp_path / "gone").status is ProbeStatus.UNREADABLE


def test_the_probes_assemble_and_their_note_names_no_file(tool: PtxasTool) -> None:
    probe = Probe(tool)
    digests = {name: probe.plain_digest(name) for name in probe_programs()}
    assert len(set(digests.values())) == len(digests)
    assert digests == {name: Probe(tool).plain_digest(name) for name in digests}


def test_adding_says_which_cuda_minor_was_tried(
    tool: PtxasTool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.acf").write_bytes(bytes(2224))
    kept = ["--dir", str(tmp_path / "kept")]
    command = ["acf", "add", str(tmp_path / "some.acf"), "--ptxas", str(tool.path)]
    assert main([*command, *kept]) == 1
    said = capsys.readouterr().out
    assert f"tried on ptxas {tool.version}" in said and f"but {tool.cuda}" in said
    assert not (tmp_path / "kept").exists()


def test_what_was_kept_by_mistake_fails_the_next_trial(
    tool: PtxasTool, tmp_path: Path
) -> None:
    catalogue = AcfCatalogue.open(tmp_path)
    for content in (b"13.3 garbage" * 20, b"13.5 garbage" * 20):
        cuda = content.decode().split()[0]
        catalogue.put(AcfEntry(content_digest(content), cuda), content)
    report = verify(catalogue, Probe(tool))
    by_cuda = {one.entry.cuda: one.status for one in report.verdicts}
    assert by_cuda.pop(tool.cuda) == "refused" and set(by_cuda.values()) == {"skipped"}
    assert not report.is_ok
