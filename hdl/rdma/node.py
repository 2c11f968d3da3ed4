"""Node of one-sided writes: the NIC with registers, ready for a board."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import OUTSTANDING, AXI4LiteSignature, join_memory, memory_signature
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.port_use import PortUse, page_burst
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.nic_control import is_beyond, nic_counters, nic_settings
from fanin.hdl.rdma.registers import rdma_constants, rdma_registers
from fanin.hdl.rdma.write_queue import WriteQueue
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_stream
from fanin.rdma.facts import RdmaConfig

COMPLETIONS = 64  # writes that may be unfinished or whose completion waits for the host
ARRIVALS = 64  # messages that may wait for the host; if there are more, the NIC waits, too


class RdmaNode(wiring.Component):
    """NIC for one-sided writes of a host, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Registers of ``rdma_registers(config)``.
    ``memory`` : Out, AXI4, ``width`` bits
        Memory with the payloads.
    ``mac_tx`` : Out, packet stream of ``width`` bits
        Frames for the MAC.
    ``mac_rx`` : In, packet stream of ``width`` bits with ``error``
        Frames from the MAC.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Widths, numbers of queue pairs and regions, buffer sizes.

    Latency
    -------
    The latency of the NIC; its ``post`` comes 4 cycles after the B of the write to ``control`` that posts.

    Source
    ------
    docs/systems/rdma.md; RDMA-wild, section 3.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        axi = memory_signature(data_width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=rdma_registers(config).address_bits)),
                "memory": Out(axi),
                "mac_tx": Out(packet_stream(config.width)),
                "mac_rx": In(packet_stream(config.width, error=True)),
            }
        )

    @property
    def port_use(self) -> dict[str, PortUse]:
        """Use of the AXI4 ports, by name: a burst per payload, or two if the payload crosses 4 KiB."""
        burst = page_burst(self.config.width)
        return {"memory": PortUse(burst=burst, reads=OUTSTANDING, writes=2 * OUTSTANDING, partial=True)}

    def elaborate(self, platform: Any) -> Module:
        """Connect the registers to the NIC, and the NIC to memory and MAC."""
        m = Module()
        m.submodules.registers = registers = RegisterFile(
            registers=rdma_registers(self.config), counters_in_memory=True
        )
        m.submodules.nic = nic = RdmaNic(config=self.config)
        connect_typed(m, flipped(self.axil), registers.axil)
        connect_typed(m, nic.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), nic.mac_rx)
        join_memory(m, read=nic.read, write=nic.write, memory=self.memory)
        self._settings(m, registers, nic)
        writes = self._posts(m, registers, nic)
        self._arrivals(m, registers, nic)
        self._counters(m, registers, writes, nic)
        return m

    def _settings(self, m: Module, registers: Any, nic: RdmaNic) -> None:
        """Drive identity, addresses, queue pairs and regions."""
        drive_constants(m, registers, rdma_constants(self.config))
        nic_settings(m, self.config, registers, nic)

    def _posts(self, m: Module, registers: Any, nic: RdmaNic) -> WriteQueue:
        """Connect writes to the NIC and completions to the host; return the queue of writes."""
        m.submodules.writes = writes = WriteQueue(config=self.config, completions=COMPLETIONS)
        shape = nic.completion.payload.shape()
        m.submodules.completions = done = StreamFIFO(shape=shape, depth=COMPLETIONS)
        connect_typed(m, writes.o, nic.post)
        connect_typed(m, nic.completion, done.i)
        write, completion = writes.write, done.o.payload
        posting = Signal(4)
        connecting = Mux(nic.connect.valid, nic.connect.payload.index, registers.pair_index)  # this queue pair
        sources = {"index": "write_index", "local": "local_address", "remote": "remote_address", "rkey": "key"}
        sources |= {name: name for name in ("tag", "length", "with_immediate", "immediate")}
        m.d.comb += [write[name].eq(getattr(registers, source)) for name, source in sources.items()]
        m.d.comb += [
            writes.post.eq(registers.post),
            writes.local.eq(registers.local_address),
            writes.foreign.eq(is_beyond(registers.write_index, self.config.queue_pairs)),
            writes.connecting.eq(registers.connecting & (registers.write_index == connecting)),
            writes.connected.eq(nic.connected),
            writes.connected_index.eq(nic.connect.payload.index),
            nic.stale.eq(writes.stale),
            registers.post_refusal.eq(writes.refusal),
            registers.full.eq(writes.full),
            registers.posting.eq(registers.post | posting.any()),
            done.o.ready.eq(registers.take_completion),
            writes.completed.eq(done.o.valid & done.o.ready),
            registers.completed.eq(done.o.valid),
            registers.completed_tag.eq(completion.tag),
            registers.completed_index.eq(completion.index),
            registers.ending.eq(completion.ending),
        ]
        m.d.sync += posting.eq((posting << 1) | registers.post)
        return writes

    def _arrivals(self, m: Module, registers: Any, nic: RdmaNic) -> None:
        """Connect received messages with immediate data to the host."""
        m.submodules.arrivals = queue = StreamFIFO(shape=nic.arrival.payload.shape(), depth=ARRIVALS)
        connect_typed(m, nic.arrival, queue.i)
        arrival = queue.o.payload
        m.d.comb += [
            queue.o.ready.eq(registers.take_arrival),
            registers.arrived.eq(queue.o.valid),
            registers.arrived_index.eq(arrival.index),
            registers.arrived_immediate.eq(arrival.immediate),
            registers.arrived_length.eq(arrival.length),
        ]

    def _counters(self, m: Module, registers: Any, writes: WriteQueue, nic: RdmaNic) -> None:
        """Connect every counter to its event source."""
        posts = {"accepted": writes.accepted, "refused_posts": writes.refused}
        drive_counters(m, registers, posts | nic_counters(nic))
