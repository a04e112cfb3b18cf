"""`costmodel fetch-model`: fill the cache that serving reads, and wait for it."""

from __future__ import annotations

import argparse
import json

from costmodel.learned import LearnedModel
from costmodel.remote_model import fetch


def fetch_model(arguments: argparse.Namespace) -> int:
    """Fetch a registered model from the tracking server into the local cache."""
    path = fetch(arguments.model, arguments.timeout)
    model = LearnedModel.load(path)
    if arguments.json:
        print(json.dumps({"model": str(path), "model_id": model.model_id}, indent=2))
    else:
        print(f"cached: {path} (model {model.model_id})")
        print(f"use it: COSTMODEL_MODEL={arguments.model}")
    return 0
