"""Limits and rates that all systems share."""

CLOCK_MHZ = 250.0  # default clock of the nodes
MAX_SEED = (1 << 32) - 1  # maximum seed of splits, shuffles, times and faults; scikit-learn's limit
MIN_ADDRESS_WIDTH = 12  # bits, of memory at AXI4 ports: a region of 4 KiB, which no burst crosses
MAX_ADDRESS_WIDTH = 47  # bits; an addition in hardware has at most 48 bits


def check_address_width(address_width: int) -> None:
    """Raise ValueError unless ``address_width`` is a supported number of bits of byte addresses."""
    if address_width not in range(MIN_ADDRESS_WIDTH, MAX_ADDRESS_WIDTH + 1):
        raise ValueError(
            f"address_width must be from {MIN_ADDRESS_WIDTH} to {MAX_ADDRESS_WIDTH}, not {address_width!r}"
        )
