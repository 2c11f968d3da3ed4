"""INCEPTIONN's NIC: transmitter, receiver and registers."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import MAX_FRAME
from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.codec.nic.receiver import InceptionnReceiver
from fanin.hdl.codec.nic.registers import COUNTERS, IDENTITY, VERSION, nic_registers
from fanin.hdl.codec.nic.shapes import BEAT_BITS, check_max_frame
from fanin.hdl.codec.nic.transmitter import InceptionnTransmitter
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream


class InceptionnNic(wiring.Component):
    """NIC that compresses marked packets between a host and its MAC and restores them at the other end.

    See :class:`InceptionnTransmitter` and :class:`InceptionnReceiver`; registers hold settings and counters.

    Members
    -------
    ``axil`` : In, AXI4LiteSignature
        Registers of :func:`nic_registers`.
    ``host_tx`` : In, packet stream of 256 bits
        Frames from the host, with their checksums.
    ``mac_tx`` : Out, packet stream of 256 bits
        Frames for the MAC, without a pause inside a frame.
    ``mac_rx`` : In, packet stream of 256 bits with ``error``
        Frames from the MAC.
    ``host_rx`` : Out, packet stream of 256 bits
        Frames for the host.

    Parameters
    ----------
    ``max_frame`` : int
        Bytes of the longest frame without FCS, 128 to 16384.

    Latency
    -------
    The latencies of its transmitter and receiver.

    Source
    ------
    INCEPTIONN, section VI; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, max_frame: int = MAX_FRAME):
        check_max_frame(max_frame)
        self.max_frame = max_frame
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=nic_registers().address_bits)),
                "host_tx": In(packet_stream(BEAT_BITS)),
                "mac_tx": Out(packet_stream(BEAT_BITS)),
                "mac_rx": In(packet_stream(BEAT_BITS, error=True)),
                "host_rx": Out(packet_stream(BEAT_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect transmitter, receiver and registers."""
        m = Module()
        m.submodules.registers = registers = RegisterFile(registers=nic_registers())
        m.submodules.tx = tx = InceptionnTransmitter(max_frame=self.max_frame)
        m.submodules.rx = rx = InceptionnReceiver(max_frame=self.max_frame)
        connect_typed(m, wiring.flipped(self.axil), registers.axil)
        connect_typed(m, wiring.flipped(self.host_tx), tx.i)
        connect_typed(m, tx.o, wiring.flipped(self.mac_tx))
        connect_typed(m, wiring.flipped(self.mac_rx), rx.i)
        connect_typed(m, rx.o, wiring.flipped(self.host_rx))
        m.d.comb += [
            registers.id.eq(IDENTITY),
            registers.version.eq(VERSION),
            registers.max_frame.eq(self.max_frame),
            tx.enable.eq(registers.compress),
            tx.bound.eq(registers.bound),
            tx.mode.eq(registers.mode),
            rx.enable.eq(registers.decompress),
        ]
        for direction, stage in ("tx", tx), ("rx", rx):
            m.d.comb += [getattr(registers, f"{direction}_{name}").eq(stage.events[name]) for name in COUNTERS]
        return m
