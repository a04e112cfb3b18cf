"""Sorting by number, then by text: the same as spelling everything, but lazier."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costmodel.hybrid import canonical_text
from costmodel.ordering import LazyTexts
from costmodel.ordering import rising
from costmodel.types import Config

# Few numbers, so that many are equal, both zeros among them.
NUMBERS = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1e-30, 2.0])
ROWS = st.lists(st.tuples(NUMBERS, st.text(max_size=2)), max_size=12)


@given(ROWS)
def test_rising_is_a_plain_sort(rows: list[tuple[float, str]]) -> None:
    values = np.array([value for value, _ in rows], dtype=np.float32)
    keys = [key for _, key in rows]
    plain = sorted(range(len(rows)), key=lambda i: (float(values[i]), keys[i]))
    assert rising(values, keys) == plain
    largest = sorted(range(len(rows)), key=lambda i: (-float(values[i]), keys[i]))
    assert rising(-values, keys) == largest


def test_only_equal_numbers_are_spelled() -> None:
    configs: list[Config] = [{"n": n} for n in (3, 1, 2, 0)]
    spelled = []

    def spell(config: Config) -> str:
        spelled.append(config["n"])
        return canonical_text(config)

    texts = LazyTexts(configs, spell)
    values = np.array([5.0, 1.0, 1.0, 7.0])
    assert rising(values, texts) == [1, 2, 0, 3]
    assert sorted(spelled) == [1, 2]
    assert list(texts) == [canonical_text(config) for config in configs]
    assert texts[1:3] == [texts[1], texts[2]]
    assert sorted(spelled) == [0, 1, 2, 3]  # each once
