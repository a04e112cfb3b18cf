"""Compiling without a GPU: the real compilers on a few small kernels, and the readers.

One child compiles for the whole file; what needs a slow compile is marked slow.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import compiled_facts
from costmodel import disassembly
from costmodel import ptxas
from costmodel.child_process import ChildDiedError
from costmodel.child_process import ChildProcess
from costmodel.child_process import ChildTimeoutError
from costmodel.cli import main
from costmodel.compile_cache import CompileCache
from costmodel.compile_cache import cache_key
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import first_sound
from costmodel.compile_check import is_sound
from costmodel.compile_worker import _failure
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.errors import BindError
from costmodel.errors import UnknownHardwareError

KERNELS = """
import helion
import helion.language as hl
import torch

@helion.kernel(static_shapes=True, autotune_effort="none")
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    out = torch.empty([m, b.size(1)], dtype=a.dtype, device=a.device)
    for tm, tn in hl.tile([m, b.size(1)]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc.to(a.dtype)
    return out

@helion.kernel(static_shapes=True, autotune_effort="none")
def counted(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([int(n.item())])
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    return out
"""
TOOLS = Toolchain("1.5.0", "2.11.0", "3.6.0", "12.8.93")
OK = CompiledFacts(CompileStatus.OK, "", "sm90", TOOLS)
SMALL = {"block_sizes": [64, 64, 32], "num_warps": 4, "num_stages": 3}
WGMMA = {"block_sizes": [64, 128, 64], "num_warps": 4, "num_stages": 4}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def checker(kernels: Path, folder: Path) -> Iterator[CompileChecker]:
    # Deep enough that the loop is not unrolled away.
    arguments = ["bf16[512,4096]", "bf16[4096,512]"]
    with CompileChecker(
        f"{kernels}:product", arguments, "H200", folder=folder, disassemble=True
    ) as found:
        yield found


def test_a_good_config_compiles(checker: CompileChecker) -> None:
    facts = checker.check(WGMMA).facts
    assert facts.status is CompileStatus.OK and not facts.detail
    assert is_sound(facts)
    # Two operands of bf16 in each stage; the loop keeps them all in shared memory.
    assert facts.smem_bytes == 4 * (64 * 64 + 64 * 128) * 2
    # The accumulator alone is 64 registers of each of 128 threads.
    assert facts.registers is not None and 64 < facts.registers <= 255
    assert (facts.spill_bytes, facts.stack_bytes, facts.num_warps) == (0, 0, 4)
    assert facts.n_launches == 1 and facts.code_digest is not None


def test_the_disassembly_shows_the_loop(checker: CompileChecker) -> None:
    code = checker.check(WGMMA).facts.code
    if code is None:
        pytest.skip("this Triton ships no disassembler")
    assert code.has_wgmma and not code.has_tcgen05
    assert code.pending_copy_groups is not None and code.pending_copy_groups > 0
    assert any(loop.counts.get("wgmma") for loop in code.loops)
    assert sum(code.counts.values()) == code.n_instructions


def test_a_second_time_comes_from_the_cache(
    checker: CompileChecker, folder: Path
) -> None:
    first = checker.check(SMALL)
    again = checker.check(SMALL)
    assert again.from_cache and again.facts == first.facts
    for file in folder.rglob("*.json"):
        file.write_text("{")
    repaired = checker.check(SMALL)
    assert not repaired.from_cache
    assert repaired.facts.code_digest == first.facts.code_digest
    assert not list(folder.rglob("*.part"))


def test_too_many_threads_are_named(checker: CompileChecker) -> None:
    config = {"block_sizes": [64, 64, 32], "num_warps": 64, "num_stages": 1}
    facts = checker.check(config).facts
    assert facts.status is CompileStatus.THREADS
    assert "2048 threads" in facts.detail and not is_sound(facts)


def test_too_much_shared_memory_is_named(checker: CompileChecker) -> None:
    config = {"block_sizes": [64, 128, 128], "num_warps": 4, "num_stages": 8}
    facts = checker.check(config).facts
    assert facts.status is CompileStatus.SHARED_MEMORY
    assert facts.smem_bytes is not None and facts.smem_bytes > 232448
    assert str(facts.smem_bytes) in facts.detail and not is_sound(facts)


def test_what_helion_refuses_is_no_crash(checker: CompileChecker) -> None:
    facts = checker.check({"block_sizes": [64]}).facts
    assert facts.status is CompileStatus.REFUSED
    assert "block sizes" in facts.detail and "\n" not in facts.detail


def test_the_first_sound_config_ends_the_walk(checker: CompileChecker) -> None:
    found, seen = first_sound(checker, [{"block_sizes": [64]}, SMALL, WGMMA])
    assert found is not None and found.config == SMALL
    assert [one.config for one in seen] == [{"block_sizes": [64]}, SMALL]


@pytest.mark.slow
def test_running_out_of_time_is_an_answer_and_the_next_config_compiles(
    checker: CompileChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "_limit_s", 0.001)
    config = {**SMALL, "num_warps": 8}
    assert checker.check(config).facts.status is CompileStatus.TIMEOUT
    monkeypatch.undo()
    assert checker.check(config).facts.status is CompileStatus.OK


@pytest.mark.slow
def test_what_does_not_load_is_an_error_for_the_user(kernels: Path) -> None:
    with pytest.raises(UnknownHardwareError):
        CompileChecker(f"{kernels}:product", [], "no such GPU")
    with (
        CompileChecker(f"{kernels}:nothing", [], "H200") as checker,
        pytest.raises(BindError, match="expected a kernel 'nothing'"),
    ):
        checker.check(SMALL)


@pytest.mark.slow
def test_the_command_says_what_the_compiler_says(
    kernels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ["check", f"{kernels}:product", *["--arg", "bf16[512,512]"] * 2]
    assert main([*command, "--config", json.dumps(SMALL), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["configs"]
    assert row["facts"]["status"] == "ok" and row["config"] == SMALL
    bad = json.dumps({"block_sizes": [64, 128, 128], "num_stages": 8})
    assert main([*command, "--config", bad, "--default"]) == 1
    text = capsys.readouterr().out
    assert "shared_memory" in text and "registers" in text


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["B200", "A100", "L40S"])
def test_other_targets_compile(kernels: Path, folder: Path, gpu: str) -> None:
    arguments = ["bf16[512,512]"] * 2
    with CompileChecker(
        f"{kernels}:product", arguments, gpu, folder=folder, disassemble=True
    ) as checker:
        facts = checker.check(SMALL).facts
    assert facts.status is CompileStatus.OK
    assert facts.code is None or not facts.code.has_wgmma


def test_the_command_wants_a_config(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ([], ["--config", "{"], ["--config", "[1]"]):
        assert main(["check", f"{kernels}:product", *extra]) == 1
        assert "expected" in capsys.readouterr().err


# --- The child -----------------------------------------------------------------------


def _child(program: str) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", program], {})


def test_a_child_that_hangs_is_killed() -> None:
    child = _child("import sys; sys.stdin.readline(); sys.stdin.readline()")
    child.tell({})
    with pytest.raises(ChildTimeoutError):
        child.hear(0.2)
    with pytest.raises(ChildDiedError, match="SIGKILL"):
        child.tell({})
        child.hear(10.0)


def test_a_child_that_aborts_says_how() -> None:
    child = _child(
        "import os, sys; print('Assertion failed: layout', file=sys.stderr, flush=True)"
        "; os.abort()"
    )
    with pytest.raises(ChildDiedError, match=r"SIGABRT: Assertion failed: layout"):
        child.hear(30.0)


# --- Cache ---------------------------------------------------------------------------


def test_a_timeout_counts_only_for_limits_up_to_its_own(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    slow = dataclasses.replace(OK, status=CompileStatus.TIMEOUT, limit_s=20.0)
    cache.put("ab" * 32, slow)
    assert cache.get("ab" * 32, 10.0) == slow
    assert cache.get("ab" * 32, 60.0) is None


def test_an_error_of_the_day_is_not_kept(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.put("cd" * 32, dataclasses.replace(OK, status=CompileStatus.ERROR))
    assert cache.get("cd" * 32, 1.0) is None


def test_a_folder_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CompileCache(tmp_path / "file")
    cache.put("ab" * 32, OK)
    assert cache.get("ab" * 32, 1.0) is None


def test_the_key_hangs_on_the_program_and_not_on_its_spelling() -> None:
    program = {"code": "x", "arch": "sm90", "toolchain": dataclasses.asdict(TOOLS)}
    assert cache_key(program) == cache_key(dict(reversed(program.items())))
    assert cache_key(program) != cache_key({**program, "arch": "sm100"})


@given(
    registers=st.none() | st.integers(0, 255),
    status=st.sampled_from(list(CompileStatus)),
    with_code=st.booleans(),
)
def test_facts_go_to_json_and_back(
    registers: int | None, status: CompileStatus, with_code: bool
) -> None:
    code = disassembly.code_shape(disassembly.parse(SASS)) if with_code else None
    facts = dataclasses.replace(OK, status=status, registers=registers, code=code)
    text = json.dumps(compiled_facts.to_json(facts))
    assert compiled_facts.from_json(json.loads(text)) == facts


def test_heavy_spills_are_unsound_and_light_ones_are_not() -> None:
    light = dataclasses.replace(OK, spill_store_bytes=100, spill_load_bytes=100)
    heavy = dataclasses.replace(OK, spill_store_bytes=800, spill_load_bytes=800)
    assert is_sound(light) and not is_sound(heavy)


# --- The assembler's words -----------------------------------------------------------


@given(numbers=st.tuples(*[st.integers(0, 99999)] * 4))
def test_a_report_is_read(numbers: tuple[int, int, int, int]) -> None:
    registers, stack, stores, loads = numbers
    text = (
        f"ptxas info    : Function properties for k\n    {stack} bytes stack frame, "
        f"{stores} bytes spill stores, {loads} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers\n"
    )
    assert ptxas.parse_report(text) == ptxas.PtxasReport(*numbers)


def test_a_long_refusal_of_helions_is_told_by_its_first_line() -> None:
    helions = type("LoweringError", (Exception,), {"__module__": "helion.exc"})
    tritons = type("CompilationError", (Exception,), {"__module__": "triton.errors"})
    text = "what is wrong\n\nUse this tool to see more."
    assert _failure(helions(text))[1] == "LoweringError: what is wrong"
    assert _failure(tritons(text))[1].endswith("Use this tool to see more.")


def test_other_words_are_no_report() -> None:
    assert ptxas.parse_report("ptxas fatal: no such file") is None
    assert ptxas.is_register_failure("error : (C7602) Insufficient registers (128)")
    assert not ptxas.is_register_failure("Invalid compiler controls file")
    assert ptxas.version_of("Cuda tools, release 12.8, V12.8.93\n") == "12.8.93"


# --- Disassembly ---------------------------------------------------------------------

SASS = """
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/                   LDG.E.64 R8, desc[UR4][R2.64+0x10] ;
        /*0020*/                   FADD R10, R4, R8 ;
.L_x_0:
        /*0030*/                   LDGSTS.E.BYPASS.128 [R20], desc[UR4][R22.64] ;
        /*0040*/                   LDGDEPBAR ;
        /*0050*/                   DEPBAR.LE SB0, 0x2 ;
        /*0060*/                   LDG.E R30, desc[UR4][R2.64] ;
        /*0070*/                   HMMA.16816.F32.BF16 R12, R4, R8, R12 ;
        /*0080*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0090*/                   ISETP.NE.AND P0, PT, R1, RZ, PT ;
        /*00a0*/               @P0 BRA `(.L_x_0) ;
        /*00b0*/                   STG.E desc[UR4][R2.64], R10 ;
.L_x_1:
        /*00c0*/                   BRA `(.L_x_1);
        /*00d0*/                   NOP;
"""


def test_loops_loads_and_copies_are_read() -> None:
    code = disassembly.code_shape(disassembly.parse(SASS))
    assert code.n_instructions == 13
    (loop,) = code.loops  # the jump to itself at the end is none
    assert (loop.start, loop.end, loop.depth, loop.is_innermost) == (3, 10, 1, True)
    assert loop.counts["mma"] == loop.counts["async_copy"] == 1
    assert code.bytes_in_flight == 16 + 8
    assert code.load_bytes == 16 + 8 + 16 + 4
    assert code.pending_copy_groups == 2
    assert not (code.has_wgmma or code.has_tma)


def test_loops_nest() -> None:
    line = "        /*0000*/                   IADD3 R1, R1, 0x1, RZ ;\n"
    jump = "        /*0000*/                   BRA `({}) ;\n"
    text = ".L_x_0:\n" + line + ".L_x_1:\n" + line * 9
    text += jump.format(".L_x_1") + line + jump.format(".L_x_0")
    outer, inner = disassembly.code_shape(disassembly.parse(text)).loops
    assert (outer.depth, inner.depth) == (1, 2)
    assert inner.is_innermost and not outer.is_innermost


def test_every_class_has_a_name() -> None:
    for opcode in ("HGMMA.64x256x16.F32.BF16", "UTMALDG.2D", "UTCHMMA", "R2UR", "LDL"):
        assert disassembly.class_of(opcode) in disassembly.CLASSES
    assert disassembly.code_shape([]).counts == {}
