"""Frozen dataclasses that are made in a quarter of the time.

The standard decorator compiles seven functions for each class, one by one: about a
millisecond, and the first pick of a process imports almost a hundred such classes. Here
`__init__` alone is compiled, and the rest are closures. What comes out is a dataclass
with slots like any other: fields, `replace`, equality, hashes, what is printed and
pickling are the standard ones (`tests/test_frozen.py`).

Where a class asks for more than that, the standard decorator makes it.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import reprlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    # One symbol to type checkers, which know what that one means.
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options: bool) -> Any:
        """As `dataclasses.dataclass`, by keywords."""
        if options != {"frozen": True, "slots": True}:
            return dataclasses.dataclass(**options)
        return frozen


_OWN = ("__init__", "__eq__", "__hash__", "__repr__", "__post_init__", "__setattr__")


def frozen(cls: type[Any]) -> type[Any]:
    """What `dataclasses.dataclass(frozen=True, slots=True)` makes of a class."""
    if not _is_plain(cls):
        standard: type[Any] = dataclasses.dataclass(frozen=True, slots=True)(cls)
        return standard
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields = dataclasses.fields(made)
    made.__init__ = _init(made, fields)
    for method in (*_comparing(made, fields), *_changing(fields), _printing(fields)):
        method.__qualname__ = f"{made.__qualname__}.{method.__name__}"
        setattr(made, method.__name__, method)
    said = made.__dataclass_params__
    said.init = said.repr = said.eq = said.frozen = True
    found: type[Any] = made
    return found


def _is_plain(cls: type[Any]) -> bool:
    """Whether a class asks for nothing but fields with or without defaults."""
    if cls.__mro__ != (cls, object) or any(name in cls.__dict__ for name in _OWN):
        return False
    texts = list(map(str, inspect.get_annotations(cls).values()))
    given = [f for f in cls.__dict__.values() if isinstance(f, dataclasses.Field)]
    return not any(
        "ClassVar" in text or "InitVar" in text or "KW_ONLY" in text for text in texts
    ) and all(one.init and one.kw_only is not True for one in given)


def _init(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    names: dict[str, Any] = {"_absent": dataclasses.MISSING}
    arguments, lines = [], []
    for field in fields:
        name = field.name
        names[f"_set_{name}"] = made.__dict__[name].__set__  # of its slot
        value = name
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            arguments.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            arguments.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        else:
            arguments.append(name)
        lines.append(f"  _set_{name}(self, {value})")
    head = f" def __init__({', '.join(['self', *arguments])}):"
    first, body = f"def make({', '.join(names)}):", lines or ["  pass"]
    text = "\n".join([first, head, *body, " return __init__"])
    # With the globals of its module, where its annotations have a meaning.
    module = sys.modules.get(made.__module__)
    made_here: dict[str, Any] = {}
    exec(text, {} if module is None else module.__dict__, made_here)
    found = made_here["make"](**names)
    found.__qualname__ = f"{made.__qualname__}.__init__"
    found.__module__ = made.__module__
    found.__annotations__ = {f.name: f.type for f in fields} | {"return": None}
    return found


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All values of some fields as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def _comparing(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> list[Any]:
    compared = _values([f.name for f in fields if f.compare])
    hashed = _values(
        [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
    )

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return [__eq__, __hash__]


def _changing(fields: tuple[dataclasses.Field[Any], ...]) -> list[Any]:
    values = _values([field.name for field in fields])

    def __setattr__(self: Any, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> list[Any]:
        return list(values(self))

    def __setstate__(self: Any, state: list[Any]) -> None:
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    return [__setattr__, __delattr__, __getstate__, __setstate__]


def _printing(fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    names = [field.name for field in fields if field.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        pairs = [f"{name}={getattr(self, name)!r}" for name in names]
        return f"{self.__class__.__qualname__}({', '.join(pairs)})"

    return __repr__
