"""From labelled measurements to a published model: fit, evaluate, track, publish."""

from __future__ import annotations
