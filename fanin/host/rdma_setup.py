"""Out-of-band set-up of queue pairs: two ends exchange their parameters over TCP, then each connects its own.

Contract: docs/systems/rdma.md, "Setting up". Each end sends one line of JSON. A peer may be a fanin node, its
golden model, or a standard NIC (:mod:`fanin.host.rdma_verbs`).
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from types import TracebackType
from typing import Any, Self

from fanin.base.errors import InputError
from fanin.base.records import parse_json
from fanin.host.sockets import refuse_self
from fanin.rdma.facts import FIRST_QUEUE_PAIR, MAX_VLAN, Connection, Region
from fanin.wire.ethernet import Endpoint
from fanin.wire.fields import field_bits
from fanin.wire.rdma import BTH, PATH_MTUS, PSN_BITS, RETH

FORMAT = "fanin-rdma 1"
LOOPBACK = "127.0.0.1"
TIMEOUT = 30.0  # seconds in which an end must answer
_MAX_LINE = 4096  # bytes of a line
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_RETRY = 0.1  # seconds until a connection is tried again
# Numeric parameters of an end and their limits; queue pairs 0 and 1 are for management.
_LIMITS = {
    "queue_pair": (2, (1 << field_bits(BTH, "queue_pair")) - 1),
    "psn": (0, (1 << PSN_BITS) - 1),
    "rkey": (0, (1 << field_bits(RETH, "rkey")) - 1),
    "address": (0, (1 << field_bits(RETH, "address")) - 1),
    "length": (0, (1 << field_bits(RETH, "address")) - 1),
}
_FIRST_PORT = 0xC000  # first of RoCEv2's source ports
_LABEL_BITS = 20  # bits of an IPv6 flow label


def _excerpt(value: object) -> str:
    """Return the beginning of a peer's value, for messages."""
    return f"{value!r:.60}"


def _is_gid(value: object) -> bool:
    """Return whether a value is the text of an IPv6 address without a scope such as ``%eth0``."""
    try:
        return isinstance(value, str) and IPv6Address(value).scope_id is None
    except AddressValueError:
        return False


def mapped_gid(ip: IPv4Address) -> str:
    """Return the GID of an IPv4 address."""
    return f"::ffff:{ip}"


@dataclass(frozen=True)
class End:
    """Parameters of a queue pair that the other end needs to send to it and to write into its memory.

    - ``queue_pair``: number of the queue pair.
    - ``psn``: number of the first packet that this end sends.
    - ``gid``: address in IPv6 notation; ``::ffff:10.0.0.1`` for an IPv4 address.
    - ``mac``: MAC address.
    - ``mtu``: largest possible path MTU in bytes.
    - ``rkey``, ``address``, ``length``: key and range of memory that the other end may write.
    - ``vlan``: VLAN of its frames; None for frames without a tag.

    Raises InputError that names field, value and limit.
    """

    queue_pair: int
    psn: int
    gid: str
    mac: str
    mtu: int
    rkey: int = 0
    address: int = 0
    length: int = 0
    vlan: int | None = None

    def __post_init__(self) -> None:
        limits = dict(_LIMITS)
        if self.vlan is not None:
            limits["vlan"] = (0, MAX_VLAN)
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(f"{name} must be {low} to {high:#x}, not {_excerpt(value)}")
        if type(self.mtu) is not int or self.mtu not in PATH_MTUS:
            raise InputError(f"mtu must be one of {', '.join(map(str, PATH_MTUS))}, not {_excerpt(self.mtu)}")
        if not _is_gid(self.gid):
            raise InputError(f"gid must be an IPv6 address like ::ffff:10.0.0.1, not {_excerpt(self.gid)}")
        if not isinstance(self.mac, str) or not _MAC.fullmatch(self.mac):
            raise InputError(f"mac must be like 02:00:00:00:00:01, not {_excerpt(self.mac)}")

    @classmethod
    def of_node(
        cls,
        index: int,
        endpoint: Endpoint,
        region: Region,
        *,
        psn: int,
        mtu: int = 4096,
        vlan: int | None = None,
    ) -> End:
        """Return the end of the queue pair at ``index`` of a node at ``endpoint``, with its writable region."""
        mac = endpoint.mac.to_bytes(6, "big").hex(":")
        gid = mapped_gid(IPv4Address(endpoint.ip))
        region_fields = {"rkey": region.rkey, "address": region.base, "length": region.length}
        return cls(FIRST_QUEUE_PAIR + index, psn, gid, mac, mtu, vlan=vlan, **region_fields)

    @property
    def ipv4(self) -> int | None:
        """IPv4 address in the GID; None if the GID has none."""
        mapped = IPv6Address(self.gid).ipv4_mapped
        return None if mapped is None else int(mapped)

    def endpoint(self, source_port: int) -> Endpoint:
        """Return the addresses of its frames, with the UDP port to send from, for drivers and models.

        Raises InputError if the GID has no IPv4 address.
        """
        if self.ipv4 is None:
            raise InputError(f"the GID {self.gid} is not an IPv4 address; fanin's RoCEv2 uses IPv4 only")
        return Endpoint(int(self.mac.replace(":", ""), 16), self.ipv4, source_port)

    def to_json(self) -> str:
        """Return the line of JSON that describes this end."""
        return json.dumps({"format": FORMAT} | asdict(self))

    @classmethod
    def from_json(cls, line: str, *, source: str) -> End:
        """Parse the line of JSON of an end. Raises InputError that names ``source`` and the cause."""
        try:
            values_of_peer = parse_json(line)
        except ValueError as error:
            raise InputError(f"{source}: not a line of JSON: {line[:40]!r}") from error
        if not isinstance(values_of_peer, Mapping) or values_of_peer.get("format") != FORMAT:
            raise InputError(f"{source}: not an end of a queue pair: no format {FORMAT!r}")
        names = {field.name for field in fields(cls)}
        values = {name: value for name, value in values_of_peer.items() if name in names}
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        except TypeError as error:
            missing = sorted(names - values.keys())
            raise InputError(f"{source}: missing {', '.join(missing)}") from error


def negotiate(local: End, peer: End, **settings: Any) -> Connection:
    """Return the connection of ``local`` with ``peer``; both ends use the smaller path MTU.

    ``settings``: this end's window, retries, traffic_class and priority. Raises InputError that names the
    conflict between the ends.
    """
    if peer.ipv4 is None or local.ipv4 is None:
        other = peer if peer.ipv4 is None else local
        raise InputError(f"the GID {other.gid} is not an IPv4 address; fanin's RoCEv2 uses IPv4 only")
    if local.ipv4 == peer.ipv4:
        raise InputError(f"the peer has the same address, {peer.gid}")
    if local.mac == peer.mac:
        raise InputError(f"the peer has this end's MAC address, {peer.mac}")
    if int(peer.mac[:2], 16) & 1 or not peer.mac.strip("0:"):
        raise InputError(f"the peer's MAC address {peer.mac} is not that of one station")
    if local.vlan != peer.vlan:
        local_vlan, peer_vlan = ("no VLAN" if end.vlan is None else f"VLAN {end.vlan}" for end in (local, peer))
        raise InputError(f"{local_vlan} here, {peer_vlan} at the peer; the VLANs must be equal")
    if peer.address + peer.length > 1 << field_bits(RETH, "address"):
        raise InputError(f"the peer's region, {peer.length} bytes from {peer.address:#x}, has no end")
    mtu = min(local.mtu, peer.mtu)
    numbers = {"send_psn": local.psn, "receive_psn": peer.psn}
    try:
        return Connection(peer.queue_pair, mtu=mtu, vlan=local.vlan, **numbers, **settings)
    except ValueError as error:
        raise InputError(str(error)) from error


def source_port(local: End, peer: End) -> int:
    """Return the UDP port that ``local`` sends from, at least 0xC000.

    The port is the same for all packets of a queue pair and differs between queue pairs, so that networks
    spread their load. The formula is that of Linux (``rdma_calc_flow_label``).
    """
    label = local.queue_pair * peer.queue_pair
    label ^= label >> _LABEL_BITS ^ label >> 2 * _LABEL_BITS
    label %= 1 << _LABEL_BITS
    return _FIRST_PORT | (label ^ label >> 14) & 0x3FFF


class Rendezvous:
    """TCP connection over which two ends exchange their parameters and signal when they are ready.

    Every wait ends after ``timeout`` seconds. All errors are InputErrors that name the other end.
    """

    def __init__(self, stream: socket.socket, name: str, timeout: float):
        self.name = name
        self._timeout = timeout
        self._stream = stream
        self._unparsed = b""

    @classmethod
    def listen(cls, port: int, *, host: str = LOOPBACK, timeout: float = TIMEOUT) -> Self:
        """Wait at a port for the other end; ``host`` is the address to listen at ("" for all).

        By default only this machine can connect. The first client that connects is accepted and receives the
        key of the memory. Use other addresses only in networks in which every host is trusted.
        """
        name = f"{host or '*'}:{port}"
        try:
            with socket.create_server((host, port)) as server:
                server.settimeout(timeout)
                stream, (peer, *_) = server.accept()
        except TimeoutError as error:
            raise InputError(f"{name}: no connection within {timeout:g} s") from error
        except (OSError, OverflowError) as error:
            raise InputError(f"{name}: cannot listen: {error}") from error
        return cls(stream, f"{peer}", timeout)

    @classmethod
    def connect(cls, host: str, port: int, *, timeout: float = TIMEOUT) -> Self:
        """Connect to an end that listens there, or will listen within ``timeout``."""
        name, end = f"{host}:{port}", time.monotonic() + timeout
        while True:
            try:
                stream = socket.create_connection((host, port), timeout)
                refuse_self(stream)
                return cls(stream, name, timeout)
            except (ConnectionRefusedError, TimeoutError) as error:
                if time.monotonic() + _RETRY > end:
                    raise InputError(f"{name}: no listener for {timeout:g} s") from error
                time.sleep(_RETRY)
            except (OSError, OverflowError) as error:
                raise InputError(f"{name}: cannot connect: {error}") from error

    def exchange(self, local: End) -> End:
        """Send our parameters to the other end; return its parameters."""
        self._send(local.to_json())
        return End.from_json(self._receive_line(), source=self.name)

    def wait(self, word: str) -> None:
        """Synchronise: both ends send the same ``word``, and continue when they have received it.

        The first such point is needed for queue pairs: no end may send before the other one is connected.
        """
        self._send(word)
        if (reply := self._receive_line()) != word:
            raise InputError(f"{self.name}: the peer sent {reply[:40]!r} instead of {word!r}")

    def _send(self, line: str) -> None:
        try:
            self._stream.settimeout(self._timeout)
            self._stream.sendall(line.encode() + b"\n")
        except OSError as error:
            raise InputError(f"{self.name}: the connection has ended: {error}") from error

    def _receive_line(self) -> str:
        end = time.monotonic() + self._timeout
        while b"\n" not in self._unparsed:
            if len(self._unparsed) > _MAX_LINE:
                raise InputError(f"{self.name}: a line of more than {_MAX_LINE} bytes")
            try:
                self._stream.settimeout(max(end - time.monotonic(), 1e-3))
                chunk = self._stream.recv(_MAX_LINE)
            except TimeoutError as error:
                raise InputError(f"{self.name}: no answer for {self._timeout:g} s") from error
            except OSError as error:
                raise InputError(f"{self.name}: the connection has ended: {error}") from error
            if not chunk:
                raise InputError(f"{self.name}: the peer closed the connection")
            self._unparsed += chunk
        line, self._unparsed = self._unparsed.split(b"\n", 1)
        return line.decode(errors="replace")

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
