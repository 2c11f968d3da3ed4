"""Store-and-forward queue of whole frames."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.memory import NEVER_READ_AS_WRITTEN
from fanin.hdl.stream.packet import packet_stream

_MARGIN_BITS = 2
#: Beats of a store's capacity that a frame cannot use. ``full`` rises early, since it follows a write by two
#: cycles.
MARGIN = 2 << _MARGIN_BITS

#: Pulses for the fate of a frame.
#:
#: - ``left``: the frame was sent.
#: - ``dropped``: the frame was too long or found no room.
#: - ``bad``: the frame was dropped because of ``error``.
FrameEvents = data.StructLayout({"left": 1, "dropped": 1, "bad": 1})


def store_capacity(max_frame: int, width: int) -> int:
    """Return the beats of a store, a power of two, that holds at least two frames of the maximum length."""
    return 1 << (2 * -(-8 * max_frame // width) + MARGIN - 1).bit_length()


class FrameStore(wiring.Component):
    """Store-and-forward buffer of frames.

    A frame leaves after it has arrived in full, unchanged and without a pause; or the buffer drops it.

    A frame is dropped if it has ``error`` or more than ``max_frame`` bytes. If a frame finds no room, a store
    with ``wait`` stalls it; a store without ``wait`` drops it. The room of a dropped frame is free again only
    some cycles later, so a frame that follows back to back may be dropped, too. Frames leave in the order of
    arrival.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``
        Frames to store. Always ready without ``wait``.
    ``o`` : Out, packet stream of ``width`` bits
        Good frames. Valid in every cycle of a frame.
    ``level`` : Out, range(capacity + 1)
        Beats of good frames that were in memory one cycle ago.
    ``events`` : Out, FrameEvents
        Pulses one cycle after the frame's last beat: ``left`` after the one on ``o``, the others after the one
        on ``i``.

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8
        Width of the data.
    ``max_frame`` : int, bytes, at least 1
        Longest frame that is stored.
    ``capacity`` : int, beats, a power of two
        Size of the store: at least the longest frame and 8 beats more.
    ``wait`` : bool
        Whether a frame that finds no room waits; else it is dropped.

    Latency
    -------
    From the last beat on ``i`` to the first one on ``o``: 2 cycles; one beat a cycle in and out, frames back to
    back.

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
        self._last_beat_bytes = max_frame - (beats - 1) * beat_bytes  # bytes of the longest frame's last beat
        super().__init__(
            {
                "i": In(packet_stream(width, error=True)),
                "o": Out(packet_stream(width)),
                "level": Out(range(capacity + 1)),
                "events": Out(FrameEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep three positions in a ring of beats.

        The positions are ``next_write``, ``frames_end`` (end of the good frames) and ``next_read``.
        """
        m = Module()
        next_write, frames_end, next_read = (
            Signal(range(2 * self.capacity), name=name) for name in ("next_write", "frames_end", "next_read")
        )
        # The lowest bit of ``keep`` is always one and is not stored: a beat of 512 bits fits eight block RAMs
        # of 72.
        shape = data.StructLayout({"data": self.width, "keep": self.width // 8 - 1, "last": 1})
        m.submodules.storage = storage = Memory(
            shape=shape, depth=self.capacity, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        write = storage.write_port()
        read = storage.read_port()
        self._store(m, write, next_write, frames_end, next_read)
        self._send(m, read, frames_end, next_read)
        m.d.sync += self.level.eq((frames_end - next_read)[: len(next_read)])
        return m

    def _store(self, m: Module, write: Any, next_write: Signal, frames_end: Signal, next_read: Signal) -> None:
        """Write beats as they arrive.

        At a frame's end, keep its beats, or return to the position where the frame began.
        """
        i = self.i
        used = Signal.like(next_write)
        full = Signal()
        beat_number = Signal(range(self._beats))  # beats of the frame so far, up to the limit less 1
        past_limit = Signal()  # the frame has had as many beats as the longest frame and continues
        overflowed = Signal()  # a beat of the frame found no room
        accept, ends, stored, no_room, too_long = (
            Signal(name=name) for name in ("accept", "ends", "stored", "no_room", "too_long")
        )
        m.d.comb += used.eq(next_write - next_read)
        m.d.sync += full.eq(used[-1] | used[_MARGIN_BITS:-1].all())
        at_limit = beat_number == self._beats - 1
        last_too_long = i.p.keep[self._last_beat_bytes] if self._last_beat_bytes < self.width // 8 else 0
        m.d.comb += [
            i.ready.eq(~full | past_limit if self.wait else 1),
            accept.eq(i.valid & i.ready),
            ends.eq(accept & i.p.last),
            no_room.eq(0 if self.wait else overflowed | full),
            too_long.eq(past_limit | at_limit & last_too_long),
            stored.eq(ends & ~i.p.error & ~no_room & ~too_long),
            write.en.eq(accept & ~no_room & ~past_limit),
            write.addr.eq(next_write),
            write.data.data.eq(i.p.data),
            write.data.keep.eq(i.p.keep[1:]),
            write.data.last.eq(i.p.last),
        ]
        with m.If(write.en):
            m.d.sync += next_write.eq(next_write + 1)
        with m.If(accept):
            m.d.sync += [past_limit.eq(past_limit | at_limit), overflowed.eq(no_room)]
            with m.If(~at_limit):
                m.d.sync += beat_number.eq(beat_number + 1)
        with m.If(ends):
            m.d.sync += [beat_number.eq(0), past_limit.eq(0), overflowed.eq(0), next_write.eq(frames_end)]
        with m.If(stored):
            m.d.sync += [next_write.eq(next_write + 1), frames_end.eq(next_write + 1)]
        m.d.sync += [
            self.events.bad.eq(ends & i.p.error),
            self.events.dropped.eq(ends & ~i.p.error & (no_room | too_long)),
        ]

    def _send(self, m: Module, read: Any, frames_end: Signal, next_read: Signal) -> None:
        """Read good frames; the memory's output register drives the stream."""
        o = self.o
        output_free = Signal()
        has_beat = Signal()
        m.d.comb += [
            output_free.eq(~o.valid | o.ready),
            has_beat.eq(next_read != frames_end),
            read.en.eq(output_free & has_beat),
            read.addr.eq(next_read),
            o.p.data.eq(read.data.data),
            o.p.keep[0].eq(1),
            o.p.keep[1:].eq(read.data.keep),
            o.p.last.eq(read.data.last),
        ]
        with m.If(output_free):
            m.d.sync += o.valid.eq(has_beat)
        with m.If(read.en):
            m.d.sync += next_read.eq(next_read + 1)
        m.d.sync += self.events.left.eq(o.valid & o.ready & o.p.last)
