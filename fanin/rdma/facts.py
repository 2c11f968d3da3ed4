"""NIC of one-sided writes: sizes, limits, descriptors, regions and connections (docs/systems/rdma.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from fanin.base.limits import check_address_width
from fanin.wire.ethernet import IPV4, TCI
from fanin.wire.fields import field_bits
from fanin.wire.rdma import PATH_MTUS, PSN_BITS, Fault

# Number of a NIC's first queue pair; other NICs use 0 and 1 for management.
FIRST_QUEUE_PAIR = 0x100
MAX_QUEUE_PAIRS = 64
MAX_REGIONS = 64
MAX_DESCRIPTORS = 256
MAX_WINDOW_BITS = 10  # a window is a power of two of packets, at most 1024
MAX_RETRIES = 7
MAX_VLAN = 4094  # 4095 is reserved
WIDTHS = (128, 256, 512)  # bits; the longest burst of such words is 4 KiB
MAX_PAYLOAD = max(PATH_MTUS)  # bytes of a packet


#: Counter of frames dropped for each fault.
DROPPED = {
    Fault.FOREIGN: "dropped_foreign",
    Fault.DAMAGED: "dropped_damaged",
    Fault.CONGESTION: "dropped_congestion",
    Fault.OPCODE: "dropped_opcode",
    Fault.UNKNOWN: "dropped_unconnected",
}


class Ending(IntEnum):
    """Result of a write, as encoded by the NIC."""

    DONE = 0
    REQUEST = 1  #: refused as an invalid request
    ACCESS = 2  #: refused: no such region, or no permission to write there
    OPERATION = 3  #: refused: the peer failed
    RETRIES = 4  #: unanswered after all retransmissions
    FLUSHED = 5  #: its queue pair had failed, or was connected again


class Refusal(IntEnum):
    """Reason why a node refused its host's command ``connect``, ``set_region`` or ``post``."""

    NONE = 0  #: the command was accepted
    PLACE = 1  #: the node has no queue pair or region with that index
    BUSY = 2  #: the previous command is not complete
    SETTINGS = 3  #: no such path MTU, or a window above 1024 packets
    RANGE = 4  #: bytes beyond the memory's addresses
    LENGTH = 5  #: a message above 2^31 bytes
    FULL = 6  #: no room for the completion or for the write


def check_width(width: int) -> None:
    """Raise ValueError unless packets can be carried in words of ``width`` bits."""
    if width not in WIDTHS:
        raise ValueError(f"width must be one of {', '.join(map(str, WIDTHS))}, not {width!r}")


def check_path(*, width: int, address_width: int) -> None:
    """Raise ValueError unless packets can be carried between MAC and memory in words of ``width`` bits."""
    check_width(width)
    check_address_width(address_width)


def payload_words(width: int) -> int:
    """Return the words that the longest payload can occupy at any alignment."""
    return MAX_PAYLOAD * 8 // width + 1


@dataclass(frozen=True, kw_only=True)
class RdmaConfig:
    """Sizes of a NIC. Raises ValueError that names parameter, value and limit.

    - ``width``: bits of a word at MAC and memory.
    - ``address_width``: bits of a byte address in memory.
    - ``queue_pairs``: number of queue pairs; a power of two.
    - ``regions``: number of regions; a power of two.
    - ``descriptors``: unfinished writes per queue pair, at most; a power of two.
    - ``buffer_words``: words of the receive buffer.
    - ``fetch_words``: words of payload that are read ahead of the MAC.
    - ``start_words``: words of payload that are read before a frame starts; 0: the whole payload. For any other
      number, memory must deliver a word per cycle once it has begun.
    - ``vlan``: remove 802.1Q tags from received frames, and add them to frames of queue pairs that have one.
    """

    width: int = 512
    address_width: int = 40
    queue_pairs: int = 16
    regions: int = 16
    descriptors: int = 16
    buffer_words: int = 512
    fetch_words: int = 512
    start_words: int = 0
    vlan: bool = False

    def __post_init__(self) -> None:
        check_path(width=self.width, address_width=self.address_width)
        limits = {"queue_pairs": MAX_QUEUE_PAIRS, "regions": MAX_REGIONS, "descriptors": MAX_DESCRIPTORS}
        for name, limit in limits.items():
            value = getattr(self, name)
            if value not in (1 << n for n in range(1, limit.bit_length())):
                raise ValueError(f"{name} must be a power of two from 2 to {limit}, not {value!r}")
        for name in ("buffer_words", "fetch_words"):
            if getattr(self, name) < 2 * self.payload_words:
                raise ValueError(
                    f"{name} must be at least two payloads, {2 * self.payload_words} words, "
                    f"not {getattr(self, name)!r}"
                )
        if self.start_words not in range(self.payload_words + 1):
            raise ValueError(f"start_words must be 0 to {self.payload_words}, not {self.start_words!r}")

    @property
    def payload_words(self) -> int:
        """Words that the longest payload can occupy at any alignment."""
        return payload_words(self.width)

    def check_regions(self, regions: Sequence[Region]) -> None:
        """Raise ValueError for more regions than the NIC has, or regions that ``check_regions`` refuses."""
        if len(regions) > self.regions:
            raise ValueError(f"regions must be at most {self.regions}, not {len(regions)}")
        check_regions(regions, address_width=self.address_width)


@dataclass(frozen=True)
class Region:
    """Memory that peers may write with a key: ``length`` bytes from ``base``.

    ``queue_pairs``: numbers of the queue pairs over which they may write.
    """

    base: int
    length: int
    rkey: int
    queue_pairs: frozenset[int]
    writable: bool = True

    def contains(self, address: int, length: int) -> bool:
        """Return whether the range lies within the region."""
        return self.base <= address and address + length <= self.base + self.length


def check_regions(regions: Sequence[Region], *, address_width: int = 64) -> None:
    """Raise ValueError that names regions that overlap, share a key, are empty or exceed the address space."""
    for region in regions:
        if region.length < 1 or not 0 <= region.base <= (1 << address_width) - region.length:
            raise ValueError(
                f"region {region.rkey:#x}: {region.length} bytes from {region.base:#x} exceed the address space"
            )
    ordered = sorted(regions, key=lambda region: region.base)
    for low, high in pairwise(ordered):
        if low.base + low.length > high.base:
            raise ValueError(f"regions {low.rkey:#x} and {high.rkey:#x} overlap at {high.base:#x}")
    keys = [region.rkey for region in regions]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"two regions have the key {key:#x}")


@dataclass(frozen=True)
class Write:
    """Descriptor of a write: ``length`` bytes from ``local`` to ``remote`` at the queue pair's other end."""

    tag: int
    local: int
    remote: int
    rkey: int
    length: int
    immediate: int | None = None


@dataclass(frozen=True)
class Connection:
    """Parameters of one end of a queue pair. Raises ValueError that names field, value and limit.

    - ``peer``: number of the peer's queue pair.
    - ``send_psn``, ``receive_psn``: first packet sequence numbers in each direction. They are 0 for a queue
      pair's first connection; later connections take them from :func:`next_psn`.
    - ``mtu``: path MTU in bytes.
    - ``window``: packets in flight, at most.
    - ``retries``: retransmissions of a packet until the queue pair fails, 0 to 7.
    - ``traffic_class``: IPv4's ToS byte (DSCP and ECN).
    - ``vlan``, ``priority``: of the frames' 802.1Q tag; no tag if ``vlan`` is None.
    """

    peer: int
    send_psn: int = 0
    receive_psn: int = 0
    mtu: int = 4096
    window: int = 64
    retries: int = 7
    traffic_class: int = 0
    vlan: int | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        if self.mtu not in PATH_MTUS:
            raise ValueError(f"mtu must be one of {', '.join(map(str, PATH_MTUS))}, not {self.mtu!r}")
        if self.window not in (1 << n for n in range(MAX_WINDOW_BITS + 1)):
            raise ValueError(
                f"window must be a power of two from 1 to {1 << MAX_WINDOW_BITS} packets, not {self.window!r}"
            )
        if self.retries not in range(MAX_RETRIES + 1):
            raise ValueError(f"retries must be 0 to {MAX_RETRIES}, not {self.retries!r}")
        if self.traffic_class not in range(1 << field_bits(IPV4, "tos")):
            raise ValueError(f"traffic_class must be 0 to 255, not {self.traffic_class!r}")
        if self.vlan is not None and self.vlan not in range(MAX_VLAN + 1):
            raise ValueError(f"vlan must be 0 to {MAX_VLAN}, not {self.vlan!r}")
        if self.priority not in range(1 << field_bits(TCI, "priority")):
            raise ValueError(f"priority must be 0 to 7, not {self.priority!r}")
        if self.priority and self.vlan is None:
            raise ValueError(
                f"priority is part of a VLAN tag: priority {self.priority!r} needs vlan (0 for none)"
            )


# About 2^24 · 0.38, the golden ratio's smaller part; odd, so that 2^24 steps reach all 2^24 numbers.
_STEP = 6_408_367


def next_psn(last: int) -> int:
    """Return the first sequence number for a queue pair's next connection.

    ``last``: one of the last 1024 numbers that the previous connection sent, from the register ``ended_psn``.

    The next connection begins 0.38 of the number range later. Its numbers therefore differ from those of late
    packets and answers of the old connection, until both have sent ten million packets. Connections that send
    little begin at distant numbers: the golden ratio keeps the first numbers of 1000 connections 10,000 apart.
    """
    return (last + _STEP) % (1 << PSN_BITS)


#: Named sizes: ``tiny`` for tests, ``u280`` for a 100 Gb/s card.
PRESETS = {
    "tiny": RdmaConfig(width=128, queue_pairs=4, regions=4, descriptors=4, buffer_words=1024, fetch_words=1024),
    "u280": RdmaConfig(),
}
