"""Split the text of a list or tuple of arguments into the texts of its items.

A comma is not always a border: it also stands in shapes, strides, nested lists and
quoted strings.
"""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"|(?P<tensor>\w+\[(?P<shape>[^\[\]]*)\])"
    r"|(?P<plain>[^\s,\[\]()'\"]+)"
)
_FILL = re.compile(r"@[a-z]+(?:\(\d+\))?")
_CLOSING = {"[": "]", "(": ")"}


class SplitError(ValueError):
    """Not the text of one list; the message says what was expected, and where."""


def split_items(text: str) -> list[str]:
    """Texts of the items of a list or tuple, without the spaces around them.

    Args:
        text: From the opening bracket to the closing one; spaces around are allowed.

    Raises:
        SplitError: It ends early, goes on after its end or is malformed between.
    """
    items, end = _items(text, _after_spaces(text, 0))
    if text[end:].strip():
        raise SplitError(f"nothing after the closing bracket at {end}")
    return items


def _items(text: str, at: int) -> tuple[list[str], int]:
    """Items of the list that opens at `at`, and the place after its end."""
    closing = _CLOSING[text[at]]
    items: list[str] = []
    at = _after_spaces(text, at + 1)
    while not text.startswith(closing, at):
        end = _end_of_item(text, at)
        items.append(text[at:end])
        at = _after_spaces(text, end)
        if text.startswith(",", at):
            at = _after_spaces(text, at + 1)
        elif not text.startswith(closing, at):
            raise SplitError(f"a comma or {closing} at {at}")
    return items, at + 1


def _end_of_item(text: str, at: int) -> int:
    if text.startswith(tuple(_CLOSING), at):
        return _items(text, at)[1]
    piece = _PIECE.match(text, at)
    if piece is None:
        raise SplitError(f"an item at {at}")
    end = piece.end()
    if piece["tensor"] is None:
        return end
    n_dims = len(piece["shape"].split(",")) if piece["shape"].strip() else 0
    if text.startswith(":", end):
        # Strides hold commas, too: there is one for each dimension.
        more = r"(?:,\d+)" * (n_dims - 1)
        strides = re.compile(r":\d+" + more).match(text, end) if n_dims else None
        end = strides.end() if strides else end + 1
    fill = _FILL.match(text, end)
    return fill.end() if fill else end


def _after_spaces(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
