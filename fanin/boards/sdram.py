"""SDR SDRAM of boards: size, timing, and placement of a GLM node's memories."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from fanin.base.errors import InputError

WORD_BYTES = 4  #: bytes of an SDRAM word (32 data pins)
CAS_LATENCY = 2  # cycles from a read to its data
MAX_MHZ = 100  # maximum clock at CAS_LATENCY
MIN_MHZ = 10  # minimum clock: below it, refreshes take all the time
START_US = 200  # µs from the clock's start to the first command
START_REFRESHES = 8


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Timing of the chips in clock cycles. ``refresh`` is a maximum; all other times are minima."""

    activate_to_access: int
    activate_to_precharge: int
    activate_to_activate: int  #: same bank
    activate_to_other: int  #: another bank
    precharge: int
    refresh_cycle: int
    write_to_precharge: int
    mode: int  #: from the mode register to the next command
    refresh: int  #: from one refresh to the next
    start: int


@dataclass(frozen=True, kw_only=True)
class Sdram:
    """SDRAM of one or more parallel chips with words of 32 bits.

    Addresses count words row by row, and bank by bank within a row. Times are in ns, for the slowest grade
    (143 MHz) of the parts on the boards.
    """

    name: str
    banks: int
    rows: int
    columns: int
    activate_to_access: float = 20  # tRCD
    activate_to_precharge: float = 49  # tRAS
    activate_to_activate: float = 70  # tRC
    activate_to_other: float = 14  # tRRD
    precharge: float = 20  # tRP
    refresh_cycle: float = 70  # tRFC
    refresh: float = 15_600  # tREFI
    write_to_precharge: int = 2  # tWR, cycles
    mode: int = 2  # tMRD, cycles

    @property
    def words(self) -> int:
        """Number of words of all banks."""
        return self.banks * self.rows * self.columns

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.words * WORD_BYTES

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of one bank. The following bytes belong to the next bank."""
        return self.columns * WORD_BYTES

    def timing(self, clock_hz: float) -> SdramTiming:
        """Return the timing at a clock in Hz. Raises InputError for a clock outside the chips' range."""
        if not MIN_MHZ * 1e6 <= clock_hz <= MAX_MHZ * 1e6:
            raise InputError(f"core-mhz must be in {MIN_MHZ}…{MAX_MHZ} for an SDRAM, not {clock_hz / 1e6:g}")

        def cycles(ns: float) -> int:
            return ceil(round(ns * clock_hz / 1e9, 6))

        return SdramTiming(
            activate_to_access=cycles(self.activate_to_access),
            activate_to_precharge=cycles(self.activate_to_precharge),
            activate_to_activate=cycles(self.activate_to_activate),
            activate_to_other=cycles(self.activate_to_other),
            precharge=cycles(self.precharge),
            refresh_cycle=cycles(self.refresh_cycle),
            write_to_precharge=self.write_to_precharge,
            mode=self.mode,
            refresh=floor(self.refresh * clock_hz / 1e9),
            start=cycles(START_US * 1000),
        )

    def split(self, ports: int, lists: int = 0) -> tuple[int, int, int]:
        """Return the bytes of each of ``ports`` sample memories, of the label memory, and of each of ``lists``.

        Labels take at least an eighth, a list half as much as a sample memory. Each sample memory starts in
        another bank than the one before, because ports are read in step: two ports in one bank would keep
        closing each other's row.
        """
        stripe_bytes = self.banks * self.row_bytes  # bytes of one row of all banks
        stagger_bytes = max(1, self.banks // ports) * self.row_bytes
        # Whole stripes would start all memories in bank 0. The stagger shifts each start by some banks.
        available = self.size - self.size // 8
        whole_stripes = 2 * available // (2 * ports + lists) // stripe_bytes
        samples = (whole_stripes - 1) * stripe_bytes + stagger_bytes
        list_bytes = samples // 2 // stripe_bytes * stripe_bytes if lists else 0
        return samples, self.size - samples * ports - list_bytes * lists, list_bytes


#: SDRAM of Colorlight boards: one chip M12L64322A or EM638325; two chips M12L16161A or W9816G6.
SDRAM_8M = Sdram(name="M12L64322A", banks=4, rows=2048, columns=256)
SDRAM_4M = Sdram(name="2 × M12L16161A", banks=2, rows=2048, columns=256)
