"""Node of the parameter server: server and NIC with registers, ready for a board."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import (
    OUTSTANDING,
    AXI4LiteSignature,
    AXI4ReadSignature,
    join_memory,
    memory_signature,
)
from fanin.hdl.bus.common_registers import drive_constants, drive_counters
from fanin.hdl.bus.port_use import PortUse, page_burst
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.param_server.registers import SERVER_COUNTERS, param_server_constants, param_server_registers
from fanin.hdl.param_server.server import ParamServer, ServerEvents
from fanin.hdl.param_server.server_control import JobRequest, ServerControl
from fanin.hdl.param_server.streamed_reads import BURSTS
from fanin.hdl.param_server.update_path import BURST
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.nic_control import flag_words, nic_counters, nic_settings
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.rdma.facts import RdmaConfig


class ParamServerNode(wiring.Component):
    """Parameter server with its NIC, ready for a board.

    Members
    -------
    ``axil`` : In, AXI4-Lite, 32 bits
        Registers of ``param_server_registers(config)``.
    ``memory`` : Out, AXI4, ``width`` bits
        Port of the NIC. This port, ``rows``, ``table`` and ``scan`` lead to one memory; a read returns all data
        written before it.
    ``rows`` : Out, AXI4, ``width`` bits
        Port for reading w and writing rows.
    ``table`` : Out, AXI4 read port
        Port for reading gradients.
    ``scan`` : Out, AXI4 read port
        Port for reading the trailers of gradients.
    ``mac_tx`` : Out, packet stream of ``width`` bits
        Frames for the MAC.
    ``mac_rx`` : In, packet stream of ``width`` bits with ``error``
        Frames from the MAC.
    ``events`` : Out, ServerEvents
        Pulses for measurement; a board leaves them open.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Sizes of the NIC. Worker n uses queue pair n.

    Latency
    -------
    The latency of :class:`~fanin.hdl.param_server.server.ParamServer` plus that of the NIC.

    Source
    ------
    docs/systems/param-server-hardware.md; RDMA-wild, section 4.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        axi = {"data_width": config.width, "address_width": config.address_width}
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=param_server_registers(config).address_bits)),
                "memory": Out(memory_signature(**axi)),
                "rows": Out(memory_signature(**axi)),
                "table": Out(AXI4ReadSignature(**axi)),
                "scan": Out(AXI4ReadSignature(**axi)),
                "mac_tx": Out(packet_stream(config.width)),
                "mac_rx": In(packet_stream(config.width, error=True)),
                "events": Out(ServerEvents),
            }
        )

    @property
    def port_use(self) -> dict[str, PortUse]:
        """Use of the AXI4 ports, by name; ``memory`` is the NIC's, whose payloads have any alignment."""
        page = page_burst(self.config.width)
        return {
            "memory": PortUse(burst=page, reads=BURSTS, writes=2 * OUTSTANDING, partial=True),
            "rows": PortUse(burst=BURST, reads=OUTSTANDING, writes=OUTSTANDING),
            "table": PortUse(burst=BURST, reads=OUTSTANDING),
            "scan": PortUse(burst=1, reads=self.config.queue_pairs),
        }

    def elaborate(self, platform: Any) -> Module:
        """Connect registers, server and NIC; the NIC reads memory through the server's streamed reads."""
        m = Module()
        register_map = param_server_registers(self.config)
        m.submodules.registers = registers = RegisterFile(registers=register_map, counters_in_memory=True)
        m.submodules.control = control = ServerControl(config=self.config)
        m.submodules.nic = nic = RdmaNic(config=self.config)
        m.submodules.server = server = ParamServer(config=self.config)
        connect_typed(m, flipped(self.axil), registers.axil)
        connect_typed(m, nic.mac_tx, flipped(self.mac_tx))
        connect_typed(m, flipped(self.mac_rx), nic.mac_rx)
        connect_typed(m, server.post, nic.post)
        connect_typed(m, nic.completion, server.completion)
        connect_typed(m, nic.read, server.nic)
        connect_typed(m, server.table, flipped(self.table))
        connect_typed(m, server.scan, flipped(self.scan))
        join_memory(m, read=server.memory, write=nic.write, memory=self.memory)
        join_memory(m, read=server.rows_read, write=server.rows_write, memory=self.rows)
        nic_settings(m, self.config, registers, nic)
        self._settings(m, registers, control, server)
        m.d.comb += control.connected.eq(nic.sending)
        self._counters(m, registers, nic, server)
        # A write with immediate data is treated like any other write of a worker.
        m.d.comb += [nic.arrival.ready.eq(1), self.events.eq(server.events)]
        return m

    def _settings(self, m: Module, registers: Any, control: ServerControl, server: ParamServer) -> None:
        """Connect the registers to control and server."""
        job, request = control.job, control.request
        same_named = (name for name in JobRequest.as_shape().members if name != "base")
        status_names = ("busy", "exhausted", "stalest")
        drive_constants(m, registers, param_server_constants(self.config))
        connect_typed(m, control.worker, server.worker)
        connect_typed(m, control.excludes, server.exclude)
        m.d.comb += [job[name].eq(getattr(registers, name)) for name in same_named]
        m.d.comb += [getattr(registers, name).eq(getattr(server, name)) for name in status_names]
        m.d.comb += [
            job.base.eq(registers.rows_base),
            request.index.eq(registers.worker),
            request.table.eq(registers.worker_table),
            request.remote.eq(registers.worker_buffers),
            request.rkey.eq(registers.worker_key),
            control.set_worker.eq(registers.set_worker),
            control.start.eq(registers.start),
            control.exclude.eq(registers.exclude),
            control.readmit.eq(registers.readmit),
            control.excluded.eq(server.excluded),
            control.drained.eq(server.drained),
            control.run.eq(registers.run),
            control.busy.eq(server.busy),
            registers.setting.eq(control.setting),
            registers.refused.eq(control.refused),
            server.settings.eq(control.settings),
            server.enable.eq(control.enable),
            server.start.eq(control.begin),
            registers.w_version.eq(server.version),
            *(word.eq(server.staleness.word_select(n, 32)) for n, word in enumerate(registers.staleness)),
        ]
        flag_words(m, registers.gone, server.excluded)
        flag_words(m, registers.drained, server.drained)

    def _counters(self, m: Module, registers: Any, nic: RdmaNic, server: ParamServer) -> None:
        """Connect every counter to its event source."""
        sources = {name: server.events[name] for name in SERVER_COUNTERS}
        sources |= {f"nic_{name}": source for name, source in nic_counters(nic).items()}
        drive_counters(m, registers, sources)
