"""Frame receiver: turns frames into packets, with all checks that do not depend on the slots' state."""

from functools import reduce
from operator import and_
from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import check_framing, frame_layout, packet_fields
from fanin.hdl.aggregation.job import ROUND_BITS, SLOT_BITS, FrameFaults, JobConfig, slot_mask
from fanin.hdl.arith.delay import delayed
from fanin.hdl.net.checksum import LATENCY as CHECKSUM_LATENCY
from fanin.hdl.net.checksum import WORD_BITS, OnesComplementSum
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.aggregation import (
    DEFAULT_VALUES,
    ETHERTYPE_AGGREGATION,
    VERSION,
    Encap,
    Protocol,
    frame_length,
    header_length,
    payload_length,
)
from fanin.wire.ethernet import ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP
from fanin.wire.fields import byte_length


def received_layout(values: int) -> data.StructLayout:
    """Return the layout of a received packet: ``packet``, ``good`` and, if not good, the ``fault``."""
    return data.StructLayout({"packet": packet_fields(values), "good": 1, "fault": FrameFaults})


class FrameCollector(wiring.Component):
    """Collector of a frame's beats, which also checks the frame's length.

    The collector takes frames of any length, including empty ones, and skips bytes beyond the frame's layout.
    Its output is valid for one cycle, that of ``done``.

    Members
    -------
    ``i`` : In, packet stream of ``mac_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``frame`` : Out, bits of a whole frame
        The frame, first byte in the lowest bits; undefined if it was too short.
    ``done`` : Out, 1
        A frame has ended.
    ``mac_error`` : Out, 1
        With ``done``: the MAC flagged the frame.
    ``headless`` : Out, 1
        With ``done``: the headers before the aggregation header are incomplete.
    ``short`` : Out, 1
        With ``done``: bytes before the end of the last value are missing.
    ``long`` : Out, 1
        With ``done``: bytes follow the values and the padding to 60 bytes.

    Parameters
    ----------
    ``mac_width`` : int, a power of two, 8 to 512
        Bits of a beat.
    ``encap`` : Encap
        Encapsulation: raw Ethernet or UDP.
    ``values`` : int, 1 to 256
        Values of a packet.

    Latency
    -------
    1 cycle from the last beat to ``done``; one beat a cycle, frames back to back.

    Source
    ------
    docs/reference/aggregation-packet.md.
    """

    def __init__(self, *, mac_width: int, encap: Encap, values: int):
        check_framing(mac_width=mac_width, values=values)
        self.mac_width = mac_width
        self.encap = encap
        self.values = values
        super().__init__(
            {
                "i": In(packet_stream(mac_width, error=True)),
                "frame": Out(8 * frame_length(encap, values)),
                "done": Out(1),
                "mac_error": Out(1),
                "headless": Out(1),
                "short": Out(1),
                "long": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Track the beat in ``position``, one-hot; its top bit is set after the frame's last beat."""
        m = Module()
        size = frame_length(self.encap, self.values)
        beats = -(-8 * size // self.mac_width)
        position = Signal(beats + 1, init=1)
        stored = [Signal(self.mac_width, name=f"beat{k}", reset_less=True) for k in range(beats)]
        beat = self.i.payload

        m.d.comb += [self.i.ready.eq(1), self.frame.eq(Cat(*stored))]
        m.d.sync += self.done.eq(self.i.valid & beat.last)
        with m.If(self.i.valid):
            for k in range(beats):
                with m.If(position[k]):
                    m.d.sync += stored[k].eq(beat.data)
            m.d.sync += [
                self.mac_error.eq(beat.error),
                position.eq(Cat(0, position[:-2], position[-2] | position[-1])),
            ]
            with m.If(beat.last):
                m.d.sync += position.eq(1)

        values_end = header_length(self.encap) + payload_length(self.values)
        m.d.comb += [
            self.headless.eq(~self._has_bytes(m, position, header_length(self.encap))),
            self.short.eq(~self._has_bytes(m, position, values_end)),
            self.long.eq(self._has_bytes(m, position, size + 1)),
        ]
        return m

    def _has_bytes(self, m: Module, position: Value, count: int) -> Signal:
        """Return, with ``done``, whether the frame had at least ``count`` bytes."""
        beat, byte = divmod(count - 1, self.mac_width // 8)
        has_bytes = Signal(name=f"has_bytes{count}")
        had_bytes = Signal(name=f"had_bytes{count}")
        current = had_bytes | (position[beat] & self.i.payload.keep[byte])
        with m.If(self.i.valid):
            m.d.sync += [has_bytes.eq(current), had_bytes.eq(current & ~self.i.payload.last)]
        return has_bytes


class FrameReceiver(wiring.Component):
    """Receiver that checks frames and extracts their packets.

    Every frame that ends on ``i`` appears on ``o`` once, good or not. A frame that is not good has exactly one
    bit of ``fault`` set. Any UDP checksum is accepted: the frame's FCS covers the same bytes, and fanin's
    switch sends none.

    Members
    -------
    ``i`` : In, packet stream of ``mac_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``job`` : In, JobConfig
        Job whose packets are good.
    ``ahead`` : Out, ``slot`` and ``round``
        Slot and round of the packet that will be on ``o`` in the next cycle, to look up its slot.
    ``o`` : Out, stream of ``packet``, ``good`` and ``fault``; always ready
        Packets, one for each frame.

    Parameters
    ----------
    ``mac_width`` : int, a power of two, 8 to 512
        Bits of a beat.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.
    ``values`` : int, 1 to 256
        Values of a packet.
    ``protocol`` : Protocol
        Protocol, which gives the kinds of packets for workers.

    Latency
    -------
    From the last beat to ``o``, 2 cycles for L2 and 5 for UDP; one beat a cycle, frames back to back.

    Source
    ------
    docs/reference/aggregation-packet.md.
    """

    def __init__(
        self,
        *,
        mac_width: int,
        encap: Encap = Encap.L2,
        values: int = DEFAULT_VALUES,
        protocol: Protocol = Protocol.P4SGD,
    ):
        check_framing(mac_width=mac_width, values=values)
        self.mac_width = mac_width
        self.encap = encap
        self.values = values
        self.protocol = protocol
        super().__init__(
            {
                "i": In(packet_stream(mac_width, error=True)),
                "job": In(JobConfig),
                "ahead": Out(data.StructLayout({"slot": SLOT_BITS, "round": ROUND_BITS})),
                "o": Out(stream.Signature(received_layout(values), always_ready=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Collect the frame and check it, with all results in one register; packet and results leave together.

        For UDP they wait in three more registers for the sum of the IPv4 header.
        """
        m = Module()
        m.submodules.collector = collector = FrameCollector(
            mac_width=self.mac_width, encap=self.encap, values=self.values
        )
        connect_typed(m, wiring.flipped(self.i), collector.i)
        frame = Signal(frame_layout(self.encap, self.values))
        m.d.comb += frame.eq(swap_bytes(collector.frame))

        wait = CHECKSUM_LATENCY if self.encap is Encap.UDP else 0
        done = delayed(m, collector.done, wait + 1, name="done", reset_less=False)
        packet = delayed(m, self._packet(m, frame).as_value(), wait + 1, name="packet")
        conditions = {
            name: delayed(m, condition, 1, name=name)[-1]
            for name, condition in self._conditions(m, collector, frame).items()
        }
        conditions["foreign"] = conditions["other_mac"] | conditions["other_ip"] | conditions["other_traffic"]
        conditions["short"] = conditions["headless"] | (conditions["incomplete"] & ~conditions["foreign"])
        faults = {name: delayed(m, flag, wait, name=f"{name}_fault")[-1] for name, flag in conditions.items()}
        faults["checksum"] = self._bad_checksum(m, frame) if self.encap is Encap.UDP else Const(0)
        bad = (faults[k] for k in ("bad_frame", "foreign", "checksum", "malformed", "other_job", "slot_range"))

        next_packet = packet_fields(self.values)(packet[-2])
        m.d.comb += [
            self.ahead.slot.eq(next_packet.slot),
            self.ahead.round.eq(next_packet.round),
            self.o.valid.eq(done[-1]),
            self.o.payload.packet.eq(packet[-1]),
            self.o.payload.good.eq(~Cat(*bad).any()),
        ]
        earlier: Value = Const(0)
        for name in FrameFaults.as_shape().members:  # in order of precedence: the first that applies
            m.d.comb += self.o.payload.fault[name].eq(faults[name] & ~earlier)
            earlier = earlier | faults[name]
        return m

    def _conditions(self, m: Module, collector: FrameCollector, frame: Any) -> dict[str, Value]:
        """Return conditions of a bad frame, each shallow enough for one register.

        ``bad_frame`` combines three of them, so that ``good`` depends on fewer.
        """
        head = frame.aggregation
        return {
            "mac_error": collector.mac_error,
            "headless": collector.headless,
            "incomplete": collector.short,
            "other_mac": frame.ethernet.destination != self.job.own_mac,
            "other_ip": frame.ipv4.destination != self.job.own_ip if self.encap is Encap.UDP else Const(0),
            "other_traffic": self._other_traffic(frame),
            "long": collector.long,
            "malformed": self._malformed(frame) | (head.round == 0),
            "other_job": (head.job != self.job.job) | ~self.job.enable,
            "slot_range": self._out_of_range(m, head.slot),
            "bad_frame": collector.mac_error | collector.short | collector.long,
        }

    def _packet(self, m: Module, frame: Any) -> Any:
        """Return the packet in a frame; a frame has the first value in its highest bits."""
        packet = Signal(packet_fields(self.values))
        m.d.comb += [
            packet.kind.eq(frame.aggregation.kind),
            packet.slot.eq(frame.aggregation.slot),
            packet.round.eq(frame.aggregation.round),
        ]
        for k in range(self.values):
            m.d.comb += packet.values[k].eq(frame.values[self.values - 1 - k])
        return packet

    def _other_traffic(self, frame: Any) -> Value:
        """Return whether a frame has another protocol or port, IP options, or only a fragment of a packet."""
        job = self.job
        if self.encap is Encap.L2:
            return frame.ethernet.ethertype != ETHERTYPE_AGGREGATION
        ip, more_fragments = frame.ipv4, frame.ipv4.flags[0]
        return (
            (frame.ethernet.ethertype != ETHERTYPE_IPV4)
            | (ip.version != 4)
            | (ip.ihl != byte_length(IPV4) // 4)
            | (ip.protocol != IP_PROTOCOL_UDP)
            | (ip.fragment != 0)
            | more_fragments
            | (frame.udp.destination_port != job.udp_port)
        )

    def _malformed(self, frame: Any) -> Value:
        """Return whether version, kind or lengths in the headers are invalid for a worker."""
        head = frame.aggregation
        other_kind = reduce(and_, (head.kind != kind for kind in self.protocol.to_worker))
        bad_header = (head.version != VERSION) | other_kind
        if self.encap is Encap.L2:
            return bad_header
        udp_length = byte_length(UDP) + payload_length(self.values)
        ip_length = byte_length(IPV4) + udp_length
        return bad_header | (frame.ipv4.length != ip_length) | (frame.udp.length != udp_length)

    def _out_of_range(self, m: Module, slot: Value) -> Value:
        """Return whether a slot is outside the job's, a power of two of slots at a multiple of their number."""
        mask = Signal(SLOT_BITS)
        m.d.sync += mask.eq(slot_mask(self.job))
        return ((slot ^ self.job.base) & ~mask).any()

    def _bad_checksum(self, m: Module, frame: Any) -> Signal:
        """Return whether the IPv4 header's checksum is wrong.

        The sum uses the node's own address, added up once per job, in place of the frame's destination address.
        If the two differ, the frame is foreign anyway.
        """
        own_ip = self.job.own_ip
        halves_sum = Signal(WORD_BITS + 1)
        folded = Signal(WORD_BITS)
        m.d.sync += [
            halves_sum.eq(own_ip[:WORD_BITS] + own_ip[WORD_BITS:]),
            folded.eq(halves_sum[:WORD_BITS] + halves_sum[WORD_BITS]),
        ]
        other_words = frame.ipv4.as_value()[len(own_ip) :]
        m.submodules.sum = total = OnesComplementSum(words=len(other_words) // WORD_BITS + 1)
        m.d.comb += total.i.eq(Cat(folded, other_words))
        bad = Signal()
        m.d.sync += bad.eq(~total.o.all())
        return bad
