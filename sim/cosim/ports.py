"""Ports of a node as the simulated top connects them: memories, host bus, packet streams and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.lib import wiring

from fanin.hdl.emit import flat_ports

_READ = (
    *("arid", "araddr", "arlen", "arvalid", "arready"),
    *("rid", "rdata", "rresp", "rlast", "rvalid", "rready"),
)
_WRITE = (
    *("awid", "awaddr", "awlen", "awvalid", "awready"),
    *("wdata", "wstrb", "wlast", "wvalid", "wready", "bid", "bresp", "bvalid", "bready"),
)
_HOST = (
    *("awaddr", "awvalid", "awready", "wdata", "wvalid", "wready", "bresp", "bvalid", "bready"),
    *("araddr", "arvalid", "arready", "rdata", "rresp", "rvalid", "rready"),
)
_CONSTANTS = {"awprot": "0", "arprot": "0", "wstrb": "'1"}
_PACKETS = ("tdata", "tkeep", "tlast", "tvalid", "tready")
_MAX_PACKET_BITS = 512
_MAX_MEMORY_BITS = 1024
_MAX_EVENTS = 64


@dataclass(frozen=True)
class Port:
    """A Verilog port."""

    name: str
    width: int


@dataclass(frozen=True)
class Bus:
    """An AXI4 port (reading, writing or both) or an AXI4-Lite port; ``signals`` are those that the node has."""

    name: str
    address_bits: int
    data_bits: int
    signals: frozenset[str]
    id_bits: int = 0  # only of an AXI4 port

    @property
    def reads(self) -> bool:
        """Whether an AXI4 port has the channels for reading."""
        return "arlen" in self.signals

    @property
    def writes(self) -> bool:
        """Whether an AXI4 port has the channels for writing."""
        return "awlen" in self.signals

    @property
    def constants(self) -> dict[str, str]:
        """Inputs of an AXI4-Lite slave that are constant."""
        return {name: value for name, value in _CONSTANTS.items() if name in self.signals}


@dataclass(frozen=True)
class NodePorts:
    """Ports of a node: AXI4 ports, one AXI4-Lite port, ``mac_tx`` and ``mac_rx``, and outputs ``event…``.

    An output ``status`` is for boards and stays open here. A node may also have a host packet port: ``host_tx``
    from the host and ``host_rx`` to it, without errors. A node without a network has no MAC.
    """

    all: tuple[Port, ...]
    memories: tuple[Bus, ...]
    host: Bus
    mac_width: int  # 0: the node has no MAC
    host_width: int  # width of the host packet port; 0: the node has none
    events: tuple[Port, ...]

    @property
    def event_bits(self) -> int:
        """Bits of an entry of the event trace."""
        return sum(port.width for port in self.events)

    @classmethod
    def of(cls, component: wiring.Component) -> NodePorts:
        """Find a component's ports by name. Raises ValueError for a port that the top would leave open."""
        flat = flat_ports(component)
        ports = {port.name: Port(port.name, len(port.value)) for port in flat}
        readable, writable = _buses(ports, "arlen"), _buses(ports, "awlen")
        names = [*readable, *(name for name in writable if name not in readable)]
        memories = [
            _bus(ports, name, (*(_READ if name in readable else ()), *(_WRITE if name in writable else ())))
            for name in names
        ]
        hosts = [_bus(ports, name, _HOST) for name in _buses(ports, "awaddr") if name not in writable]
        if len(hosts) != 1:
            raise ValueError(f"{type(component).__name__} must have one AXI4-Lite port, not {len(hosts)}")
        mac_width, host_width = (
            _packet_width(ports, side) if any(name in ports for name in _packet_names(side)) else 0
            for side in ("mac", "host")
        )
        events = tuple(ports[p.name] for p in flat if p.output and p.name.startswith("event"))
        node = cls(tuple(ports.values()), tuple(memories), hosts[0], mac_width, host_width, events)
        node._check(ports)
        return node

    def _check(self, ports: dict[str, Port]) -> None:
        expected = {f"{bus.name}_{signal}" for bus in (*self.memories, self.host) for signal in bus.signals}
        expected |= {*_packet_names("mac"), *_packet_names("host"), "mac_tx_tuser", "mac_rx_tuser"}
        expected |= {port.name for port in self.events} | {"status"}
        if unconnected := sorted(set(ports) - expected):
            raise ValueError(f"the simulated top has nothing for the ports {', '.join(unconnected)}")
        for name, value, limit in (
            ("width of the MAC streams", self.mac_width, _MAX_PACKET_BITS),
            ("width of the host's packet streams", self.host_width, _MAX_PACKET_BITS),
            ("width of a memory port", max((m.data_bits for m in self.memories), default=0), _MAX_MEMORY_BITS),
            ("events", self.event_bits, _MAX_EVENTS),
        ):
            if value > limit:
                raise ValueError(f"{name} must be at most {limit} bits, not {value}")


def _buses(ports: dict[str, Port], signal: str) -> list[str]:
    return [name.removesuffix(f"_{signal}") for name in ports if name.endswith(f"_{signal}")]


def _bus(ports: dict[str, Port], name: str, required: Sequence[str]) -> Bus:
    missing = [f"{name}_{signal}" for signal in required if f"{name}_{signal}" not in ports]
    if missing:
        raise ValueError(f"bus {name} lacks {', '.join(missing)}")
    signals = frozenset(p.removeprefix(f"{name}_") for p in ports if p.startswith(f"{name}_"))
    widths = [
        next((ports[f"{name}_{s}"].width for s in pair if s in signals), 0)
        for pair in (("araddr", "awaddr"), ("rdata", "wdata"), ("arid", "awid"))
    ]
    return Bus(name, widths[0], widths[1], signals, widths[2])


def _packet_names(side: str) -> list[str]:
    """Return the signals of the packet streams of a side, ``mac`` or ``host``."""
    return [f"{side}_{direction}_{signal}" for direction in ("tx", "rx") for signal in _PACKETS]


def _packet_width(ports: dict[str, Port], side: str) -> int:
    errors = ["mac_rx_tuser"] if side == "mac" else []
    if missing := [name for name in [*_packet_names(side), *errors] if name not in ports]:
        raise ValueError(f"the {side}'s packet streams lack {', '.join(missing)}")
    tx, rx = (ports[f"{side}_{direction}_tdata"].width for direction in ("tx", "rx"))
    if tx != rx:
        raise ValueError(f"the {side}'s packet streams must have one width, not {tx} and {rx} bits")
    return tx
