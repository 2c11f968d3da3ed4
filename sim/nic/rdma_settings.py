"""Settings of a node of one-sided writes at an interface."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from fanin.base.errors import InputError
from fanin.rdma.facts import FIRST_QUEUE_PAIR, RdmaConfig, Region
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import ICRC_BYTES, IP_AT, MOST_HEADER_BYTES, PATH_MTUS

_OWN_MAC = 0x02_00 << 32  # locally administered prefix, before the IPv4 address


@dataclass(frozen=True)
class Peer:
    """The other end of a queue pair: its IPv4 address and its queue pair's number."""

    ip: int
    number: int = FIRST_QUEUE_PAIR


@dataclass(frozen=True)
class RdmaSettings:
    """Settings of a node at the interface ``port``.

    - ``config``: sizes of the node.
    - ``endpoint``: the node's addresses.
    - ``memory``, ``size``: file of the node's memory, and its bytes.
    - ``checked_memory``: path that leads to the file that was checked, if given.
    - ``mtu``: longest path MTU of its queue pairs.
    - ``regions``: regions at the start.
    - ``peers``: peer of the n-th queue pair, which is connected at the start.
    - ``control``: path of the control socket, if any.
    """

    config: RdmaConfig
    port: str
    endpoint: Endpoint
    memory: Path
    size: int
    mtu: int
    regions: tuple[Region, ...] = ()
    peers: tuple[Peer, ...] = ()
    control: Path | None = None
    checked_memory: Path | None = None


def path_mtu(interface_mtu: int) -> int:
    """Return the longest path MTU whose packets an interface carries; 0 if it carries none."""
    max_payload = interface_mtu - (MOST_HEADER_BYTES - IP_AT + ICRC_BYTES)
    return max((mtu for mtu in PATH_MTUS if mtu <= max_payload), default=0)


def mac_for(ip: int) -> int:
    """Return a node's default MAC address: locally administered, and unique for each IPv4 address."""
    return _OWN_MAC | ip


def ip_of(name: str, text: str) -> int:
    """Return an IPv4 address of one host. Raises InputError that begins with ``name``."""
    try:
        address = IPv4Address(text)
    except AddressValueError as error:
        raise InputError(f"{name} {text}: is no IPv4 address") from error
    if address.is_multicast or address.is_unspecified or address == IPv4Address(0xFFFF_FFFF):
        raise InputError(f"{name} {text}: is no host's address")
    return int(address)


def address_of(ip: int) -> str:
    """Return an IPv4 address as text."""
    return str(IPv4Address(ip))


def mac_of(name: str, text: str) -> int:
    """Return a MAC address of one interface. Raises InputError that begins with ``name``."""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}|[0-9a-fA-F]{12}", text):
        raise InputError(f"{name} {text}: is no MAC address, as 02:00:00:00:00:01")
    mac = int(text.replace(":", ""), 16)
    if mac >> 40 & 1 or not mac:
        raise InputError(f"{name} {text}: is a group's MAC address, not an interface's")
    return mac
