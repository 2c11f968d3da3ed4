"""Reader of the headers of received frames: collects them, checks them and forms a record."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.net.checksum import WORD_BITS, OnesComplementSum
from fanin.hdl.net.headers import header_layout, swap_bytes
from fanin.hdl.rdma.queue_pair import FAULT_BITS, received_layout
from fanin.hdl.rdma.regions import LATENCY as REGION_LATENCY
from fanin.hdl.rdma.regions import ask_layout
from fanin.hdl.rdma.shapes import by_opcode, header_lane, header_words, opcode_is
from fanin.hdl.stream.packet import packet_layout
from fanin.rdma.facts import FIRST_QUEUE_PAIR, MAX_PAYLOAD, RdmaConfig
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP
from fanin.wire.fields import byte_length, field_bits
from fanin.wire.rdma import (
    AETH,
    BTH,
    BTH_AT,
    CONGESTION_NOTICE,
    ICRC_BYTES,
    IMMEDIATE,
    IP_AT,
    MOST_HEADER_BYTES,
    PARTITION,
    PARTITION_BITS,
    REFUSED_OPCODES,
    REST_AT,
    RETH,
    ROCE_PORT,
    UDP_AT,
    Fault,
    Opcode,
    header_bytes,
)

LATENCY = 1 + REGION_LATENCY  # cycles from the last word that is read to ``o``
TOTAL_BITS = field_bits(IPV4, "length") + 1  # bits of a frame's length in bytes


class OwnAddresses(data.Struct):
    """Addresses of this NIC."""

    mac: field_bits(ETHERNET, "destination")
    ip: field_bits(IPV4, "destination")


def record_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a frame's record: ``packet`` without ``words``, and the stated length ``total``."""
    return data.StructLayout({"packet": received_layout(config), "total": TOTAL_BITS})


class HeaderReader(wiring.Component):
    """Checker of the headers of passing frames.

    ``packet.fault`` covers only the headers: addresses and protocols, IPv4 checksum, consistency of the
    lengths, opcode, version, partition and queue pair. Fields that the packet's opcode does not have are
    undefined.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        Word of a frame, beginning with the Ethernet header.
    ``own`` : In, OwnAddresses
        Addresses of this NIC.
    ``ask`` : Out, :func:`~fanin.hdl.rdma.regions.ask_layout`
        Request to the region table.
    ``allowed`` : In, 1
        Response of the region table.
    ``o`` : Out, ``valid`` and ``record``, :func:`record_layout`
        Record of each frame, once.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

    Latency
    -------
    5 cycles from the word in which the longest header ends, or from the frame's last word, to ``o``. Frames
    back to back.

    Source
    ------
    docs/systems/rdma.md, "Packets"; InfiniBand Architecture Specification, volume 1, section 9.6, and annex
    A17.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(config.width)})),
                "own": In(OwnAddresses),
                "ask": Out(ask_layout(config)),
                "allowed": In(1),
                "o": Out(data.StructLayout({"valid": 1, "record": record_layout(config)})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Collect the headers in registers, check all fields in parallel, and combine the results."""
        m = Module()
        frame, collected = self._collect(m)

        def view(fields: Any, start: int) -> Any:
            return header_layout(fields)(swap_bytes(frame[8 * start : 8 * (start + byte_length(fields))]))

        self.ip, self.udp, self.bth = view(IPV4, IP_AT), view(UDP, UDP_AT), view(BTH, BTH_AT)
        self.ethernet, self.reth, self.aeth = view(ETHERNET, 0), view(RETH, REST_AT), view(AETH, REST_AT)
        after_reth, after_bth = view(IMMEDIATE, REST_AT + byte_length(RETH)), view(IMMEDIATE, REST_AT)
        begins = opcode_is(self.bth.opcode, "begins")
        immediate = Mux(begins, after_reth.immediate, after_bth.immediate)
        index_bits = len(self.ask.index)
        m.d.comb += [
            self.ask.index.eq(self.bth.queue_pair[:index_bits]),
            *(self.ask[name].eq(self.reth[name]) for name in ("address", "rkey", "length")),
        ]
        packet, latency = self.o.record.packet, LATENCY - 1
        fields_by_name = {
            "index": self.ask.index,
            "opcode": self.bth.opcode,
            "answer": self.bth.opcode == Opcode.ACKNOWLEDGE,
            "acknowledge": self.bth.acknowledge,
            "psn": self.bth.psn,
            "lane": header_lane(self.config.width, self.bth.opcode),
            "address": self.reth.address[: self.config.address_width],
            "length": self.reth.length,
            "immediate": immediate,
            "syndrome": self.aeth.syndrome,
        }
        m.d.comb += [
            packet[name].eq(delayed(m, value, latency, name=name)[-1]) for name, value in fields_by_name.items()
        ]
        m.d.comb += [
            packet.fault.eq(self._fault(m, self._lengths(m))),
            packet.allowed.eq(self.allowed),
            self.o.valid.eq(delayed(m, collected, LATENCY, name="collected", reset_less=False)[-1]),
        ]
        return m

    def _collect(self, m: Module) -> tuple[Value, Signal]:
        """Collect the first words of a frame; they are complete in the cycle after ``collected``."""
        count = header_words(self.config.width)
        number = Signal(range(count + 1))
        words = [Signal(self.config.width, name=f"head{n}", reset_less=True) for n in range(count)]
        collected = Signal()
        is_last_word = number == count - 1
        m.d.comb += collected.eq(self.i.valid & (is_last_word | self.i.p.last & (number < count)))
        with m.If(self.i.valid):
            m.d.sync += number.eq(Mux(self.i.p.last, 0, number + (number != count)))
            for n, word in enumerate(words):
                with m.If(number == n):
                    m.d.sync += word.eq(self.i.p.data)
        return Cat(words), collected

    def _lengths(self, m: Module) -> Value:
        """Compute the lengths of payload and frame; return whether all lengths agree."""
        ip, packet = self.ip, self.o.record.packet
        fixed_bytes = REST_AT - IP_AT + ICRC_BYTES
        body = Signal(signed(TOTAL_BITS + 1))  # bytes of payload, pad, and headers between BTH and payload
        variable_bytes = Signal(range(MOST_HEADER_BYTES - REST_AT + 4))
        size = Signal(signed(TOTAL_BITS + 1))
        by_udp = Signal(TOTAL_BITS)
        total = Signal(TOTAL_BITS)
        size_allowed = Signal()
        half = len(ip.length) // 2
        length = delayed(m, ip.length, 1, name="ip_length")[-1]
        agrees = Signal(3)
        may_be_long = delayed(m, ~self._supported, 2, name="may_be_long")[-1]  # payload is dropped
        m.d.sync += [
            body.eq(ip.length - fixed_bytes),
            variable_bytes.eq(
                by_opcode(self.bth.opcode, lambda code: header_bytes(code) - REST_AT) + self.bth.pad
            ),
            by_udp.eq(self.udp.length + byte_length(IPV4)),
            total.eq(ip.length + IP_AT),
            size.eq(body - variable_bytes),
            agrees[0].eq(by_udp[:half] == length[:half]),
            agrees[1].eq(by_udp[half:] == length[half:]),
            agrees[2].eq(~length[:2].any()),
            size_allowed.eq((size >= 0) & ((size <= MAX_PAYLOAD) | may_be_long)),
        ]
        m.d.comb += [
            packet.size.eq(delayed(m, size, LATENCY - 3, name="size")[-1]),
            self.o.record.total.eq(delayed(m, total, LATENCY - 2, name="total")[-1]),
        ]
        lengths_agree = delayed(m, agrees.all(), LATENCY - 3, name="agrees")[-1]
        return lengths_agree & delayed(m, size_allowed, LATENCY - 4, name="size_allowed")[-1]

    @property
    def _supported(self) -> Value:
        return self.bth.opcode.matches(*Opcode)

    def _fault(self, m: Module, lengths_agree: Value) -> Value:
        """Return the first fault of the headers; combine comparisons of a few bits step by step."""
        ethernet, ip, own = self.ethernet, self.ip, self.own
        more_fragments = ip.flags[0]
        address_pairs = [(ethernet.destination, own.mac), (ip.destination, own.ip)]
        comparisons = [
            a[n : n + WORD_BITS] == b[n : n + WORD_BITS]
            for a, b in address_pairs
            for n in range(0, len(a), WORD_BITS)
        ]
        comparisons += [
            ethernet.ethertype == ETHERTYPE_IPV4,
            (ip.version == 4) & (ip.ihl == byte_length(IPV4) // 4) & (ip.protocol == IP_PROTOCOL_UDP),
            ~more_fragments & (ip.fragment == 0),
            self.udp.destination_port == ROCE_PORT,
        ]
        matches = Signal(len(comparisons))
        bits = ip.as_value()
        m.submodules.sum = total = OnesComplementSum(words=len(bits) // WORD_BITS)
        checksum_valid = Signal()
        m.d.comb += total.i.eq(bits)
        m.d.sync += [matches.eq(Cat(comparisons)), checksum_valid.eq(total.o.all())]
        is_ours = delayed(m, matches.all(), LATENCY - 2, name="is_ours")[-1]
        transport_fault = delayed(m, self._transport_fault(m), LATENCY - 3, name="transport_fault")[-1]
        return Mux(is_ours, Mux(checksum_valid & lengths_agree, transport_fault, Fault.DAMAGED), Fault.FOREIGN)

    def _transport_fault(self, m: Module) -> Value:
        """Return the fault of the BTH, 2 cycles later."""
        bth, index_bits = self.bth, len(self.ask.index)
        partition = bth.partition[:PARTITION_BITS] == PARTITION % (1 << PARTITION_BITS)
        number = bth.queue_pair[index_bits:] == FIRST_QUEUE_PAIR >> index_bits
        notice = Signal()
        is_recognised = Signal()
        header_checks = Signal(3)
        fault = Signal(FAULT_BITS)
        m.d.sync += [
            notice.eq(bth.opcode == CONGESTION_NOTICE),
            is_recognised.eq(self._supported | bth.opcode.matches(*REFUSED_OPCODES)),
            header_checks.eq(Cat(bth.version == 0, partition, number)),
            fault.eq(Mux(header_checks.all(), Fault.NONE, Fault.UNKNOWN)),
        ]
        with m.If(~is_recognised):
            m.d.sync += fault.eq(Mux(notice, Fault.CONGESTION, Fault.OPCODE))
        return fault
