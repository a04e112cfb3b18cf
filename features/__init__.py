"""Numbers from facts: what a kernel and a config cost, read from Helion's IR graph."""

from __future__ import annotations
