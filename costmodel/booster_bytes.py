"""Trees of XGBoost from bytes, without starting threads.

XGBoost reads trees with a thread for each core, whatever the booster is told. The
runtime under it (libgomp) keeps those threads, and a process that is forked afterwards
hangs in its own first parallel region: a server that had loaded our model could fork no
worker that loads it again.

Only XGBoost's setting for everything helps, and it cannot be undone: nought, which it
was, is taken for "leave it". It belongs to the thread that sets it, though, so a thread
of our own reads the trees and ends.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xgboost


def booster_from(trees: bytes) -> xgboost.Booster:
    """The trees as XGBoost has them, asked by one thread.

    One thread: two do not help at 200 rows (measured, design notes), and a sum over
    trees in a fixed order gives the same bits on every machine.

    Args:
        trees: What a booster writes as UBJSON or JSON.

    Raises:
        xgboost.core.XGBoostError: Nobody can read the bytes.
    """
    with ThreadPoolExecutor(1, "costmodel-trees") as reader:
        return reader.submit(_read, trees).result()


def _read(trees: bytes) -> xgboost.Booster:
    import xgboost

    xgboost.set_config(nthread=1)
    booster = xgboost.Booster()
    booster.load_model(bytearray(trees))
    booster.set_param({"nthread": 1})
    return booster
