"""Fewer collections of garbage, for programs that import torch."""

import atexit
import gc


def collect_less() -> None:
    """Look for garbage less often, and not at exit. Call it before torch is imported.

    torch makes 170,000 objects, none of them garbage. To look for some among them takes 0.4 s while
    it is imported, and as long again at exit, when all memory is returned anyway.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
