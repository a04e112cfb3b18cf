"""Trees of XGBoost from bytes, without starting threads.

XGBoost reads trees with a thread for each core, whatever the booster is told. The
runtime under it (libgomp) keeps those threads, and a process that is forked afterwards
hangs in its own first parallel region: a server that had loaded our model could fork no
worker that loads it again.
"""

from __future__ import annotations

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
    import xgboost

    with xgboost.config_context(nthread=1):
        booster = xgboost.Booster()
        booster.load_model(bytearray(trees))
    booster.set_param({"nthread": 1})
    return booster
