"""A training as a TOML file: data, split, features, model, gate and bounds.

Every key has the value that ships as its default, so that a recipe says only what it
does otherwise. A key that means nothing is refused by name: a misspelt `n_tree` that
trains with the default is worse than none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from costmodel.datasets.locations import is_remote
from costmodel.errors import RecipeError
from costmodel.features.schema import SCHEMA
from costmodel.learned import BUNDLED_NAME
from costmodel.training.calibrate import MAX_HARM_SHARE
from costmodel.training.calibrate import GateLimits
from costmodel.training.code_settings import CodeSettings
from costmodel.training.fit import FitSettings
from costmodel.training.recipe_features import columns_of
from costmodel.training.recipe_read import NOT_KEYS
from costmodel.training.recipe_read import refuse_unknown
from costmodel.training.recipe_read import section_of
from costmodel.training.recipe_space import Space
from costmodel.training.recipe_space import Value
from costmodel.training.recipe_space import check_start
from costmodel.training.recipe_space import shown
from costmodel.training.recipe_space import space_of
from costmodel.types import KernelClass

SUFFIX = ".toml"
# Of a class with few workloads a single harmed one is a large share.
_CLASS_HARM_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Data:
    """Where measurements come from.

    Attributes:
        paths: Corpora or Helion logs; relative to the recipe's folder.
        leave_out_families: Neither learned from nor judged.
        leave_out_kernels: The same, by the kernel's name in the log.
        leave_out_shapes: The same, by workload id as the evaluation table names it.
    """

    paths: tuple[str, ...] = ()
    leave_out_families: tuple[str, ...] = ()
    leave_out_kernels: tuple[str, ...] = ()
    leave_out_shapes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """What is left out in turn.

    Attributes:
        folds: Families by name of fold; empty means single families, or eight blocks
            where there are more than ten.
    """

    folds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Features:
    """Which features the trees may look at.

    Attributes:
        drop: Names, patterns such as "range_*", or "group:difference".
    """

    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a promotion must keep to.

    Attributes:
        max_harm_share: Share of all workloads slower beyond noise.
        max_class_harm_share: The same of any class without a bound of its own.
        worst_class_ratio: No class may fall below this share of the champion's
            geometric mean speed-up.
        max_score_ms: Scoring 512 candidates.
        classes: Share of workloads slower beyond noise, by kernel class.
    """

    max_harm_share: float = MAX_HARM_SHARE
    max_class_harm_share: float = _CLASS_HARM_SHARE
    worst_class_ratio: float = 0.98
    max_score_ms: float = 20.0
    classes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run keeps that costs fits of its own.

    Attributes:
        learning_curve: Regret over the share of families and of measurements that
            were learned from; about twice the time of the training.
        extra_seeds: Seeds after the model's that its folds are fitted by too, to see
            how much of a result is chance; each costs the folds once more.
    """

    learning_curve: bool = False
    extra_seeds: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """How to fit where examples do not fit in memory.

    Attributes:
        external_memory: Whether to fit from Parquet shards on disk.
        batch_rows: Example rows in memory at once, about; on a cluster, of a worker.
    """

    external_memory: bool = False
    batch_rows: int = 100_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what a training makes, besides the code.

    Attributes:
        name: Registered name of the model.
        data: Where measurements come from.
        split: What is left out in turn.
        features: Which features the trees may look at.
        model: Numbers of the fit.
        second_stage: Numbers of the second stage, from compiled code.
        gate: What the gate is calibrated to.
        bounds: What a promotion must keep to.
        report: What a run keeps that costs fits of its own.
        scale: How to fit where examples do not fit in memory.
        tune: What `costmodel tune` may change, by full name.
        text: The file as it was read, or "" where there was none.
    """

    name: str = BUNDLED_NAME
    data: Data = field(default_factory=Data)
    split: Split = field(default_factory=Split)
    features: Features = field(default_factory=Features)
    model: FitSettings = field(default_factory=FitSettings)
    second_stage: CodeSettings = field(default_factory=CodeSettings)
    gate: GateLimits = field(default_factory=GateLimits)
    bounds: Bounds = field(default_factory=Bounds)
    report: Report = field(default_factory=Report)
    scale: Scale = field(default_factory=Scale)
    tune: Space = field(default_factory=dict)
    text: str = ""

    @property
    def digest(self) -> str:
        """Of what decides the model: not comments, folder, plots or what is tuned."""
        facts = self.as_parameters()
        aside = ("data.paths", "report.", "tune.")
        names = sorted(name for name in facts if not name.startswith(aside))
        text = "\n".join(f"{name}={facts[name]}" for name in names)
        return hashlib.sha256(text.encode()).hexdigest()

    def as_parameters(self) -> dict[str, str]:
        """Every key with its value as text, defaults included; for tracking."""
        found = {"name": self.name}
        for section in SECTIONS:
            for key, value in dataclasses.asdict(getattr(self, section)).items():
                if key in NOT_KEYS:
                    continue
                if isinstance(value, Mapping):
                    lines = [f"{k}: {_shown(v)}" for k, v in sorted(value.items())]
                    found[f"{section}.{key}"] = "; ".join(lines)
                else:
                    found[f"{section}.{key}"] = _shown(value)
        for name, domain in self.as_space().items():
            found[f"tune.{name}"] = domain
        return found

    def as_space(self) -> dict[str, str]:
        """What may be searched, in words."""
        return {name: shown(self.tune[name]) for name in sorted(self.tune)}

    def value(self, name: str) -> Value:
        """The value of a parameter by its full name, such as "model.max_depth"."""
        section, _, key = name.partition(".")
        found: Value = getattr(getattr(self, section), key)
        return found

    def with_values(self, values: Mapping[str, Value]) -> Recipe:
        """The same recipe with other values, by full name."""
        recipe = self
        for name, value in values.items():
            section, _, key = name.partition(".")
            changed = dataclasses.replace(getattr(recipe, section), **{key: value})
            recipe = dataclasses.replace(recipe, **{section: changed})
        return recipe.with_columns()

    def with_columns(self) -> Recipe:
        """The same with the columns that `features.drop` names kept from the fit.

        Raises:
            RecipeError: It names none.
        """
        dropped = columns_of(self.features.drop, SCHEMA)
        model = dataclasses.replace(self.model, dropped_columns=dropped)
        return dataclasses.replace(self, model=model)


_KINDS: dict[str, type[Any]] = {
    "data": Data,
    "split": Split,
    "features": Features,
    "model": FitSettings,
    "second_stage": CodeSettings,
    "gate": GateLimits,
    "bounds": Bounds,
    "report": Report,
    "scale": Scale,
}
SECTIONS = tuple(_KINDS)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def is_recipe(path: str) -> bool:
    """Whether a path on the command line names a recipe and not data."""
    return path.endswith(SUFFIX)


def load_recipe(path: Path | str) -> Recipe:
    """Read a recipe; paths in it become relative to where the caller is.

    Raises:
        RecipeError: Not there, not TOML, or a key or value that means nothing.
    """
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"expected a recipe at {path}, found {getattr(error, 'strerror', error)}"
        ) from error
    recipe = parse_recipe(text, str(path))
    at = tuple(
        one if is_remote(one) else str(path.parent / one) for one in recipe.data.paths
    )
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, paths=at))


def parse_recipe(text: str, where: str = "recipe") -> Recipe:
    """Read the text of a recipe.

    Args:
        text: TOML.
        where: Where it is from, for errors.

    Raises:
        RecipeError: Not TOML, or a key or value that means nothing.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{where}: expected TOML, found {error}") from error
    refuse_unknown(content, ("name", *SECTIONS, "tune"), "", where)
    name = content.pop("name", BUNDLED_NAME)
    if not isinstance(name, str) or not name:
        raise RecipeError(f"{where}: expected name to be text, found {name!r}")
    sections = {
        section: section_of(kind, content.get(section, {}), section, where)
        for section, kind in _KINDS.items()
    }
    space = space_of(content.get("tune", {}), where)
    recipe = Recipe(name=name, tune=space, text=text, **sections)
    classes = [str(one) for one in KernelClass]
    refuse_unknown(recipe.bounds.classes, classes, "bounds.classes", where)
    check_start(space, {name: recipe.value(name) for name in space}, where)
    try:
        for choice in getattr(space.get("features.drop"), "values", ()):
            columns_of(choice, SCHEMA)
        return recipe.with_columns()
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
