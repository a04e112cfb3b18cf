"""Argument templates with named sizes, and list files of kernels."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.arguments import format_argument
from costmodel.errors import ArgumentSpecError
from costmodel.errors import ExportError
from costmodel.shape_list import expand
from costmodel.shape_list import make_cases
from costmodel.shape_list import read_list

SIZES = st.dictionaries(
    st.sampled_from(["tokens", "width", "heads"]),
    st.lists(st.integers(1, 2**20), min_size=1, max_size=4, unique=True),
    min_size=1,
)


@settings(max_examples=50)
@given(SIZES)
def test_every_combination_is_one_shape(sizes: dict[str, list[int]]) -> None:
    template = f"bf16[{','.join(sizes)}]"
    cases = make_cases([template, 0.5], sizes)
    assert len(cases) == math.prod(len(values) for values in sizes.values())
    expected = itertools.product(*sizes.values())
    for case, values in zip(cases, expected, strict=True):
        tensor, scalar = case.arguments
        assert format_argument(tensor) == f"bf16[{','.join(map(str, values))}]"
        assert format_argument(scalar) == "0.5"
        assert list(case.key.values()) == list(values)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("bf16[n,2*m]", "bf16[64,10]"),
        ("bf16[n,m]:1,n", "bf16[64,5]:1,64"),
        ("i32[m+1]@offsets(n)", "i32[6]@offsets(64)"),
        ("f32[n//m, m - 1]", "f32[12,4]"),
        ("f32[]", "f32[]"),
        ("i64[7]@index(32000)", "i64[7]@index(32000)"),
        ("[n,[m,'n']]", "[64,[5,'n']]"),
        ("(bf16[n,2*m]:1,64,bf16[n])", "(bf16[64,10]:1,64,bf16[64])"),
        ("[64,none]", "[64,none]"),
        ("dtype:bf16", "dtype:bf16"),
        ("n", "64"),
        ("1e-5", "1e-5"),
        ("true", "true"),
        ("str:n", "str:n"),
        (3, 3),
        (None, None),
        (True, True),
    ],
)
def test_sizes_are_put_in(template: object, expected: object) -> None:
    assert expand(template, {"n": 64, "m": 5}) == expected


@pytest.mark.parametrize(
    ("args", "sizes", "words"),
    [
        (["bf16[n]"], {}, "value for size 'n'"),
        (["bf16[n]"], {"n": [1], "m": [2]}, "unused: 'm'"),
        (["bf16[n]"], {"n": []}, "integers >= 1"),
        (["bf16[n]"], {"n": [0]}, "integers >= 1"),
        (["bf16[n]"], {"n": [True]}, "integers >= 1"),
        (["bf16[n]"], {"n": 64}, "integers >= 1"),
        (["bf16[n**n]"], {"n": [2]}, "names, "),
        (["bf16[n//0]"], {"n": [2]}, "a size"),
        (["bf16[n n]"], {"n": [2]}, "a size"),
        (["bf16[__import__('os')]"], {"n": [2]}, "unused"),
        (["bf16[n,f(n)]"], {"n": [2]}, "names, "),
        (["bf16[n]"], {"n": list(range(1, 1000))}, "at most"),
        ("bf16[n]", {"n": [1]}, "list of arguments"),
        ([["bf16[n]"]], {}, "text or number"),
    ],
)
def test_what_cannot_be_read_is_said(
    args: list[object], sizes: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(ExportError, match=words.replace("*", r"\*")):
        make_cases(args, sizes)


def test_a_shape_that_is_no_argument_is_refused() -> None:
    with pytest.raises(ArgumentSpecError):
        make_cases(["f99[n]"], {"n": [1]})
    with pytest.raises(ExportError, match="weight"):
        make_cases(["f32[1]"], {}, weight=0.0)


TOML = """
[[kernel]]
kernel = "ops.py:silu"
args = ["bf16[tokens,2*width]"]
max_configs = 2
name = "silu_mul"
[kernel.sizes]
tokens = [1, 64]
width = [4096]

[[kernel]]
kernel = "/elsewhere/ops.py:norm"
[[kernel.shapes]]
args = ["bf16[64,4096]", 1e-5]
key = {tokens = 64}
weight = 3.0
[[kernel.shapes]]
args = ["bf16[tokens,4096]", 1e-5]
sizes = {tokens = [1, 2]}
"""
AS_JSON = [
    {
        "kernel": "ops.py:silu",
        "args": ["bf16[tokens,2*width]"],
        "max_configs": 2,
        "name": "silu_mul",
        "sizes": {"tokens": [1, 64], "width": [4096]},
    },
    {
        "kernel": "/elsewhere/ops.py:norm",
        "shapes": [
            {"args": ["bf16[64,4096]", 1e-5], "key": {"tokens": 64}, "weight": 3.0},
            {"args": ["bf16[tokens,4096]", 1e-5], "sizes": {"tokens": [1, 2]}},
        ],
    },
]


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(TOML)
    (tmp_path / "list.json").write_text(json.dumps(AS_JSON))
    (tmp_path / "other.json").write_text(json.dumps({"kernel": AS_JSON}))
    jobs = read_list(tmp_path / "list.toml")
    assert (
        jobs == read_list(tmp_path / "list.json") == read_list(tmp_path / "other.json")
    )
    silu, norm = jobs
    assert silu.reference == f"{tmp_path}/ops.py:silu"
    assert norm.reference == "/elsewhere/ops.py:norm"
    assert (silu.name, silu.max_configs) == ("silu_mul", 2)
    assert [dict(case.key) for case in norm.cases] == [
        {"tokens": 64},
        {"tokens": 1},
        {"tokens": 2},
    ]
    assert [case.weight for case in norm.cases] == [3.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "entries"),
        ("kernel = 3", "entries"),
        ("[[kernel]]\nargs = []", "FILE.py:KERNEL"),
        ("[[kernel]]\nkernel = 'a.py'", "either args"),
        ("[[kernel]]\nkernel = 'a.py'\nargs = []\nshapes = []", "either args"),
        ("[[kernel]]\nkernel = 'a.py'\nargs = ['f32[n]']", "kernel 1: .*size 'n'"),
        ("[[kernel]]\nkernel = 'a.py'\nargs = ['f99[1]']", "kernel 1: "),
        ("[[kernel]]\nkernel = 'a.py'\nargs = []\nmax_configs = 0", "max_configs"),
        ("[[kernel]]\nkernel = 'a.py'\nargs = []\ntypo = 1", "unknown 'typo'"),
        ("[[kernel]", "TOML"),
    ],
)
def test_a_wrong_list_is_refused_in_words(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(content)
    with pytest.raises(ExportError, match=words):
        read_list(path)
    with pytest.raises(ExportError, match="expected a list"):
        read_list(tmp_path / "absent.toml")
