"""Table of group ends: the end of a group for every byte of a burst at which it may begin.

Groups have no marks. The end of a group follows only from its tags, and their place follows from the end of the
previous group. The table does not wait for it: it treats every byte as the first of a group and computes all
ends in parallel.

::

    byte of the burst       0     1     2     3     4   …         group of 8: the tags are 2 bytes
    bytes of values that    4     1     0     2     8             of 4 values each
      its 4 tags encode
    length of a group       7     3     4    12     …             2 + this byte's + the next byte's
      that begins there
    it ends at              7     4     6    15     …             offset + length

The entry at the last byte needs the first byte of the next burst. Most columns have no meaning, since a group
does not begin at every byte. :class:`~fanin.hdl.codec.inceptionn.pointer.GroupPointer` finds the bytes at which
groups begin.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import Inceptionn
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.inceptionn.shapes import (
    BURST_BITS,
    SLOTS,
    burst_bytes,
    count_bits,
    frame_end_layout,
    offset_bits,
    row_layout,
    table_stages,
)
from fanin.hdl.codec.inceptionn.shifter import byte_count
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import kept_bytes, packet_stream


class StartTable(wiring.Component):
    """Table of the end of a group for every byte of a burst at which it may begin.

    A group's tags may continue in the next burst. A burst's row therefore follows after the next burst has
    arrived, or if the burst is its frame's last. Bytes that a frame does not have count as tags 00.

    Members
    -------
    ``i`` : In, packet stream of 32 · ``group`` bits
        Compressed frames; always ready.
    ``row`` : Out, ``valid`` and ``ends``, :func:`~fanin.hdl.codec.inceptionn.shapes.row_layout`
        Row of each burst.
    ``low_bytes`` : Out, one for each byte of a burst
        With a row: bytes of the lower half of the values of a group that begins at that byte.
    ``frame_end`` : Out, stream of :func:`~fanin.hdl.codec.inceptionn.shapes.frame_end_layout`
        End of each frame.

    Parameters
    ----------
    ``group`` : int
        Values of a group: 8 or 16. Default 8.

    Latency
    -------
    A row comes 1 cycle after the next burst; after a frame's last burst it comes 2 cycles later (``group`` 16:
    one more). A frame's end comes with its last burst's row. One burst a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, group: int = 8):
        self.group = group
        self.tag_bytes = Inceptionn(group=group).tag_bytes
        self.size = burst_bytes(group)
        super().__init__(
            {
                "i": In(packet_stream(8 * self.size)),
                "row": Out(data.StructLayout({"valid": 1, "ends": row_layout(group)})),
                "low_bytes": Out(data.ArrayLayout(count_bits(group), self.size)),
                "frame_end": Out(stream.Signature(frame_end_layout(group))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Hold the latest burst until the next one arrives with the rest of its tags.

        The burst is then ``complete``: its bytes and the first ones of the next burst are all treated as tags.
        """
        m = Module()
        i = self.i
        valid = Signal()  # ``burst`` is valid
        burst = Signal(i.p.shape(), reset_less=True)
        complete = Signal()
        m.d.comb += [i.ready.eq(1), complete.eq(valid & (burst.last | i.valid))]
        m.d.sync += valid.eq(i.valid | valid & ~complete)
        with m.If(i.valid):
            m.d.sync += burst.eq(i.p)
        next_bytes = [Mux(burst.last, 0, byte) for byte in _present_bytes(i.p, self.tag_bytes - 1)]
        self._rows(m, complete, [byte_count(tags) for tags in (*_present_bytes(burst, self.size), *next_bytes)])
        self._frame_ends(m)
        return m

    def _rows(self, m: Module, complete: Signal, totals: list[Value]) -> None:
        """Compute the row from the bytes of values that the tags in each byte encode.

        ``totals`` are for ``reach`` bytes of tags from every byte on. Each cycle doubles ``reach``, up to a
        group's tags. ``halves`` are for half of a group's tags, so for the lower half of its values.
        """
        halves, reach = totals, 1
        while reach < self.tag_bytes:
            complete, halves = _delayed(m, complete, totals, name=f"total{reach}")
            totals = [lower + upper for lower, upper in zip(halves, halves[reach:], strict=False)]
            reach *= 2
        m.d.comb += self.row.valid.eq(complete)
        m.d.comb += [low.eq(half) for low, half in zip(self.low_bytes, halves, strict=False)]
        bits = offset_bits(self.group)
        for offset, total in enumerate(totals[: self.size]):
            end = Signal(bits + 2, name=f"end_{offset}")  # offset from this burst's first byte
            tags_end = offset + self.tag_bytes  # in this burst or the next, from which ``carry`` counts
            m.d.comb += [
                end.eq(tags_end + total),
                self.row.ends[offset].offset.eq(end),
                self.row.ends[offset].carry.eq(end[bits + tags_end // self.size]),
            ]

    def _frame_ends(self, m: Module) -> None:
        """Queue the ends of frames; an end leaves with its last burst's row at the earliest."""
        i = self.i
        layout = frame_end_layout(self.group)
        m.submodules.queue = queue = StreamFIFO(shape=layout, depth=SLOTS)
        m.submodules.slice = register = RegisterSlice(shape=layout)
        connect_typed(m, queue.o, register.i)
        connect_typed(m, register.o, wiring.flipped(self.frame_end))
        burst = Signal(BURST_BITS)  # number of the beat on ``i``
        m.d.sync += burst.eq(burst + i.valid)
        end = Signal(layout)
        begin = Cat(Const(0, offset_bits(self.group)), burst)  # position of the beat's first byte
        m.d.comb += [
            end.position.eq(begin + kept_bytes(i.p.keep)),
            end.next.eq(burst + 1),
        ]
        stages = table_stages(self.group) - 1  # with the queue's cycle, equal to the row's latency
        m.d.comb += [
            queue.i.valid.eq(delayed(m, i.valid & i.p.last, stages, name="valid", reset_less=False)[-1]),
            queue.i.p.eq(delayed(m, end, stages, name="end")[-1]),
        ]


def _present_bytes(burst: Any, count: int) -> list[Value]:
    """Return the first bytes of a burst; bytes that the frame does not have are 0."""
    return [Mux(burst.keep[n], burst.data.word_select(n, 8), 0) for n in range(count)]


def _delayed(m: Module, valid: Value, totals: list[Value], *, name: str) -> tuple[Signal, list[Value]]:
    """Return ``valid`` and ``totals`` delayed by a cycle."""
    flag = Signal(name=f"{name}_valid")
    registers = [Signal(total.shape(), name=f"{name}_{n}", reset_less=True) for n, total in enumerate(totals)]
    m.d.sync += [flag.eq(valid), *(reg.eq(total) for reg, total in zip(registers, totals, strict=True))]
    return flag, list(registers)
