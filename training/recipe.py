"""A training as a TOML file: data, split, features, model, gate and bounds.

Every key has the value that ships as its default, so that a recipe says only what it
does otherwise. A key that means nothing is refused by name: a misspelt `n_tree` that
trains with the default is worse than none.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import TypeVar

from costmodel.errors import RecipeError
from costmodel.features.schema import SCHEMA
from costmodel.learned import BUNDLED_NAME
from costmodel.training.calibrate import MAX_HARM_SHARE
from costmodel.training.calibrate import GateLimits
from costmodel.training.fit import FitSettings
from costmodel.training.recipe_features import columns_of
from costmodel.training.recipe_limits import check_number
from costmodel.types import KernelClass

_Section = TypeVar("_Section")

SUFFIX = ".toml"
# Of the fit, but said by [features] in names and not in columns.
_NOT_KEYS = frozenset({"dropped_columns"})
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
class Recipe:
    """Everything that decides what a training makes, besides the code.

    Attributes:
        name: Registered name of the model.
        data: Where measurements come from.
        split: What is left out in turn.
        features: Which features the trees may look at.
        model: Numbers of the fit.
        gate: What the gate is calibrated to.
        bounds: What a promotion must keep to.
        text: The file as it was read, or "" where there was none.
    """

    name: str = BUNDLED_NAME
    data: Data = field(default_factory=Data)
    split: Split = field(default_factory=Split)
    features: Features = field(default_factory=Features)
    model: FitSettings = field(default_factory=FitSettings)
    gate: GateLimits = field(default_factory=GateLimits)
    bounds: Bounds = field(default_factory=Bounds)
    text: str = ""

    @property
    def digest(self) -> str:
        """Of what is asked for: comments and the folder do not count."""
        facts = self.as_parameters()
        names = sorted(name for name in facts if name != "data.paths")
        text = "\n".join(f"{name}={facts[name]}" for name in names)
        return hashlib.sha256(text.encode()).hexdigest()

    def as_parameters(self) -> dict[str, str]:
        """Every key with its value as text, defaults included; for tracking."""
        found = {"name": self.name}
        for section in _SECTIONS:
            for key, value in dataclasses.asdict(getattr(self, section)).items():
                if key in _NOT_KEYS:
                    continue
                if isinstance(value, Mapping):
                    lines = [f"{k}: {_shown(v)}" for k, v in sorted(value.items())]
                    found[f"{section}.{key}"] = "; ".join(lines)
                else:
                    found[f"{section}.{key}"] = _shown(value)
        return found


_SECTIONS = ("data", "split", "features", "model", "gate", "bounds")


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
    at = tuple(str(path.parent / one) for one in recipe.data.paths)
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
    _refuse_unknown(content, ("name", *_SECTIONS), "", where)
    name = content.pop("name", BUNDLED_NAME)
    if not isinstance(name, str) or not name:
        raise RecipeError(f"{where}: expected name to be text, found {name!r}")
    sections = {
        section: _section(kind, content.get(section, {}), section, where)
        for section, kind in (
            ("data", Data),
            ("split", Split),
            ("features", Features),
            ("model", FitSettings),
            ("gate", GateLimits),
            ("bounds", Bounds),
        )
    }
    recipe = Recipe(name=name, text=text, **sections)  # type: ignore[arg-type]
    _refuse_unknown(
        recipe.bounds.classes,
        [str(one) for one in KernelClass],
        "bounds.classes",
        where,
    )
    try:
        dropped = columns_of(recipe.features.drop, SCHEMA)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    model = dataclasses.replace(recipe.model, dropped_columns=dropped)
    return dataclasses.replace(recipe, model=model)


def _section(kind: type[_Section], content: object, name: str, where: str) -> _Section:
    if not isinstance(content, Mapping):
        raise RecipeError(
            f"{where}: expected [{name}] to be a table, found {content!r}"
        )
    usual = kind()
    keys = [one.name for one in dataclasses.fields(kind)]  # type: ignore[arg-type]
    known = [key for key in keys if key not in _NOT_KEYS]
    _refuse_unknown(content, known, name, where)
    values = {
        key: _value(found, getattr(usual, key), f"{name}.{key}", where)
        for key, found in content.items()
    }
    return kind(**values)


def _value(found: object, usual: object, name: str, where: str) -> Any:
    """The value as the type of the default; nothing is guessed."""
    if isinstance(usual, Mapping):
        if isinstance(found, Mapping):
            like: object = () if name == "split.folds" else 0.0
            return {
                str(key): _value(value, like, f"{name}.{key}", where)
                for key, value in found.items()
            }
        wanted = "a table"
    elif isinstance(usual, tuple):
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return tuple(found)
        wanted = "a list of texts"
    elif isinstance(found, bool) or not isinstance(found, int | float):
        wanted = "a number"
    elif isinstance(usual, int) and not isinstance(found, int):
        wanted = "a whole number"
    else:
        check_number(name, found, where)
        return found if isinstance(usual, int) else float(found)
    raise RecipeError(f"{where}: expected {name} to be {wanted}, found {found!r}")


def _refuse_unknown(
    content: Mapping[str, object],
    known: list[str] | tuple[str, ...],
    at: str,
    where: str,
) -> None:
    for key in content:
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        full = f"{at}.{key}" if at else key
        raise RecipeError(
            f"{where}: unknown key '{full}': the nearest known one is '{close[0]}' "
            f"(of {', '.join(known)})"
        )
