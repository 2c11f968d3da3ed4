"""Time and rounds of loops that a running switch spends on one frame, and its memory for registers.

Generated code reads the clock in each round of a loop, in long blocks, and where a parser returns to an earlier
state. It also does so at calls of a function that has several calls. Other code runs once a pass.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import NoReturn

from fanin.sim.switch.embedded.errors import RunRefused

MAX_ROUNDS = 1 << 16  #: maximum rounds of all loops, for one frame
MAX_SECONDS = 20  #: maximum seconds for one frame, as a last bound beside those on rounds, states and passes
#: Maximum values in all registers and counters of a program; a number counts once more for every 64 bits.
MAX_VALUES = 1 << 25
#: Maximum values in all parameters and local variables of a program's instances, counted in the same way.
MAX_LOCALS = 1 << 22
CLOCK_INTERVAL = 64  #: statements of a block after which its code reads the clock
#: Generated code that refuses a frame after its deadline.
CLOCK_CHECK = "if monotonic_ns() > ARCH.deadline: refuse_late()"


class Budget:
    """Base class of architectures: remaining loop rounds and time of a frame, and values of registers."""

    rounds_left = MAX_ROUNDS  #: rounds of loops that the current frame may still run
    values_left = MAX_VALUES  #: values that further registers and counters may have
    deadline = 0  #: end of the frame's time, in ns of the monotonic clock

    def renew(self) -> None:
        """Begin a frame with the full number of rounds and the full time."""
        self.rounds_left = MAX_ROUNDS
        self.deadline = monotonic_ns() + MAX_SECONDS * 1_000_000_000


def refuse_late() -> NoReturn:
    """Raise RunRefused for a frame that has taken too long."""
    raise RunRefused(f"one frame takes more than {MAX_SECONDS} s")
