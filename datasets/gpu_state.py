"""What a worker asks the GPU between two workloads; light to import."""

from __future__ import annotations


def device_is_broken() -> bool:
    """Whether CUDA still answers in this process; most errors leave it usable."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def free_memory() -> None:
    """Give back what the last workload held, on the host and on the GPU."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()
