"""What can be said of a memory besides its shape."""

from __future__ import annotations

import re

_SAID = "no_rw_check"

#: Attributes of a memory no word of which is read, and used, in the cycle in which it is written. Synthesis
#: would otherwise add registers and multiplexers where block RAM does not read the old word then.
NEVER_READ_AS_WRITTEN = {_SAID: 1}

#: Those of a memory that is to be block RAM, however few words it has: of a small device LUTs run out first.
BLOCK_RAM = {"ram_style": "block"}

_MODULE = re.compile(r"(?m)^(?=module )")
_MEMORY = re.compile(rf"attribute \\{_SAID} 1\n(?:  attribute .*\n)*  memory width \d+ size \d+ \\(\S+)")
_READ_PORT = re.compile(r"(?ms)^  cell \$memrd_v2 .*?^  end$")
_ASYNCHRONOUS = r"parameter \CLK_ENABLE 0"
_COLLISIONS = re.compile(r"(COLLISION_X_MASK) (\d+)'0+")


def allow_collisions(rtlil: str) -> str:
    """Amaranth's RTLIL, with that attribute as a parameter of each clocked read port of such a memory.

    yosys heeds the attribute only where it infers a read port from Verilog. Amaranth's RTLIL has read ports.
    """
    return "".join(_in_module(part) for part in _MODULE.split(rtlil))


def _in_module(text: str) -> str:
    names = set(_MEMORY.findall(text))

    def port(found: re.Match[str]) -> str:
        memory = re.search(r'MEMID "\\\\(.*)"', found[0])
        if memory is None or memory[1] not in names or _ASYNCHRONOUS in found[0]:
            return found[0]
        return _COLLISIONS.sub(lambda mask: f"{mask[1]} {mask[2]}'{'1' * int(mask[2])}", found[0])

    return _READ_PORT.sub(port, text) if names else text
