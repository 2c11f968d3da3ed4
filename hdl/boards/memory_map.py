"""Where registers and memories lie on a board's bus: docs/boards.md, "Memory map"."""

ADDRESS_BITS = 32
NODE = 0x0000_0000  #: the node's registers
BOARD = 0x0100_0000  #: the board's
SAMPLES = 0x1000_0000  #: the first sample memory
LABELS = 0x2000_0000
REGION_BITS = 24  #: of an address within its register map or memory


def sample_memory(port: int) -> int:
    """Where the memory of a sample port begins."""
    return SAMPLES + (port << REGION_BITS)
