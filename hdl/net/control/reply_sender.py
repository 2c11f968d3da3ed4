"""Sender of replies to ARP, echo and control requests, which assembles a reply while it sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.choices import COPY, Bit, beats, choose, constant, copied, header
from fanin.hdl.net.control.headers import (
    BODY_BEAT,
    IP_BITS,
    LEASE_BITS,
    MAC_BITS,
    PLACE_BITS,
    SIZE_BITS,
    WIDTH,
    AboutWords,
    field_parts,
)
from fanin.hdl.net.control.request_reader import Request
from fanin.hdl.net.control.request_store import READ_LATENCY
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.arp import ARP, ETHERTYPE_ARP, HARDWARE_ETHERNET, IPV4_BYTES, MAC_BYTES, Operation
from fanin.wire.control import (
    ABOUT,
    ABOUT_WORDS,
    CONTROL,
    CONTROL_AT,
    CONTROL_PORT,
    IP_AT,
    REST_AT,
    VERSION,
    WORD_BYTES,
    Status,
)
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, TTL, UDP, internet_checksum
from fanin.wire.fields import byte_length, pack_fields
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP, EchoType

STATUS_BITS = max(Status).bit_length()
_PLACES = BODY_BEAT + ABOUT_WORDS + 1  # one-hot; the last place is for all further beats
_HALF = 16

#: Content of a reply: ARP, echo, or else control with ``status`` and ``count`` words, which are those of ABOUT
#: or of the reply store.
Reply = data.StructLayout({"arp": 1, "echo": 1, "status": STATUS_BITS, "count": PLACE_BITS, "about": 1})


class ReplySender(wiring.Component):
    """Sender of a request's reply: new headers, then words of the request or of the reply store.

    Members
    -------
    ``start`` : In, 1
        Pulse: send a reply. ``reply`` and ``request`` are constant until ``done``.
    ``reply`` : In, Reply
        Content of the reply.
    ``request`` : In, Request
        Fields of the request.
    ``own_mac`` : In, 48
        MAC address of the sender.
    ``own_ip`` : In, 32
        IPv4 address of the sender.
    ``holder`` : In, 32
        IPv4 address of the board's holder, for ABOUT.
    ``about`` : In, AboutWords
        Description of the board, for ABOUT.
    ``offer`` : In, 32
        Offered lease, for ABOUT.
    ``summand`` : Out, 32
        Word for the sum of the IPv4 header while ``sums`` is high, both halves.
    ``sums`` : Out, 1
        Add ``summand`` to the sum.
    ``clear`` : Out, 1
        Set the sum to 0.
    ``sum`` : In, 16
        The sum, 4 cycles after the last summand.
    ``place`` : Out, 9
        Beat to read from the request and the reply store.
    ``enable`` : Out, 1
        Advance the reads.
    ``word`` : In, 32
        The request's beat at ``place``, two cycles of ``enable`` later.
    ``stored`` : In, 32
        The reply store's beat at ``place``, two cycles of ``enable`` later.
    ``o`` : Out, packet stream of 32 bits
        Replies, without padding to Ethernet's minimum.
    ``done`` : Out, 1
        Pulse: the last beat has been taken.

    Parameters
    ----------
    None.

    Latency
    -------
    From ``start`` to the first beat, 5 cycles; one beat a cycle.

    Source
    ------
    docs/systems/boards.md, "The network's other services".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "reply": In(Reply),
                "request": In(Request),
                "own_mac": In(MAC_BITS),
                "own_ip": In(IP_BITS),
                "holder": In(IP_BITS),
                "about": In(AboutWords),
                "offer": In(LEASE_BITS),
                "summand": Out(WIDTH),
                "sums": Out(1),
                "clear": Out(1),
                "sum": In(_HALF),
                "place": Out(PLACE_BITS),
                "enable": Out(1),
                "word": In(WIDTH),
                "stored": In(WIDTH),
                "o": Out(packet_stream(WIDTH)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute the lengths, then the sum of the IPv4 header, then send the beats, with three in flight."""
        m = Module()
        length = Signal(SIZE_BITS)  # length field of IPv4
        last = Signal(SIZE_BITS)  # bytes of the frame, minus one
        head = CONTROL_AT - IP_AT + byte_length(CONTROL)
        m.d.sync += length.eq(Mux(self.reply.echo, self.request.length, (self.reply.count << 2) + head))
        m.d.sync += last.eq(Mux(self.reply.arp, byte_length(ARP), length) + (IP_AT - 1))
        begins = self._sum(m, length)
        self._send(m, begins, length, last)
        return m

    def _sum(self, m: Module, length: Signal) -> Value:
        """Add up the IPv4 header in three words; return whether the frame may start.

        The sum is complete before the beat that carries the checksum, beat 7, is assembled.
        """
        steps = Signal(4)  # one-hot
        m.d.sync += steps.eq(Cat(self.start, steps))
        constants = [Const(_constant_sum(protocol), _HALF) for protocol in (IP_PROTOCOL_UDP, IP_PROTOCOL_ICMP)]
        lengths = Cat(
            swap_bytes(Mux(self.reply.echo, constants[1], constants[0])), swap_bytes(_extended(length))
        )
        m.d.comb += [
            self.clear.eq(steps[0]),
            self.sums.eq(steps[1:].any()),
            self.summand.eq(
                Mux(steps[1], swap_bytes(self.own_ip), Mux(steps[2], swap_bytes(self.request.ip), lengths))
            ),
        ]
        return steps[0]

    def _send(self, m: Module, begins: Value, length: Signal, last: Signal) -> None:
        """Read the beats and send them, in steps of ``enable``.

        ``first``, one-hot, is the number of the beat at ``place``; ``at`` is the same number a step later. The
        selection by ``choose`` takes another step, and then meets the beat's ``word`` and ``stored``.
        """
        o = self.o
        reading = Signal()
        at_end = Signal()
        first = Signal(_PLACES)
        at = Signal(_PLACES)
        m.d.comb += [
            self.enable.eq(~o.valid | o.ready),
            at_end.eq(self.place == last[WORD_BYTES.bit_length() - 1 :]),
        ]
        valid = Signal(READ_LATENCY)
        end = Signal(READ_LATENCY)
        beat = choose(m, self.enable, self._cells(at), self._sources(length))
        with m.If(self.enable):
            m.d.sync += [
                valid.eq(Cat(reading, valid)),
                end.eq(Cat(at_end, end)),
                first.eq(Cat(0, first[:-2], first[-2:].any())),
                at.eq(first),
                o.valid.eq(valid[-1]),
                o.p.last.eq(end[-1]),
                o.p.keep.eq(Mux(end[-1], (2 << last[:2]) - 1, (1 << WORD_BYTES) - 1)),
                o.p.data.eq(beat),
            ]
        with m.If(begins):
            m.d.sync += [reading.eq(1), self.place.eq(0), first.eq(1)]
        with m.Elif(reading & self.enable):
            m.d.sync += [reading.eq(~at_end), self.place.eq(self.place + 1)]
        m.d.sync += self.done.eq(o.valid & o.ready & o.p.last)

    def _sources(self, length: Signal) -> dict[str, Value]:
        """Return the sources of a reply: numbers, except ``word`` and ``stored``, which are in wire order."""
        (part,) = field_parts(ICMP_ECHO, REST_AT, "checksum")
        checksum_sum = self.word[part.word] + EchoType.REQUEST  # the type has the lower byte of the wire
        about_words = zip(ABOUT, (self.holder, *self.about, self.offer), strict=True)
        return {
            COPY: self.word,
            "stored": self.stored,
            "mac": self.request.mac,
            "ip": self.request.ip,
            "port": self.request.port,
            "kind": self.request.kind,
            "own_mac": self.own_mac,
            "own_ip": self.own_ip,
            "length": length,
            "datagram": length - byte_length(IPV4),
            "sum": swap_bytes(~self.sum),
            "echo_sum": swap_bytes((checksum_sum[:_HALF] + checksum_sum[_HALF])[:_HALF]),
            "status": self.reply.status,
            "count": self.reply.count,
            **{field.name: word for field, word in about_words},
        }

    def _cells(self, at: Signal) -> Iterator[tuple[Value, list[Bit]]]:
        """Yield every beat of every kind of reply, with the condition under which it is sent."""
        reply = self.reply
        control = ~reply.arp & ~reply.echo
        frames = ((reply.arp, _arp_frame()), (reply.echo, _echo_frame()), (control, _control_frame()))
        for kind, frame in frames:
            for n, bits in enumerate(beats(frame)):
                yield at[n] & kind, bits
        body = at[BODY_BEAT:].any()
        yield at[len(beats(_echo_frame())) :].any() & reply.echo, beats(copied(WIDTH))[0]
        yield body & control & ~reply.about, [("stored", n) for n in range(WIDTH)]
        for n, field in enumerate(ABOUT):
            yield at[BODY_BEAT + n] & reply.about, header([field], **{field.name: field.name})


def _ethernet(ethertype: int) -> list[Bit]:
    return header(ETHERNET, destination="mac", source="own_mac", ethertype=ethertype)


def _ipv4(protocol: int) -> list[Bit]:
    return header(
        IPV4,
        version=4,
        ihl=5,
        length="length",
        ttl=TTL,
        protocol=protocol,
        checksum="sum",
        source="own_ip",
        destination="ip",
    )


def _arp_frame() -> list[Bit]:
    """Return the frame in whole beats: two bytes more than are sent."""
    arp = header(
        ARP,
        hardware=HARDWARE_ETHERNET,
        protocol=ETHERTYPE_IPV4,
        hardware_bytes=MAC_BYTES,
        protocol_bytes=IPV4_BYTES,
        operation=Operation.REPLY,
        sender_mac="own_mac",
        sender_ip="own_ip",
        target_mac="mac",
        target_ip="ip",
    )
    return _ethernet(ETHERTYPE_ARP) + arp + constant(_HALF)


def _echo_frame() -> list[Bit]:
    """Return the frame up to the beat of the checksum; after it all bytes are those of the request."""
    echo = header(ICMP_ECHO[:3], type=EchoType.REPLY, checksum="echo_sum")
    return _ethernet(ETHERTYPE_IPV4) + _ipv4(IP_PROTOCOL_ICMP) + echo + copied(_HALF)


def _control_frame() -> list[Bit]:
    udp = header(UDP, source_port=CONTROL_PORT, destination_port="port", length="datagram")
    control = header(
        CONTROL,
        magic=COPY,
        version=VERSION,
        kind="kind",
        status="status",
        lease=COPY,
        sequence=COPY,
        count="count",
    )
    return _ethernet(ETHERTYPE_IPV4) + _ipv4(IP_PROTOCOL_UDP) + udp + control


def _constant_sum(protocol: int) -> int:
    """Return the ones' complement sum of the constant fields of the sender's IPv4 headers."""
    header = pack_fields(IPV4, {"version": 4, "ihl": 5, "ttl": TTL, "protocol": protocol})
    return ~internet_checksum(header) & 0xFFFF


def _extended(value: Value) -> Value:
    """Return a number, extended to the width of a header's length or count."""
    return Cat(value, Const(0, _HALF - len(value)))
