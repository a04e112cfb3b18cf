"""Hold Ctrl-C back while a library's own code calls ours.

XGBoost asks a Python callback for each batch of a quantised matrix. An interrupt that
is raised in there never reaches us: ctypes drops it and the library aborts the process.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a SIGINT of the block come once it is over, to the handler of before.

    Only the main thread runs signal handlers, so that in any other this does nothing.
    A block takes seconds at most; training itself needs none, since no code of ours
    runs inside of XGBoost there.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)
