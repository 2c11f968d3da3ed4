"""Reader of requests: extracts a frame's fields from the store and checks its form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import (
    BODY_AT,
    BODY_BEAT,
    IP_BITS,
    LEASE_BITS,
    MAC_BITS,
    PLACE_BITS,
    SEQUENCE_BITS,
    SIZE_BITS,
    WIDTH,
    Agreement,
    BeatCondition,
    field_conditions,
    field_parts,
    stored_field,
)
from fanin.hdl.net.control.request_store import READ_LATENCY
from fanin.hdl.net.headers import swap_bytes
from fanin.wire.arp import ARP, ETHERTYPE_ARP, HARDWARE_ETHERNET, IPV4_BYTES, MAC_BYTES, Operation
from fanin.wire.control import (
    ABOUT_WORDS,
    CONTROL,
    CONTROL_AT,
    IP_AT,
    MAGIC,
    MAX_CHECKSUM,
    MAX_DUMP,
    MAX_LOAD,
    REST_AT,
    VERSION,
    WORD_BYTES,
    Kind,
    Status,
)
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IPV4, UDP
from fanin.wire.fields import Field, byte_length, field_bits
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP

KIND_BITS, COUNT_BITS = field_bits(CONTROL, "kind"), field_bits(CONTROL, "count")
PORT_BITS = field_bits(UDP, "source_port")
_LAST = BODY_BEAT + 1  # the second word after the header; in a checksum request, the number of words
_IP_BEATS = range(IP_AT // WORD_BYTES, -(-REST_AT // WORD_BYTES))
_CHECK_CYCLES = 2  # cycles from the last stored field to the form
assert MAX_CHECKSUM == (1 << COUNT_BITS) - 1


class Form(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Form of a frame."""

    OTHER = 0  #: not answered, and not counted
    MALFORMED = 1  #: not answered
    ARP = 2
    ECHO = 3
    MISFIT = 4  #: a control request with contradictory fields
    CONTROL = 5


#: Fields of a request for its reply. ``length``: of IPv4. ``number``: words of a checksum. ``address``: first
#: word after the header.
Request = data.StructLayout(
    {
        "mac": MAC_BITS,
        "ip": IP_BITS,
        "port": PORT_BITS,
        "length": SIZE_BITS,
        "kind": KIND_BITS,
        "lease": LEASE_BITS,
        "sequence": SEQUENCE_BITS,
        "count": COUNT_BITS,
        "address": WIDTH,
        "number": COUNT_BITS,
    }
)


class RequestReader(wiring.Component):
    """Reader of a stored frame up to its sixteenth beat, which checks the frame's form.

    The frame was selected by :class:`~fanin.hdl.net.control.demultiplexer.Demultiplexer`; its conditions are
    not checked again.

    Members
    -------
    ``start`` : In, 1
        Pulse: a frame is in the store. It must stay until ``done`` and while ``request`` is used.
    ``size`` : In, 11
        Bytes of the frame.
    ``place`` : Out, 9
        Beat to read.
    ``word`` : In, 32
        The beat at ``place``, two cycles later.
    ``low`` : Out, 1
        The low half of ``word`` belongs to the IPv4 header.
    ``high`` : Out, 1
        The high half of ``word`` belongs to the IPv4 header.
    ``sum`` : In, 16
        Ones' complement sum of these halves, from 4 cycles after the last one on.
    ``own_ip`` : In, 32
        IPv4 address of the board's services.
    ``done`` : Out, 1
        Pulse: ``form`` and ``request`` are valid.
    ``form`` : Out, Form
        Form of the frame.
    ``request`` : Out, Request
        Fields of the frame.

    Parameters
    ----------
    None.

    Latency
    -------
    22 cycles from ``start`` to ``done``.

    Source
    ------
    docs/systems/boards.md, "Control".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "size": In(SIZE_BITS),
                "place": Out(PLACE_BITS),
                "word": In(WIDTH),
                "low": Out(1),
                "high": Out(1),
                "sum": In(16),
                "own_ip": In(IP_BITS),
                "done": Out(1),
                "form": Out(Form),
                "request": Out(Request),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count the beat on ``word`` in ``beat_at``, one-hot; the count continues until the form is known."""
        m = Module()
        end = _LAST + 1 + _CHECK_CYCLES
        reading = Signal()
        beat_at = Signal(end + 1)
        started = Signal(READ_LATENCY)
        m.d.sync += [
            started.eq(Cat(self.start, started)),
            beat_at.eq(Cat(started[-1], beat_at)),
            self.done.eq(beat_at[end]),
        ]
        with m.If(self.start):
            m.d.sync += [reading.eq(1), self.place.eq(0)]
        with m.Elif(reading):
            m.d.sync += [self.place.eq(self.place + 1), reading.eq(self.place != _LAST)]
        for half, port in enumerate((self.low, self.high)):
            beats = [beat for beat in _IP_BEATS if IP_AT <= beat * WORD_BYTES + 2 * half < REST_AT]
            m.d.comb += port.eq(Cat(beat_at[beat] for beat in beats).any())
        self._check(m, beat_at, self._store_fields(m, beat_at))
        return m

    def _store_fields(self, m: Module, beat_at: Signal) -> dict[str, Value]:
        """Return the fields that the reply or the check needs, as numbers; drive the parts of ``request``."""

        def number(fields: tuple[Field, ...], start: int, name: str) -> Value:
            return swap_bytes(stored_field(m, self.word, beat_at, fields, start, name))

        numbers = {
            "sender_ip": number(ARP, IP_AT, "sender_ip"),
            "source": number(IPV4, IP_AT, "source"),
            "length": number(IPV4, IP_AT, "length"),
            "port": number(UDP, REST_AT, "source_port"),
            "udp_length": number(UDP, REST_AT, "length"),
            "lease": number(CONTROL, CONTROL_AT, "lease"),
            "sequence": number(CONTROL, CONTROL_AT, "sequence"),
            "count": number(CONTROL, CONTROL_AT, "count"),
        }
        head = Signal(8)
        address = Signal(WIDTH)
        number_word = Signal(WIDTH)
        (part,) = field_parts(_BYTES, CONTROL_AT, "version_and_kind")
        with m.If(beat_at[part.beat]):
            m.d.sync += head.eq(self.word[part.word])
        with m.If(beat_at[BODY_BEAT]):
            m.d.sync += address.eq(swap_bytes(self.word))
        with m.If(beat_at[_LAST]):
            m.d.sync += number_word.eq(swap_bytes(self.word))
        numbers |= {
            "kind": head[:KIND_BITS],
            "version": head[KIND_BITS:],
            "address": address,
            "number": number_word,
        }
        is_arp = Signal()
        (condition,) = field_conditions(ETHERNET, 0, ethertype=ETHERTYPE_ARP)
        with m.If(beat_at[condition.beat]):
            m.d.sync += is_arp.eq(condition.holds(self.word))
        numbers["is_arp"] = is_arp
        numbers["mac"] = self._mac(m, beat_at, is_arp)
        for name in Request.members:
            if name != "ip":
                m.d.comb += self.request[name].eq(numbers[name])
        m.d.comb += self.request.ip.eq(Mux(is_arp, numbers["sender_ip"], numbers["source"]))
        return numbers

    def _mac(self, m: Module, beat_at: Signal, is_arp: Signal) -> Value:
        """Return the MAC address for the reply: the frame's source, or for ARP the sender in its header."""
        mac = Signal(MAC_BITS, reset_less=True)
        outer, inner = field_parts(ETHERNET, 0, "source"), field_parts(ARP, IP_AT, "sender_mac")
        for first, second in zip(outer, inner, strict=True):
            assert (first.word, first.field) == (second.word, second.field)
            with m.If(beat_at[first.beat] | beat_at[second.beat] & is_arp):
                m.d.sync += mac[first.field].eq(self.word[first.word])
        return swap_bytes(mac)

    def _check(self, m: Module, beat_at: Signal, fields: dict[str, Value]) -> None:
        """Compute each condition in its own register; those of the last beats are valid two cycles later."""
        target = swap_bytes(self.own_ip)
        arp_form = field_conditions(
            ARP,
            IP_AT,
            hardware=HARDWARE_ETHERNET,
            protocol=ETHERTYPE_IPV4,
            hardware_bytes=MAC_BYTES,
            protocol_bytes=IPV4_BYTES,
            operation=Operation.REQUEST,
        )
        target_is_own = [
            (p.beat, self.word[p.word] == target[p.field]) for p in field_parts(ARP, IP_AT, "target_ip")
        ]
        arp = self._agree(m, beat_at, "arp", arp_form, target_is_own)
        echo = self._agree(m, beat_at, "echo", field_conditions(IPV4, IP_AT, protocol=IP_PROTOCOL_ICMP))
        magic = self._agree(
            m, beat_at, "magic", field_conditions(CONTROL, CONTROL_AT, magic=MAGIC, status=Status.REQUEST)
        )
        length, udp_length = fields["length"], fields["udp_length"]
        flags = {
            "arp": arp & (self.size >= IP_AT + byte_length(ARP)),
            "fits": (self.sum.all()) & (length[SIZE_BITS:] == 0) & (length[:SIZE_BITS] + IP_AT <= self.size),
            "echo_whole": length >= byte_length(IPV4) + byte_length(ICMP_ECHO),
            "datagram": magic & (length == udp_length + byte_length(IPV4)),
            "headed": udp_length >= BODY_AT - REST_AT,
            "form": self._well_formed(m, fields),
        }
        registers = {name: Signal(name=f"is_{name}") for name in flags}
        m.d.sync += [registers[name].eq(flag) for name, flag in flags.items()]
        control = registers["datagram"] & registers["headed"]
        of_datagram = Mux(control, Mux(registers["form"], Form.CONTROL, Form.MISFIT), Form.MALFORMED)
        of_echo = Mux(registers["echo_whole"], Form.ECHO, Form.MALFORMED)
        of_ip = Mux(registers["fits"], Mux(echo, of_echo, of_datagram), Form.MALFORMED)
        m.d.sync += self.form.eq(Mux(fields["is_arp"], Mux(registers["arp"], Form.ARP, Form.OTHER), of_ip))

    def _agree(
        self,
        m: Module,
        beat_at: Signal,
        name: str,
        header_conditions: Iterable[BeatCondition],
        extra_conditions: Iterable[tuple[int, Value]] = (),
    ) -> Value:
        """Return whether the frame meets all conditions, a cycle after the last of their beats."""
        conditions = [(condition.beat, condition.holds(self.word)) for condition in header_conditions]
        return Agreement(m, beat_at, [*conditions, *extra_conditions], name=name).holds

    def _well_formed(self, m: Module, fields: dict[str, Value]) -> Value:
        """Return whether version, kind, lease, count and length are consistent, a cycle after the fields."""
        kind, count, length = fields["kind"], fields["count"], fields["udp_length"]
        head = BODY_AT - REST_AT
        pairs, words = kind == Kind.ACCESS, kind == Kind.LOAD
        body_words = {Kind.HELLO: ABOUT_WORDS, Kind.LOAD: 1, Kind.DUMP: 1, Kind.CHECKSUM: 2}
        fixed = Signal(range(max(body_words.values()) * WORD_BYTES + head + 1))
        m.d.comb += fixed.eq(head)
        with m.Switch(kind):
            for request_kind, extra in body_words.items():
                with m.Case(request_kind):
                    m.d.comb += fixed.eq(head + extra * WORD_BYTES)
        low = count[: MAX_LOAD.bit_length()]
        counted = Mux(pairs, low << 3, Mux(words, low << 2, 0))
        expected = Signal(len(counted) + 1)
        length_matches = Signal()
        m.d.sync += [expected.eq(fixed + counted), length_matches.eq(length == expected)]
        in_range = Signal()
        above_limit = count[MAX_LOAD.bit_length() :].any()
        m.d.sync += in_range.eq(
            Mux(pairs | words, ~above_limit, Mux(kind == Kind.DUMP, count <= MAX_DUMP, count == 0))
            & (fields["version"] == VERSION)
            & (kind <= max(Kind))
            & ((kind != Kind.CHECKSUM) | (fields["number"] <= MAX_CHECKSUM))
            & ((kind == Kind.HELLO) | fields["lease"].any())
        )
        return length_matches & in_range


#: First bytes of the control header; version and kind share one.
_BYTES = (Field("magic", 16, ""), Field("version_and_kind", 8, ""))
