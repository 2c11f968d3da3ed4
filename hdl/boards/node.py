"""Node with all that a board needs in the core's clock domain, from the MAC's frames to the MAC's frames."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.boards.facts import BoardMemory
from fanin.boards.memory import memory_of
from fanin.boards.sdram import Sdram
from fanin.glm.facts import GlmConfig
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.memory_map import ADDRESS_BITS, BOARD, LABELS, NODE, list_memory, sample_memory
from fanin.hdl.boards.registers import BoardRegisters, Leds
from fanin.hdl.boards.sdram.memory import SdramMemory
from fanin.hdl.boards.sdram.signature import chip_pins
from fanin.hdl.bus.axi_lite_decoder import AxiLiteDecoder
from fanin.hdl.bus.axi_lite_master import TIMEOUT
from fanin.hdl.bus.block_memory import BlockMemory
from fanin.hdl.glm.node import GlmNode, NodeEvents
from fanin.hdl.net.control.demultiplexer import Demultiplexer
from fanin.hdl.net.control.frame_merger import FrameMerger
from fanin.hdl.net.control.responder import Responder
from fanin.hdl.net.ethernet.mac import MacEvents
from fanin.hdl.net.ethernet.rgmii import LinkStatus
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream

MAC_WIDTH = 32
LEASE_S = 60


class BoardNode(wiring.Component):
    """GLM node with its memories, the board's registers and services, on one MAC; no node without ``config``.

    Members
    -------
    ``mac_rx`` : In, packet stream of 32 bits
        Frames without errors, valid in every cycle of a frame.
    ``mac_tx`` : Out, packet stream of 32 bits
        Frames for the MAC; may pause inside a frame.
    ``mac_events`` : In, MacEvents
        Events of the MAC, for counters.
    ``link`` : In, LinkStatus
        State of the PHY's link.
    ``leds`` : Out, Leds
        State for the LEDs.
    ``events`` : Out, NodeEvents
        Events of the node, for measurement.
    With ``sdram`` there is one more, ``chip``: Out, the SDRAM's pins (``chip_pins``).

    Parameters
    ----------
    ``config`` : GlmConfig or None
        Configuration with 32 bits to the MAC, in UDP, whose memory is in ``fanin.boards.facts``; None: no node.
    ``identity`` : Identity
        Kind of board, build and addresses.
    ``clock_hz`` : int
        Clock of the domain ``sync`` in Hz.
    ``sdram`` : Sdram or None
        SDRAM for the node's memories; None: block RAM.

    Latency
    -------
    The latency of :class:`Demultiplexer` to the node and of :class:`FrameMerger` from it.

    Source
    ------
    docs/boards.md.
    """

    def __init__(
        self, *, config: GlmConfig | None, identity: Identity, clock_hz: int, sdram: Sdram | None = None
    ):
        if config is not None and config.mac_width != MAC_WIDTH:
            raise ValueError(f"config must have a mac_width of {MAC_WIDTH}, not {config.mac_width}")
        self.config = config
        self.identity = identity
        self.clock_hz = clock_hz
        self.sdram = None if config is None else sdram
        super().__init__(
            ({"chip": Out(chip_pins(self.sdram))} if self.sdram else {})
            | {
                "mac_rx": In(packet_stream(MAC_WIDTH)),
                "mac_tx": Out(packet_stream(MAC_WIDTH)),
                "mac_events": In(MacEvents),
                "link": In(LinkStatus),
                "leds": Out(Leds),
                "events": Out(NodeEvents),
            }
        )

    @property
    def _start_cycles(self) -> int:
        """Upper bound of the cycles after a reset in which the memories do not answer."""
        return 2 * self.sdram.timing(self.clock_hz).start if self.sdram else 0

    def elaborate(self, platform: Any) -> Module:
        """Connect frames to node and services, and the services' bus to registers and memories."""
        m = Module()
        m.submodules.demultiplexer = demultiplexer = Demultiplexer()
        m.submodules.merger = merger = FrameMerger(width=MAC_WIDTH)
        m.submodules.responder = responder = Responder(
            lease_cycles=LEASE_S * self.clock_hz, bus_timeout=TIMEOUT + self._start_cycles
        )
        m.submodules.registers = registers = BoardRegisters(identity=self.identity, clock_hz=self.clock_hz)
        connect_typed(m, flipped(self.mac_rx), demultiplexer.i)
        connect_typed(m, demultiplexer.board, responder.i)
        connect_typed(m, responder.o, merger.i[0])
        connect_typed(m, merger.o, flipped(self.mac_tx))
        slaves = {BOARD: registers.axil}
        if self.config is None:
            m.d.comb += demultiplexer.node.ready.eq(1)
        else:
            node = GlmNode(config=self.config)
            m.submodules.node = node
            connect_typed(m, node.mac_tx, merger.i[1])
            _receive(m, demultiplexer, node)
            slaves |= {NODE: node.axil, **self._memories(m, self.config, node)}
            m.d.comb += [
                registers.running.eq(node.status.running),
                registers.failed.eq(node.status.failed),
                self.events.eq(node.events),
            ]
        self._bus(m, responder, slaves)
        self._board(m, registers, demultiplexer, responder)
        return m

    def _memories(self, m: Module, config: GlmConfig, node: GlmNode) -> dict[int, Any]:
        """Build the node's memories of samples, labels and lists; return each one's bus port by its address."""
        ports = _ports(node, memory_of(config, self.sdram))
        if self.sdram is None:
            return _block_memories(m, config, ports)
        m.submodules.memory = memory = SdramMemory(
            sdram=self.sdram,
            timing=self.sdram.timing(self.clock_hz),
            memories=[(size, axi.signature.data_width) for axi, size in ports.values()],
            address_width=config.address_width,
        )
        wiring.connect(m, memory.chip, flipped(self.chip))
        for number, (axi, _) in enumerate(ports.values()):
            connect_typed(m, axi, getattr(memory, f"axi{number}"))
        return {base: getattr(memory, f"axil{number}") for number, base in enumerate(ports)}

    def _bus(self, m: Module, responder: Responder, slaves: dict[int, Any]) -> None:
        """Connect each slave at its address of the memory map."""
        regions = [(base, slave.signature.address_width) for base, slave in slaves.items()]
        m.submodules.decoder = decoder = AxiLiteDecoder(address_width=ADDRESS_BITS, regions=regions)
        connect_typed(m, responder.axil, decoder.axil)
        for number, slave in enumerate(slaves.values()):
            connect_typed(m, getattr(decoder, f"m{number}"), slave)

    def _board(self, m: Module, registers: Any, demultiplexer: Demultiplexer, responder: Responder) -> None:
        """Connect the board's state to its registers, and the addresses from them."""
        m.d.comb += [
            registers.link.eq(self.link),
            registers.mac.eq(self.mac_events),
            registers.control.eq(responder.events),
            registers.holder.eq(responder.holder),
            registers.holder_mac.eq(responder.holder_mac),
            responder.about.eq(registers.about),
            self.leds.eq(registers.leds),
        ]
        for name in ("own_mac", "own_ip"):
            address = getattr(registers, name)
            m.d.comb += [getattr(demultiplexer, name).eq(address), getattr(responder, name).eq(address)]


def _receive(m: Module, demultiplexer: Demultiplexer, node: GlmNode) -> None:
    """Connect the node's frames; none has an error, since bad frames were dropped."""
    frames = demultiplexer.node
    m.d.comb += [
        node.mac_rx.valid.eq(frames.valid),
        frames.ready.eq(node.mac_rx.ready),
        *(node.mac_rx.p[name].eq(frames.p[name]) for name in ("data", "keep", "last")),
    ]


def _ports(node: GlmNode, memory: BoardMemory) -> dict[int, tuple[Any, int]]:
    """Return the node's read ports and the bytes of their memories, by the memory's address on the bus."""
    samples = {sample_memory(n): (axi, memory.sample_bytes) for n, axi in enumerate(node.samples)}
    lists = node.lists if node.config.sparse else []
    return {
        **samples,
        LABELS: (node.labels, memory.label_bytes),
        **{list_memory(engine): (axi, memory.list_bytes) for engine, axi in enumerate(lists)},
    }


def _block_memories(m: Module, config: GlmConfig, ports: dict[int, tuple[Any, int]]) -> dict[int, Any]:
    """Build a block RAM for each port; return the bus port of each memory by its address."""
    slaves = {}
    names = [f"samples_{port}" for port in range(config.sample_ports)]
    names += ["label", *(f"list_{engine}" for engine in range(config.engines))]
    for name, (base, (axi, size)) in zip(names, ports.items(), strict=False):  # a dense node has no lists
        m.submodules[f"{name}_memory"] = block = BlockMemory(
            size=size,
            data_width=axi.signature.data_width,
            address_width=config.address_width,
            host_address_width=(size - 1).bit_length(),
        )
        connect_typed(m, axi, block.axi)
        slaves[base] = block.axil
    return slaves
