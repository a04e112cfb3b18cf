"""Our models start no threads: a child forked afterwards can use OpenMP itself."""

from __future__ import annotations

import subprocess
import sys
import textwrap

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
