"""Frozen dataclasses that are made in a quarter of the time.

The standard decorator compiles seven functions for each class, one by one: about a
millisecond, and the first pick of a process imports almost a hundred such classes. Here
classes of equally many fields share the code of `__init__`, and the rest are closures.
What comes out is a dataclass with slots like any other: fields, `replace`, equality,
hashes, what is printed and pickling are the standard ones (`tests/test_frozen.py`).

Where a class asks for more than that, the standard decorator makes it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import reprlib
import sys
import types
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
    """`__init__`, which sets the slots of a class."""
    names = tuple(field.name for field in fields)
    code = _code(tuple(f.default_factory is not dataclasses.MISSING for f in fields))
    setters = {f"set_{i}": made.__dict__[name].__set__ for i, name in enumerate(names)}
    makers = {f"make_{i}": field.default_factory for i, field in enumerate(fields)}
    values = {**setters, **makers, "absent": dataclasses.MISSING}
    module = sys.modules.get(made.__module__)
    found = types.FunctionType(
        code.replace(co_varnames=("self", *names)),
        # With the globals of its module, where its annotations have a meaning.
        {} if module is None else module.__dict__,
        "__init__",
        _defaults(fields),
        tuple(types.CellType(values[name]) for name in code.co_freevars),
    )
    found.__qualname__ = f"{made.__qualname__}.__init__"
    found.__annotations__ = {f.name: f.type for f in fields} | {"return": None}
    return found


def _defaults(fields: tuple[dataclasses.Field[Any], ...]) -> tuple[Any, ...]:
    """Of the last arguments.

    Raises:
        TypeError: One that has none stands behind one that has.
    """
    found: list[Any] = []
    for field in fields:
        has_factory = field.default_factory is not dataclasses.MISSING
        if has_factory or field.default is not dataclasses.MISSING:
            found.append(dataclasses.MISSING if has_factory else field.default)
        elif found:
            raise TypeError(f"non-default argument {field.name!r} follows a default")
    return tuple(found)


@functools.cache
def _code(has_factory: tuple[bool, ...]) -> types.CodeType:
    """Of the `__init__` of so many fields, whose names are put in later.

    Args:
        has_factory: For each field, whether a default is made for each object.
    """
    numbers = range(len(has_factory))
    given = ["absent", *[f"set_{i}, make_{i}" for i in numbers]]
    body = [
        f"  set_{i}(self, make_{i}() if _{i} is absent else _{i})"
        if has_factory[i]
        else f"  set_{i}(self, _{i})"
        for i in numbers
    ]
    text = "\n".join(
        [
            f"def outer({', '.join(given)}):",
            f" def __init__({', '.join(['self', *[f'_{i}' for i in numbers]])}):",
            *(body or ["  pass"]),
            " return __init__",
        ]
    )
    names: dict[str, Any] = {}
    exec(text, {}, names)
    made = names["outer"](*[None] * (1 + 2 * len(has_factory)))
    code: types.CodeType = made.__code__
    return code


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
