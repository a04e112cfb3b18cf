"""Write a trained model where serving finds it: trees and card, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from costmodel.code_model import code_model_path
from costmodel.errors import StoreError
from costmodel.learned import bundled_model_path
from costmodel.training.train import Training


def publish(training: Training, directory: Path | str | None = None) -> Path:
    """Write `<name>.ubj` and `<name>.json`, and the same of a second stage.

    Each file is written beside its place and renamed, trees first: a reader sees the
    old pair, the new pair, or (between the renames) a pair whose digests differ, which
    loading refuses. A failure leaves the old files as they were.

    Args:
        training: What to publish.
        directory: Where to; None means the package's own `models/`.

    Returns:
        Path of the `.ubj` file.

    Raises:
        StoreError: The directory cannot be written.
    """
    folder = Path(directory) if directory is not None else bundled_model_path().parent
    name = training.model.card.name
    trees_path = folder / f"{name}.ubj"
    card_path = folder / f"{name}.json"
    card = training.model.card.to_json().encode()
    contents = [(trees_path, training.trees), (card_path, card)]
    second = training.second
    code_path = code_model_path(trees_path)
    if second is not None:
        code_card = second.card.to_json().encode()
        contents += [
            (code_path, second.trees),
            (code_path.with_suffix(".json"), code_card),
        ]
    replace_whole(contents)
    if second is None:  # one of an earlier first stage belongs to nobody
        code_path.unlink(missing_ok=True)
        code_path.with_suffix(".json").unlink(missing_ok=True)
    return trees_path


def replace_whole(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write files of one folder, renamed in their order once all are on disk.

    Raises:
        StoreError: The folder cannot be written; the old files are as they were.
    """
    folder = contents[0][0].parent
    staged: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for path, content in contents:
                staged.append((_staged(path, content), path))
            for temporary, path in staged:
                os.replace(temporary, path)
        finally:
            for temporary, _ in staged:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"expected to write the model to {folder}, found "
            f"{error.strerror or error}: pass another folder with --output"
        ) from error


def _staged(path: Path, content: bytes) -> Path:
    """Write content to a temporary file beside a path, on disk before returning."""
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
    )
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
