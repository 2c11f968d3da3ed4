"""Invariant CRC of RoCEv2 frames: inserted into sent frames, checked in received frames."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.net.crc import CRC_BITS, STATE_LATENCY, CrcState, PacketCrc, crc_latency, remainder, step
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.rdma.facts import check_width
from fanin.wire.rdma import ICRC_BYTES, IP_AT, LINK_HEADER, MUTABLE

FRAME_UNIT = ICRC_BYTES
FRAME_EXTRA = IP_AT % FRAME_UNIT  # bytes of a frame beyond a multiple of the unit
MASKED = tuple(IP_AT + at for at in MUTABLE)
# Remainder of every message with its CRC appended; computed from an empty message, whose CRC is 0.
GOOD = remainder(bytes(ICRC_BYTES), (1 << CRC_BITS) - 1)
DEPTH = 32  # words; more than twice the pipeline's words, so that a stall costs no further cycle


def _masked(m: Module, valid: Value, word: Any) -> Value:
    """Return a word's data with ones in all bytes that a router may change."""
    size = len(word.keep)
    number = Signal(max(MASKED) // size + 1, init=1)  # one-hot: index of the word in its frame, while masked
    with m.If(valid):
        m.d.sync += number.eq(Mux(word.last, 1, number << 1))
    lanes = [word.data.word_select(lane, 8) for lane in range(size)]
    for offset in MASKED:
        lanes[offset % size] = lanes[offset % size] | number[offset // size].replicate(8)
    return Cat(lanes)


class IcrcInserter(wiring.Component):
    """Inserter of the ICRC into frames that end with four zero bytes in its place.

    A frame is 2 bytes longer than a multiple of 4. A word leaves after the next word of its frame has arrived,
    because the ICRC may begin in it. A frame that arrives without a pause leaves without a pause. ``i.ready``
    is a register.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames from the Ethernet header on, without padding and FCS.
    ``o`` : Out, packet stream of ``width``
        The same frames with their ICRC.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.

    Latency
    -------
    ``latency`` cycles from ``i`` to ``o``, 3 more than the CRC's (at 512 bits 10), if the frame's next word
    arrives in the next cycle. One word a cycle.

    Source
    ------
    InfiniBand Architecture Specification, annex A17.
    """

    def __init__(self, *, width: int = 512):
        check_width(width)
        self.width = width
        self.latency = crc_latency(width, FRAME_UNIT) + 3
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Build a pipeline beside the CRC that never stalls: a word enters only with a place in the queue."""
        m = Module()
        m.submodules.crc = crc = PacketCrc(
            width=self.width,
            skip=IP_AT,
            prefix=LINK_HEADER,
            trailer=ICRC_BYTES,
            unit=FRAME_UNIT,
            extra=FRAME_EXTRA,
        )
        m.submodules.queue = queue = StreamFIFO(shape=packet_layout(self.width), depth=DEPTH)
        connect_typed(m, queue.o, wiring.flipped(self.o))
        accept = self._accept(m)
        entered = Signal()
        current = Signal(packet_layout(self.width), reset_less=True)
        has_current = Signal()
        leaves = Signal()
        m.d.comb += [
            crc.i.valid.eq(entered),
            crc.i.p.eq(current),
            crc.i.p.data.eq(_masked(m, entered, current)),
            leaves.eq(has_current & (accept | current.last)),
        ]
        m.d.sync += entered.eq(accept)
        with m.If(accept):
            m.d.sync += [current.eq(self.i.payload), has_current.eq(1)]
        with m.Elif(leaves):
            m.d.sync += has_current.eq(0)
        # No enable on whole words, so that shift registers map to LUTs.
        cycles = crc.latency + 1
        # ``previous`` is ``current`` one cycle ago: the word before, if ``current`` has just entered.
        _, previous, *_, output_word = delayed(m, current, cycles, name="word")
        # The ICRC begins in ``previous`` and ends in ``current``, the frame's last word.
        splits = ~previous.last & current.last & ~current.keep[ICRC_BYTES - 1]
        out_splits = delayed(m, splits, cycles - 1, name="splits")[-1]
        m.d.comb += [
            queue.i.valid.eq(delayed(m, leaves, cycles, name="leaves", reset_less=False)[-1]),
            queue.i.payload.eq(output_word),
            queue.i.payload.data.eq(self._filled(m, output_word, out_splits, crc.o.crc)),
        ]
        return m

    def _accept(self, m: Module) -> Signal:
        """Return whether a word enters; it needs a credit for its place in the queue.

        A word takes its credit a cycle later, and ``has_room`` follows the count: two credits stay in reserve.
        """
        accept = Signal()
        has_room = Signal(init=1)
        m.submodules.places = places = Credits(limit=DEPTH, full=True)
        m.d.comb += [self.i.ready.eq(has_room), accept.eq(self.i.valid & has_room)]
        m.d.sync += [
            places.take.eq(accept),
            places.give.eq(self.o.valid & self.o.ready),
            has_room.eq(places.count > 2),
        ]
        return accept

    def _filled(self, m: Module, word: Any, splits: Value, crc: Value) -> Value:
        """Return the word with its bytes of the ICRC.

        The ICRC starts at the same byte modulo 4 in every frame, so a lane can hold only one ICRC byte.
        The CRC arrives with the word before the last one. The last word takes its bytes from the CRC delayed by
        a cycle. If the ICRC straddles two words (``splits``), the word before the last takes its bytes from the
        CRC that has just arrived.
        """
        previous_crc = delayed(m, crc, 1, name="crc")[-1]
        keep = Signal(self.width // 8)
        m.d.comb += keep.eq(word.keep)
        lanes = []
        for lane in range(self.width // 8):
            byte = (lane - FRAME_EXTRA) % ICRC_BYTES
            end = lane - byte + ICRC_BYTES
            in_word = end < self.width // 8
            has_byte = keep[end - 1] & ~keep[end] if in_word else splits
            part = (previous_crc if in_word else crc).word_select(byte, 8)
            lanes.append(word.data.word_select(lane, 8) | part & has_byte.replicate(8))
        return Cat(lanes)


class IcrcChecker(wiring.Component):
    """Checker of the ICRC of each passing frame; it only monitors the stream.

    A frame whose length is not 2 bytes more than a multiple of 4 is not good. Other lengths are not checked: a
    frame that ends before its ICRC may be reported as good, such as an Ethernet header alone.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        Word of a frame, from the Ethernet header to the ICRC, without padding.
    ``o`` : Out, ``valid`` and ``good``
        Result of each frame.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.

    Latency
    -------
    5 cycles from the last word. One word a cycle.

    Source
    ------
    InfiniBand Architecture Specification, annex A17.
    """

    LATENCY = STATE_LATENCY + 2

    def __init__(self, *, width: int = 512):
        check_width(width)
        self.width = width
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "good": 1})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare the remainder with constants, one for each number of zero bytes after the ICRC."""
        m = Module()
        m.submodules.crc = crc = CrcState(width=self.width, skip=IP_AT, prefix=LINK_HEADER)
        m.d.comb += [crc.i.eq(self.i), crc.i.p.data.eq(_masked(m, self.i.valid, self.i.p))]
        size, keep = self.width // 8, self.i.p.keep
        last_sizes = range(FRAME_EXTRA, size, FRAME_UNIT)  # numbers of bytes of a last word
        ends = delayed(m, Cat(keep[n - 1] & ~keep[n] for n in last_sizes), STATE_LATENCY - 1, name="ends")[-1]
        remainders = list(zip(ends, (step(GOOD, size - n) for n in last_sizes), strict=True))
        expected = Signal(CRC_BITS)
        has_end = Signal()
        byte_matches = Signal(CRC_BITS // 8)
        m.d.sync += [
            expected.eq(
                Cat(Cat(end for end, s in remainders if s >> bit & 1).any() for bit in range(CRC_BITS))
            ),
            has_end.eq(ends.any()),
            byte_matches.eq(
                Cat(
                    crc.o.state.word_select(n, 8) == expected.word_select(n, 8)
                    for n in range(len(byte_matches))
                )
            ),
            self.o.good.eq(byte_matches.all() & delayed(m, has_end, 1, name="has_end")[-1]),
            self.o.valid.eq(delayed(m, crc.o.valid, 1, name="done", reset_less=False)[-1]),
        ]
        return m
