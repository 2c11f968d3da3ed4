"""Parser of a frame's headers."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import MAX_FRAME, TOS_COMPRESSIBLE, TOS_RAW
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.nic.shapes import (
    BEAT_BITS,
    BEAT_BYTES,
    IP_START,
    LENGTH_BYTES,
    TRANSPORT_START,
    WORD_BYTES,
    Header,
    beats_of,
    check_max_frame,
)
from fanin.hdl.net.headers import header_layout, swap_bytes
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_TCP, IP_PROTOCOL_UDP, IPV4, TCP, UDP
from fanin.wire.fields import byte_length

QUEUE = 8  # headers; a frame may begin while fewer than two wait, and five more can be in the pipeline


class HeaderParser(wiring.Component):
    """Parser of the headers of passing frames.

    Every frame of ``i`` appears on ``o``, and its header once on ``header``, in order. A frame above
    ``max_frame`` is cut off in the beat that exceeds it; that beat becomes its last and has ``error``. The
    parser does not check whether a frame has as many bytes as its lengths state.

    Members
    -------
    ``i`` : In, packet stream of 256 bits with ``error``
        Frames. ``ready`` depends combinationally on ``o.ready``; it is low between frames while two headers
        wait.
    ``enable`` : In, 1
        0: no frame is reported as compressible or as marked raw.
    ``o`` : Out, packet stream of 256 bits with ``error``
        The same frames.
    ``header`` : Out, stream of Header
        Header of each frame.

    Parameters
    ----------
    ``receive`` : bool
        Report frames that are marked raw, too.
    ``max_frame`` : int
        Bytes of the longest frame, 128 to 16384.

    Latency
    -------
    0 cycles from ``i`` to ``o``; 4 from the second beat, or from the only beat, to ``header``. One beat a
    cycle, frames back to back.

    Source
    ------
    INCEPTIONN, section VI-A: sequence matching in the first burst; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, receive: bool, max_frame: int = MAX_FRAME):
        check_max_frame(max_frame)
        self.receive = receive
        self.max_frame = max_frame
        super().__init__(
            {
                "i": In(packet_stream(BEAT_BITS, error=True)),
                "enable": In(1),
                "o": Out(packet_stream(BEAT_BITS, error=True)),
                "header": Out(stream.Signature(Header)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store two beats of each frame; put their header into the queue two registers later."""
        m = Module()
        m.submodules.headers = headers = StreamFIFO(shape=Header, depth=QUEUE)
        has_room = Signal(init=1)
        offered = Signal()  # a beat waits on ``o``; it must not be withdrawn if a header fills the queue
        in_frame = Signal()  # the next beat is not a frame's first
        second = Signal()  # the next beat is a frame's second
        transfer = Signal()
        beats = [Signal(BEAT_BITS, name=f"beat{k}", reset_less=True) for k in range(2)]
        collected = Signal()
        two_beats = Signal()

        m.d.sync += [has_room.eq(headers.level < 2), offered.eq(self.o.valid & ~self.o.ready)]
        m.d.comb += transfer.eq(self.i.valid & self.i.ready)
        self._forward(m, in_frame | offered | has_room, transfer)
        m.d.sync += [
            collected.eq(transfer & (second | ~in_frame & self.i.p.last)),
            two_beats.eq(second),
        ]
        with m.If(transfer):
            m.d.sync += [in_frame.eq(~self.i.p.last), second.eq(~in_frame & ~self.i.p.last)]
            for beat, on_input in zip(beats, (~in_frame, second), strict=True):
                with m.If(on_input):
                    m.d.sync += beat.eq(self.i.p.data)
        m.d.comb += headers.i.payload.eq(self._header(m, self._facts(m, Cat(beats), two_beats)))
        m.d.comb += headers.i.valid.eq(delayed(m, collected, 2, name="collected", reset_less=False)[-1])
        connect_typed(m, headers.o, wiring.flipped(self.header))
        return m

    def _forward(self, m: Module, may_take: Any, transfer: Signal) -> None:
        """Pass frames on and cut off those that are too long; ``may_take``: a beat may be taken."""
        limit = beats_of(self.max_frame)
        beats = Signal(range(limit))
        cut_off = Signal()  # the rest of the frame is dropped
        at_limit = Signal()
        last_lane = self.max_frame % BEAT_BYTES
        too_long = at_limit & (~self.i.p.last | (self.i.p.keep[last_lane] if last_lane else 0))
        m.d.comb += [
            self.i.ready.eq(may_take & (self.o.ready | cut_off)),
            self.o.valid.eq(may_take & self.i.valid & ~cut_off),
            self.o.p.eq(self.i.p),
            self.o.p.last.eq(self.i.p.last | at_limit),
            self.o.p.error.eq(self.i.p.error | too_long),
        ]
        with m.If(transfer):
            m.d.sync += [
                beats.eq(Mux(self.i.p.last, 0, beats + 1)),
                at_limit.eq((beats == limit - 2) & ~self.i.p.last),
                cut_off.eq((cut_off | at_limit) & ~self.i.p.last),
            ]

    def _facts(self, m: Module, frame: Any, two_beats: Any) -> Any:
        """Return the facts of the individual fields, a cycle later."""

        def view(fields: Any, start: int) -> Any:
            return header_layout(fields)(swap_bytes(frame[8 * start : 8 * (start + byte_length(fields))]))

        ethernet, ip = view(ETHERNET, 0), view(IPV4, IP_START)
        udp, tcp = view(UDP, TRANSPORT_START), view(TCP, TRANSPORT_START)
        more_fragments = ip.flags[0]
        is_udp = ip.protocol == IP_PROTOCOL_UDP
        facts = Signal(_HeaderFacts)
        m.d.sync += [
            facts.two_beats.eq(two_beats),
            facts.ipv4.eq(ethernet.ethertype == ETHERTYPE_IPV4),
            facts.no_options.eq((ip.version == 4) & (ip.ihl == byte_length(IPV4) // WORD_BYTES)),
            facts.unfragmented.eq(~more_fragments & (ip.fragment == 0)),
            facts.udp.eq(is_udp),
            facts.tcp.eq((ip.protocol == IP_PROTOCOL_TCP) & (tcp.offset >= byte_length(TCP) // WORD_BYTES)),
            facts.compressible.eq(ip.tos == TOS_COMPRESSIBLE),
            facts.raw.eq((ip.tos == TOS_RAW) & int(self.receive)),
            facts.words.eq(Mux(is_udp, byte_length(UDP) // WORD_BYTES, tcp.offset)),
            facts.segment.eq(ip.length - byte_length(IPV4)),
            facts.last_byte.eq(ip.length - (byte_length(IPV4) + 1 + (LENGTH_BYTES if self.receive else 0))),
            facts.udp_length.eq(udp.length),
            facts.length.eq(ip.length),
            facts.end.eq(ip.length + IP_START - 1),
            facts.ip_checksum.eq(ip.checksum),
            facts.checksum.eq(Mux(is_udp, udp.checksum, tcp.checksum)),
        ]
        return facts

    def _header(self, m: Module, facts: Any) -> Any:
        """Return the header, a cycle later."""
        header = Signal(Header)
        o = Signal(Header)
        payload = Signal(signed(18))  # negative if the packet ends in its headers
        fits = Signal()
        tcp = Signal()
        lengths_agree = Signal(2)  # the UDP length equals IPv4's; one bit for each half
        supported = facts.two_beats & facts.ipv4 & facts.no_options & facts.unfragmented & self.enable
        span = Signal(signed(18))
        m.d.comb += [
            payload.eq(facts.segment - WORD_BYTES * facts.words),
            span.eq(facts.last_byte - WORD_BYTES * facts.words),
        ]
        m.d.sync += [
            fits.eq(payload >= 0),
            tcp.eq(facts.tcp),
            lengths_agree[0].eq(facts.segment[:8] == facts.udp_length[:8]),
            lengths_agree[1].eq(facts.segment[8:] == facts.udp_length[8:]),
            header.compressible.eq(supported & facts.compressible),
            header.raw.eq(supported & facts.raw),
            header.payload.eq(payload),
            header.span.eq(span),
            header.empty.eq(span < 0),
        ]
        names = ("udp", "words", "length", "end", "ip_checksum", "checksum")
        m.d.sync += [header[name].eq(facts[name]) for name in names]
        m.d.comb += [o[name].eq(header[name]) for name in (*names, "payload", "span", "empty")]
        m.d.comb += [
            o[name].eq(header[name] & fits & (tcp | header.udp & lengths_agree.all()))
            for name in ("compressible", "raw")
        ]
        return o


class _HeaderFacts(data.Struct):
    """Checks of the individual fields of a frame's headers, and fields that the header's record needs."""

    two_beats: 1  # the frame has two beats
    ipv4: 1
    no_options: 1
    unfragmented: 1
    udp: 1
    tcp: 1
    compressible: 1
    raw: 1
    words: 4
    segment: signed(17)  # bytes of the UDP or TCP packet
    last_byte: signed(17)  # index of the segment's last byte, without the stated length
    udp_length: 16
    length: 16
    end: 17
    ip_checksum: 16
    checksum: 16
