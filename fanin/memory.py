"""The memory behind a node's AXI4 ports."""

MIN_ADDRESS_WIDTH = 12  # a region of 4 KiB, which no burst leaves
MAX_ADDRESS_WIDTH = 47  # an addition in hardware has at most 48 bits


def check_address_width(address_width: int) -> None:
    """Raises ValueError unless byte addresses can have so many bits."""
    if address_width not in range(MIN_ADDRESS_WIDTH, MAX_ADDRESS_WIDTH + 1):
        raise ValueError(
            f"address_width must be from {MIN_ADDRESS_WIDTH} to {MAX_ADDRESS_WIDTH}, not {address_width!r}"
        )
