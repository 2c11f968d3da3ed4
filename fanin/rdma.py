"""The NIC of one-sided writes: its sizes, and how its queue pairs are numbered (docs/rdma.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

# The number of a NIC's first queue pair: 0 and 1 mean management to others.
FIRST_QUEUE_PAIR = 0x100
MAX_QUEUE_PAIRS = 64
MAX_REGIONS = 64
MAX_DESCRIPTORS = 256
MAX_WINDOW_BITS = 10  # a window is a power of two of packets, at most 1024
MAX_RETRIES = 7
WIDTHS = (128, 256, 512)  # a burst of these reaches from one 4 KiB boundary to the next
MAX_ADDRESS_WIDTH = 47  # an addition in hardware has at most 48 bits


class Ending(IntEnum):
    """How a write ended, as the NIC says it."""

    DONE = 0
    REQUEST = 1  #: refused as an invalid request
    ACCESS = 2  #: refused: no such region, or no right to write there
    OPERATION = 3  #: refused: the other end could not
    RETRIES = 4  #: sent again too often without an answer
    FLUSHED = 5  #: its queue pair had ended, or was connected anew


@dataclass(frozen=True, kw_only=True)
class RdmaConfig:
    """Sizes of a NIC.

    ``width`` bits of a word at MAC and memory; ``descriptors`` of a queue pair may be unfinished;
    ``buffer_words`` is the receive buffer, ``fetch_words`` what may be read ahead of the MAC. A frame begins
    when ``start_words`` of its payload are there, or all with 0: with any other number memory must deliver a
    word a cycle once it has begun. Raises ValueError that names parameter, value and limit.
    """

    width: int = 512
    address_width: int = 40
    queue_pairs: int = 16
    regions: int = 16
    descriptors: int = 16
    buffer_words: int = 512
    fetch_words: int = 512
    start_words: int = 0

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise ValueError(f"width must be one of {', '.join(map(str, WIDTHS))}, not {self.width!r}")
        if self.address_width not in range(12, MAX_ADDRESS_WIDTH + 1):
            raise ValueError(
                f"address_width must be from 12 to {MAX_ADDRESS_WIDTH}, not {self.address_width!r}"
            )
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
        """Words in which the longest payload lies, wherever it begins."""
        return 4096 * 8 // self.width + 1


#: Named sizes: ``tiny`` for tests, ``u280`` for a 100 Gb/s card.
PRESETS = {
    "tiny": RdmaConfig(width=128, queue_pairs=4, regions=4, descriptors=4, buffer_words=1024, fetch_words=1024),
    "u280": RdmaConfig(),
}
