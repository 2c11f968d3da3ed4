"""Memories of a node in a board's SDRAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.boards.sdram import Sdram, SdramTiming
from fanin.hdl.boards.sdram.core import MODULE
from fanin.hdl.boards.sdram.port import SdramPort
from fanin.hdl.boards.sdram.signature import chip_pins
from fanin.hdl.boards.sdram.start import SdramStart
from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature
from fanin.hdl.stream.connect import connect_typed


class SdramMemory(wiring.Component):
    """Memories in consecutive parts of SDRAM; to host and reader each behaves like a ``BlockMemory``.

    The chips are initialised after a reset, which takes 200 µs; accesses wait. litedram's core connects the
    ports and the chips: the Verilog of :func:`~fanin.hdl.boards.sdram.core.core_verilog`.

    Members
    -------
    ``axil0``, ``axil1`` : In, AXI4-Lite, 32 bits
        Port of the host, one for each memory, with as many address bits as the memory needs.
    ``axi0``, ``axi1`` : In, AXI4 read, of the memory's bits
        Port of the reader, one for each memory.
    ``chip`` : Out, :func:`~fanin.hdl.boards.sdram.signature.chip_pins`
        Pins of the chips.

    Parameters
    ----------
    ``sdram`` : Sdram
        Chips of the board.
    ``timing`` : SdramTiming
        Times of the chips in cycles of the clock.
    ``memories`` : sequence of (bytes, bits of a beat)
        Size and beat of each memory.
    ``address_width`` : int
        Bits of an address on ``axi0`` and all other reader ports. Default 32.

    Latency
    -------
    docs/systems/boards.md, "SDRAM".

    Source
    ------
    docs/systems/boards.md, "SDRAM"; litedram.
    """

    def __init__(
        self,
        *,
        sdram: Sdram,
        timing: SdramTiming,
        memories: Sequence[tuple[int, int]],
        address_width: int = 32,
    ):
        if sum(size for size, _ in memories) > sdram.size:
            raise ValueError(f"memories must have at most {sdram.size:,} bytes together, not {memories!r}")
        self.sdram = sdram
        self.timing = timing
        self.memories = tuple(memories)
        self.address_width = address_width
        members = {"chip": Out(chip_pins(sdram))}
        for number, (size, width) in enumerate(self.memories):
            axi = AXI4ReadSignature(data_width=width, address_width=address_width)
            axil = AXI4LiteSignature(address_width=(size - 1).bit_length())
            members |= {f"axil{number}": In(axil), f"axi{number}": In(axi)}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Hold the core in reset, without commands, until the chips are initialised; then it drives them."""
        m = Module()
        m.submodules.start = start = SdramStart(timing=self.timing)
        chip = self.chip
        ras_n, cas_n, we_n = (Signal(name=name) for name in ("ras_n", "cas_n", "we_n"))
        address = Signal.like(chip.a, name="address")
        m.d.comb += [
            chip.ras.eq(~ras_n | start.ras),
            chip.cas.eq(~cas_n | start.cas),
            chip.we.eq(~we_n | start.we),
            chip.a.eq(address | start.a),
        ]
        m.submodules.core = Instance(
            MODULE,
            i_sys_clk=ClockSignal(),
            i_sys_rst=ResetSignal() | ~start.done,
            o_ras_n=ras_n,
            o_cas_n=cas_n,
            o_we_n=we_n,
            o_a=address,
            o_ba=chip.ba,
            o_dq_o=chip.dq_o,
            o_dq_oe=chip.dq_oe,
            i_dq_i=chip.dq_i,
            **self._ports(m, start.done),
        )
        return m

    def _ports(self, m: Module, started: Signal) -> dict[str, Any]:
        """Build a port for each memory; return its connections as arguments of the core's instance."""
        arguments: dict[str, Any] = {}
        base = 0
        for number, (size, width) in enumerate(self.memories):
            axil = getattr(self, f"axil{number}")
            m.submodules[f"port{number}"] = memory = SdramPort(
                base=base,
                size=size,
                word_address_width=(self.sdram.words - 1).bit_length(),
                beat_width=width,
                address_width=self.address_width,
                host_address_width=axil.signature.address_width,
            )
            connect_typed(m, flipped(axil), memory.axil)
            connect_typed(m, flipped(getattr(self, f"axi{number}")), memory.axi)
            arguments |= _arguments(m, f"p{number}_", memory.port, started)
            base += size
        return arguments


def _arguments(m: Module, prefix: str, port: Any, started: Signal) -> dict[str, Any]:
    """Return the connections of a core port; its ``ready`` is ignored while the core is in reset."""
    ready = Signal(name=f"{prefix}ready")
    m.d.comb += port.command.ready.eq(ready & started)
    return {
        f"i_{prefix}valid": port.command.valid & started,
        f"i_{prefix}write": port.command.payload.write,
        f"i_{prefix}address": port.command.payload.address,
        f"i_{prefix}data": port.data,
        f"o_{prefix}ready": ready,
        f"o_{prefix}taken": port.taken,
        f"o_{prefix}word": port.word.payload,
        f"o_{prefix}given": port.word.valid,
    }
