"""The registers of a board, declared once: RTL, host, C header and documentation derive from this."""

from __future__ import annotations

from amaranth.lib import data

from fanin.hdl.bus.common_registers import (
    control_register,
    counter_registers,
    identity_registers,
    node_map,
)
from fanin.hdl.bus.register_map import WORD_BITS, Access, Field, Register, RegisterMap
from fanin.hdl.net.control.headers import IP_BITS, MAC_BITS, ResponderEvents
from fanin.hdl.net.ethernet.mac import MacEvents
from fanin.hdl.net.ethernet.rgmii import LinkStatus, Speed

IDENTITY = 0x4442494E  # "NIBD" in memory order: fanin board
VERSION = 1

#: What a board shows, LED by LED, with what it means; the MAC's and the node's are seen for a moment longer.
LEDS = {
    "link": "the PHY has a link",
    "frame": "a frame has come",
    "running": "the node has sent",
    "fault": "the MAC has lost a frame",
}

_SPEEDS = ", ".join(f"{speed.value} {speed.name.removeprefix('MBPS_')} Mb/s" for speed in Speed)
_MAC_COUNTERS = {
    "received": "good frames that came",
    "bad_fcs": "frames whose FCS was wrong",
    "runt": "frames of less than 64 bytes, and carriers without a frame",
    "long": "frames longer than the longest",
    "damaged": "frames that the PHY said were damaged",
    "dropped": "good frames for which there was no room",
    "sent": "frames that left",
    "refused": "frames that were too long to be sent",
    "underrun": "frames that ended with an error since the core was too slow",
}
_RESPONDER_COUNTERS = {
    "requests": "control requests carried out",
    "repeats": "control requests that came again and were answered again",
    "stale": "control requests older than the last one",
    "refused": "control requests of a host that does not hold the board",
    "malformed": "control requests that are none",
    "dropped": "requests for which there was no room",
    "arps": "ARP requests answered",
    "echoes": "echo requests answered",
}
assert set(_MAC_COUNTERS) == set(MacEvents.members)
assert set(_RESPONDER_COUNTERS) == set(ResponderEvents.members)


def mac_counter(event: str) -> str:
    """The register that counts an event of the MAC."""
    return f"mac_{event}"


def control_counter(event: str) -> str:
    """The register that counts an event of the responder."""
    return f"control_{event}"


#: What the register ``state`` says, and hello to anybody.
BoardState = data.StructLayout({"link": LinkStatus, "leds": data.StructLayout(dict.fromkeys(LEDS, 1))})


def board_registers(*, own_mac: int = 0, own_ip: int = 0) -> RegisterMap:
    """The map, the same for every board but for the addresses that it has until the host gives it others."""
    return node_map(
        identity_registers(IDENTITY, VERSION),
        (
            Register("board", Access.RO, "which board: its number in `hdl/boards/board.py`", bits=16),
            Register("build", Access.RO, "which build of it"),
            Register("core_hz", Access.RO, "the core's clock"),
            control_register(),
            Register("state", Access.RO, "the link, and what the LEDs show", _state()),
            Register("uptime", Access.RO, "seconds since reset"),
            Register("own_mac", Access.RW, "MAC address", bits=MAC_BITS, reset=own_mac),
            Register("own_ip", Access.RW, "IPv4 address", bits=IP_BITS, reset=own_ip),
            Register("host_mac_low", Access.RO, "MAC address of the host that holds or held the board"),
            Register("host_mac_high", Access.RO, "its upper 16 bits", bits=MAC_BITS - WORD_BITS),
            Register("host_ip", Access.RO, "IPv4 address of the host; 0: nobody holds the board", bits=IP_BITS),
        ),
        counter_registers({mac_counter(name): doc for name, doc in _MAC_COUNTERS.items()}),
        counter_registers({control_counter(name): doc for name, doc in _RESPONDER_COUNTERS.items()}),
    )


def _state() -> tuple[Field, ...]:
    """The fields of ``BoardState``, bit for bit."""
    return (
        Field("up", 1, "the PHY has a link"),
        Field("speed", Speed.as_shape().width, _SPEEDS),  # type: ignore[attr-defined]
        Field("full_duplex", 1, "both ways at a time"),
        *(Field(name, 1, f"LED: {doc}") for name, doc in LEDS.items()),
    )
