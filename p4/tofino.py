"""Resources of Tofino that determine the program's number of stages.

Measured numbers are in docs/systems/switch-program.md.
"""

from __future__ import annotations

STAGES = 12  # in the ingress pipeline
MAP_RAMS = 48  # per stage
STATEFUL_ALUS = 4  # per stage
_ENTRIES = 4096  # 32-bit words per map RAM


def map_rams(slots: int, words: int) -> int:
    """Return the number of map RAMs of a register with one or two 32-bit words per slot.

    It includes the one that makes the register writable.
    """
    return words * -(-slots // _ENTRIES) + 1


def state_stages(slots: int, registers: list[int]) -> int:
    """Return the number of stages that hold ``registers``, given as words per slot (1 or 2).

    Registers are placed from the largest, each in the first stage with room.
    """
    free_rams: list[int] = []
    for words in sorted(registers, reverse=True):
        needed_rams = map_rams(slots, words)
        stage = next((n for n, available in enumerate(free_rams) if available >= needed_rams), None)
        if stage is None:
            free_rams.append(MAP_RAMS - needed_rams)
        else:
            free_rams[stage] -= needed_rams
    return len(free_rams)


def sums_per_stage(slots: int) -> int:
    """Return the number of registers of one word, each with an ALU, that fit into a stage."""
    return min(STATEFUL_ALUS, MAP_RAMS // map_rams(slots, 1))
