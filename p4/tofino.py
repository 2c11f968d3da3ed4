"""Resources of Tofino that determine the program's number of stages; docs/systems/switch-program.md has
measured numbers.
"""

from __future__ import annotations

STAGES = 12  # in the ingress pipeline
MAP_RAMS = 48  # per stage
STATEFUL_ALUS = 4  # per stage
_ENTRIES = 4096  # 32-bit words per map RAM


def map_rams(slots: int, words: int) -> int:
    """Return the map RAMs of a register with one or two 32-bit words per slot; one more makes it writable."""
    return words * -(-slots // _ENTRIES) + 1


def state_stages(slots: int, registers: list[int]) -> int:
    """Return the stages for registers of one or two words, largest first, each in the first stage with room."""
    free: list[int] = []
    for words in sorted(registers, reverse=True):
        need = map_rams(slots, words)
        stage = next((n for n, left in enumerate(free) if left >= need), None)
        if stage is None:
            free.append(MAP_RAMS - need)
        else:
            free[stage] -= need
    return len(free)


def sums_per_stage(slots: int) -> int:
    """Return the number of registers of one word, each with an ALU, that fit into a stage."""
    return min(STATEFUL_ALUS, MAP_RAMS // map_rams(slots, 1))
