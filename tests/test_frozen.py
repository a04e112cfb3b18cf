"""Our frozen dataclasses behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Mapping
from typing import Any
from typing import ClassVar

import pytest

from costmodel.frozen import dataclass
from costmodel.frozen import frozen

_standard = dataclasses.dataclass(frozen=True, slots=True)


@dataclass(frozen=True, slots=True)
class Ours:
    """Every kind of field that classes here have."""

    name: str
    sizes: tuple[int, ...]
    count: int = 3
    facts: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    secret: list[int] = dataclasses.field(default_factory=list, repr=False, hash=False)

    @property
    def total(self) -> int:
        return self.count + sum(self.sizes)

    @classmethod
    def of(cls, name: str) -> Ours:
        return cls(name, ())


@_standard
class Theirs:
    """The same by the standard decorator."""

    name: str
    sizes: tuple[int, ...]
    count: int = 3
    facts: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    secret: list[int] = dataclasses.field(default_factory=list, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class One:
    value: Any


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fields."""


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a", (1, 2)), {}),
    (("a", (1, 2), 3), {"facts": {}}),
    (("b",), {"sizes": (), "count": 0, "facts": {"x": 1}}),
    (("a", (1, 2)), {"secret": [4]}),
]


@pytest.mark.parametrize(("args", "options"), GIVEN)
def test_it_is_what_the_standard_one_is(
    args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    ours, theirs = Ours(*args, **options), Theirs(*args, **options)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert hash(ours) == hash(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    changed = dataclasses.replace(ours, count=9)
    assert changed.count == 9 and changed.name == ours.name and changed != ours
    for again in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert again == ours and again is not ours and type(again) is Ours
    assert ours != theirs and ours.total == theirs.count + sum(theirs.sizes)


def test_equality_is_that_of_the_values() -> None:
    made = [
        (Ours(*args, **options), Theirs(*args, **options)) for args, options in GIVEN
    ]
    for one, other in made:
        for same, twin in made:
            assert (one == same) == (other == twin)


def test_it_cannot_be_changed() -> None:
    one = Ours.of("a")
    for change in (
        lambda: setattr(one, "count", 4),
        lambda: delattr(one, "count"),
        lambda: setattr(one, "unknown", 4),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert not hasattr(one, "__dict__") and Ours("a", ()).secret is not one.secret


def test_whoever_looks_sees_a_dataclass() -> None:
    def shown(cls: type[Any]) -> list[tuple[str, Any]]:
        return [(f.name, f.default) for f in dataclasses.fields(cls)]

    assert shown(Ours) == shown(Theirs)
    ours, theirs = inspect.signature(Ours), inspect.signature(Theirs)
    assert list(ours.parameters) == list(theirs.parameters)
    hints = typing.get_type_hints(Ours.__init__)
    assert hints["sizes"] == tuple[int, ...] and hints["return"] is type(None)
    assert Ours.__match_args__ == Theirs.__match_args__
    with pytest.raises(TypeError):
        Ours("a")  # type: ignore[call-arg]


def test_few_fields() -> None:
    assert One(1) == One(1) != One(2) and hash(One("a")) == hash(("a",))
    assert Nothing() == Nothing() and repr(Nothing()) == "Nothing()"
    loop: list[Any] = []
    loop.append(One(loop))
    assert repr(loop[0]) == "One(value=[...])"


def test_what_asks_for_more_is_made_by_the_standard_one() -> None:
    class Checked:
        value: int
        shared: ClassVar[int] = 1

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError(self.value)

    made = frozen(Checked)
    assert made(1) == made(1)
    with pytest.raises(ValueError):
        made(-1)

    class Child(One):
        more: int = 2

    assert frozen(Child)(1).more == 2
    ordered = dataclass(order=True)(type("Ordered", (), {"__annotations__": {}}))
    assert dataclasses.is_dataclass(ordered)
