"""``fanin p4 run --step``: stop after each packet, and show registers."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from fanin.base.errors import InputError

if TYPE_CHECKING:
    from fanin.sim.switch.embedded import Switch

HELP = "Enter: next packet; c: continue to the end; r NAME[INDEX]: a register; q: stop here"


class Stepper:
    """Prompt on the terminal after each packet. Raises InputError without a terminal."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise InputError("--step needs a terminal as standard input")
        self._is_interactive = True
        print(HELP)

    def wants_next(self, switch: Switch) -> bool:
        """Prompt after a packet; return whether to process the next one."""
        while self._is_interactive:
            try:
                line = input("> ").strip()
            except EOFError:
                return False
            if not line:
                return True
            if line == "q":
                return False
            if line == "c":
                self._is_interactive = False
            elif not line.startswith("r "):
                print(HELP)
            else:
                print(_register(switch, line[2:].strip()))
        return True


def _register(switch: Switch, text: str) -> str:
    """Return the requested entry of a register as text, or the reason why it does not exist."""
    match = re.fullmatch(r"([\w.]+)\[(\d+)\]", text)
    if not match or match[1] not in switch.registers:
        return f"no register {text}; there are {', '.join(f'{name}[…]' for name in switch.registers) or 'none'}"
    register, index = switch.registers[match[1]], int(match[2])
    if index >= len(register):
        return f"{match[1]} has {len(register)} entries"
    return f"{match[1]}[{index}] = {register[index]}"
