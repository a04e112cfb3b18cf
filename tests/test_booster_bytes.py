"""Our models start no threads: a child forked afterwards can use OpenMP itself."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import xgboost

from costmodel.booster_bytes import booster_from
from costmodel.learned import bundled_model_path

FORKED = textwrap.dedent(
    """
    import os
    import signal

    import xgboost

    from costmodel.code_model import CodeModel
    from costmodel.learned import LearnedModel
    from costmodel.learned import bundled_model_path

    path = bundled_model_path()
    {loaded}
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a child that hangs
        xgboost.Booster().load_model(bytearray(path.read_bytes()))
        os._exit(0)
    raise SystemExit(1 if os.waitpid(child, 0)[1] else 0)
    """
)


def test_the_users_own_settings_of_xgboost_stay() -> None:
    path = bundled_model_path()
    before = xgboost.get_config()
    booster = booster_from(path.read_bytes())
    assert xgboost.get_config() == before
    again = booster_from(bytes(booster.save_raw("ubj")))
    assert again.save_raw("ubj") == booster.save_raw("ubj")
    with pytest.raises(xgboost.core.XGBoostError):
        booster_from(b"no trees")


def run_forked(loaded: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", FORKED.format(loaded=loaded)],
        env={"OMP_NUM_THREADS": "4"},
        timeout=120,
    ).returncode


def test_a_child_of_a_process_with_our_models_uses_threads() -> None:
    # Both read by xgboost: the trees of the first stage on `booster`.
    ours = "model = LearnedModel.load(path); CodeModel.load(path, model.model_id)"
    assert run_forked(f"{ours}; model._forest.booster") == 0
