"""Execution of local programs' requests to a running node of one-sided writes.

docs/reference/nic.md lists the requests. The node is RTL or its model; both are a :class:`Node`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from fanin.base.errors import InputError
from fanin.rdma.driver import Arrival
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, Ending, Region, Write
from fanin.sim.nic.address import Address
from fanin.sim.nic.control import Answer, Request
from fanin.sim.nic.rdma_settings import RdmaSettings, ip_text, parse_ip, parse_mac
from fanin.wire.ethernet import Endpoint, mac_text
from fanin.wire.rdma import MAX_MESSAGE_BYTES, PSN_BITS

SOURCE_PORT = 0xC000  # plus a queue pair's index: source UDP port of its packets
ARP_SECONDS = 10.0  #: seconds that a ``connect`` waits for the peer's MAC
MAX_ARRIVALS = 1024  # messages that wait for a program; beyond it, the oldest are dropped


class Node(Protocol):
    """Interface of the node, RTL or model. Each method calls ``on_done`` when it has finished."""

    def connect(
        self, index: int, connection: Connection, peer: Endpoint, on_done: Callable[[], object]
    ) -> None:
        """Connect or reconnect a queue pair."""

    def set_regions(self, regions: Sequence[Region], on_done: Callable[[], object]) -> None:
        """Replace all regions."""

    def post(self, index: int, write: Write, on_done: Callable[[Ending], object]) -> None:
        """Carry out a write; the node chooses its tag."""

    def read_counters(self, on_done: Callable[[dict[str, int]], object]) -> None:
        """Read the counters, by name."""


@dataclass
class _Resolution:
    """A ``connect`` that waits for the peer's MAC; ``deadline`` None: without limit."""

    index: int
    connection: Connection
    ip: int
    deadline: float | None
    answer: Answer


@dataclass
class _ArrivalRequest:
    """A program that waits for a message with immediate data."""

    deadline: float
    answer: Answer


class RdmaControl:
    """Handler of requests to ``node``, from programs and ``settings``. Call ``serve`` several times a second.

    ``kind`` is the kind of node that ``info`` reports.
    """

    def __init__(self, node: Node, settings: RdmaSettings, address: Address, *, kind: str):
        self._node, self._settings, self._address, self._kind = node, settings, address, kind
        self._arrivals: deque[Arrival] = deque(maxlen=MAX_ARRIVALS)
        self._waiting: deque[_ArrivalRequest] = deque()
        self._resolutions: list[_Resolution] = []
        self._connected: dict[int, tuple[Connection, int]] = {}
        self._failed: dict[int, str] = {}  # by queue pair: ending of the write that failed
        self._regions: list[Region] = []
        self._handlers = {
            "info": self._info, "connect": self._connect, "regions": self._set_regions,
            "write": self._write, "arrival": self._arrival, "counters": self._counters,
        }  # fmt: skip

    def begin(self) -> None:
        """Set the regions and peers of the settings."""
        settings = self._settings
        self._take_regions(settings.regions, lambda: None)
        for index, peer in enumerate(settings.peers):
            connection = Connection(peer.number, mtu=settings.mtu)
            self._resolutions.append(_Resolution(index, connection, peer.ip, None, lambda answer: True))

    def handle(self, request: Request, answer: Answer) -> None:
        """Carry out a request; errors become its answer."""
        try:
            name = request.pop("do", None)
            if not isinstance(name, str) or name not in self._handlers:
                raise InputError(f"do must be one of {', '.join(self._handlers)}, not {name!r}")
            self._handlers[name](request, answer)
        except (InputError, ValueError) as error:
            answer({"error": str(error).replace("\n", "\\n")})  # a request's text may have any characters

    def add_arrival(self, message: Arrival) -> None:
        """Queue the notice of a message with immediate data; its data are already in memory."""
        self._arrivals.append(message)
        self._answer_arrivals()

    def serve(self) -> None:
        """Connect peers whose MAC has become known; answer requests that have timed out."""
        now = time.monotonic()
        resolutions, self._resolutions = self._resolutions, []
        for resolution in resolutions:
            if (mac := self._address.mac_of(resolution.ip)) is not None:
                try:
                    self._connect_to(
                        resolution.index, resolution.connection, Endpoint(mac, resolution.ip), resolution.answer
                    )
                except ValueError as error:  # an unsupported peer: a VLAN
                    resolution.answer({"error": str(error)})
            elif resolution.deadline is not None and now > resolution.deadline:
                resolution.answer({"error": f"no answer to ARP from {ip_text(resolution.ip)}; give its mac"})
            else:
                self._resolutions.append(resolution)
        for expired in [resolution for resolution in self._waiting if now > resolution.deadline]:
            self._waiting.remove(expired)
            expired.answer({"arrival": None})

    # ---- requests ----

    def _info(self, request: Request, answer: Answer) -> None:
        _reject_other_fields(request)
        endpoint, config = self._address.endpoint, self._settings.config
        pairs = [
            {"pair": index, "ip": ip_text(ip), "peer": connection.peer, "mtu": connection.mtu,
             "failed": self._failed.get(index)}
            for index, (connection, ip) in sorted(self._connected.items())
        ]  # fmt: skip
        waiting = [{"pair": resolution.index, "ip": ip_text(resolution.ip)} for resolution in self._resolutions]
        answer({
            "node": self._kind, "mac": mac_text(endpoint.mac), "ip": ip_text(endpoint.ip),
            "mtu": self._settings.mtu, "queue_pairs": config.queue_pairs, "first_queue_pair": FIRST_QUEUE_PAIR,
            "descriptors": config.descriptors, "connected": pairs, "waiting": waiting,
            "regions": [_region_json(region) for region in self._regions],
            "memory": str(self._settings.memory), "bytes": self._settings.size,
        })  # fmt: skip

    def _connect(self, request: Request, answer: Answer) -> None:
        index = self._pair(request)
        ip = _ip(request.pop("ip", None))
        mac = request.pop("mac", None)
        defaults = {"peer": FIRST_QUEUE_PAIR, "mtu": self._settings.mtu}
        values = defaults | _integers(request, [field.name for field in fields(Connection)])
        _reject_other_fields(request)
        for name in ("peer", "send_psn", "receive_psn"):
            _check_bits(name, values.get(name, 0), PSN_BITS)
        connection = Connection(**values)
        if connection.mtu > self._settings.mtu:
            raise InputError(
                f"mtu must be at most {self._settings.mtu}, for the interface's, not {connection.mtu}"
            )
        for replaced in [replaced for replaced in self._resolutions if replaced.index == index]:
            self._resolutions.remove(replaced)
            replaced.answer({"error": f"pair {index} has been connected otherwise meanwhile"})
        if mac is not None:
            self._connect_to(index, connection, Endpoint(_mac(mac), ip), answer)
        else:
            deadline = time.monotonic() + ARP_SECONDS
            self._resolutions.append(_Resolution(index, connection, ip, deadline, answer))

    def _connect_to(self, index: int, connection: Connection, peer: Endpoint, answer: Answer) -> None:
        def finish() -> None:
            self._connected[index] = connection, peer.ip
            self._failed.pop(index, None)
            answer({})

        self._node.connect(index, connection, Endpoint(peer.mac, peer.ip, SOURCE_PORT + index), finish)

    def _set_regions(self, request: Request, answer: Answer) -> None:
        objects = request.pop("regions", None)
        _reject_other_fields(request)
        if not isinstance(objects, list) or not all(isinstance(region, dict) for region in objects):
            raise InputError("regions must be a list of objects")
        self._take_regions([self._region(dict(region)) for region in objects], lambda: answer({}))

    def _region(self, fields_of_region: Request) -> Region:
        pairs = fields_of_region.pop("pairs", list(range(self._settings.config.queue_pairs)))
        if not isinstance(pairs, list) or not all(_is_int(pair) for pair in pairs):
            raise InputError("pairs must be a list of integers")
        for pair in pairs:
            self._check_pair(pair)
        values = {"base": 0, "length": self._settings.size} | _integers(
            fields_of_region, ("base", "length", "rkey")
        )
        _reject_other_fields(fields_of_region)
        if "rkey" not in values:
            raise InputError("rkey: a region needs one")
        _check_bits("rkey", values["rkey"], 32)
        numbers = frozenset(FIRST_QUEUE_PAIR + pair for pair in pairs)
        region = Region(values["base"], values["length"], values["rkey"], numbers)
        if not 0 <= region.base <= region.base + region.length <= self._settings.size:
            raise InputError(
                f"region {region.rkey:#x}: {region.length} bytes from {region.base} exceed memory, which has "
                f"{self._settings.size}"
            )
        return region

    def _take_regions(self, regions: Sequence[Region], on_done: Callable[[], object]) -> None:
        self._settings.config.check_regions(regions)  # the model itself accepts any
        self._node.set_regions(regions, on_done)
        self._regions = list(regions)

    def _write(self, request: Request, answer: Answer) -> None:
        index = self._pair(request)
        values = {"local": 0, "remote": 0, "rkey": 1} | _integers(
            request, ("local", "remote", "rkey", "length", "immediate")
        )
        _reject_other_fields(request)
        if "length" not in values:
            raise InputError("length: a write needs one")
        _check_bits("remote", values["remote"], 64)
        _check_bits("rkey", values["rkey"], 32)
        _check_bits("immediate", values.get("immediate", 0), 32)
        local, length, size = values["local"], values["length"], self._settings.size
        if not 0 <= length <= MAX_MESSAGE_BYTES:
            raise InputError(f"length must be 0 to {MAX_MESSAGE_BYTES}, not {length}")
        if not 0 <= local <= size - length:
            raise InputError(f"local: {length} bytes from {local} exceed memory, which has {size}")
        if index not in self._connected:
            hosts = [ip_text(resolution.ip) for resolution in self._resolutions if resolution.index == index]
            cause = f": {hosts[0]} has not answered to ARP yet" if hosts else ""
            raise InputError(f"pair {index} is not connected{cause}")
        write = Write(tag=0, **values)
        self._node.post(index, write, lambda ending: self._report_ending(index, ending, answer))

    def _report_ending(self, index: int, ending: Ending, answer: Answer) -> bool:
        if ending not in (Ending.DONE, Ending.FLUSHED):
            self._failed[index] = ending.name.lower()
        return answer({"ending": ending.name.lower()})

    def _arrival(self, request: Request, answer: Answer) -> None:
        seconds = request.pop("seconds", 0)
        _reject_other_fields(request)
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= 3600:
            raise InputError(f"seconds must be 0 to 3600, not {seconds!r}")
        self._waiting.append(_ArrivalRequest(time.monotonic() + seconds, answer))
        self._answer_arrivals()

    def _answer_arrivals(self) -> None:
        while self._waiting and self._arrivals:
            message = self._arrivals[0]
            arrival = {"pair": message.index, "immediate": message.immediate, "length": message.length}
            if self._waiting.popleft().answer({"arrival": arrival}) is not False:  # else it has disconnected
                self._arrivals.popleft()

    def _counters(self, request: Request, answer: Answer) -> None:
        _reject_other_fields(request)
        self._node.read_counters(lambda counters: answer({"counters": counters}))

    def _pair(self, request: Request) -> int:
        index = _integers(request, ("pair",)).get("pair", 0)
        self._check_pair(index)
        return index

    def _check_pair(self, index: int) -> None:
        count = self._settings.config.queue_pairs
        if index not in range(count):
            raise InputError(f"pair must be 0 to {count - 1}, not {index}")


def _region_json(region: Region) -> Request:
    pairs = sorted(number - FIRST_QUEUE_PAIR for number in region.queue_pairs)
    return {"base": region.base, "length": region.length, "rkey": region.rkey, "pairs": pairs}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integers(request: Request, names: Sequence[str]) -> dict[str, int]:
    """Take the fields of these names out of a request. Raises InputError for one that is no integer."""
    integers = {name: request.pop(name) for name in names if name in request}
    for name, value in integers.items():
        if not _is_int(value):
            raise InputError(f"{name} must be an integer, not {value!r}")
    return integers


def _reject_other_fields(request: Request) -> None:
    if request:
        raise InputError(f"{next(iter(request))}: no such field")


def _check_bits(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise InputError(f"{name} must be 0 to {(1 << bits) - 1}, not {value}")


def _ip(value: Any) -> int:
    if not isinstance(value, str):
        raise InputError("ip must be the peer's IPv4 address, as text")
    return parse_ip("ip", value)


def _mac(value: Any) -> int:
    if not isinstance(value, str):
        raise InputError("mac must be text")
    return parse_mac("mac", value)
