"""Memory of a process that forwards frames: no memory upkeep may stop frames for long.

A full garbage collection visits all objects, which takes 0.25 s with 200,000 table entries. Therefore
long-lived objects are set aside, and full collections do not run. Reference counts still free objects. Cycles
among the objects set aside stay in memory until :func:`collect_all`. So no operation that a controller can
repeat leaves cycles.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc

_NEVER = 1 << 30  # collections of the middle generation before a full one
_M_MMAP_THRESHOLD = -3  # a parameter of mallopt
_MMAP_BYTES = 1 << 18  # bytes from which a block of memory grows without a copy


def prepare() -> None:
    """Turn off full collections, and let large arrays grow without a copy if the C library can."""
    young_threshold, middle_threshold, _ = gc.get_threshold()
    gc.set_threshold(young_threshold, middle_threshold, _NEVER)
    with contextlib.suppress(AttributeError, OSError):  # a C library without mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def set_aside() -> None:
    """Collect young garbage, and exclude all other objects from later collections."""
    gc.collect(1)
    gc.freeze()


def collect_all() -> None:
    """Collect all garbage if objects were set aside."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
