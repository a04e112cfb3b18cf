"""Every row of the table in docs/plug-in.md, by the real Helion.

The page is read: a row without a test here fails, and so does a test without a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import helion
import pytest
import torch
from helion.autotuner.base_search import BaseAutotuner
from helion_rig import Rig
from helion_rig import StubProvider
from helion_rig import answer_with
from helion_rig import rig
from helion_rig import twice
from triton.runtime.errors import OutOfResources

import costmodel
from costmodel import helion_hook
from costmodel.errors import UnreadableKernelError
from costmodel.export_marks import marked
from costmodel.helion_hook import first_run
from costmodel.helion_hook import support
from costmodel.types import Config

pytestmark = pytest.mark.helion

PAGE = Path(__file__).resolve().parents[1] / "docs" / "plug-in.md"
SHAPES = ((2048, 4096),)
WARPS = {
    "our pick": 2,
    "tuned entry": 16,
    "your config": 1,
    "that autotuner": 32,
    "exported config": 8,
}
"""Each answer has a number of warps of its own; Helion's default has four."""


def rows_of(page: str) -> list[tuple[str, str, str]]:
    """Cells of the table whose first heading is "situation"."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| situation "))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, second, third = (c.strip() for c in re.split(r"\s\|\s", line[2:-1]))
        rows.append((first, second, third))
    return rows


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))
COLUMNS = ("autotuner", "enable")


_DEFAULTS: dict[tuple[tuple[int, ...], ...], Config] = {}
"""Helion's default by shapes, since each binding takes a fifth of a second."""


class Trial:
    """One cell: a kernel in a situation, and what it ran with.

    A case changes the attributes, or replaces `run`.
    """

    def __init__(self, rig: Rig, patch: pytest.MonkeyPatch, column: str) -> None:
        self.rig = rig
        self.patch = patch
        self.column = column
        self.settings: dict[str, Any] = {"autotune_effort": "full"}
        self.mode = "predict"
        self.enable_options: dict[str, Any] = {}
        self.args: tuple[Any, ...] = rig.args(*SHAPES)
        self.run: Callable[[Any], Config | None] = self._call
        self.check: Callable[[Config], None] = lambda config: None

    def default(self) -> Config:
        """Helion's own config."""
        shapes = tuple(tuple(arg.shape) for arg in self.args)
        if shapes not in _DEFAULTS:
            bound = self.rig.bound(self.rig.kernel(), self.args)
            _DEFAULTS[shapes] = helion_hook.default_config(bound)
        return dict(_DEFAULTS[shapes])

    def variant(self, name: str) -> Config:
        """Helion's default with the number of warps that stands for an answer."""
        return {**self.default(), "num_warps": WARPS[name]}

    def outcome(self) -> str:
        """Run the situation and say in the page's words what came of it."""
        asks_other = "autotuner_fn" in self.settings
        settings = dict(self.settings)
        if self.column == "autotuner" and not asks_other:
            settings["autotuner_fn"] = costmodel.autotuner(mode=self.mode)
        if self.column == "enable":
            costmodel.enable(self.mode, **self.enable_options)
        try:
            config = self.run(self.rig.kernel(**settings))
        except Exception as error:
            if os_strict_error(error):
                raise
            return "Helion raises"
        finally:
            costmodel.disable()
        return self._words(config)

    def _call(self, kernel: Any) -> Config:
        return self.rig.call(kernel, self.args)

    def _words(self, config: Config | None) -> str:
        if config is None:
            return "not asked"
        self.check(config)
        if StubProvider.measured:
            listed = [dict(one.config) for one in self.settings.get("configs", ())]
            warps = {one["num_warps"] for one in StubProvider.measured}
            if listed and warps == {one["num_warps"] for one in listed}:
                return "Helion times your list"
            return "Helion's search"
        names = {warps: name for name, warps in WARPS.items()}
        listed_warps = [one.num_warps for one in self.settings.get("configs", ())]
        if config["num_warps"] in listed_warps:
            return "one of your list"
        if config["num_warps"] == self.default()["num_warps"]:
            return "Helion's default"
        return names[config["num_warps"]]


def os_strict_error(error: Exception) -> bool:
    """Errors of the test itself, which must not pass for Helion's."""
    return isinstance(error, (AssertionError, KeyError, TypeError, NameError))


Case = Callable[[Trial], None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Register what a row of the page stands for."""

    def register(prepare: Case) -> Case:
        assert name not in CASES
        CASES[name] = prepare
        return prepare

    return register


def _effort(trial: Trial, effort: str) -> None:
    trial.settings["autotune_effort"] = effort


def _tuned(trial: Trial) -> None:
    kernel = trial.rig.kernel(twice, **_cache_settings(trial))
    trial.rig.tune(kernel, trial.args, trial.variant("tuned entry"))


def _cache_settings(trial: Trial) -> dict[str, Any]:
    keys = ("autotune_cache", "static_shapes")
    return {key: trial.settings[key] for key in keys if key in trial.settings}


case("effort full")(lambda trial: _effort(trial, "full"))
case("effort quick")(lambda trial: _effort(trial, "quick"))
case("effort none")(lambda trial: _effort(trial, "none"))
for _name in ("full", "quick", "none"):

    @case(f"tuned entry in Helion's cache, effort {_name}")
    def _tuned_at_effort(trial: Trial, effort: str = _name) -> None:
        _effort(trial, effort)
        _tuned(trial)


@case("tuned entry for another shape")
def _other_shape(trial: Trial) -> None:
    mine = trial.args
    trial.args = trial.rig.args((1024, 4096))
    _tuned(trial)
    trial.args = mine


@case("AOT heuristic file, `AOTAutotuneCache`")
def _aot_file(trial: Trial) -> None:
    _no_aot_file(trial)
    _write_aot_file(trial, "import json\n" + _aot_function(trial, "tuned entry"))


@case("AOT file by `costmodel export`, `AOTAutotuneCache`")
def _exported_file(trial: Trial) -> None:
    _no_aot_file(trial)
    ours = marked("twice", _aot_function(trial, "exported config"))
    _write_aot_file(trial, "import json\n" + ours)


def _aot_function(trial: Trial, answer: str) -> str:
    config = json.dumps(trial.variant(answer))
    return f"def autotune_twice(*args):\n    return json.loads({config!r})\n"


def _write_aot_file(trial: Trial, text: str) -> None:
    for name in ("sm90", "sm_90"):
        path = Path(trial.rig.folder) / f"_helion_aot_helion_rig_cuda_{name}.py"
        path.write_text(text)


@case("`AOTAutotuneCache`, no file")
def _no_aot_file(trial: Trial) -> None:
    from helion.autotuner.aot_cache import AOTAutotuneCache

    AOTAutotuneCache.clear_caches()
    trial.settings["autotune_cache"] = "AOTAutotuneCache"
    trial.patch.setenv("HELION_HEURISTIC_DIR", str(trial.rig.folder))
    trial.patch.setenv("HELION_AOT_DATA_DIR", str(trial.rig.folder / "aot"))


@case("`HELION_AOT_MODE=collect`")
def _aot_collect(trial: Trial) -> None:
    from helion.autotuner.aot_cache import AOTAutotuneCache

    _no_aot_file(trial)
    trial.patch.setenv("HELION_AOT_MODE", "collect")
    # It would hash what a launch computes, which fake tensors do not have.
    trial.patch.setattr(AOTAutotuneCache, "put", lambda self, config: None)


@case("`config=`")
def _config(trial: Trial) -> None:
    config = helion.Config(**trial.variant("your config"))
    trial.settings["config"] = config


@case("`configs=[a, b]`")
def _configs(trial: Trial) -> None:
    default = trial.default()
    configs = [helion.Config(**{**default, "num_warps": n}) for n in (8, 1)]
    trial.settings["configs"] = configs


@case("`configs=[a, b]`, `enable(user_lists=True)`")
def _configs_ours(trial: Trial) -> None:
    _configs(trial)
    trial.enable_options["user_lists"] = True


@case("`HELION_FORCE_AUTOTUNE=1`")
def _forced(trial: Trial) -> None:
    trial.patch.setenv("HELION_FORCE_AUTOTUNE", "1")


@case("`HELION_FORCE_AUTOTUNE=1`, tuned entry")
def _forced_tuned(trial: Trial) -> None:
    _tuned(trial)
    _forced(trial)


@case("`HELION_FORCE_AUTOTUNE=1`, effort none")
def _forced_none(trial: Trial) -> None:
    _forced(trial)
    _effort(trial, "none")


@case("`HELION_FORCE_AUTOTUNE=1`, `config=`")
def _forced_config(trial: Trial) -> None:
    _config(trial)
    _forced(trial)


@case("`kernel.autotune(args)`")
def _explicit(trial: Trial) -> None:
    def run(kernel: Any) -> Config:
        with trial.rig.mode:
            kernel.autotune(trial.args)
        return trial.rig.config_of(kernel, trial.args)

    trial.run = run


@case("`HELION_SKIP_CACHE=1`, tuned entry")
def _skip(trial: Trial) -> None:
    _tuned(trial)
    trial.patch.setenv("HELION_SKIP_CACHE", "1")


@case("`HELION_ASSERT_CACHE_HIT=1`, no entry")
def _assert_hit(trial: Trial) -> None:
    trial.patch.setenv("HELION_ASSERT_CACHE_HIT", "1")


@case("`HELION_DISALLOW_AUTOTUNING=1`")
def _disallowed(trial: Trial) -> None:
    trial.patch.setenv("HELION_DISALLOW_AUTOTUNING", "1")


@case("`HELION_DISALLOW_AUTOTUNING=1`, effort none")
def _disallowed_none(trial: Trial) -> None:
    _disallowed(trial)
    _effort(trial, "none")


@case("another `autotuner_fn`")
def _other_autotuner(trial: Trial) -> None:
    config = helion.Config(**trial.variant("that autotuner"))

    class Preset(BaseAutotuner):
        def autotune(self, *, skip_cache: bool = False) -> Any:
            return config

    trial.settings["autotuner_fn"] = lambda bound, args: Preset()


@case("another `autotuner_fn`, effort none")
def _other_autotuner_none(trial: Trial) -> None:
    _other_autotuner(trial)
    _effort(trial, "none")


@case("`static_shapes=False`")
def _dynamic(trial: Trial) -> None:
    trial.settings["static_shapes"] = False


@case('inside a CUDA graph capture, mode `"verify"`')
def _capture(trial: Trial) -> None:
    trial.mode = "verify"
    trial.patch.setattr(torch.cuda, "is_initialized", lambda: True)
    trial.patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)


@case("`torch.compile`, kernel compiled by inductor")
def _inductor(trial: Trial) -> None:
    def run(kernel: Any) -> Config:
        # While torch.compile traces, Helion binds apart from its caches, and inductor
        # asks for a config with example arguments.
        with trial.rig.mode:
            bound = _isolated(kernel, trial.args)
            bound.ensure_config_exists(trial.args)
        return dict(bound._config.config)

    trial.run = run


@case("`torch.compile`, fused kernel tuned on its own")
def _fused(trial: Trial) -> None:
    from helion._compiler._inductor.template_buffer import _FusionAutotuneAdapter

    def run(kernel: Any) -> Config:
        bound = trial.rig.bound(kernel, trial.args)
        adapter = _FusionAutotuneAdapter(
            bound, lambda config: (bound.compile_config(config), None), "f00d"
        )
        with trial.rig.mode:
            found = bound.env.backend.autotune(adapter, trial.args, force=False)
        return dict(found.config)

    trial.run = run


@case("persistent only (distributed kernels, barriers)")
def _persistent(trial: Trial) -> None:
    trial.settings["autotune_force_persistent"] = True

    def is_persistent(config: Config) -> None:
        assert str(config["pid_type"]).startswith("persistent")

    trial.check = is_persistent


@case("interpret mode")
def _interpreted(trial: Trial) -> None:
    trial.settings["ref_mode"] = helion.RefMode.EAGER

    def run(kernel: Any) -> None:
        before = sum(costmodel.stats().values())
        x = torch.randn(4, 8)
        torch.testing.assert_close(kernel(x), x * 2)
        assert sum(costmodel.stats().values()) == before

    trial.run = run


@case("overrides of the author")
def _overrides(trial: Trial) -> None:
    trial.settings["autotune_config_overrides"] = {"num_stages": 3}

    def keeps_override(config: Config) -> None:
        assert config["num_stages"] == 3

    trial.check = keeps_override


@case("filter of the author refuses the default")
def _filter(trial: Trial) -> None:
    warps = trial.default()["num_warps"]

    def keep(config: Any) -> Any:
        return None if config.num_warps == warps else config

    trial.settings["autotune_config_filter"] = keep


@case("`COSTMODEL_DISABLE=1`")
def _disabled(trial: Trial) -> None:
    trial.patch.setenv("COSTMODEL_DISABLE", "1")


@case("a Helion that we do not know")
def _unknown_helion(trial: Trial) -> None:
    versions = {**helion_hook.installed_versions(), "helion": "9.9.9"}
    trial.patch.setattr(support, "installed_versions", lambda: versions)


@case("Helion generates no program for our pick")
def _uncompilable(trial: Trial) -> None:
    broken = {**trial.default(), "block_sizes": [3]}
    answer_with(trial.patch, lambda bound: broken)


@case("Triton or the GPU refuses our pick's program")
def _unlaunchable(trial: Trial) -> None:
    def refuse(self: Any, *args: Any, num_warps: int, **options: Any) -> None:
        if num_warps == WARPS["our pick"]:
            self.failure = OutOfResources(400_000, 232_448, "shared memory")
            raise self.failure

    trial.patch.setattr(first_run._Watch, "__call__", refuse)


@case("a bug of ours")
def _bug(trial: Trial) -> None:
    def explode(bound: Any) -> Config:
        raise ZeroDivisionError("ours")

    answer_with(trial.patch, explode)


@case("no usable model")
def _no_model(trial: Trial) -> None:
    trial.patch.setattr(
        costmodel.provider.Provider, "model", lambda self: None, raising=True
    )


def _isolated(kernel: Any, args: Sequence[Any]) -> Any:
    bind = getattr(kernel, "_bind_isolated", kernel.bind)
    return bind(tuple(args))


def _ours(bound: Any) -> Config:
    """What stands for our pick: it keeps the author's rules, as the pipeline does."""
    config = {**helion_hook.default_config(bound), "num_warps": WARPS["our pick"]}
    ruled = helion_hook.under_user_rules(bound, config)
    if ruled is None:
        raise UnreadableKernelError("the test's pick is refused by the filter")
    return ruled


@pytest.fixture
def trial_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rig(tmp_path, monkeypatch) as one:
        yield one


def test_each_row_has_a_case_and_each_case_a_row() -> None:
    assert [name for name, _, _ in ROWS] == list(dict.fromkeys(n for n, _, _ in ROWS))
    assert {name for name, _, _ in ROWS} == set(CASES)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=[name for name, _, _ in ROWS])
def test_the_page_tells_what_happens(
    row: tuple[str, str, str],
    column: str,
    trial_rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, *cells = row
    answer_with(monkeypatch, _ours)
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    trial = Trial(trial_rig, monkeypatch, column)
    CASES[name](trial)
    StubProvider.measured.clear()
    assert trial.outcome() == cells[COLUMNS.index(column)]
