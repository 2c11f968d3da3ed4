"""High-bandwidth memory: structure and timing of a pseudo-channel, and the ports that it serves.

Sources of the numbers: docs/reference/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

BLOCK_BYTES = 32  #: bytes of an access: a burst of 4 beats on 64 data pins
PORT_BITS = 8 * BLOCK_BYTES  #: maximum width of an AXI port, in bits
CHANNELS = 16  #: pseudo-channels of a stack; their refreshes are spread over a tREFI
MAX_PORTS_PER_CHANNEL = 16
_PS_PER_NS = 1000


@dataclass(frozen=True, kw_only=True)
class Hbm:
    """A pseudo-channel with its controller; times are in cycles of the memory's clock.

    ``address_map``: part of the address for each bit of a block's number, from high to low: bank group (G),
    bank in the group (B), column (C). Higher bits are the row. Raises ValueError that names parameter, value
    and limit.
    """

    period_ps: int  #: period of the memory's clock
    access: int  #: BL/2, tCCD_S: cycles of the data pins per access
    same_group: int  #: tCCD_L: between reads of one bank group
    cas_latency: int  #: CL: from a read to its data
    activate_to_read: int  #: tRCD
    activate_to_precharge: int  #: tRAS
    precharge: int  #: tRP
    read_to_precharge: int  #: tRTP
    activates: int  #: tRRD_S: between activates
    activates_same_group: int  #: tRRD_L: between activates of one bank group
    four_activates: int  #: tFAW: period with at most four activates
    refresh_cycle: int  #: tRFC: duration of a refresh of all banks
    refresh: int  #: tREFI: between two refreshes
    queue: int  #: accesses in the controller's queue
    to_controller: int  #: from the AXI port to the controller's queue
    from_controller: int  #: from the last data pin's beat to the AXI port
    ports_per_channel: int = 1  #: neighbouring AXI ports that share a pseudo-channel, with interleaved blocks
    address_map: str = "GBBCCCCCG"

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        if self.ports_per_channel > MAX_PORTS_PER_CHANNEL:
            raise ValueError(
                f"ports_per_channel must be in 1…{MAX_PORTS_PER_CHANNEL}, not {self.ports_per_channel!r}"
            )
        if self.refresh <= self._between_refreshes:
            raise ValueError(f"refresh must be more than {self._between_refreshes}, not {self.refresh!r}")
        if unknown := set(self.address_map) - set("GBC"):
            raise ValueError(f"address_map must be of G, B and C, not {min(unknown)!r}")

    @property
    def _between_refreshes(self) -> int:
        """Maximum cycles for closing the rows, a refresh and a first read.

        A tREFI must be longer, so that refreshes never pile up.
        """
        closing = self.activate_to_precharge + self.read_to_precharge + self.precharge
        return closing + self.refresh_cycle + self.four_activates + self.activate_to_read + self.same_group

    @property
    def gigabytes_a_second(self) -> float:
        """Peak rate of the data pins."""
        return BLOCK_BYTES * _PS_PER_NS / (self.access * self.period_ps)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All parameters except the address map, in order."""
        return tuple(value for value in vars(self).values() if isinstance(value, int))


#: HBM of an Alveo U280: two stacks of 16 pseudo-channels at 900 MHz, 1.8 Gb/s per pin.
HBM2 = Hbm(
    period_ps=1111,
    access=2,
    same_group=4,
    cas_latency=14,
    activate_to_read=14,
    activate_to_precharge=34,
    precharge=14,
    read_to_precharge=6,
    activates=4,
    activates_same_group=6,
    four_activates=30,
    refresh_cycle=234,
    refresh=3510,
    queue=32,
    to_controller=40,
    from_controller=40,
)
CONSTANT = "constant"  #: name of a memory with constant latency
MEMORIES = {CONSTANT: None, "hbm2": HBM2}  #: memories at a node's ports, by name


def memory_name(hbm: Hbm | None) -> str:
    """Return a memory's name in ``MEMORIES``, whose ``ports_per_channel`` a run may have replaced."""
    ports = hbm.ports_per_channel if hbm else 1
    return next(
        name
        for name, memory in MEMORIES.items()
        if (memory and replace(memory, ports_per_channel=ports)) == hbm
    )
