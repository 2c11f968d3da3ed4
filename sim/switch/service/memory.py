"""Memory of a process that forwards frames: none of its upkeep may stop them for long.

A full garbage collection looks at all objects, which takes a quarter of a second with 200,000 table entries.
Objects that have lived for a while are therefore set aside, and full collections are left out. What is freed by
reference counts is freed as ever; cycles among objects set aside are not, until :func:`collect_all`. What a
controller can repeat therefore leaves no cycles.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_NEVER = 1 << 30  # collections of middle-aged objects before a full one
_M_MMAP_THRESHOLD = -3  # of mallopt
_MOVABLE = 1 << 18  # bytes from which on memory grows without being copied


def prepare() -> None:
    """Leave out full collections, and let large arrays grow without being copied, where the C library can."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    with contextlib.suppress(AttributeError, OSError):  # a C library without mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MOVABLE)


def set_aside() -> None:
    """Collect young garbage, and let no collection look at the other objects any more."""
    gc.collect(1)
    gc.freeze()


def collect_all() -> None:
    """Collect all garbage if objects were set aside."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
