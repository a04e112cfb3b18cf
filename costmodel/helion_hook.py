"""The only file that touches Helion's private surface.

Everything else in the project sees plain data. Helion is imported inside functions,
so importing this module is cheap. Names of ours go in and out as JSON values; what an
unknown Helion lacks is found by `unsupported_reason`, which never raises.

A kernel that `costmodel.target.bind` bound for an absent GPU carries that GPU along:
every function here that needs the device steps into it by itself.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import itertools
import json
import math
import random
import weakref
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from typing import Protocol

from costmodel.config_space import ConfigSpace
from costmodel.config_space import Knob
from costmodel.config_space import Slot
from costmodel.errors import UnreadableKernelError
from costmodel.types import Config
from costmodel.types import ReasonCode
from costmodel.types import WorkloadRecord

SUPPORTED_HELION = ">=1.5,<1.6"

# Every private name this file needs; one missing means an unsupported Helion.
_NEEDED = (
    ("helion", "Config"),
    ("helion._compat", "extract_device"),
    ("helion._compat", "get_device_name"),
    ("helion._hardware", "get_hardware_info"),
    ("helion.autotuner.base_cache", "should_skip_cache"),
    ("helion.autotuner.base_search", "BaseAutotuner"),
    ("helion.autotuner.config_spec", "ConfigSpec.create_config_generation"),
    ("helion.autotuner.config_spec", "ConfigSpec.default_config"),
    ("helion.autotuner.config_spec", "ConfigSpec.normalized_config"),
    ("helion.autotuner.config_spec", "ConfigSpec._flat_fields"),
    ("helion.autotuner.metrics", "KernelMetadata.ir_graph"),
    ("helion.runtime.kernel", "BoundKernel.to_triton_code"),
    ("helion.runtime.ref_mode", "is_ref_mode_enabled"),
)

# Lists that a config may give as one value for all elements.
_SPREADING = ("indexing", "atomic_indexing")

# More alternatives than this make a slot's enumeration useless for moves.
_MAX_CHOICES = 128

_devices: weakref.WeakKeyDictionary[Any, Callable[[], AbstractContextManager[Any]]] = (
    weakref.WeakKeyDictionary()
)
_caches: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class HelionView:
    """What Helion says about one bound kernel.

    Attributes:
        record: The same facts as a line of Helion's log.
        default: Helion's own config, in full form.
        seeds: Configs of Helion's heuristics in their order, in full form.
        promoted: Whether a heuristic made the default; if not, it is a guess.
        backend: Code generator, such as "triton".
        device_type: Where the arguments are, such as "cuda".
    """

    record: WorkloadRecord
    default: Config
    seeds: tuple[Config, ...]
    promoted: bool
    backend: str
    device_type: str


def installed_versions() -> dict[str, str]:
    """Versions of what decides about a config; "absent" if not installed."""
    versions = {}
    for package in ("helion", "torch", "triton"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return versions


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why we step aside for a Helion or a kernel: a code to count, and words."""

    code: ReasonCode
    detail: str


def refusal(bound: Any = None) -> Refusal | None:
    """Why we cannot speak about this Helion, or this kernel; None where we can.

    Never raises, whatever Helion is installed.
    """
    try:
        reason = _helion_reason()
        if reason is not None:
            return Refusal(ReasonCode.UNSUPPORTED_HELION, reason)
        return None if bound is None else _bound_refusal(bound)
    except Exception as error:  # an unknown Helion may fail in any way
        detail = f"cannot read Helion: {_one_line(error)}"
        return Refusal(ReasonCode.UNSUPPORTED_HELION, detail)


def unsupported_reason(bound: Any = None) -> str | None:
    """The words of `refusal`, in one line; None where we can speak."""
    found = refusal(bound)
    return None if found is None else found.detail


def record_of(bound: Any, args: Sequence[object] | None = None) -> WorkloadRecord:
    """What Helion's logger would write about this kernel with these arguments.

    Args:
        bound: A bound kernel.
        args: The call's arguments; None takes those it was bound with.

    Raises:
        UnreadableKernelError: Helion has no IR graph for it.
    """
    metadata = _metadata(bound, args)
    if metadata.get("ir_graph") is None:
        raise UnreadableKernelError(
            f"expected an IR graph for kernel {metadata['kernel_name']!r}, Helion made "
            "none: install networkx>=3.4 and bind outside the interpreter"
        )
    shapes = ast.literal_eval(metadata["input_shapes"])
    dtypes = ast.literal_eval(metadata["dtypes"])
    return WorkloadRecord(
        kernel_name=metadata["kernel_name"],
        kernel_source=metadata["kernel_source"],
        input_shapes=tuple(map(tuple, shapes)),
        dtypes=tuple(dtypes),
        hardware=metadata["hardware"],
        settings=metadata["settings"],
        ir_graph=metadata["ir_graph"],
    )


def run_id_of(bound: Any, args: Sequence[object] | None = None) -> str:
    """The run id that Helion's logger would write; 64 hex digits."""
    return str(_metadata(bound, args)["run_id"])


def view(bound: Any, args: Sequence[object] | None = None) -> HelionView:
    """Everything we need of a bound kernel, as plain data.

    Raises:
        UnreadableKernelError: Helion has no IR graph for it.
    """
    spec = bound.config_spec
    with device_of(bound):
        return HelionView(
            record=record_of(bound, args),
            default=default_config(bound),
            seeds=seed_configs(bound),
            promoted=getattr(spec, "compiler_default_config", None) is not None,
            backend=str(spec.backend_name),
            device_type=str(bound.env.device.type),
        )


def default_config(bound: Any) -> Config:
    """What Helion compiles with `autotune_effort="none"`, in full form."""
    with device_of(bound):
        return _plain(bound.config_spec.default_config())


def seed_configs(bound: Any) -> tuple[Config, ...]:
    """Configs of Helion's heuristics as its search would start from them."""
    with device_of(bound):
        generation = bound.config_spec.create_config_generation()
        pairs = generation.seed_flat_config_pairs()
        return tuple(_plain(config) for _flat, config in pairs)


def normalize(bound: Any, config: Config) -> Config | None:
    """The config as Helion would compile it, or None if Helion refuses it.

    Helion repairs some values silently (a block size under the minimum) and lets
    others through that cannot run (64 warps, "many" warps, a list of the wrong
    length): see `is_legal`.
    """
    with device_of(bound):
        try:
            return _plain(bound.config_spec.normalized_config(dict(config)))
        except Exception:  # InvalidConfig, or whatever a malformed value trips
            return None


def is_legal(bound: Any, config: Config) -> bool:
    """Whether Helion's own search could hand out this config."""
    return not objections(bound, config)


def objections(bound: Any, config: Config) -> list[str]:
    """Why `is_legal` says no, one line for each reason."""
    normalized = normalize(bound, config)
    if normalized is None:
        return ["Helion's normalize refuses it"]
    found = space(bound).objections(config)
    found += _numel_objections(bound, normalized)
    found += _user_objections(bound, config, normalized)
    return found


def triton_code(bound: Any, config: Config) -> str:
    """The program Helion generates for a config, as text."""
    with device_of(bound):
        return str(bound.to_triton_code(_helion_config(config)))


def space(bound: Any) -> ConfigSpace:
    """Every knob of this kernel on its GPU; computed once for each bound kernel."""
    cache = cache_of(bound)
    if "space" not in cache:
        with device_of(bound):
            spec = bound.config_spec
            fields = spec._flat_fields()
            knobs = {name: _knob(spec, name, fields[name]) for name in fields}
        cache["space"] = ConfigSpace(knobs)
    found = cache["space"]
    assert isinstance(found, ConfigSpace)
    return found


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """One Triton launch that a call would have made.

    Attributes:
        kernel: Triton's JIT function.
        grid: CTAs in each dimension.
        args: Positional arguments; tensors are fake.
        options: Keyword arguments of Triton's `run`, such as `num_warps`.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]


def capture_launches(bound: Any, config: Config) -> list[CapturedLaunch]:
    """Run a config's host code on fake tensors and note its launches.

    Nothing is allocated, compiled by Triton or launched. Launches come in the order in
    which the program defines their kernels.

    Args:
        bound: A kernel that `costmodel.target.bind` bound.
        config: What to generate code for.

    Raises:
        Exception: Whatever Helion, or host code that needs values, raises.
    """
    from helion.runtime.triton.launcher import compile_only_launch_args

    args = cache_of(bound)["args"]
    modes = {id(a.fake_mode): a.fake_mode for a in args if hasattr(a, "fake_mode")}
    found: list[CapturedLaunch] = []

    def launcher(kernel: Any, grid: Any, *values: Any, **options: Any) -> None:
        values, options = compile_only_launch_args(*values, **options)
        found.append(CapturedLaunch(kernel, tuple(map(int, grid)), values, options))

    with contextlib.ExitStack() as stack:
        stack.enter_context(device_of(bound))
        launch = bound.compile_config(_helion_config(config), allow_print=False)
        for mode in modes.values():
            stack.enter_context(mode)
        launch(*args, _launcher=launcher)
    names = list(getattr(launch, "__globals__", {}).values())
    order = {id(value): place for place, value in enumerate(names)}
    return sorted(found, key=lambda one: order.get(id(one.kernel), len(order)))


def make_autotuner(
    decide: Callable[[Any, Sequence[object]], Config],
) -> Callable[..., Any]:
    """An `autotuner_fn` for `helion.kernel` that asks `decide` and never benchmarks.

    Args:
        decide: Gets the bound kernel and the call's arguments, returns a config.
    """

    def autotuner_fn(bound: Any, args: Sequence[object], **_options: object) -> Any:
        return _deciding_autotuner()(lambda: decide(bound, args))

    return autotuner_fn


def cache_of(bound: Any) -> dict[str, Any]:
    """A dictionary that lives as long as the bound kernel, for derived facts."""
    return _caches.setdefault(bound, {})


def remember_device(
    bound: Any, device: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Let every function here step into `device` when it handles this kernel."""
    _devices[bound] = device


@contextlib.contextmanager
def device_of(bound: Any) -> Iterator[None]:
    """The GPU this kernel was bound for: the remembered one, else the present one."""
    enter = _devices.get(bound)
    with contextlib.nullcontext() if enter is None else enter():
        yield


def clear_device_caches() -> None:
    """Make Helion and inductor ask again what the GPU is."""
    for name in ("helion._compat", "helion._hardware", "torch._inductor.runtime.hints"):
        module = importlib.import_module(name)
        holders = [module, getattr(module, "DeviceProperties", None)]
        for holder in holders:
            for value in list(vars(holder).values()) if holder else ():
                clear = getattr(getattr(value, "__func__", value), "cache_clear", None)
                if callable(clear):
                    clear()


@contextlib.contextmanager
def aligned_fakes() -> Iterator[None]:
    """Take tensors without memory for 16-byte aligned, as torch allocates them.

    Helion asks a tensor's address before it allows tensor descriptors; a fake tensor
    has none and would lose them, which a real one of the same shape does not.
    """
    module: Any = importlib.import_module("helion._compiler.compile_environment")
    name = "tensor_descriptor_runtime_alignment_signature"
    original = getattr(module, name, None)
    if original is None:
        yield
        return

    def signature(value: Any) -> Any:
        if type(value).__name__ != "FakeTensor":
            return original(value)
        offset = value.storage_offset()
        whole = isinstance(offset, int)
        return whole and offset * value.element_size() % 16 == 0, whole and offset == 0

    setattr(module, name, signature)
    try:
        yield
    finally:
        setattr(module, name, original)


def _helion_reason() -> str | None:
    from packaging.specifiers import SpecifierSet

    version = installed_versions()["helion"]
    if version == "absent":
        return "Helion is not installed: pip install 'helion>=1.5,<1.6'"
    if not SpecifierSet(SUPPORTED_HELION).contains(version, prereleases=True):
        return f"expected Helion {SUPPORTED_HELION}, found {version}"
    for module_name, path in _NEEDED:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            if not hasattr(found, part):
                return f"Helion {version} lacks {module_name}.{path}"
            found = getattr(found, part)
    return None


def _bound_refusal(bound: Any) -> Refusal | None:
    from helion.runtime.ref_mode import is_ref_mode_enabled

    if is_ref_mode_enabled(bound.settings):
        words = "the kernel runs in Helion's interpret mode"
        return Refusal(ReasonCode.INTERPRET_MODE, words)
    backend = bound.config_spec.backend_name
    if backend != "triton":
        words = f"expected Helion's triton backend, the kernel uses {backend!r}"
        return Refusal(ReasonCode.UNSUPPORTED_BACKEND, words)
    if getattr(bound, "host_function", None) is None:
        words = "the bound kernel has no device IR"
        return Refusal(ReasonCode.UNKNOWN_KERNEL, words)
    return None


def _metadata(bound: Any, args: Sequence[object] | None) -> dict[str, Any]:
    """The logger's record without its configs, after a trip through JSON."""
    import torch
    from helion import _compat
    from helion.autotuner.base_cache import should_skip_cache
    from helion.autotuner.metrics import KernelMetadata

    values = _bind_args(bound) if args is None else list(args)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    settings = bound.settings.to_dict()
    settings["effective_cache_read_bypass"] = should_skip_cache()
    host_function = getattr(bound, "host_function", None)
    kernel = bound.kernel
    with device_of(bound):
        hardware = _compat.get_device_name(_compat.extract_device(values)) or ""
    metadata = KernelMetadata(
        kernel_name=kernel.name,
        kernel_source=_source(kernel),
        input_shapes=str([tuple(map(int, tensor.shape)) for tensor in tensors]),
        dtypes=str([str(tensor.dtype) for tensor in tensors]),
        hardware=hardware,
        settings=settings,
        _device_ir=getattr(host_function, "_device_ir", None),
    )
    cache = cache_of(bound)
    if "ir_graph" in cache:
        metadata.__dict__["ir_graph"] = cache["ir_graph"]
    record: dict[str, Any] = json.loads(
        json.dumps(_json_safe(metadata.to_dict()), default=str, allow_nan=False)
    )
    cache["ir_graph"] = record["ir_graph"]
    return record


def _source(kernel: Any) -> str:
    """Source text, or nothing where there is no file, as the logger does."""
    try:
        return str(kernel.kernel_source())
    except OSError:
        return ""


def _bind_args(bound: Any) -> list[Any]:
    """Arguments a kernel was bound with, symbolic sizes replaced by their hints."""
    kept = getattr(bound, "_runtime_tensor_refs_by_name", {})
    names = bound.kernel.signature.parameters
    alive = {name: ref() for name, ref in kept.items()}
    return [
        fake if alive.get(name) is None else alive[name]
        for name, fake in zip(names, bound.fake_args, strict=True)
    ]


def _json_safe(value: Any) -> Any:
    """Non-finite floats as text, as Helion's log spells them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _json_safe(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_json_safe(item) for item in value]
    return value


def _plain(config: Any) -> Config:
    """A Helion config as JSON values of our own."""
    plain: Config = json.loads(json.dumps(config.config, default=str))
    return plain


def _helion_config(config: Config) -> Any:
    import helion

    return helion.Config(**json.loads(json.dumps(config)))


def _knob(spec: Any, name: str, field: Any) -> Knob:
    """Read a knob by asking the field for a config and noting its fragments."""
    fragments: list[Any] = []

    def note(fragment: Any) -> Any:
        fragments.append(fragment)
        return fragment.default()

    defaults = field._flat_config(spec, note)
    items = getattr(field, "_data", None)
    if items is not None:
        slots = tuple(map(functools.partial(_item_slot, spec), items, defaults))
        return Knob(name, slots, is_list=True)
    inner = getattr(field, "inner", None)
    if inner is not None:
        slot = _slot(inner, inner.default())
        spreads = name in _SPREADING
        return Knob(name, (slot,) * field.length, is_list=True, spreads=spreads)
    return Knob(name, (_slot(fragments[0], defaults),), is_list=False)


def _item_slot(spec: Any, item: Any, default: Any) -> Slot:
    """A slot that belongs to a block: its search range, then what else is legal."""
    fragments: list[Any] = []

    def note(fragment: Any) -> Any:
        fragments.append(fragment)
        return fragment.default()

    item._flat_config(spec, note)
    searched: list[Any] = []
    for value in _choices(fragments[0]):
        # The item turns a flat value into a config's (a full-width reduction loop
        # into None), so it is asked for each.
        spelled = _plain_value(item._flat_config(spec, lambda _f, value=value: value))
        if spelled not in searched:
            searched.append(spelled)
    extra = []
    low = getattr(item, "min_size", None)
    if isinstance(low, int):
        floor = min((v for v in searched if isinstance(v, int)), default=low)
        extra = [v for v in _powers(max(low, 1), floor) if v not in searched]
    return Slot(tuple(searched), _plain_value(default), tuple(extra))


def _slot(fragment: Any, default: Any) -> Slot:
    choices = tuple(_plain_value(value) for value in _choices(fragment))
    return Slot(choices, _plain_value(default))


def _choices(fragment: Any) -> Iterable[Any]:
    """Every value of a fragment, fewer where they are too many to list."""
    declared = getattr(fragment, "choices", None)
    if declared is not None:
        return tuple(declared)
    values = getattr(fragment, "search_values", lambda _limit: None)(_MAX_CHOICES)
    if values is not None:
        return tuple(values)
    length = getattr(fragment, "length", None)
    if isinstance(length, int):
        orders = itertools.permutations(range(length))
        return tuple(list(o) for o in itertools.islice(orders, _MAX_CHOICES))
    low, high = getattr(fragment, "low", None), getattr(fragment, "high", None)
    if isinstance(low, int) and isinstance(high, int):
        return tuple(sorted({low, *_powers(max(low, 1), high), high}))
    return (fragment.default(),)


def _powers(low: int, high: int) -> list[int]:
    """Powers of two from low to high, both included."""
    exponents = range(max(low, 1).bit_length() - 1, max(high, 1).bit_length())
    return [1 << e for e in exponents if low <= 1 << e <= high]


def _plain_value(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _numel_objections(bound: Any, normalized: Config) -> list[str]:
    """Triton's limit on elements of one tensor, as Helion states it."""
    blocks = normalized.get("block_sizes", [])
    found = []
    for constraint in getattr(bound.config_spec, "tensor_numel_constraints", ()):
        sizes = [blocks[index] for index in constraint.block_indices]
        if not constraint.check_fn(*sizes):
            found.append(f"block_sizes: {constraint.expr_str} is over Triton's limit")
    return found


def _user_objections(bound: Any, config: Config, normalized: Config) -> list[str]:
    """The kernel author's own filter and overrides."""
    settings = bound.settings
    found = []
    overrides = getattr(settings, "autotune_config_overrides", None) or {}
    for key, value in overrides.items():
        if normalized.get(key) != _plain_value(value):
            found.append(f"{key}: the kernel's overrides demand {value!r}")
    keep = getattr(settings, "autotune_config_filter", None)
    if keep is not None:
        kept = keep(_helion_config(config))
        if kept is None or _plain(kept) != _plain(_helion_config(config)):
            found.append("the kernel's config filter does not keep it")
    return found


@functools.cache
def _deciding_autotuner() -> Any:
    """The autotuner class; made on first use because its base is Helion's."""
    from helion.autotuner.base_search import BaseAutotuner

    class DecidingAutotuner(BaseAutotuner):  # type: ignore[misc,unused-ignore]
        """Answers a search request with one decision."""

        def __init__(self, decide: Callable[[], Config]) -> None:
            self._decide = decide

        def autotune(self, *, skip_cache: bool = False) -> Any:
            return _helion_config(self._decide())

    return DecidingAutotuner


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


# --- Recording: Helion's own search over a given list of configs, on a real GPU ------


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """One row of a recording: what Helion's benchmark said of one config.

    Attributes:
        config: As given.
        latency_us: Microseconds by Helion's benchmark; infinite unless `status` is ok.
        status: Helion's word: ok, error, timeout.
        launch: The compiled config, called with the kernel's arguments.
    """

    config: Config
    latency_us: float
    status: str
    launch: Callable[..., Any]


class GpuTurn(Protocol):
    """Who may use the GPU now; `take` and `give` may be called twice in a row."""

    def take(self) -> None:
        """Wait until it is ours."""

    def give(self) -> None:
        """Let others have it."""


def recording_search(
    bound: Any,
    args: Sequence[Any],
    configs: Sequence[Config],
    settings: Mapping[str, Any],
    turn: GpuTurn,
    before_timing: Callable[[], None],
    expired: Callable[[], bool],
    provider_base: type | None = None,
) -> list[Benchmarked]:
    """Benchmark configs in the given order and write Helion's log files.

    Compiling needs no GPU and happens without the turn; the baseline for the accuracy
    check and the timings take it. The turn may be held on return: whoever called goes
    on timing or gives it.

    Args:
        bound: The kernel bound to `args`.
        args: Arguments on the GPU.
        configs: Full configs, in the order to time; one may come several times.
        settings: Helion settings for this run, such as `autotune_log`.
        turn: The GPU's queue.
        before_timing: Called once when the turn is ours, before the first timing.
        expired: Asked between configs; true leaves the rest without a row.
        provider_base: Benchmark provider to build on, for tests without a GPU.
    """
    from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
    from helion.autotuner.finite_search import FiniteSearch
    from helion.autotuner.precompile_future import PrecompileContext
    from helion.autotuner.precompile_future import PrecompileFuture

    base: Any = provider_base or LocalBenchmarkProvider

    class Provider(base):  # type: ignore[misc,unused-ignore]
        """Takes the turn for GPU work and stops long estimates early."""

        timing = False

        def _compute_baseline(self) -> Any:
            # The reference config is compiled in a child first, off the GPU's time.
            if self.settings.autotune_precompile:
                config = self.config_spec.autotune_reference_config()
                context = PrecompileContext(
                    self.settings, self.log, self.kernel, self.args, 1
                )
                launch = self.kernel.compile_config(config, allow_print=False)
                future = PrecompileFuture.create(
                    context,
                    config,
                    launch,
                    self.args,
                    self._next_precompile_result_path(),
                    None,
                )
                future()
            turn.take()
            return super()._compute_baseline()

        def _probe_long_kernel(self) -> bool:
            # One launch of over 50 ms is its own reading; else it runs nine times.
            return True

        def benchmark(self, *a: Any, **k: Any) -> Any:
            turn.give()
            return super().benchmark(*a, **k)

        def _benchmark_function(self, *a: Any, **k: Any) -> float:
            turn.take()
            if not self.timing:
                self.timing = True
                before_timing()
            return float(super()._benchmark_function(*a, **k))

    class Recording(FiniteSearch):  # type: ignore[misc,unused-ignore]
        """A finite search that logs as a full one and keeps all results."""

        results: Sequence[Any] = ()

        def _is_restricted_search(self) -> bool:
            return False  # else Helion writes no .meta.jsonl

        def _autotune_budget_exceeded(self) -> bool:
            return expired()

        def _autotune(self) -> Any:
            self.results = self.benchmark_batch(
                self.configs, raise_if_no_viable_config=False
            )
            return min(self.results, key=lambda one: one.perf).config

    # The settings belong to the kernel, whose other workloads come later.
    before = {name: getattr(bound.settings, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(bound.settings, name, value)
        search = Recording(
            bound,
            args,
            [_helion_config(config) for config in configs],
            benchmark_provider_cls=Provider,
        )
        search.autotune()
    finally:
        for name, value in before.items():
            setattr(bound.settings, name, value)
    return [
        Benchmarked(config, one.perf * 1e3, one.status, one.fn)
        for config, one in zip(configs, search.results, strict=True)
    ]


def random_config(bound: Any, seed: int) -> Config:
    """A config from Helion's own generator; equal for equal seeds."""
    state = random.getstate()
    random.seed(seed)
    try:
        with device_of(bound):
            generation = bound.config_spec.create_config_generation()
            return _plain(generation.random_config())
    finally:
        random.setstate(state)


def compiled_kernels(launch: Callable[..., Any]) -> list[Any]:
    """Triton's compiled kernels behind a launch that has run; empty if not found."""
    found = []
    for name, value in getattr(launch, "__globals__", {}).items():
        caches = getattr(value, "device_caches", None)
        if name.startswith("_helion_") and caches:
            found += [k for cache in caches.values() for k in cache[0].values()]
    return found
