"""GPU descriptions obey physics, and every name gets an answer."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import UnknownHardwareError
from costmodel.hardware import PEAK_TYPES
from costmodel.hardware import REFERENCE_DEVICES
from costmodel.hardware import known_hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware

# Opt-in shared memory of a CTA in bytes: CUDA programming guide, technical
# specifications, as the bug reports behind the shared-memory case restate them.
SMEM_BUDGET = {
    "sm75": 65536,
    "sm80": 166912,
    "sm86": 101376,
    "sm89": 101376,
    "sm90": 232448,
    "sm100": 232448,
    "sm103": 232448,
    "sm120": 101376,
    "sm121": 101376,
}

# Names as drivers print them, and how close they are to an H100 SXM, H200 or B200.
ASKED = {
    "NVIDIA H100 80GB HBM3": "exact",
    "NVIDIA H200": "exact",
    "NVIDIA B200": "exact",
    "NVIDIA H100 PCIe": "near",
    "NVIDIA H100 NVL": "near",
    "NVIDIA H100": "near",
    "NVIDIA H200 NVL": "near",
    "NVIDIA H20": "near",
    "NVIDIA H800": "near",
    "NVIDIA GH200 480GB": "near",
    "NVIDIA B300 SXM6 AC": "near",
    "NVIDIA GB200": "near",
    "NVIDIA H200 MIG 1g.18gb": "near",
    "NVIDIA GB10": "fallback",
    "NVIDIA GeForce RTX 5090": "fallback",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "fallback",
    "NVIDIA L40S": "fallback",
    "NVIDIA A100-SXM4-80GB": "fallback",
    "AMD Instinct MI350X": "fallback",
    "AMD Instinct MI300X": "fallback",
    "Intel(R) Data Center GPU Max 1550": "fallback",
    "": "fallback",
}


@pytest.mark.parametrize("name", known_hardware())
def test_description_is_consistent(name: str) -> None:
    hw = load_hardware(name)
    assert hw.name == name and hw.aliases
    assert hw.arch == "sm{}{}".format(*hw.compute_capability)
    assert hw.smem_per_cta_bytes == SMEM_BUDGET[hw.arch]
    reserved = 0 if hw.compute_capability < (8, 0) else 1024
    assert hw.smem_per_sm_bytes == hw.smem_per_cta_bytes + reserved
    assert hw.max_threads_per_cta <= hw.max_threads_per_sm
    assert hw.l2_bytes < hw.dram_bytes
    assert hw.dram_gb_per_s < hw.l2_gb_per_s
    assert tuple(hw.peak_tflops) == PEAK_TYPES
    assert all(peak > 0 for peak in hw.peak_tflops.values())
    peak = hw.peak_tflops
    assert peak["fp32"] <= peak["tf32"] <= peak["fp16"] <= peak["fp8"]
    assert sum((hw.has_wgmma, hw.has_tcgen05)) <= 1
    assert hw.has_tma == (hw.compute_capability >= (9, 0))
    assert (hw.tmem_columns > 0) == hw.has_tcgen05


@pytest.mark.parametrize("name", known_hardware())
def test_peaks_are_near_units_times_clock(name: str) -> None:
    """fp32 lanes are 64 or 128 an SM; datasheets round, and boost differently."""
    hw = load_hardware(name)
    lanes = 64 if hw.arch in ("sm75", "sm80") else 128
    flop_per_s = hw.n_sms * lanes * 2 * hw.clock_ghz * 1e9
    # The widest gaps are the export part H20 and the narrow-fp32 A10G.
    assert 0.75 <= hw.peak_tflops["fp32"] * 1e12 / flop_per_s <= 1.25


def test_every_file_says_where_each_number_group_comes_from() -> None:
    folder = importlib.resources.files("costmodel") / "hardware"
    for entry in folder.iterdir():
        lines = entry.read_text(encoding="utf-8").splitlines()
        groups = "\n".join(lines).split("\n\n")
        if entry.name == "arch.toml":
            assert "Programming Guide" in groups[0]
            continue
        for group in groups[1:]:
            assert any(line.startswith("#") for line in group.splitlines()), (
                entry.name,
                group,
            )


def test_names_and_aliases_are_unique_and_found_in_any_case() -> None:
    seen: dict[str, str] = {}
    for name in known_hardware():
        for spelling in (name, *load_hardware(name).aliases):
            assert seen.setdefault(spelling.lower(), name) == name
            assert load_hardware(f" {spelling.upper()} ").name == name
    assert load_hardware("h200").name == "NVIDIA H200"


def test_unknown_name_lists_what_is_known() -> None:
    with pytest.raises(UnknownHardwareError) as caught:
        load_hardware("H900")
    message = str(caught.value)
    assert "'H900'" in message and "H200" in message and "\n" not in message


@pytest.mark.parametrize(("name", "kind"), ASKED.items())
def test_driver_names(name: str, kind: str) -> None:
    match = match_hardware(name)
    assert match.kind == kind, match.why
    assert (match.nearest is None) == (kind == "fallback")
    if kind == "fallback" and match.hardware.arch == "generic":
        assert not (match.hardware.has_tma or match.hardware.has_wgmma)
        assert match.hardware.smem_per_cta_bytes == 65536


def test_near_keeps_its_own_limits_and_names_the_right_relative() -> None:
    def nearest(name: str) -> str:
        found = match_hardware(name).nearest
        assert found is not None
        return found.name

    assert nearest("NVIDIA B300 SXM6 AC") == "NVIDIA B200"
    assert nearest("NVIDIA H800") == "NVIDIA H100 80GB HBM3"
    assert match_hardware("NVIDIA H20").hardware.n_sms == 78
    assert match_hardware("NVIDIA GB10").hardware.smem_per_cta_bytes == 101376


def test_mig_slice_is_the_same_die_with_far_fewer_sms() -> None:
    match = match_hardware("NVIDIA H200 MIG 1g.18gb")
    whole = load_hardware("H200")
    part = match.hardware
    assert match.nearest == whole
    assert part.n_sms == 16 and part.dram_gb_per_s == whole.dram_gb_per_s / 8
    assert part.smem_per_cta_bytes == whole.smem_per_cta_bytes


def test_what_the_driver_counts_wins_over_the_file() -> None:
    match = match_hardware("NVIDIA H200", n_sms=66)
    assert (match.hardware.n_sms, match.kind) == (66, "near")
    half = (
        match.hardware.peak_tflops["bf16"] / load_hardware("H200").peak_tflops["bf16"]
    )
    assert half == pytest.approx(0.5)


def test_an_unknown_device_of_a_known_architecture_has_its_limits() -> None:
    match = match_hardware("NVIDIA B400", compute_capability=(10, 3), n_sms=160)
    assert match.hardware.smem_per_cta_bytes == 232448
    assert (match.kind, match.hardware.n_sms) == ("near", 160)


def test_the_trained_set_decides_what_is_exact() -> None:
    assert match_hardware("NVIDIA A100-SXM4-80GB").kind == "fallback"
    trained = ("NVIDIA A100-SXM4-40GB",)
    assert match_hardware("NVIDIA A100-SXM4-80GB", trained=trained).kind == "near"
    assert match_hardware("NVIDIA A100-SXM4-40GB", trained=trained).kind == "exact"
    assert match_hardware("NVIDIA H200", trained=trained).kind == "fallback"
    assert match_hardware("NVIDIA H200", trained=()).kind == "fallback"


@given(st.text() | st.sampled_from(sorted(ASKED)).map(lambda name: name[:-1]))
def test_no_name_raises(name: str) -> None:
    match = match_hardware(name)
    assert match.kind in ("exact", "near", "fallback")
    assert match.why
    json.dumps(dataclasses.asdict(match))


@given(st.sampled_from(known_hardware()), st.text(max_size=8))
def test_a_suffix_never_makes_a_device_exact(name: str, suffix: str) -> None:
    match = match_hardware(f"{name}x{suffix}")
    assert match.kind != "exact"


def test_reference_devices_are_described() -> None:
    assert set(REFERENCE_DEVICES) <= set(known_hardware())
    assert len({hash(load_hardware(name)) for name in known_hardware()}) > 1
