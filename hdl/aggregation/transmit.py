"""Frame transmitter: turns packets into frames."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import check_framing, frame_layout, packet_fields
from fanin.hdl.aggregation.job import JobConfig
from fanin.hdl.net.checksum import WORD_BITS, OnesComplementSum
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.aggregation import (
    DEFAULT_VALUES,
    ETHERTYPE_AGGREGATION,
    VERSION,
    Encap,
    frame_length,
    payload_length,
)
from fanin.wire.ethernet import ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, TTL, UDP
from fanin.wire.fields import byte_length


class FrameTransmitter(wiring.Component):
    """Transmitter that turns a worker's packets into frames, padded to 60 bytes, without FCS.

    A frame never pauses: its next beat is ready in every cycle. With UDP, the IPv4 checksum is computed once
    per job and is valid 5 cycles after the last change of ``job``.

    Members
    -------
    ``i`` : In, stream of packet fields
        Kind, slot, round and values of a packet; ``job`` gives the other fields.
    ``job`` : In, JobConfig
        Job of the packets.
    ``drop`` : In, 1
        Take and drop the packet on ``i``. The frame on ``o`` continues.
    ``o`` : Out, packet stream of ``mac_width`` bits
        Frames to the MAC.

    Parameters
    ----------
    ``mac_width`` : int, a power of two, 8 to 512
        Bits of a beat.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.
    ``values`` : int, 1 to 256
        Values of a packet.

    Latency
    -------
    1 cycle from ``i`` to the first beat on ``o``; then one beat a cycle, frames back to back.

    Source
    ------
    docs/reference/aggregation-packet.md.
    """

    def __init__(self, *, mac_width: int, encap: Encap = Encap.L2, values: int = DEFAULT_VALUES):
        check_framing(mac_width=mac_width, values=values)
        self.mac_width = mac_width
        self.encap = encap
        self.values = values
        super().__init__(
            {
                "i": In(stream.Signature(packet_fields(values))),
                "job": In(JobConfig),
                "drop": In(1),
                "o": Out(packet_stream(mac_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Load a whole frame at once and shift it out, a beat a cycle.

        ``beats_left`` has a one for each beat still to send, the current beat included.
        """
        m = Module()
        frame = self._frame(m)
        size = frame_length(self.encap, self.values)
        beat_bytes = self.mac_width // 8
        beats = -(-size // beat_bytes)
        remaining_beats = Signal(beats * self.mac_width, reset_less=True)
        beats_left = Signal(beats)
        final = ~beats_left[1] if beats > 1 else 1
        final_keep = (1 << (size - (beats - 1) * beat_bytes)) - 1
        free = ~beats_left[0] | (self.o.ready & final)

        m.d.comb += [
            self.o.valid.eq(beats_left[0]),
            self.o.payload.data.eq(remaining_beats[: self.mac_width]),
            self.o.payload.last.eq(final),
            self.o.payload.keep.eq(Mux(final, final_keep, (1 << beat_bytes) - 1)),
            self.i.ready.eq(free | self.drop),
        ]
        with m.If(self.o.ready):
            m.d.sync += beats_left.eq(beats_left >> 1)
        # A new frame overrides the shift above, since the last assignment of a cycle wins.
        with m.If(free & self.i.valid & ~self.drop):
            m.d.sync += beats_left.eq(-1)
        # ``final``, one register, selects the next value of all bits of ``remaining_beats``; ``i.valid`` and
        # ``drop`` take no part. Without a packet a value is loaded that is never sent.
        with m.If(self.o.ready | ~beats_left[0]):
            m.d.sync += remaining_beats.eq(Mux(final, swap_bytes(frame), remaining_beats >> self.mac_width))
        return m

    def _frame(self, m: Module) -> Any:
        """Return the frame of the packet on ``i``; a frame has the first value in its highest bits."""
        frame = Signal(frame_layout(self.encap, self.values))
        packet, job = self.i.payload, self.job
        m.d.comb += [
            frame.ethernet.destination.eq(job.switch_mac),
            frame.ethernet.source.eq(job.own_mac),
            frame.ethernet.ethertype.eq(ETHERTYPE_AGGREGATION),
            frame.aggregation.version.eq(VERSION),
            frame.aggregation.kind.eq(packet.kind),
            frame.aggregation.job.eq(job.job),
            frame.aggregation.slot.eq(packet.slot),
            frame.aggregation.round.eq(packet.round),
            frame.aggregation.bitmap.eq(job.member),
            frame.values.eq(Cat(*(packet.values[k] for k in reversed(range(self.values))))),
        ]
        if self.encap is Encap.UDP:
            self._datagram(m, frame)
        return frame

    def _datagram(self, m: Module, frame: Any) -> None:
        """Fill in the IPv4 and UDP headers.

        The IPv4 header is the same for all packets, so its checksum depends on ``job`` alone. The UDP checksum
        stays 0 on purpose, which means "none".
        """
        job, ip, udp = self.job, frame.ipv4, frame.udp
        udp_length = byte_length(UDP) + payload_length(self.values)
        m.submodules.sum = total = OnesComplementSum(words=byte_length(IPV4) * 8 // WORD_BITS)
        checksum = Signal(WORD_BITS)
        without_checksum = Signal.like(frame.ipv4)
        m.d.comb += [
            without_checksum.version.eq(4),
            without_checksum.ihl.eq(byte_length(IPV4) // 4),
            without_checksum.length.eq(byte_length(IPV4) + udp_length),
            without_checksum.ttl.eq(TTL),
            without_checksum.protocol.eq(IP_PROTOCOL_UDP),
            without_checksum.source.eq(job.own_ip),
            without_checksum.destination.eq(job.switch_ip),
            total.i.eq(without_checksum.as_value()),
            frame.ethernet.ethertype.eq(ETHERTYPE_IPV4),
            ip.eq(without_checksum),
            ip.checksum.eq(checksum),
            udp.source_port.eq(job.udp_port),
            udp.destination_port.eq(job.udp_port),
            udp.length.eq(udp_length),
        ]
        m.d.sync += checksum.eq(~total.o)
