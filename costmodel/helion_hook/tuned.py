"""Configs that Helion tuned before: the exact entry of a kernel, and its neighbours.

Nothing here writes. The exact entry is asked of the cache class that the kernel itself
names, with the fingerprint that Helion would compute without us.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import inspect
import json
import logging
import os
import textwrap
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.export_marks import without_ours
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.records import bind_args
from costmodel.types import Config

log = logging.getLogger("costmodel")

# Newest entries of a cache folder that are read for neighbours: reading and parsing 200
# takes about 15 ms; Helion's own scan for seeds stops at 500.
_MOST_SCANNED = 200

# What a kernel keeps per signature; a copy that pretends to another effort needs its
# own, so that nothing is published on the user's kernel.
_PER_SIGNATURE = (
    "_specialize_extra",
    "_compiler_seed_specialize_extra",
    "_specialization_aliases",
    "_bound_kernels",
    "_dispatch_cache",
)


def tuned_config(bound: Any, args: Sequence[object] | None = None) -> Config | None:
    """The exact entry that Helion tuned for this kernel and shape, if it has one.

    Helion does not look at effort "none"; this does, with the key of an effort that
    tunes. `HELION_SKIP_CACHE` is respected. Never raises.

    Args:
        bound: A bound kernel, or what stands for one while Helion tunes a fused kernel.
        args: The call's arguments; None takes those it was bound with.
    """
    try:
        with device_of(underlying(bound)):
            if _answers_by_export(underlying(bound)):
                return None
            return _cached_answer(bound, args)
    except Exception:  # a cache of the user's may fail in any way, as may its key
        log.debug("costmodel: no tuned entry could be looked up", exc_info=True)
        return None


def exported_config(bound: Any, args: Sequence[object] | None = None) -> Config | None:
    """What `costmodel export` chose for this kernel and shape; None where it did not.

    Helion reads such a file as it reads one that it tuned; nobody has timed what is in
    it, so it is no tuned entry. Never raises.

    Args:
        bound: As for `tuned_config`.
        args: As for `tuned_config`.
    """
    try:
        with device_of(underlying(bound)):
            if not _answers_by_export(underlying(bound)):
                return None
            return _cached_answer(bound, args)
    except Exception:
        log.debug("costmodel: no exported entry could be looked up", exc_info=True)
        return None


def tuned_epoch() -> int:
    """A number that changes whenever Helion's local cache gains or loses an entry."""
    folder = _cache_folder(
        os.environ.get("HELION_CACHE_DIR"), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    )
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=8)
def _cache_folder(_helions: str | None, _inductors: str | None) -> str:
    """Helion's cache folder; asking takes longer than the rest of a repeated answer."""
    from helion.autotuner.local_cache import get_helion_cache_dir

    return str(get_helion_cache_dir())


def neighbour_configs(bound: Any) -> tuple[Config, ...]:
    """Configs tuned for other shapes of this kernel on this GPU, newest first.

    From Helion's local cache, by source text and device name, and from the kernel's AOT
    heuristic file, which is read and not run. As stored: they may not be legal here.
    Never raises.
    """
    kernel = underlying(bound)
    cache = cache_of(kernel)
    if "neighbours" not in cache:
        found: list[Config] = []
        with device_of(kernel):
            for source in (_cached_neighbours, _aot_neighbours):
                try:
                    found += [one for one in source(kernel) if one not in found]
                except Exception:
                    log.debug("costmodel: no neighbours were read", exc_info=True)
        cache["neighbours"] = tuple(found)
    neighbours: tuple[Config, ...] = cache["neighbours"]
    return neighbours


def underlying(bound: Any) -> Any:
    """The bound kernel itself where Helion hands out an adapter around it."""
    return vars(bound).get("_bound_kernel", bound)


def _cached_answer(bound: Any, args: Sequence[object] | None) -> Config | None:
    """What the kernel's cache class answers, asked as Helion would ask it."""
    from helion.autotuner import cache_classes
    from helion.autotuner.base_cache import should_skip_cache

    name = bound.settings.autotune_cache
    cache_class = cache_classes.get(name)
    if should_skip_cache() or cache_class is None or _is_surely_empty(name):
        return None
    values = tuple(bind_args(underlying(bound)) if args is None else args)
    probe = bound
    if bound.settings.autotune_effort == "none":
        probe = _as_if_tuning(underlying(bound))
        _publish(probe, values)
    cache = cache_class(_lookup_class()(probe, values))
    if hasattr(cache, "_get_heuristic_config"):
        # The AOT cache would answer with a default where it has no file.
        config = cache._get_heuristic_config(values)
    else:
        config = cache.get()
    return None if config is None else plain_config(config)


def _answers_by_export(bound: Any) -> bool:
    """Whether the kernel's cache class would answer from a file part that is ours."""
    if bound.settings.autotune_cache != "AOTAutotuneCache":
        return False
    text = _aot_text(bound)
    return text is not None and without_ours(text, str(bound.kernel.name)) is not None


def _aot_text(bound: Any) -> str | None:
    """The kernel's ahead-of-time file, read and not run."""
    from helion.autotuner.aot_cache import find_heuristic_file

    kernel = bound.kernel
    file = find_heuristic_file(kernel.fn.__code__.co_filename, kernel.name)
    return None if file is None else Path(file).read_text(encoding="utf-8")


def _is_surely_empty(name: str) -> bool:
    """Whether a local cache has no entry at all: then no key need be computed."""
    if name not in ("LocalAutotuneCache", "StrictLocalAutotuneCache"):
        return False
    return next(_entry_files(), None) is None


def _entry_files() -> Iterator[Path]:
    from helion.autotuner.local_cache import get_helion_cache_dir

    try:
        with os.scandir(get_helion_cache_dir()) as entries:
            for entry in entries:
                if entry.name.endswith(".best_config"):
                    yield Path(entry.path)
    except FileNotFoundError:
        return


def _lookup_class() -> Any:
    from helion.autotuner.base_search import BaseSearch

    class Lookup(BaseSearch):  # type: ignore[misc,unused-ignore]
        """Stands where a cache expects a search; it never searches."""

        def _autotune(self) -> Any:
            raise AssertionError("whoever holds a look-up only reads its cache")

    return Lookup


def _as_if_tuning(bound: Any) -> Any:
    """The same bound kernel, seen as Helion sees it at an effort that tunes.

    At effort "none" Helion keys a kernel by the tensor descriptors of its default
    alone, so the key of a tuned entry is another one.
    """
    kernel = copy.copy(bound.kernel)
    kernel.settings = _settings_with(bound.settings, autotune_effort="quick")
    for name in _PER_SIGNATURE:
        if hasattr(kernel, name):
            setattr(kernel, name, {})
    probe = copy.copy(bound)
    probe.kernel = kernel
    probe._config = None
    return probe


def _settings_with(settings: Any, **changes: Any) -> Any:
    changed = copy.copy(settings)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _publish(probe: Any, args: tuple[object, ...]) -> None:
    """What binding does after construction: the guards join the copy's key."""
    kernel = probe.kernel
    signature = kernel._base_specialization_key(args)
    kernel._create_bound_kernel_cache_key(probe, args, signature)
    publish = getattr(probe, "_publish_guarded_input_facts", None)
    if publish is not None:
        publish()


def _cached_neighbours(bound: Any) -> Iterator[Config]:
    from helion import _compat
    from helion.autotuner.base_cache import should_skip_cache

    if should_skip_cache():
        return
    files = sorted(_entry_files(), key=_age)[:_MOST_SCANNED]
    if not files:
        return
    source = textwrap.dedent(inspect.getsource(bound.kernel.fn))
    digest = hashlib.sha256(source.encode("utf-8")).hexdigest()
    hardware = _compat.get_device_name(bound.env.device)
    for file in files:
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            fields = entry["key"]["fields"]
            if (fields["kernel_source_hash"], fields["hardware"]) == (digest, hardware):
                yield json.loads(entry["config"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged entry, or one being replaced


def _age(file: Path) -> tuple[float, str]:
    try:
        return -file.stat().st_mtime, file.name
    except OSError:
        return 0.0, file.name


def _aot_neighbours(bound: Any) -> Iterator[Config]:
    """Dictionaries of the heuristic file that look like configs; none of our own."""
    text = _aot_text(bound)
    if text is None:
        return
    text = without_ours(text, str(bound.kernel.name)) or text
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Dict):
            continue
        try:
            config = ast.literal_eval(node)
        except ValueError:
            continue
        if "block_sizes" in config:
            yield json.loads(json.dumps(config))
