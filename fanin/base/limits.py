"""Limits and rates that all systems share."""

import re

CLOCK_MHZ = 250.0  # default clock of the nodes
MAX_SEED = (1 << 32) - 1  # maximum seed of splits, shuffles, times and faults; scikit-learn's limit
MIN_ADDRESS_WIDTH = 12  # bits, of memory at AXI4 ports: a region of 4 KiB, which no burst crosses
MAX_ADDRESS_WIDTH = 47  # bits; an addition in hardware has at most 48 bits
_NUMBER = re.compile(r"[0-9]{1,10}")


def is_number(text: str) -> bool:
    """Return whether a text is a number of 1 to 10 decimal digits; ``int`` refuses a text of thousands."""
    return _NUMBER.fullmatch(text) is not None


def check_address_width(address_width: int) -> None:
    """Raise ValueError unless ``address_width`` is a supported number of bits of byte addresses."""
    if address_width not in range(MIN_ADDRESS_WIDTH, MAX_ADDRESS_WIDTH + 1):
        raise ValueError(
            f"address_width must be from {MIN_ADDRESS_WIDTH} to {MAX_ADDRESS_WIDTH}, not {address_width!r}"
        )
