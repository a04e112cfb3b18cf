"""Compiling in parallel: order, stopping, and one program however a child gets it."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import compile_pool
from costmodel import kernel_origin
from costmodel.arguments import parse_argument
from costmodel.child_process import ChildDiedError
from costmodel.child_process import ChildProcess
from costmodel.compile_check import Checked
from costmodel.compile_check import CompileChecker
from costmodel.compile_pool import CompilePool
from costmodel.compile_pool import compile_many
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.errors import BindError
from costmodel.errors import KernelFileError
from costmodel.hardware import load_hardware
from costmodel.helion_hook import record_of
from costmodel.helion_hook import triton_code
from costmodel.kernel_file import load_kernel
from costmodel.kernel_origin import KernelFile
from costmodel.kernel_origin import KernelModule
from costmodel.kernel_origin import KernelText
from costmodel.kernel_origin import origin_of_kernel
from costmodel.kernel_origin import origin_of_record
from costmodel.live_compile import LiveCompiler
from costmodel.program_key import what_runs
from costmodel.rebuild import rebuilt_arguments
from costmodel.target import bind
from costmodel.types import Config

OK = CompiledFacts(CompileStatus.OK, "", "sm90", Toolchain("1", "2", "3", "4"))
KERNELS = """
import helion
import helion.language as hl
import torch

@helion.kernel(static_shapes=True, autotune_effort="none")
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out

FACTOR = 3

@helion.kernel(static_shapes=True, autotune_effort="none")
def multiplied(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * FACTOR
    return out

def made():
    @helion.kernel(static_shapes=True, autotune_effort="none")
    def inner(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * FACTOR
        return out
    return inner

HIDDEN = [made()]
"""
ARGUMENTS = ["f32[4096]"]
CONFIGS: list[Config] = [{"block_sizes": [1024], "num_warps": n} for n in (4, 8)]


class StubChecker:
    """Answers with its config; what it waits for is set by others, or by `stop`."""

    made: list[StubChecker]
    done: dict[int, threading.Event]
    waits_for: dict[int, int]
    fails: frozenset[int]

    def __init__(self) -> None:
        self.made.append(self)
        self.is_closed = False
        self.stopped = threading.Event()

    def check(self, config: Config | None) -> Checked:
        assert config is not None and not self.is_closed
        number = config["n"]
        if number in self.fails:
            raise BindError("no")
        awaited = self.waits_for.get(number)
        while awaited is not None and not self.done[awaited].wait(0.01):
            if self.stopped.is_set():
                break
        self.done[number].set()
        return Checked(config, OK, False)

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.is_closed = True


def stubs(
    waits_for: dict[int, int] | None = None, fails: frozenset[int] = frozenset()
) -> type[StubChecker]:
    class Stub(StubChecker):
        made: list[StubChecker] = []  # noqa: RUF012 (one list a class is the point)
        done = {n: threading.Event() for n in range(100)}  # noqa: RUF012

    Stub.waits_for, Stub.fails = waits_for or {}, fails
    return Stub


def numbers(found: list[Checked]) -> list[Any]:
    return [one.config["n"] for one in found]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5))
def test_answers_come_in_the_order_asked(asked: list[int], n_processes: int) -> None:
    stub = stubs()
    with CompilePool(stub, n_processes) as pool:
        found = list(pool.check_in_order([{"n": n} for n in asked]))
    assert numbers(found) == asked
    assert len(stub.made) <= min(n_processes, len(set(asked)))
    assert all(one.is_closed for one in stub.made)


def test_the_last_may_finish_first() -> None:
    stub = stubs(waits_for={0: 1, 1: 2})
    with CompilePool(stub, 3) as pool:
        assert numbers(list(pool.check_in_order([{"n": n} for n in range(3)]))) == [
            0,
            1,
            2,
        ]
    assert len(stub.made) == 3


def test_enough_heard_ends_what_is_still_at_work() -> None:
    # Nothing ever sets 50: only `stop` ends the second.
    stub = stubs(waits_for={1: 50})
    with CompilePool(stub, 2) as pool:
        with closing(pool.check_in_order([{"n": n} for n in range(9)])) as answers:
            assert next(answers).config == {"n": 0}
        assert all(one.is_closed for one in stub.made)
    assert all(one.stopped.is_set() for one in stub.made)


def test_a_kernel_that_does_not_bind_ends_the_pool() -> None:
    stub = stubs(waits_for={2: 50}, fails=frozenset({1}))
    with CompilePool(stub, 2) as pool, pytest.raises(BindError):
        list(pool.check_in_order([{"n": n} for n in range(4)]))
    assert all(one.is_closed for one in stub.made)


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compile_pool.os, "sched_getaffinity", lambda _pid: set(range(32))
    )
    for ranks, expected in (("1", 8), ("8", 4), ("64", 1), ("many", 8), ("0", 8)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert compile_pool.default_processes() == expected


def test_another_thread_can_end_a_wait() -> None:
    program = "import sys; print('{}', flush=True); sys.stdin.read()"
    child = ChildProcess([sys.executable, "-c", program], {})
    assert child.hear(60.0) == {}
    threading.Thread(target=child.kill).start()
    with pytest.raises(ChildDiedError):
        child.hear(60.0)


# --- Where a child gets the kernel from --------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "pool_kernels.py"
    path.write_text(KERNELS)
    return path


def bound_of(kernel: Any) -> Any:
    specs = [parse_argument(text) for text in ARGUMENTS]
    return bind(kernel, specs, load_hardware("H200"))


@pytest.fixture(scope="module")
def doubled(file: Path) -> Any:
    return bound_of(load_kernel(f"{file}:doubled"))


@given(
    st.builds(KernelFile, st.text())
    | st.builds(KernelModule, st.text(), st.text(), st.lists(st.text()).map(tuple))
    | st.builds(KernelText, st.text(), st.dictionaries(st.text(), st.booleans()))
)
def test_an_origin_survives_json(origin: kernel_origin.Origin) -> None:
    assert kernel_origin.from_json(kernel_origin.to_json(origin)) == origin


def test_text_that_says_all_needs_no_file(file: Path, doubled: Any) -> None:
    origin = origin_of_kernel(doubled.kernel, record_of(doubled))
    assert isinstance(origin, KernelText)
    # Not what changes from process to process, or the cache would find nothing.
    assert "autotune_random_seed" not in origin.settings
    assert origin.settings["static_shapes"] is True
    with kernel_origin.loaded(origin) as kernel:
        assert kernel.fn is not doubled.kernel.fn
        rebuilt = what_runs(triton_code(bound_of(kernel), CONFIGS[0]))
    assert rebuilt == what_runs(triton_code(doubled, CONFIGS[0]))


def test_a_kernel_with_globals_comes_from_its_file(file: Path) -> None:
    kernel = load_kernel(f"{file}:multiplied")
    record = record_of(bound_of(kernel))
    with pytest.raises(KernelFileError):
        origin_of_record(record)
    assert origin_of_kernel(kernel, record) == KernelFile(f"{file}:multiplied")


def test_a_kernel_of_an_imported_module_comes_by_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    import pool_kernels

    kernel = pool_kernels.multiplied
    origin = origin_of_kernel(kernel, record_of(bound_of(kernel)))
    assert isinstance(origin, KernelModule)
    with kernel_origin.loaded(origin) as found:
        assert found is kernel


def test_a_kernel_that_no_name_leads_to_has_no_origin(file: Path) -> None:
    module = sys.modules[load_kernel(f"{file}:doubled").fn.__module__]
    kernel = module.HIDDEN[0]
    with pytest.raises(KernelFileError):
        origin_of_kernel(kernel, record_of(bound_of(kernel)))


@pytest.mark.parametrize(
    ("line", "is_inert"),
    [
        ("if __name__ == '__main__':\n    run()", True),
        ("'''Words.'''\nSIZE: int = 2 * 3", True),
        ("import os\nclass Thing:\n    pass", True),
        ("run()", False),
        ("x = run()", False),
        ("for i in range(3):\n    pass", False),
        ("if __name__ == '__main__':\n    pass\nelse:\n    run()", False),
        ("syntax error", False),
    ],
)
def test_only_a_program_that_defines_is_run_again(
    tmp_path: Path, line: str, is_inert: bool
) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(line))
    if is_inert:
        kernel_origin._check_only_defines(path)
    else:
        with pytest.raises(KernelFileError):
            kernel_origin._check_only_defines(path)


def test_arguments_are_read_from_a_record(doubled: Any) -> None:
    assert rebuilt_arguments(record_of(doubled)) == ARGUMENTS


def test_only_what_runs_counts() -> None:
    code = """
    import one as _source_module
    @triton.jit
    def _helion_k(x, N: tl.constexpr):
        # src[k.py:3]: words
        tl.store(x, 1)
    def k(x: torch.Tensor) -> torch.Tensor:
        'Words.'
        _launcher(_helion_k, (4,), x, num_warps=4)
    """
    code = textwrap.dedent(code)
    other = code.replace("one", "other").replace("k.py:3", "l.py:9")
    other = other.replace("Words", "None").replace(" -> torch.Tensor", "")
    assert other != code and what_runs(other) == what_runs(code)
    for old, new in (
        ("x, 1", "x, 2"),
        ("num_warps=4", "num_warps=8"),
        ("(4,)", "(5,)"),
    ):
        assert what_runs(code.replace(old, new)) != what_runs(code)


# --- The real compilers ------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled(doubled: Any, folder: Path) -> list[Checked]:
    """Compiled from the text of a record, in one child."""
    origin = origin_of_record(record_of(doubled))
    return compile_many(
        origin, ARGUMENTS, "H200", CONFIGS, n_processes=1, folder=folder
    )


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(_self: CompileChecker) -> Any:
        raise AssertionError("a child was started")

    monkeypatch.setattr(CompileChecker, "_started", refuse)
    yield


def test_each_config_is_compiled(compiled: list[Checked]) -> None:
    assert [one.config for one in compiled] == CONFIGS
    assert [one.facts.status for one in compiled] == [CompileStatus.OK] * 2
    assert [one.facts.num_warps for one in compiled] == [4, 8]
    assert not any(one.from_cache for one in compiled)


def test_a_second_start_starts_no_child(
    compiled: list[Checked], doubled: Any, folder: Path, no_child: None
) -> None:
    origin = origin_of_record(record_of(doubled))
    again = compile_many(origin, ARGUMENTS, "H200", CONFIGS[::-1], folder=folder)
    assert [one.facts for one in again] == [one.facts for one in compiled[::-1]]
    assert all(one.from_cache for one in again)


def test_the_live_kernel_is_the_same_program(
    compiled: list[Checked], doubled: Any, folder: Path, no_child: None
) -> None:
    with LiveCompiler(doubled, folder=folder) as compiler:
        found = list(compiler.check_in_order(CONFIGS))
        refused = next(compiler.check_in_order([{"block_sizes": "many"}]))
    assert [one.facts for one in found] == [one.facts for one in compiled]
    assert all(one.from_cache for one in found)
    assert refused.facts.status is CompileStatus.REFUSED


def test_a_child_that_makes_another_program_is_refused(
    doubled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([{"program": {"code": "another"}, "config": CONFIGS[0]}])

    class Child:
        def tell(self, message: dict[str, Any]) -> None:
            self.message = message

        def hear(self, _limit_s: float) -> dict[str, Any]:
            facts = facts_as_json()
            return next(said, {"facts": facts})

        def close(self) -> None:
            pass

    monkeypatch.setattr(CompileChecker, "_started", lambda _self: Child())
    with LiveCompiler(doubled, folder=tmp_path) as compiler, pytest.raises(BindError):
        list(compiler.check_in_order(CONFIGS[:1]))


def facts_as_json() -> dict[str, Any]:
    from costmodel import compiled_facts

    return compiled_facts.to_json(OK)


@pytest.mark.slow
def test_a_file_gives_the_same_code(
    compiled: list[Checked], file: Path, tmp_path: Path
) -> None:
    kernel = f"{file}:doubled"
    found = compile_many(kernel, ARGUMENTS, "H200", CONFIGS[:1], folder=tmp_path)
    assert not found[0].from_cache
    assert found[0].facts.code_digest == compiled[0].facts.code_digest
