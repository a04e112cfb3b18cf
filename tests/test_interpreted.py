"""Real results with no GPU: Triton's interpreter runs what Helion generates for us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import helion
import helion.language as hl
import torch
import costmodel
from costmodel import helion_hook
from costmodel import provider
from costmodel.types import Pick, PickSource, ReasonCode

def choose_for(bound, *args, **options):
    # The CPU is no GPU that we know, so the choice is made here.
    default = helion_hook.default_config(bound)
    config = {**default, "block_sizes": [16, 16], "num_warps": 2}
    answer = (config, PickSource.LEARNED, ReasonCode.GAIN_CERTAIN, "")
    return Pick(*answer, default=default, shortlist=(config, default))

provider.choose_for = choose_for

@helion.kernel(static_shapes=True)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out

x, y = torch.randn(64, 48), torch.randn(64, 48)
costmodel.enable(verify_output=True)
assert torch.equal(add(x, y), x + y)
assert costmodel.stats() == {"gain_certain": 1}, costmodel.stats()
assert add.bind((x, y))._config.block_sizes == [16, 16]
compiled = torch.compile(lambda a, b: add(a * 2, b) + 1, backend="aot_eager")
assert torch.equal(compiled(x, y), x * 2 + y + 1)
costmodel.disable()
assert torch.equal(add(x, y), x + y)
assert add.bind((x, y))._config.block_sizes != [16, 16]
print("as promised")
"""


@pytest.mark.slow
def test_results_are_right_enabled_compiled_and_disabled_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # Helion reads a kernel's source from its file
    script.write_text(_SCRIPT, encoding="utf-8")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "HELION_CACHE_DIR": str(tmp_path / "helion"),
        "HELION_AUTOTUNE_EFFORT": "none",
    }
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "as promised\n", done.stderr[-2000:]
