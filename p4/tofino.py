"""What of Tofino decides how many stages the program takes; docs/systems/switch-program.md has the measured
ones.
"""

from __future__ import annotations

STAGES = 12  # of the ingress pipeline
MAP_RAMS = 48  # of a stage
STATEFUL_ALUS = 4  # of a stage
_ENTRIES = 4096  # 32-bit words that a map RAM holds


def map_rams(slots: int, words: int) -> int:
    """Map RAMs of a register with one or two 32-bit words per slot; one more makes it writable."""
    return words * -(-slots // _ENTRIES) + 1


def state_stages(slots: int, registers: list[int]) -> int:
    """Stages for registers of one or two words: the largest first, each where there is room."""
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
    """Registers of one word, each with an ALU, that fit into a stage."""
    return min(STATEFUL_ALUS, MAP_RAMS // map_rams(slots, 1))
