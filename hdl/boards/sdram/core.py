"""litedram's SDRAM controller and crossbar as Verilog, with a port for each memory of a node.

litedram is written in migen and converted to Verilog when a board is built: for the chips' times in cycles, and
for as many ports as the node has. litedram's PHY for SDR SDRAM is a register at each pad; here Amaranth adds
these registers (:mod:`fanin.hdl.boards.sdram.pins`), with the same latency. The registers through which a CPU
would initialise the chips are omitted: the core is in reset until
:class:`~fanin.hdl.boards.sdram.start.SdramStart` has initialised them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from fanin.base.errors import InputError
from fanin.boards.sdram import CAS_LATENCY, WORD_BYTES, Sdram, SdramTiming

MODULE = "sdram_core"
FILE = f"{MODULE}.v"
EXTRA = "fanin[sdram]"


def check_installed() -> None:
    """Raise InputError if litedram is missing."""
    if not find_spec("litedram"):
        raise InputError(f"litedram is missing: pip install '{EXTRA}'")


def core_verilog(sdram: Sdram, timing: SdramTiming, *, ports: int) -> str:
    """Return the Verilog of the module ``sdram_core`` with ports 0 to ``ports`` - 1.

    Raises InputError if litedram is missing.
    """
    check_installed()
    from litedram.core.controller import ControllerSettings, LiteDRAMController
    from litedram.core.crossbar import LiteDRAMCrossbar
    from migen import Module
    from migen.fhdl.verilog import convert

    core: Any = Module()
    # Auto-precharge would close rows of some chips before their minimum open time.
    settings = ControllerSettings(with_auto_precharge=False)
    phy, geometry, times = _settings(sdram, timing)
    controller = LiteDRAMController(phy, geometry, times, None, settings)
    crossbar = LiteDRAMCrossbar(controller.interface)
    core.submodules += [controller, crossbar]
    pins = [*_chips(core, controller.dfi.phases[0])]
    for number in range(ports):
        pins += _port(core, crossbar.get_port(), number)
    return str(convert(core, ios=set(pins), name=MODULE))


def _settings(sdram: Sdram, timing: SdramTiming) -> tuple[Any, Any, Any]:
    """Return PHY, geometry and times as litedram's settings."""
    from litedram.common import GeomSettings, PhySettings, TimingSettings

    phy = PhySettings(
        phytype="GENSDRPHY",
        memtype="SDR",
        databits=8 * WORD_BYTES,
        dfi_databits=8 * WORD_BYTES,
        nphases=1,
        rdphase=0,
        wrphase=0,
        cl=CAS_LATENCY,
        read_latency=CAS_LATENCY + 1,
        write_latency=0,
    )
    bits = [(size - 1).bit_length() for size in (sdram.banks, sdram.rows, sdram.columns)]
    times = TimingSettings(
        tRP=timing.precharge,
        tRCD=timing.activate_to_access,
        tWR=timing.write_to_precharge,
        tWTR=timing.write_to_precharge,
        tREFI=timing.refresh,
        tRFC=timing.refresh_cycle,
        tFAW=None,
        tCCD=1,
        tRRD=timing.activate_to_other,
        tRC=timing.activate_to_activate,
        tRAS=timing.activate_to_precharge,
        tZQCS=None,
    )
    return phy, GeomSettings(*bits), times


def _chips(core: Any, dfi: Any) -> Iterator[Any]:
    """Yield the pins towards the chips, under fixed names; migen would number its own names."""
    outputs = {
        "ras_n": dfi.ras_n,
        "cas_n": dfi.cas_n,
        "we_n": dfi.we_n,
        "ba": dfi.bank,
        "a": dfi.address,
        "dq_o": dfi.wrdata,
        "dq_oe": dfi.wrdata_en,
    }
    yield from _named_pins(core, "", outputs, {"dq_i": dfi.rddata})


def _port(core: Any, port: Any, number: int) -> Iterator[Any]:
    """Yield the pins of a crossbar port; writes always write whole words."""
    outputs = {
        "ready": port.cmd.ready,
        "taken": port.wdata.ready,
        "word": port.rdata.data,
        "given": port.rdata.valid,
    }
    inputs = {
        "valid": port.cmd.valid,
        "write": port.cmd.we,
        "address": port.cmd.addr,
        "data": port.wdata.data,
    }
    core.comb += port.wdata.we.eq((1 << WORD_BYTES) - 1)
    yield from _named_pins(core, f"p{number}_", outputs, inputs)


def _named_pins(core: Any, prefix: str, outputs: dict[str, Any], inputs: dict[str, Any]) -> Iterator[Any]:
    from migen import Signal

    for name, core_signal in (outputs | inputs).items():
        pin = Signal(len(core_signal), name_override=f"{prefix}{name}")
        core.comb += pin.eq(core_signal) if name in outputs else core_signal.eq(pin)
        yield pin
