"""Addresses of registers and memories on a board's bus: docs/systems/boards.md, "Memory map"."""

ADDRESS_BITS = 32
NODE = 0x0000_0000  #: registers of the node
BOARD = 0x0100_0000  #: registers of the board
SAMPLES = 0x1000_0000  #: first sample memory
LABELS = 0x2000_0000
LISTS = 0x3000_0000  #: first list memory, of a sparse node
REGION_BITS = 24  #: bits of an address within its register map or memory


def sample_memory(port: int) -> int:
    """Return the address of a sample port's memory."""
    return SAMPLES + (port << REGION_BITS)


def list_memory(engine: int) -> int:
    """Return the address of an engine's list memory."""
    return LISTS + (engine << REGION_BITS)
