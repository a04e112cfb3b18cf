"""What control files do to code: real compiles in children, a stand-in for ptxas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import standin_ptxas

from costmodel import cli
from costmodel.acf.catalogue import DIR_VARIABLE
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.effect_check import EffectChecker
from costmodel.acf.effect_check import Effects
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.toolchain import VARIABLES
from costmodel.compile_check import CompileChecker
from costmodel.compiled_facts import CompileStatus
from costmodel.types import Config

pytestmark = pytest.mark.helion

KERNEL = """
import helion
import helion.language as hl
import torch

@helion.kernel(static_shapes=True, autotune_effort="none")
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out
"""
ARGUMENTS = ["f32[4096]"]
CONFIGS: list[Config] = [{"block_sizes": [1024], "num_warps": 4}]
"""One: a file that hangs costs its whole limit with each."""
PLANTED = {
    "lower": "regs=-8 delta=3",
    "twin": "regs=-8 delta=3 #another",
    "idle": "noop",
    "crash": "crash",
    "hang": "hang",
    "rubbish": "rubbish",
    "spills": "spill=4096 delta=5",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("effects")
    (made / "kernels.py").write_text(KERNEL)
    for name, text in PLANTED.items():
        (made / f"{name}.acf").write_text(text)
    return made


@pytest.fixture
def assembled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-in as Triton's ptxas; a file that names what it assembled."""
    tool = standin_ptxas.install(folder)
    for name in VARIABLES:
        monkeypatch.setenv(name, str(tool))
    log = folder / "assembled"
    log.write_text("")
    monkeypatch.setenv("STANDIN_PTXAS_LOG", str(log))
    monkeypatch.setenv(DIR_VARIABLE, str(folder / "acf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    yield log


def _effects(folder: Path, names: list[str], configs: list[Config]) -> list[Effects]:
    paths = {name: str(folder / f"{name}.acf") for name in names}
    kernel = f"{folder / 'kernels.py'}:doubled"
    with EffectChecker(
        kernel, ARGUMENTS, "H200", paths, acf_limit_s=5.0, folder=folder / "kept"
    ) as checker:
        return [checker.effects(config) for config in configs]


def test_planted_effects_are_found_and_what_is_no_use_is_dropped(
    folder: Path, assembled: Path
) -> None:
    found = _effects(folder, list(PLANTED), CONFIGS)
    for config, effects in zip(CONFIGS, found, strict=True):
        verdicts = {one.pair.acf_id: one.verdict.value for one in effects}
        assert verdicts == {
            None: "none",
            "lower": "useful",
            "twin": "same_as_other",
            "idle": "same_as_none",
            "crash": "crashes",
            "hang": "hangs",
            "rubbish": "refused",
            "spills": "spills",
        }
        assert all(one.pair.config == config for one in effects)
        by_id = {one.pair.acf_id: one for one in effects}
        lower = by_id["lower"]
        assert lower.none.registers is not None and lower.facts.registers is not None
        assert lower.facts.registers - lower.none.registers == -8
        assert lower.facts.n_instructions == (lower.none.n_instructions or 0) + 3
        assert lower.facts.toolchain.ptxas == standin_ptxas.DEFAULT_VERSION
        assert by_id["twin"].twin == "lower"
    # Triton assembles each config once, each file meets it once.
    ran = assembled.read_text().splitlines()
    assert ran.count("-") == len(CONFIGS)
    assert len(ran) == len(CONFIGS) * (1 + len(PLANTED))
    # What is known by content is not assembled again, nor compiled.
    assembled.write_text("")
    again = _effects(folder, list(PLANTED), CONFIGS)
    assert [[one.verdict for one in effects] for effects in again] == [
        [one.verdict for one in effects] for effects in found
    ]
    assert assembled.read_text() == ""


def test_a_new_file_is_met_alone(folder: Path, assembled: Path) -> None:
    _effects(folder, ["lower"], CONFIGS)
    (folder / "new.acf").write_text("regs=8 delta=7")
    assembled.write_text("")
    ((_none, _lower, new),) = _effects(folder, ["lower", "new"], CONFIGS)
    assert new.verdict.value == "useful"
    # PTX is made again, as it is not kept, and only the new file met.
    ran = assembled.read_text().splitlines()
    assert [Path(one).stem for one in ran] == ["-", "new"]


def _catalogued(folder: Path) -> dict[str, str]:
    """Ids of planted files, put into the catalogue."""
    catalogue = AcfCatalogue.open()
    ids = {}
    for name in ("lower", "idle"):
        content = PLANTED[name].encode()
        ids[name] = hashlib.sha256(content).hexdigest()
        catalogue.put(AcfEntry(ids[name], "13.3", name=name), content)
    return ids


def test_the_command_shows_pairs_and_what_would_be_measured(
    folder: Path, assembled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = _catalogued(folder)
    call = ["acf", "effects", f"{folder / 'kernels.py'}:doubled"]
    call += ["--arg", ARGUMENTS[0], "--config", json.dumps(CONFIGS[0])]
    assert cli.main([*call, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (of_config,) = said["configs"]
    assert said["ptxas"] == standin_ptxas.DEFAULT_VERSION
    rows = {one["acf_id"]: one for one in of_config["pairs"]}
    assert rows[ids["lower"]]["verdict"] == "useful"
    assert rows[ids["lower"]]["measured_as"] == 1
    assert rows[ids["idle"]]["verdict"] == "same_as_none"
    assert rows[ids["idle"]]["measured_as"] is None
    assert rows[None]["facts"]["status"] == CompileStatus.OK.value
    assert cli.main(call) == 0
    shown = capsys.readouterr().out
    assert ids["lower"][:12] in shown and "same_as_none" in shown


def test_triton_makes_of_helions_config_what_the_effects_said(
    folder: Path, assembled: Path
) -> None:
    """`advanced_controls_file` through Helion and Triton, against ptxas run by us."""
    ((_none, lower),) = _effects(folder, ["lower"], CONFIGS)
    path = str(folder / "lower.acf")
    assembled.write_text("")
    kernel = f"{folder / 'kernels.py'}:doubled"
    with CompileChecker(kernel, ARGUMENTS, "H200", folder=folder / "other") as checker:
        found = checker.check({**CONFIGS[0], KNOB: path}).facts
    assert assembled.read_text().splitlines() == [path]
    assert found.code_digest == lower.facts.code_digest != lower.none.code_digest
    assert found.registers == lower.facts.registers
    assert found.n_instructions == lower.facts.n_instructions
