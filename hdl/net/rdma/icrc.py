"""The invariant CRC of RoCEv2 frames: put in on the way out, checked on the way in."""

from __future__ import annotations

import zlib
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.net.crc import CRC_BITS, PacketCrc, crc_latency
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.rdma import check_width
from fanin.roce import ICRC_BYTES, IP_AT, LINK_HEADER, MUTABLE

ICRC_LANE = IP_AT % ICRC_BYTES  # modulo 4: behind Ethernet come whole words of 4 bytes
MASKED = tuple(IP_AT + at for at in MUTABLE)
GOOD = zlib.crc32(bytes(ICRC_BYTES))  # the CRC of a message with its CRC behind it, whatever the message
DEPTH = 32  # words: more than twice those under way to the queue, so that a receiver that stalls loses no cycle


class InvariantCrc(wiring.Component):
    """The invariant CRC of each frame that goes by.

    It watches: nothing waits for it. Ones stand for what a router may change.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a frame, from the Ethernet header on.
    ``o`` : Out, ``valid`` and ``crc``, 32
        The ICRC; its lowest byte is the first one on the wire.

    Parameters
    ----------
    ``width`` : int, bits of a word; 128, 256 or 512
    ``trailer`` : int
        Bytes at the end that do not count, and must be zero.

    Latency
    -------
    ``latency`` cycles from the last word, those of :class:`~fanin.hdl.net.crc.PacketCrc` (at 512 bits 6). One
    word a cycle.

    Source
    ------
    InfiniBand Architecture Specification, annex A17; :func:`fanin.roce.icrc`.
    """

    def __init__(self, *, width: int = 512, trailer: int = 0):
        check_width(width)
        self.width = width
        self.trailer = trailer
        self.latency = crc_latency(width)
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "crc": CRC_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The words, masked, to the CRC."""
        m = Module()
        size = self.width // 8
        m.submodules.crc = crc = PacketCrc(
            width=self.width, skip=IP_AT, prefix=LINK_HEADER, trailer=self.trailer
        )
        word = Signal(max(MASKED) // size + 1, init=1)  # one-hot: which one of a frame, as far as it matters
        with m.If(self.i.valid):
            m.d.sync += word.eq(Mux(self.i.p.last, 1, word << 1))
        lanes = [self.i.p.data.word_select(lane, 8) for lane in range(size)]
        for at in MASKED:
            lanes[at % size] = lanes[at % size] | word[at // size].replicate(8)
        m.d.comb += [crc.i.eq(self.i), crc.i.p.data.eq(Cat(lanes)), self.o.eq(crc.o)]
        return m


class IcrcInserter(wiring.Component):
    """Puts the ICRC into frames that end with four zero bytes where it belongs.

    A frame is 2 bytes longer than a multiple of 4. A word leaves when the next one of its frame has come, for
    the ICRC may begin in it: a frame that comes without a pause leaves without one. ``i.ready`` is a register.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames from the Ethernet header on, without padding and FCS.
    ``o`` : Out, packet stream of ``width``

    Parameters
    ----------
    ``width`` : int, bits of a word; 128, 256 or 512

    Latency
    -------
    ``latency`` cycles from ``i`` to ``o``, 2 more than the CRC's (at 512 bits 8), if the next word of the frame
    comes in the next cycle. One word a cycle.

    Source
    ------
    InfiniBand Architecture Specification, annex A17.
    """

    def __init__(self, *, width: int = 512):
        check_width(width)
        self.width = width
        self.latency = crc_latency(width) + 2
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Words move on beside the CRC, whatever happens, into a queue that has a place for each."""
        m = Module()
        m.submodules.crc = crc = InvariantCrc(width=self.width, trailer=ICRC_BYTES)
        m.submodules.queue = queue = StreamFIFO(shape=packet_layout(self.width), depth=DEPTH)
        connect_typed(m, queue.o, wiring.flipped(self.o))
        taken = self._taken(m)
        m.d.comb += [crc.i.valid.eq(taken), crc.i.p.eq(self.i.payload)]

        held = Signal(packet_layout(self.width), reset_less=True)
        holds = Signal()
        leaves = Signal()
        splits = Signal()  # the next word is the last one, and has but the end of the ICRC
        m.d.comb += [
            leaves.eq(holds & (taken | held.last)),
            splits.eq(~held.last & self.i.payload.last & ~self.i.payload.keep[ICRC_BYTES - 1]),
        ]
        with m.If(taken):
            m.d.sync += [held.eq(self.i.payload), holds.eq(1)]
        with m.Elif(leaves):
            m.d.sync += holds.eq(0)
        # Whole words without an enable: shift registers made of LUTs.
        cycles = crc.latency
        late = delayed(m, held, cycles, name="word")[-1]
        late_splits = delayed(m, splits, cycles, name="splits")[-1]
        m.d.comb += [
            queue.i.valid.eq(delayed(m, leaves, cycles, name="leaves", reset_less=False)[-1]),
            queue.i.payload.eq(late),
            queue.i.payload.data.eq(self._filled(m, late, late_splits, crc.o.crc)),
        ]
        return m

    def _taken(self, m: Module) -> Signal:
        """Whether a word comes in: there is room for it in the queue, behind all those on their way."""
        taken = Signal()
        gone = Signal()
        inside = Signal(range(DEPTH + 1))
        room = Signal(init=1)
        m.d.comb += [
            self.i.ready.eq(room),
            taken.eq(self.i.valid & room),
            gone.eq(self.o.valid & self.o.ready),
        ]
        with m.If(taken != gone):
            m.d.sync += [
                inside.eq(Mux(taken, inside + 1, inside - 1)),
                room.eq(~taken | (inside != DEPTH - 1)),
            ]
        return taken

    def _filled(self, m: Module, word: Any, splits: Value, crc: Value) -> Value:
        """The word with those bytes of the ICRC that belong in it: a lane has always the same one.

        The CRC is there when the word in front of the last one is: what goes into the last one waits a cycle.
        """
        before = delayed(m, crc, 1, name="crc")[-1]
        keep = Signal(self.width // 8)
        m.d.comb += keep.eq(word.keep)
        lanes = []
        for lane in range(self.width // 8):
            byte = (lane - ICRC_LANE) % ICRC_BYTES
            end = lane - byte + ICRC_BYTES
            inside = end < self.width // 8
            here = keep[end - 1] & ~keep[end] if inside else splits
            part = (before if inside else crc).word_select(byte, 8)
            lanes.append(word.data.word_select(lane, 8) | part & here.replicate(8))
        return Cat(lanes)


class IcrcChecker(wiring.Component):
    """Whether the ICRC of each frame that goes by is right.

    It watches: nothing waits for it. It knows no lengths: what ends before its ICRC may be called good (an
    Ethernet header alone is).

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        A word of a frame, from the Ethernet header to the ICRC, without padding.
    ``o`` : Out, ``valid`` and ``good``

    Parameters
    ----------
    ``width`` : int, bits of a word; 128, 256 or 512

    Latency
    -------
    ``latency`` cycles from the last word, one more than the CRC's (at 512 bits 7). One word a cycle.

    Source
    ------
    InfiniBand Architecture Specification, annex A17.
    """

    def __init__(self, *, width: int = 512):
        check_width(width)
        self.width = width
        self.latency = crc_latency(width) + 1
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "o": Out(data.StructLayout({"valid": 1, "good": 1})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The CRC over a frame and its ICRC is a constant."""
        m = Module()
        m.submodules.crc = crc = InvariantCrc(width=self.width)
        m.d.comb += crc.i.eq(self.i)
        m.d.sync += [self.o.valid.eq(crc.o.valid), self.o.good.eq(crc.o.crc == GOOD)]
        return m
