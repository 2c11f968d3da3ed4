"""Bus interfaces among a module's ports, recognised by name as vendors' tools do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fanin.hdl.emit import FlatPort

CLOCK, RESET = "clk", "rst"  #: ports of every module; the reset is synchronous and active high
_ADDRESS = "id addr len size burst lock cache prot qos valid ready"
_CHANNELS = {
    "ar": _ADDRESS,
    "r": "id data resp last valid ready",
    "aw": _ADDRESS,
    "w": "data strb last valid ready",
    "b": "id resp valid ready",
}
_AXI = {f"{channel}{signal}" for channel, signals in _CHANNELS.items() for signal in signals.split()}
_BURSTS = {"arlen", "awlen"}  # in AXI4, absent from AXI4-Lite
_STREAM = {name: name for name in ("tdata", "tkeep", "tlast", "tuser", "tvalid", "tready")}
_PLAIN_STREAM = {"payload": "tdata", "valid": "tvalid", "ready": "tready"}


class Protocol(StrEnum):
    """Protocol of a bus interface; the value is Vivado's name for it."""

    AXI4 = "AXI4"
    AXI4_LITE = "AXI4LITE"
    AXI4_STREAM = "AXI4STREAM"


@dataclass(frozen=True)
class Interface:
    """Ports that form one bus, each with its logical name (``AWADDR``, ``TDATA``)."""

    name: str
    protocol: Protocol
    master: bool
    ports: Mapping[str, FlatPort]  #: by logical name
    by_name: bool  #: whether a tool recognises the bus by its port names


def interfaces(ports: Sequence[FlatPort]) -> list[Interface]:
    """Return the buses among these ports, in the order of their first ports.

    A plain stream of whole bytes (``x_payload x_valid x_ready``) is an AXI4-Stream with other names: the
    handshake is the same. A prefix with any port that the protocol lacks is not a bus.
    """
    ports_by_prefix: dict[str, dict[str, FlatPort]] = {}
    for port in ports:
        prefix, _, signal = port.name.rpartition("_")
        if prefix:
            ports_by_prefix.setdefault(prefix, {})[signal] = port
    candidates = (_interface(prefix, signals) for prefix, signals in ports_by_prefix.items())
    return [interface for interface in candidates if interface]


def _interface(name: str, signals: Mapping[str, FlatPort]) -> Interface | None:
    """Return the bus that all signals of a prefix form, or None."""
    if signals.keys() <= _AXI and signals.keys() & {"araddr", "awaddr"}:
        protocol = Protocol.AXI4 if signals.keys() & _BURSTS else Protocol.AXI4_LITE
        logical = {signal.upper(): port for signal, port in signals.items()}
        valid = logical.get("ARVALID") or logical["AWVALID"]
        return Interface(name, protocol, valid.output, logical, by_name=True)
    for names in _STREAM, _PLAIN_STREAM:
        logical = {names[signal].upper(): port for signal, port in signals.items() if signal in names}
        if len(logical) == len(signals) and {"TDATA", "TVALID"} <= logical.keys():
            if len(logical["TDATA"].value) % 8:
                return None  # AXI4-Stream carries bytes
            return Interface(
                name, Protocol.AXI4_STREAM, logical["TVALID"].output, logical, by_name=names is _STREAM
            )
    return None
