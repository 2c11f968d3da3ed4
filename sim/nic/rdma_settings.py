"""Settings of an RDMA node that ``fanin nic rdma`` runs at a Linux interface, and the parsers of its addresses.

The node writes to the memory of other nodes and is written by them (one-sided RDMA writes over RoCEv2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from fanin.base.errors import InputError
from fanin.rdma.facts import FIRST_QUEUE_PAIR, RdmaConfig, Region
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import ICRC_BYTES, IP_AT, MOST_HEADER_BYTES, PATH_MTUS

_MAC_PREFIX = 0x02_00 << 32  # of a default MAC address: locally administered; the IPv4 address is the rest


@dataclass(frozen=True)
class Peer:
    """The other end of a queue pair: its IPv4 address and its queue pair's number."""

    ip: int
    number: int = FIRST_QUEUE_PAIR


@dataclass(frozen=True)
class RdmaSettings:
    """Settings of a node.

    - ``config``: sizes of the node.
    - ``port``: name of the Linux interface.
    - ``endpoint``: the node's MAC and IPv4 addresses.
    - ``memory``: file that is the node's memory, as the user named it.
    - ``size``: bytes of the memory.
    - ``mtu``: longest path MTU of the node's queue pairs, in bytes; one of ``PATH_MTUS``.
    - ``regions``: memory regions that are registered at the start.
    - ``peers``: peer n is that of the n-th queue pair, which is connected at the start.
    - ``control``: path of the control socket; None for none.
    - ``checked_memory``: path under which the file was opened and checked, to be opened in place of ``memory``;
      None if they are the same.
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


def default_mac(ip: int) -> int:
    """Return a node's default MAC address: locally administered, and unique for each IPv4 address."""
    return _MAC_PREFIX | ip


def parse_ip(name: str, text: str) -> int:
    """Return the IPv4 address of one host as a number. Raises InputError that begins with ``name``."""
    try:
        address = IPv4Address(text)
    except AddressValueError as error:
        raise InputError(f"{name} {text}: is no IPv4 address") from error
    if address.is_multicast or address.is_unspecified or address == IPv4Address(0xFFFF_FFFF):
        raise InputError(f"{name} {text}: is no host's address")
    return int(address)


def ip_text(ip: int) -> str:
    """Return an IPv4 address as text."""
    return str(IPv4Address(ip))


def parse_mac(name: str, text: str) -> int:
    """Return the MAC address of one interface as a number. Raises InputError that begins with ``name``."""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}|[0-9a-fA-F]{12}", text):
        raise InputError(f"{name} {text}: is no MAC address such as 02:00:00:00:00:01")
    mac = int(text.replace(":", ""), 16)
    if (mac >> 40) & 1 or not mac:  # bit 40 is the group bit: the lowest one of the first byte
        raise InputError(f"{name} {text}: is a group's MAC address, not an interface's")
    return mac
