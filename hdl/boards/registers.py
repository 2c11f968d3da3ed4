"""Registers of a board and their hardware: identity, addresses, link, counters, LEDs."""

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

#: State shown by the board's LEDs, each a field of the register ``state``: ``link`` is ``link_up``, ``frame``
#: is ``active``, ``running`` and ``fault`` have the same names.
Leds = data.StructLayout({"link": 1, "frame": 1, "running": 1, "fault": 1})
_BLINKS = 16  # periods a second in which activity is collected: the LED shows each for a sixteenth of a second

_EVERY_SPEED = cast("Iterable[Any]", Speed)
_SPEEDS = ", ".join(f"{speed.value} {speed.name.removeprefix('MBPS_')} Mb/s" for speed in _EVERY_SPEED)
_STATE = (
    Field("link_up", 1, "the PHY has a link"),
    Field("speed", 2, _SPEEDS),
    Field("full_duplex", 1, "the link is full duplex"),
    Field("running", 1, "the node is busy"),
    Field("failed", 1, "the node has failed; its own `status` has the cause"),
    Field("underran", 1, "a frame was sent too slowly since the counters were cleared"),
    Field("active", 1, "a frame was received or sent in the last sixteenth of a second"),
    Field("fault", 1, "the node has failed, or a frame underran"),
)

#: Counters of the MAC by event name.
MAC_COUNTERS = {
    "received": "frames received without errors",
    "bad_fcs": "frames dropped: FCS",
    "runt": "frames dropped: shorter than 64 bytes",
    "long": "frames dropped: too long",
    "damaged": "frames dropped: error reported by the PHY",
    "dropped": "frames dropped: no room",
    "sent": "frames sent",
    "refused": "frames not sent: too long",
    "underrun": "frames sent too slowly, which end with an error",
}
RESPONDER_COUNTERS = {
    "requests": "control requests executed, including hello",
    "repeats": "control requests received again and answered again",
    "stale": "control requests older than the last one: not answered",
    "refused": "control requests of a host that does not hold the board, or of the holder at another address",
    "malformed": "malformed control requests and IPv4 headers",
    "dropped": "frames for the board's own services dropped for lack of room",
    "arps": "ARP requests answered",
    "echoes": "echo requests answered",
}
assert MAC_COUNTERS.keys() == MacEvents.members.keys()
assert RESPONDER_COUNTERS.keys() == ResponderEvents.members.keys()


def _counters() -> dict[str, str]:
    """Return all counters: ``mac_…`` of the MAC, ``control_…`` of the responder."""
    mac = {f"mac_{name}": doc for name, doc in MAC_COUNTERS.items()}
    return mac | {f"control_{name}": doc for name, doc in RESPONDER_COUNTERS.items()}


def board_registers(identity: Identity | None = None) -> RegisterMap:
    """Return the register map, the same for all boards; addresses are initially those of ``identity``."""
    mac, ip = (identity.mac, identity.ip) if identity else (0, 0)
    return node_map(
        identity_registers(IDENTITY, VERSION),
        (
            Register("board", Access.RO, "kind of board: its number in `hdl/boards/board.py`", bits=16),
            Register("build", Access.RO, "number of the build", bits=BUILD_BITS),
            control_register(),
            Register("state", Access.RO, "state of the board; hello reports it to every host", _STATE),
            Register("uptime", Access.RO, "seconds since reset"),
            Register("holder", Access.RO, "IPv4 address of the host that holds the board, 0 for none"),
            Register("holder_mac_low", Access.RO, "lower half of the MAC address of that or the last holder"),
            Register("holder_mac_high", Access.RO, "upper 16 bits of that address", bits=MAC_BITS - WORD_BITS),
            Register("own_mac", Access.RW, "MAC address; takes effect immediately", bits=MAC_BITS, reset=mac),
            Register(
                "own_ip",
                Access.RW,
                "IPv4 address; takes effect immediately, even in the reply",
                bits=IP_BITS,
                reset=ip,
            ),
        ),
        counter_registers(_counters(), bits=64),
    )


def board_constants(identity: Identity) -> dict[str, int]:
    """Return the constant register fields of a board."""
    return {"id": IDENTITY, "version": VERSION, "board": identity.board, "build": identity.build}


class BoardRegisters(wiring.Component):
    """Registers of a board, its counter of seconds and its LEDs.

    Members
    -------
    ``axil`` : In, :class:`AXI4LiteSignature`
        Register port; as many address bits as the register map has.
    ``own_mac`` : Out, 48
        MAC address of the board.
    ``own_ip`` : Out, 32
        IPv4 address of the board.
    ``about`` : Out, AboutWords
        State of the board for hello.
    ``leds`` : Out, Leds
        State for the LEDs; high is on.
    ``link`` : In, LinkStatus
        State of the PHY's link.
    ``running``, ``failed`` : In, 1
        State of the node.
    ``holder`` : In, 32
        IPv4 address of the host that holds the board, 0 for none.
    ``holder_mac`` : In, 48
        MAC address of that host.
    ``mac`` : In, MacEvents
        Events of the MAC.
    ``control`` : In, ResponderEvents
        Events of the responder.

    Parameters
    ----------
    ``identity`` : Identity
        Kind of board, build and initial addresses.
    ``clock_hz`` : int
        Clock of the domain ``sync`` in Hz, at least 16.

    Latency
    -------
    The latency of :class:`~fanin.hdl.bus.registers.RegisterFile` with its counters in a memory.

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
        """Build the register file and drive its fields."""
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
        hello_words = {
            "board": VERSION << VERSION_AT | self.identity.board,
            "build": self.identity.build,
            "uptime": file.uptime,
            "state": Cat(state[field.name] for field in _STATE),
        }
        # The responder itself has the first field of ABOUT, the holder, and the last, the lease that it offers.
        m.d.comb += [
            word.eq(hello_words[field.name]) for word, field in zip(self.about, ABOUT[1:-1], strict=True)
        ]
        return m

    def _state(self, m: Module, clear: Any) -> dict[str, Any]:
        """Return the fields of ``state`` and the uptime; drive the LEDs.

        Activity is collected over a period of 1/16 s and shown in the next one: ``frame_seen`` collects,
        ``frame`` is the LED and the field ``active``. Every 16th period adds a second to the uptime.
        """
        cycles_left = Signal(range(self.clock_hz // _BLINKS), init=self.clock_hz // _BLINKS - 1)
        blink = Signal()
        blinks = Signal(range(_BLINKS))
        uptime = Signal(32)
        underran = Signal()
        frame_seen = Signal()
        frame = Signal()
        m.d.comb += blink.eq(cycles_left == 0)
        m.d.sync += [
            cycles_left.eq(cycles_left - 1),
            frame_seen.eq(frame_seen | self.mac.received | self.mac.sent),
        ]
        with m.If(blink):
            m.d.sync += [  # a frame of this very cycle belongs to the next period
                cycles_left.eq(cycles_left.init),
                blinks.eq(blinks + 1),
                frame.eq(frame_seen),
                frame_seen.eq(self.mac.received | self.mac.sent),
            ]
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
