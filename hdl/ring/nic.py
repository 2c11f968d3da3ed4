"""Ring node of a smart NIC: other traffic of its host shares the MAC with the ring."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.ring.arbiter import TransmitArbiter
from fanin.hdl.ring.node import RingNode
from fanin.hdl.ring.registers import ring_nic_constants, ring_nic_registers
from fanin.hdl.ring.steering import ReceiveSteering
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.frame_store import FrameStore, store_capacity
from fanin.hdl.stream.packet import packet_stream
from fanin.ring.facts import RingConfig

MAX_FRAME = 9216  # default bytes of the host's longest frame: the jumbo frame that switches carry


class RingNic(RingNode):
    """Ring all-reduce node whose host sends and receives other frames through the same MAC.

    The host's frames pass unchanged and in order, with or without a job. Each side gets at least its share of
    the link, and also the time that the other side does not use. Received frames with the ring's EtherType go
    to the ring, all others to the host. A host that does not take its frames loses some and stalls nothing.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Registers of ``ring_nic_registers(config)``.
    ``memory`` : Out, AXI4, 32 · lanes bits
        Memory with the vectors.
    ``mac_tx`` : Out, packet stream of 32 · lanes bits
        Frames for the MAC, without a pause inside a frame.
    ``mac_rx`` : In, packet stream of 32 · lanes bits with ``error``
        Frames from the MAC; always ready, since a MAC cannot wait.
    ``host_tx`` : In, packet stream of 32 · lanes bits
        Frames from the host. Frames of more than ``max_frame`` bytes are dropped.
    ``host_rx`` : Out, packet stream of 32 · lanes bits
        Frames for the host: complete, without FCS errors, and valid in every cycle of a frame.
    ``events`` : Out, RingEvents
        Pulses for measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : RingConfig
        Widths, codec and buffer sizes.
    ``queue`` : int
        Descriptors that may be unfinished, 1…255.
    ``max_frame`` : int
        Bytes of the host's longest frame without FCS, 60…16384.

    Latency
    -------
    From the last beat on ``host_tx`` to the first on ``mac_tx``: 2 cycles. From the last beat on ``mac_rx`` to
    the first on ``host_rx``: 3 cycles. Frames of the ring arrive 1 cycle later than in a :class:`RingNode`.

    Source
    ------
    AI Smart NIC, section II-B; docs/systems/smart-nic.md.
    """

    def __init__(self, *, config: RingConfig, queue: int = 8, max_frame: int = MAX_FRAME):
        if max_frame not in range(60, 16385):
            raise ValueError(f"max_frame must be from 60 to 16384, not {max_frame!r}")
        self.max_frame = max_frame
        super().__init__(config=config, queue=queue)

    @property
    def register_map(self) -> RegisterMap:
        """Register map of the node."""
        return ring_nic_registers(self.config)

    def _ports(self) -> dict[str, Any]:
        frames = packet_stream(self.config.width)
        return super()._ports() | {"host_tx": In(frames), "host_rx": Out(frames)}

    def _constants(self) -> dict[str, int]:
        node_constants = {"queue": self.queue, "max_host_frame": self.max_frame}
        return ring_nic_constants(self.config) | node_constants

    def _network(self, m: Module, registers: Any, link: Any) -> dict[str, Any]:
        """Merge the host's frames with the ring's towards the MAC, and separate received frames."""
        width, max_frame = self.config.width, self.max_frame
        size: dict[str, Any] = {
            "width": width,
            "max_frame": max_frame,
            "capacity": store_capacity(max_frame, width),
        }
        m.submodules.host_tx_store = tx = FrameStore(**size, wait=True)
        m.submodules.host_rx_store = rx = FrameStore(**size, wait=False)
        m.submodules.arbiter = arbiter = TransmitArbiter(**size)
        m.submodules.steering = steering = ReceiveSteering(width=width)
        m.d.comb += [
            tx.i.valid.eq(self.host_tx.valid),
            self.host_tx.ready.eq(tx.i.ready),
            *(tx.i.p[name].eq(self.host_tx.p[name]) for name in ("data", "keep", "last")),
            arbiter.level.eq(tx.level),
            arbiter.share.eq(registers.host_share),
            link.hold.eq(arbiter.hold),
        ]
        connect_typed(m, tx.o, arbiter.host)
        connect_typed(m, link.mac_tx, arbiter.ring)
        connect_typed(m, arbiter.o, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), steering.i)
        connect_typed(m, steering.ring, link.mac_rx)
        connect_typed(m, steering.host, rx.i)
        connect_typed(m, rx.o, flipped(self.host_rx))
        return {
            "host_tx_frames": tx.events.left,
            "host_tx_dropped": tx.events.dropped,
            "host_rx_frames": rx.events.left,
            "host_rx_dropped": rx.events.dropped,
            "host_rx_bad_fcs": rx.events.bad,
        }
