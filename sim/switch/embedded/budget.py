"""Time and rounds of loops that a running switch spends on one frame, and its memory for registers.

Generated code reads the clock in each round of a loop, where a parser returns to an earlier state, in long
blocks, and at calls of a function that is called at another place, too. Other code runs once a pass.
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
EACH = 64  #: statements of a block after which its code reads the clock
#: Code that ends a frame that has taken too long.
CODE = "if monotonic_ns() > ARCH.until: late()"


class Budget:
    """Base class of architectures: what is left for the current frame, and for registers."""

    rounds_left = MAX_ROUNDS  #: rounds of loops
    values_left = MAX_VALUES  #: values of registers and counters
    until = 0  #: end of the frame's time, in ns of the monotonic clock

    def renew(self) -> None:
        """Begin a frame."""
        self.rounds_left = MAX_ROUNDS
        self.until = monotonic_ns() + MAX_SECONDS * 1_000_000_000


def late() -> NoReturn:
    """Raise RunRefused for a frame that has taken too long."""
    raise RunRefused(f"one frame takes more than {MAX_SECONDS} s")
