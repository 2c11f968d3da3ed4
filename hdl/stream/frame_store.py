"""A queue of whole frames."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.memory import NEVER_READ_AS_WRITTEN
from fanin.hdl.stream.packet import packet_stream

_MARGIN_BITS = 2
#: Beats of a store that a frame cannot use: it counts as full so many early, and that is seen two cycles late.
MARGIN = 2 << _MARGIN_BITS

#: What has become of a frame, a pulse for each: it has ``left``; it was ``dropped``, too long or without room;
#: it was dropped since it was ``bad``.
FrameEvents = data.StructLayout({"left": 1, "dropped": 1, "bad": 1})


def store_capacity(max_frame: int, width: int) -> int:
    """Beats of a store, a power of two, that holds two of the longest frames at least."""
    return 1 << (2 * -(-8 * max_frame // width) + MARGIN - 1).bit_length()


class FrameStore(wiring.Component):
    """Keep frames until they have come in full: each leaves as it came and without a pause, or not at all.

    A frame is dropped if it has ``error`` or more than ``max_frame`` bytes. One for which there is no room
    waits, or is dropped if the store does not ``wait``: then one that follows a dropped frame at once finds no
    room either, if that had taken it. Frames that are kept leave in the order in which they came.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``
        Always ready unless the store waits.
    ``o`` : Out, packet stream of ``width`` bits
        Valid in every cycle of a frame.
    ``level`` : Out, range(capacity + 1)
        Beats of kept frames that are still in memory, a cycle ago.
    ``events`` : Out, FrameEvents
        A cycle after the frame's last beat on ``o`` or ``i``.

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8
    ``max_frame`` : int, bytes of the longest frame, at least 1
    ``capacity`` : int, beats, a power of two of at least the longest frame and 8 more
    ``wait`` : bool

    Latency
    -------
    From the last beat on ``i`` to the first one on ``o``: 2 cycles; one beat a cycle in and out, frames back
    to back.

    Source
    ------
    docs/systems/smart-nic.md.
    """

    def __init__(self, *, width: int, max_frame: int, capacity: int, wait: bool):
        beat_bytes = width // 8
        if max_frame < 1:
            raise ValueError(f"max_frame must be at least 1 byte, not {max_frame!r}")
        beats = -(-max_frame // beat_bytes)
        if capacity < beats + MARGIN or capacity & (capacity - 1):
            raise ValueError(f"capacity must be a power of two from {beats + MARGIN}, not {capacity!r}")
        self.width = width
        self.max_frame = max_frame
        self.capacity = capacity
        self.wait = wait
        self._beats = beats
        self._rest = max_frame - (beats - 1) * beat_bytes  # bytes of the longest frame's last beat
        super().__init__(
            {
                "i": In(packet_stream(width, error=True)),
                "o": Out(packet_stream(width)),
                "level": Out(range(capacity + 1)),
                "events": Out(FrameEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Three places in a ring of beats: the next one in, the end of what is kept, the next one out."""
        m = Module()
        place, end, fetch = (Signal(range(2 * self.capacity), name=name) for name in ("place", "end", "fetch"))
        # The lowest bit of ``keep`` is always one. Without it a beat of 512 bits fits eight block RAMs of 72.
        shape = data.StructLayout({"data": self.width, "keep": self.width // 8 - 1, "last": 1})
        m.submodules.storage = storage = Memory(
            shape=shape, depth=self.capacity, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        write = storage.write_port()
        read = storage.read_port()
        self._take(m, write, place, end, fetch)
        self._give(m, read, end, fetch)
        m.d.sync += self.level.eq((end - fetch)[: len(fetch)])
        return m

    def _take(self, m: Module, write: Any, place: Signal, end: Signal, fetch: Signal) -> None:
        """Write beats as they come; at a frame's end keep them, or go back to where it began."""
        i = self.i
        used = Signal.like(place)
        full = Signal()
        number = Signal(range(self._beats))  # beats of the frame so far
        long = Signal()  # as many as the longest frame has, and it goes on
        lost = Signal()  # a beat of it found no room
        take, ends, kept, no_room, too_long = (
            Signal(name=name) for name in ("take", "ends", "kept", "no_room", "too_long")
        )
        m.d.comb += used.eq(place - fetch)
        m.d.sync += full.eq(used[-1] | used[_MARGIN_BITS:-1].all())
        at_limit = number == self._beats - 1
        above = i.p.keep[self._rest] if self._rest < self.width // 8 else 0
        m.d.comb += [
            i.ready.eq(~full | long if self.wait else 1),
            take.eq(i.valid & i.ready),
            ends.eq(take & i.p.last),
            no_room.eq(0 if self.wait else lost | full),
            too_long.eq(long | at_limit & above),
            kept.eq(ends & ~i.p.error & ~no_room & ~too_long),
            write.en.eq(take & ~no_room & ~long),
            write.addr.eq(place),
            write.data.data.eq(i.p.data),
            write.data.keep.eq(i.p.keep[1:]),
            write.data.last.eq(i.p.last),
        ]
        with m.If(write.en):
            m.d.sync += place.eq(place + 1)
        with m.If(take):
            m.d.sync += [long.eq(long | at_limit), lost.eq(no_room)]
            with m.If(~at_limit):
                m.d.sync += number.eq(number + 1)
        with m.If(ends):
            m.d.sync += [number.eq(0), long.eq(0), lost.eq(0), place.eq(end)]
        with m.If(kept):
            m.d.sync += [place.eq(place + 1), end.eq(place + 1)]
        m.d.sync += [
            self.events.bad.eq(ends & i.p.error),
            self.events.dropped.eq(ends & ~i.p.error & (no_room | too_long)),
        ]

    def _give(self, m: Module, read: Any, end: Signal, fetch: Signal) -> None:
        """Read what is kept; the memory's output is the stream's."""
        o = self.o
        free = Signal()
        more = Signal()
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            more.eq(fetch != end),
            read.en.eq(free & more),
            read.addr.eq(fetch),
            o.p.data.eq(read.data.data),
            o.p.keep[0].eq(1),
            o.p.keep[1:].eq(read.data.keep),
            o.p.last.eq(read.data.last),
        ]
        with m.If(free):
            m.d.sync += o.valid.eq(more)
        with m.If(read.en):
            m.d.sync += fetch.eq(fetch + 1)
        m.d.sync += self.events.left.eq(o.valid & o.ready & o.p.last)
