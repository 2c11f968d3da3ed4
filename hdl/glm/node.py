"""The node: a worker with its memories' read ports, registers, transport and MAC ports."""

from typing import Any

from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.config import NodeConfig
from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature
from fanin.hdl.glm.node_registers import node_registers
from fanin.hdl.stream.packet import packet_stream

ADDRESS_BITS = 64


class NodeEvents(data.Struct):
    """One-cycle pulses for measurement, the first and last two of engine 0.

    ``forward_first`` and ``forward_last``: forward took the first, the last word of a micro-batch; ``pa``:
    the transport took its PA; ``fa``: the transport delivered its FA; ``backward_first`` and
    ``backward_last``: backward took the first, the last word again. Each counts micro-batches in order.
    """

    forward_first: 1  # type: ignore[valid-type]
    forward_last: 1  # type: ignore[valid-type]
    pa: 1  # type: ignore[valid-type]
    fa: 1  # type: ignore[valid-type]
    backward_first: 1  # type: ignore[valid-type]
    backward_last: 1  # type: ignore[valid-type]


class GlmNode(wiring.Component):
    """One worker of the training system, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        The registers of ``node_registers(config)``.
    ``samples`` : Out, 2E × AXI4 read, lanes · banks / 2 bits
        Ports 2e and 2e + 1 read the low and the high half of engine e's sample words.
    ``labels`` : Out, AXI4 read, 32 · banks bits
        A beat is the labels of a micro-batch.
    ``mac_tx`` : Out, packet stream of ``mac_width`` bits
    ``mac_rx`` : In, packet stream of ``mac_width`` bits with ``error``
    ``events`` : Out, ``NodeEvents``
        For measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : NodeConfig
    """

    def __init__(self, *, config: NodeConfig):
        self.config = config
        registers = node_registers(config)
        samples = AXI4ReadSignature(data_width=config.port_bits, address_width=ADDRESS_BITS)
        labels = AXI4ReadSignature(data_width=32 * config.banks, address_width=ADDRESS_BITS)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=registers.address_bits)),
                "samples": Out(samples).array(config.sample_ports),
                "labels": Out(labels),
                "mac_tx": Out(packet_stream(config.mac_width)),
                "mac_rx": In(packet_stream(config.mac_width, error=True)),
                "events": Out(NodeEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        raise NotImplementedError  # the interface first; the gates follow
