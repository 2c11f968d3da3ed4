"""Who of two is behind its share of a link."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import kept_bytes
from fanin.wire.ethernet import MIN_FRAME_BYTES

SHARE_BITS = 4
UNITS = 1 << SHARE_BITS  # a share is so many of a link
OVERHEAD = 24  # bytes of preamble, FCS and gap, which each frame takes of the link


class LinkShare(wiring.Component):
    """Weigh the bytes of the host's frames and of the ring's against the host's share of the link.

    A frame counts 24 bytes more than it has, and 84 at least: its time on the link. The host's count
    (16 − ``share``)-fold, the ring's ``share``-fold, with the other sign. So their sum stands still where the
    host has its share. The sum has bounds, the power of two above 16 of the longest frames of the host by
    weight: a side that was idle has saved that much and no more.

    Members
    -------
    ``beat`` : In, ``valid``, ``host``, ``last`` and ``keep``
        What goes to the MAC in this cycle, and whether it is the host's.
    ``share`` : In, 4
        Of the host, in sixteenths; 0: what the ring leaves.
    ``owed`` : Out, 1
        The host has had less than its share.

    Parameters
    ----------
    ``width`` : int, bits of a beat, a multiple of 8
    ``max_frame`` : int, bytes of the host's longest frame

    Latency
    -------
    7 cycles from ``beat`` to ``owed``; a beat a cycle.

    Source
    ------
    docs/systems/smart-nic.md, "Shares".
    """

    def __init__(self, *, width: int, max_frame: int):
        self.width = width
        self.max_frame = max_frame
        beat = data.StructLayout({"valid": 1, "host": 1, "last": 1, "keep": width // 8})
        super().__init__({"beat": In(beat), "share": In(SHARE_BITS), "owed": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """A register after each step: bytes; their time on the link; its products with the share; the sum."""
        m = Module()
        size, host = self._size(m)
        products = [
            Signal(len(size) + SHARE_BITS, name=name, reset_less=True) for name in ("low", "high")
        ]  # with the share's lower and upper half
        for product, half in zip(products, (0, 2), strict=True):
            one, two = (Mux(self.share[half + n], size << half + n, 0) for n in (0, 1))
            m.d.sync += product.eq(one + two)
        whole = Signal(len(size) + SHARE_BITS, reset_less=True)
        product = Signal.like(whole)
        held_whole = Signal.like(whole)
        change = Signal(signed(len(whole) + 1))
        m.d.sync += [
            whole.eq(Mux(host, size << SHARE_BITS, 0)),
            held_whole.eq(whole),
            product.eq(products[0] + products[1]),
            change.eq(held_whole - product),
        ]
        bits = (UNITS * (self.max_frame + OVERHEAD)).bit_length()
        balance = Signal(signed(bits + 1))
        sum_of_both = Signal(signed(bits + 2))
        m.d.comb += [sum_of_both.eq(balance + change), self.owed.eq(balance[-1])]
        with m.If(sum_of_both[-1] == sum_of_both[-2]):  # else it would leave its bounds
            m.d.sync += balance.eq(sum_of_both)
        return m

    def _size(self, m: Module) -> tuple[Signal, Signal]:
        """What a beat takes of the link, in bytes: a frame's last one all that is beside the frame, too."""
        beat_bytes = self.width // 8
        least = [MIN_FRAME_BYTES - n * beat_bytes for n in range(-(-MIN_FRAME_BYTES // beat_bytes))]
        beat = Signal.like(self.beat)
        held = Signal.like(self.beat)
        number = Signal(range(len(least) + 1))  # of the beat in its frame, as far as it matters
        held_number = Signal.like(number)
        count = Signal(range(beat_bytes + 1))
        size = Signal(range(max(beat_bytes, MIN_FRAME_BYTES) + OVERHEAD + 1))
        host = Signal()
        m.d.sync += [
            beat.eq(self.beat),
            count.eq(kept_bytes(beat.keep)),
            held.eq(beat),
            held_number.eq(number),
            host.eq(held.host),
            size.eq(Mux(held.valid, Mux(held.last, count + OVERHEAD, beat_bytes), 0)),
        ]
        with m.If(beat.valid):
            m.d.sync += number.eq(Mux(beat.last, 0, Mux(number == len(least), number, number + 1)))
        for n, floor in enumerate(least):
            with m.If(held.valid & held.last & (held_number == n) & (count < floor)):
                m.d.sync += size.eq(floor + OVERHEAD)
        return size, host
