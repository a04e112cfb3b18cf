"""A kernel is bound for the named GPU, and nothing of it stays behind."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.errors import BindError
from costmodel.hardware import Hardware
from costmodel.hardware import known_hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.target import bind
from costmodel.target import targeting


@helion.kernel()
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        out[rows, columns] = x[rows, columns] * factor
    return out


@helion.kernel()
def transposed_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = w.size(0)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], w[columns, inner].T)
        out[rows, columns] = acc
    return out


@helion.kernel()
def jagged_sum(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    groups = starts.size(0) - 1
    out = torch.zeros([groups], dtype=torch.float32, device=values.device)
    for group in hl.tile(groups):
        first = starts[group]
        length = starts[group.index + 1] - first
        acc = hl.zeros([group], dtype=torch.float32)
        for inner in hl.tile(0, length.amax()):
            inside = inner.index[None, :] < length[:, None]
            position = first[:, None] + inner.index[None, :]
            acc = acc + hl.load(values, [position], extra_mask=inside).sum(dim=1)
        out[group] = acc
    return out


def _bind(kernel: Any, gpu: str, *specs: str) -> Any:
    return bind(kernel, [parse_argument(spec) for spec in specs], load_hardware(gpu))


def _torch_state() -> dict[str, Any]:
    """What a target replaces, by identity."""
    return {
        "is_available": torch.cuda.is_available,
        "device_count": torch.cuda.device_count,
        "current_device": torch.cuda.current_device,
        "_lazy_init": torch.cuda._lazy_init,
        "properties": getattr(torch.cuda, "_get_device_properties", None),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


@pytest.mark.parametrize("name", known_hardware())
def test_torch_describes_the_target(name: str) -> None:
    hw = load_hardware(name)
    before = _torch_state()
    with targeting(hw):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_name() == name
        assert torch.cuda.get_device_capability() == hw.compute_capability
        properties = torch.cuda.get_device_properties("cuda:0")
        assert properties.multi_processor_count == hw.n_sms
        assert properties.L2_cache_size == hw.l2_bytes
    assert _torch_state() == before


@pytest.mark.parametrize("gpu", ["T4", "A100", "A10", "L40S", "H200", "B200", "B300"])
def test_binds_and_generates_code_for_every_architecture(gpu: str) -> None:
    bound = _bind(transposed_product, gpu, "f16[256,512]", "f16[384,512]")
    assert "cuda" in str(bound.env.device)
    code = helion_hook.triton_code(bound, helion_hook.default_config(bound))
    assert "def transposed_product" in code


@pytest.mark.parametrize("gpu", ["RTX-5090", "GB10"])
def test_client_blackwell_gets_no_data_centre_rules(gpu: str) -> None:
    bound = _bind(transposed_product, gpu, "bf16[256,512]", "bf16[384,512]")
    view = helion_hook.view(bound)
    assert not view.promoted
    assert view.record.hardware == load_hardware(gpu).name


def test_arguments_of_all_kinds_bind() -> None:
    bound = _bind(scaled, "H200", "bf16[64,128]:1,64", "0.5")
    assert helion_hook.record_of(bound).input_shapes == ((64, 128),)
    bound = _bind(jagged_sum, "H200", "f32[8192]", "i32[65]@offsets(8192)")
    assert helion_hook.record_of(bound).dtypes == ("torch.float32", "torch.int32")


def test_the_number_of_sms_reaches_helion() -> None:
    whole = load_hardware("H200")
    part = match_hardware("NVIDIA H200 MIG 1g.18gb").hardware
    specs = [parse_argument("bf16[1024,4096]"), parse_argument("bf16[2048,4096]")]
    defaults = {
        hw.n_sms: helion_hook.default_config(bind(transposed_product, specs, hw))
        for hw in (whole, part)
    }
    assert defaults[132] != defaults[16]


def test_a_bound_kernel_remembers_its_target_outside() -> None:
    h200 = _bind(scaled, "H200", "bf16[512,512]", "2.0")
    a100 = _bind(scaled, "A100", "bf16[512,512]", "2.0")
    for _ in range(2):
        assert helion_hook.record_of(h200).hardware == "NVIDIA H200"
        assert helion_hook.record_of(a100).hardware == "NVIDIA A100-SXM4-80GB"
    with targeting(load_hardware("B200")):
        assert helion_hook.record_of(h200).hardware == "NVIDIA H200"
        assert torch.cuda.get_device_name() == "NVIDIA B200"


def test_the_kernel_itself_learns_nothing() -> None:
    kernel = helion.kernel(scaled.fn)
    first = _bind(kernel, "H200", "bf16[64,64]", "2.0")
    second = _bind(kernel, "H200", "bf16[64,64]", "2.0")
    assert first is not second
    assert not kernel._bound_kernels
    assert first.kernel.kernel_source() == kernel.kernel_source()


def test_targets_nest_and_unwind() -> None:
    before = _torch_state()
    outer, inner = load_hardware("H200"), load_hardware("A100")
    with targeting(outer):
        with targeting(outer), targeting(inner):
            assert torch.cuda.get_device_capability() == (8, 0)
        assert torch.cuda.get_device_capability() == (9, 0)
        with pytest.raises(ZeroDivisionError), targeting(inner):
            _ = 1 / 0
        assert torch.cuda.get_device_name() == "NVIDIA H200"
    assert _torch_state() == before


def test_helions_caches_forget_the_target() -> None:
    from helion import _compat

    with targeting(load_hardware("H200")):
        assert _compat.get_device_name() == "NVIDIA H200"
    with targeting(load_hardware("A100")):
        assert _compat.get_device_name() == "NVIDIA A100-SXM4-80GB"
    assert _compat.get_device_name() != "NVIDIA A100-SXM4-80GB"


def test_a_present_gpu_does_not_show_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a machine with two real L4s."""
    real = types.SimpleNamespace(
        name="NVIDIA L4", major=8, minor=9, multi_processor_count=58, warp_size=32
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "_get_device_properties", lambda _i: real, raising=False
    )
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    helion_hook.clear_device_caches()
    assert torch.cuda.get_device_name() == "NVIDIA L4"
    bound = _bind(transposed_product, "H200", "bf16[256,512]", "bf16[384,512]")
    view = helion_hook.view(bound)
    assert (view.record.hardware, view.promoted) == ("NVIDIA H200", True)
    assert torch.cuda.get_device_name() == "NVIDIA L4"
    assert (torch.cuda.device_count(), torch.version.cuda) == (2, "13.0")
    monkeypatch.undo()
    helion_hook.clear_device_caches()


def test_threads_take_turns() -> None:
    seen: list[tuple[str, str]] = []
    targets = [load_hardware(name) for name in ("H200", "A100", "B200", "T4")]

    def work(hw: Hardware) -> None:
        for _ in range(20):
            with targeting(hw):
                seen.append((hw.name, torch.cuda.get_device_name()))

    threads = [threading.Thread(target=work, args=(hw,)) for hw in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert all(wanted == found for wanted, found in seen)


@pytest.mark.parametrize(
    "specs",
    [
        ("bf16[64,64]",),
        ("bf16[64,64]", "1.0", "2.0"),
        ("bf16[64]", "1.0"),
        ("1.0", "1.0"),
    ],
)
def test_what_does_not_bind_is_one_clear_line(specs: tuple[str, ...]) -> None:
    before = _torch_state()
    with pytest.raises(BindError) as caught:
        _bind(scaled, "H200", *specs)
    assert "'scaled'" in str(caught.value) and "\n" not in str(caught.value)
    assert _torch_state() == before


def test_another_vendors_gpu_cannot_be_a_target() -> None:
    hw = match_hardware("AMD Instinct MI300X").hardware
    with pytest.raises(BindError, match="expected an NVIDIA GPU"):
        bind(scaled, [parse_argument("bf16[64,64]"), parse_argument("2.0")], hw)


def test_importing_it_imports_neither_torch_nor_helion(
    fresh_modules: set[str],
) -> None:
    assert not {"torch", "helion", "triton"} & fresh_modules


@pytest.fixture
def fresh_modules() -> set[str]:
    import subprocess

    code = (
        "import sys, costmodel.target, costmodel.helion_hook, costmodel.arguments, "
        "costmodel.kernel_file; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HOST_STEPS = {
    "x[0]": (5, 6),
    "x[-1, 1:]": (4, 6),
    "x[..., None]": (4, 5, 6, 1),
    "x[None, :, 0, ::2]": (1, 4, 3),
    "x[i]": (3, 5, 6),
    "x[:, i]": (4, 3, 6),
    "x[i, i]": (3, 6),
    "x[[0, 2]]": (2, 5, 6),
    "x.to('cuda')": (4, 5, 6),
    "x.to(torch.float16)": (4, 5, 6),
    "x.to(i)": (4, 5, 6),
    "x.cuda()": (4, 5, 6),
    "x.permute(2, 1, 0).contiguous()": (6, 5, 4),
    "x.new_tensor([1.0, 2.0])": (2,),
    "torch.tensor([1, 2, 3], device='cuda')": (3,),
    "torch.empty(3).to('cuda')": (3,),
    "x.copy_(x[0].clone())": (4, 5, 6),
}


@pytest.mark.parametrize(("step", "shape"), HOST_STEPS.items())
def test_host_steps_work_on_fake_tensors(step: str, shape: tuple[int, ...]) -> None:
    """As they do on real ones; a CPU-only torch cannot by itself."""
    real = {"x": torch.empty(4, 5, 6), "i": torch.zeros(3, dtype=torch.int64)}
    on_cpu = step.replace("'cuda'", "'cpu'").replace(".cuda()", ".cpu()")
    expected = eval(on_cpu, {"torch": torch}, real)
    with targeting(load_hardware("H200")), FakeTensorMode() as mode:
        fake = {
            name: mode.from_tensor(value).to("cuda") for name, value in real.items()
        }
        found = eval(step, {"torch": torch}, fake)
    assert tuple(found.shape) == tuple(expected.shape) == shape
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    assert found.device.type == "cuda"


def test_assignment_on_the_host_respects_shapes() -> None:
    with targeting(load_hardware("H200")), FakeTensorMode():
        x = torch.empty(4, 5, device="cuda")
        x[0] = 1.0
        x[:, 1] = x[:, 2]
        with pytest.raises(RuntimeError):
            x[0] = x
