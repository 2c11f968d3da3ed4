"""Room behind a pipeline that never waits."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal


def places(m: Module, depth: int, enter: Any, leave: Any) -> Signal:
    """Whether a FIFO of ``depth`` behind a pipeline has a place that nothing on its way there will take.

    ``enter`` and ``leave`` are high in the cycles in which a payload enters the pipeline and leaves the FIFO;
    ``enter`` only while there is a place. Registered.
    """
    free = Signal(range(depth + 1), init=depth)
    has_place = Signal(init=1)
    with m.If(enter & ~leave):
        m.d.sync += [free.eq(free - 1), has_place.eq(free != 1)]
    with m.Elif(leave & ~enter):
        m.d.sync += [free.eq(free + 1), has_place.eq(1)]
    return has_place
