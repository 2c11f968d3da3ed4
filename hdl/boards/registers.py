"""A board's own registers, declared once, and their hardware: what it is, addresses, link, counters, LEDs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.boards.identity import BUILD_BITS, Identity
from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.common_registers import (
    CLEAR_COUNTERS,
    control_register,
    counter_registers,
    drive_constants,
    drive_counters,
    identity_registers,
    node_map,
)
from fanin.hdl.bus.register_map import WORD_BITS, Access, Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.hdl.net.control.headers import IP_BITS, MAC_BITS, AboutWords, ResponderEvents
from fanin.hdl.net.ethernet.mac import MacEvents
from fanin.hdl.net.ethernet.rgmii import LinkStatus, Speed
from fanin.hdl.stream.connect import connect_typed
from fanin.wire.control import ABOUT, VERSION_AT

IDENTITY = 0x42_4E_49_46  # "FINB" in memory order: fanin board
VERSION = 1

#: What the board's LEDs show: ``link_up``, ``active``, ``running`` and ``fault`` of the state.
Leds = data.StructLayout({"link": 1, "frame": 1, "running": 1, "fault": 1})
_BLINKS = 16  # a second

_EVERY_SPEED = cast("Iterable[Any]", Speed)
_SPEEDS = ", ".join(f"{speed.value} {speed.name.removeprefix('MBPS_')} Mb/s" for speed in _EVERY_SPEED)
_STATE = (
    Field("link_up", 1, "the PHY has a link"),
    Field("speed", 2, _SPEEDS),
    Field("full_duplex", 1, "the link is full duplex"),
    Field("running", 1, "the node is busy"),
    Field("failed", 1, "the node has failed: its own `status` says why"),
    Field("underran", 1, "a frame was sent too slowly since the counters were cleared"),
    Field("active", 1, "a frame came or went in the last sixteenth of a second"),
    Field("fault", 1, "the node has failed, or a frame underran"),
)

#: Counters by name, with the events that they count.
MAC_COUNTERS = {
    "received": "frames that came whole and well",
    "bad_fcs": "frames dropped: FCS",
    "runt": "frames dropped: shorter than 64 bytes",
    "long": "frames dropped: too long",
    "damaged": "frames dropped: the PHY says that they are damaged",
    "dropped": "frames dropped: no room",
    "sent": "frames that have left",
    "refused": "frames that were not sent: too long",
    "underrun": "frames that were sent too slowly, and end with an error",
}
RESPONDER_COUNTERS = {
    "requests": "control requests carried out, hello among them",
    "repeats": "control requests that came again, and were answered again",
    "stale": "control requests older than the last one: not answered",
    "refused": "control requests of a host that does not hold the board, or of its lease at another address",
    "malformed": "control requests and IPv4 headers that are not what they should be",
    "dropped": "frames for the board's own services that found no room",
    "arps": "ARP requests answered",
    "echoes": "echo requests answered",
}
assert MAC_COUNTERS.keys() == MacEvents.members.keys()
assert RESPONDER_COUNTERS.keys() == ResponderEvents.members.keys()


def _counters() -> dict[str, str]:
    """All counters: those of the MAC are called ``mac_…``, those of the responder ``control_…``."""
    mac = {f"mac_{name}": doc for name, doc in MAC_COUNTERS.items()}
    return mac | {f"control_{name}": doc for name, doc in RESPONDER_COUNTERS.items()}


def board_registers(identity: Identity | None = None) -> RegisterMap:
    """The register map of a board, the same for all; the addresses are at first those of ``identity``."""
    mac, ip = (identity.mac, identity.ip) if identity else (0, 0)
    return node_map(
        identity_registers(IDENTITY, VERSION),
        (
            Register("board", Access.RO, "which kind of board: its number in `hdl/boards/board.py`", bits=16),
            Register("build", Access.RO, "number of the build", bits=BUILD_BITS),
            control_register(),
            Register("state", Access.RO, "what goes on; hello says it to anybody", _STATE),
            Register("uptime", Access.RO, "seconds since reset"),
            Register("holder", Access.RO, "IPv4 address of the host that holds the board, 0 for none"),
            Register("holder_mac_low", Access.RO, "lower half of that host's MAC address, or the last one's"),
            Register("holder_mac_high", Access.RO, "the upper 16 bits of it", bits=MAC_BITS - WORD_BITS),
            Register("own_mac", Access.RW, "MAC address; takes effect at once", bits=MAC_BITS, reset=mac),
            Register(
                "own_ip",
                Access.RW,
                "IPv4 address; takes effect at once, in the reply, too",
                bits=IP_BITS,
                reset=ip,
            ),
        ),
        counter_registers(_counters(), bits=64),
    )


def board_constants(identity: Identity) -> dict[str, int]:
    """What a board says of itself, by field."""
    return {"id": IDENTITY, "version": VERSION, "board": identity.board, "build": identity.build}


class BoardRegisters(wiring.Component):
    """A board's registers, its clock of seconds and its LEDs.

    Members
    -------
    ``axil`` : In, :class:`AXI4LiteSignature` of 12 bits
    ``own_mac`` : Out, 48
    ``own_ip`` : Out, 32
    ``about`` : Out, AboutWords
        What hello says of the board.
    ``leds`` : Out, Leds
    ``link`` : In, LinkStatus
    ``running``, ``failed`` : In, 1
        What the node does.
    ``holder`` : In, 32
    ``holder_mac`` : In, 48
    ``mac`` : In, MacEvents
    ``control`` : In, ResponderEvents

    Parameters
    ----------
    ``identity`` : Identity
    ``clock_hz`` : int, of the domain ``sync``, at least 16

    Latency
    -------
    That of :class:`~fanin.hdl.bus.registers.RegisterFile`, with its counters in a memory.

    Source
    ------
    docs/reference/board-registers.md.
    """

    def __init__(self, *, identity: Identity, clock_hz: int):
        if clock_hz < _BLINKS:
            raise ValueError(f"clock_hz must be at least {_BLINKS}, not {clock_hz!r}")
        self.identity = identity
        self.clock_hz = clock_hz
        self._registers = board_registers(identity)
        super().__init__(
            {
                "axil": In(AXI4LiteSignature(address_width=self._registers.address_bits)),
                "own_mac": Out(MAC_BITS),
                "own_ip": Out(IP_BITS),
                "about": Out(AboutWords),
                "leds": Out(Leds),
                "link": In(LinkStatus),
                "running": In(1),
                "failed": In(1),
                "holder": In(IP_BITS),
                "holder_mac": In(MAC_BITS),
                "mac": In(MacEvents),
                "control": In(ResponderEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The file, and what goes into it."""
        m = Module()
        m.submodules.file = file = RegisterFile(registers=self._registers, counters_in_memory=True)
        connect_typed(m, wiring.flipped(self.axil), file.axil)
        drive_constants(m, file, board_constants(self.identity))
        events = {f"mac_{name}": self.mac[name] for name in MAC_COUNTERS}
        events |= {f"control_{name}": self.control[name] for name in RESPONDER_COUNTERS}
        drive_counters(m, file, events)
        state = self._state(m, getattr(file, CLEAR_COUNTERS))
        m.d.comb += [getattr(file, name).eq(value) for name, value in state.items()]
        m.d.comb += [
            file.holder.eq(self.holder),
            Cat(file.holder_mac_low, file.holder_mac_high).eq(self.holder_mac),
            self.own_mac.eq(file.own_mac),
            self.own_ip.eq(file.own_ip),
        ]
        about = {
            "board": VERSION << VERSION_AT | self.identity.board,
            "build": self.identity.build,
            "uptime": file.uptime,
            "state": Cat(state[field.name] for field in _STATE),
        }
        m.d.comb += [word.eq(about[field.name]) for word, field in zip(self.about, ABOUT[1:-1], strict=True)]
        return m

    def _state(self, m: Module, clear: Any) -> dict[str, Any]:
        """What goes on, by field, and the uptime."""
        left = Signal(range(self.clock_hz // _BLINKS), init=self.clock_hz // _BLINKS - 1)
        blink = Signal()
        blinks = Signal(range(_BLINKS))
        uptime = Signal(32)
        underran = Signal()
        seen = Signal()
        frame = Signal()
        m.d.comb += blink.eq(left == 0)
        m.d.sync += [left.eq(left - 1), seen.eq(seen | self.mac.received | self.mac.sent)]
        with m.If(blink):
            m.d.sync += [left.eq(left.init), blinks.eq(blinks + 1), frame.eq(seen), seen.eq(0)]
            with m.If(blinks == _BLINKS - 1):
                m.d.sync += uptime.eq(uptime + 1)
        m.d.sync += underran.eq((underran | self.mac.underrun) & ~clear)
        m.d.comb += [
            self.leds.link.eq(self.link.up),
            self.leds.frame.eq(frame),
            self.leds.running.eq(self.running),
            self.leds.fault.eq(self.failed | underran),
        ]
        return {
            "uptime": uptime,
            "link_up": self.link.up,
            "speed": self.link.speed.as_value(),
            "full_duplex": self.link.full_duplex,
            "running": self.running,
            "failed": self.failed,
            "underran": underran,
            "active": frame,
            "fault": self.leds.fault,
        }
