"""Analytic candidates: one readable decision list per kernel class."""

from __future__ import annotations
