"""Measurement of the host's share of a link."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import kept_bytes
from fanin.wire.ethernet import MIN_FRAME_BYTES

SHARE_BITS = 4
UNITS = 1 << SHARE_BITS  # units of a share: sixteenths of a link
OVERHEAD = 24  # bytes of preamble, FCS and gap of each frame on the link


class LinkShare(wiring.Component):
    """Meter that compares the host's and the ring's use of the link with the host's share.

    A frame counts as its bytes plus 24, at least 84: its time on the link. A frame of the host adds
    (16 − ``share``) times that to a balance; a frame of the ring subtracts ``share`` times that. The balance is
    constant on average while the host has exactly its share. The balance is limited to ± the power of two above
    16 · (``max_frame`` + 24), so an idle side saves only that much.

    Members
    -------
    ``beat`` : In, ``valid``, ``host``, ``last`` and ``keep``
        Beat that goes to the MAC in this cycle; ``host`` is 1 for a frame of the host.
    ``share`` : In, 4
        Share of the host in sixteenths of the link. 0: the host gets only the time that the ring leaves.
    ``owed`` : Out, 1
        The host has had less than its share.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a multiple of 8.
    ``max_frame`` : int
        Bytes of the host's longest frame.

    Latency
    -------
    7 cycles from ``beat`` to ``owed``; one beat a cycle.

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
        """Compute in registered steps: bytes, time on the link, products with the share, balance."""
        m = Module()
        size, host = self._size(m)
        # products with the lower and the upper half of the share
        products = [Signal(len(size) + SHARE_BITS, name=name, reset_less=True) for name in ("low", "high")]
        for product, half in zip(products, (0, 2), strict=True):
            low_term, high_term = (Mux(self.share[half + n], size << half + n, 0) for n in (0, 1))
            m.d.sync += product.eq(low_term + high_term)
        full_weight = Signal(len(size) + SHARE_BITS, reset_less=True)
        product = Signal.like(full_weight)
        delayed_full_weight = Signal.like(full_weight)
        change = Signal(signed(len(full_weight) + 1))
        m.d.sync += [
            full_weight.eq(Mux(host, size << SHARE_BITS, 0)),
            delayed_full_weight.eq(full_weight),
            product.eq(products[0] + products[1]),
            change.eq(delayed_full_weight - product),
        ]
        bits = (UNITS * (self.max_frame + OVERHEAD)).bit_length()
        balance = Signal(signed(bits + 1))
        sum_of_both = Signal(signed(bits + 2))
        m.d.comb += [sum_of_both.eq(balance + change), self.owed.eq(balance[-1])]
        with m.If(sum_of_both[-1] == sum_of_both[-2]):  # no overflow; else the balance keeps its value
            m.d.sync += balance.eq(sum_of_both)
        return m

    def _size(self, m: Module) -> tuple[Signal, Signal]:
        """Return a beat's bytes on the link, and whether the beat is the host's.

        A frame's last beat also counts the overhead, and the padding of a frame below the minimum size.
        """
        beat_bytes = self.width // 8
        # By index of a frame's last beat: bytes that this beat counts at least.
        minimum_sizes = [MIN_FRAME_BYTES - n * beat_bytes for n in range(-(-MIN_FRAME_BYTES // beat_bytes))]
        beat = Signal.like(self.beat)
        delayed_beat = Signal.like(self.beat)
        number = Signal(range(len(minimum_sizes) + 1))  # index of the beat; stops at ``len(minimum_sizes)``
        delayed_number = Signal.like(number)
        count = Signal(range(beat_bytes + 1))
        size = Signal(range(max(beat_bytes, MIN_FRAME_BYTES) + OVERHEAD + 1))
        host = Signal()
        m.d.sync += [
            beat.eq(self.beat),
            count.eq(kept_bytes(beat.keep)),
            delayed_beat.eq(beat),
            delayed_number.eq(number),
            host.eq(delayed_beat.host),
            size.eq(Mux(delayed_beat.valid, Mux(delayed_beat.last, count + OVERHEAD, beat_bytes), 0)),
        ]
        with m.If(beat.valid):
            m.d.sync += number.eq(Mux(beat.last, 0, Mux(number == len(minimum_sizes), number, number + 1)))
        for n, minimum in enumerate(minimum_sizes):
            with m.If(delayed_beat.valid & delayed_beat.last & (delayed_number == n) & (count < minimum)):
                m.d.sync += size.eq(minimum + OVERHEAD)
        return size, host
