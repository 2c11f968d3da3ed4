"""Attributes of memories for synthesis."""

from __future__ import annotations

import re

_NO_RW_CHECK = "no_rw_check"

#: For a memory that never uses the result of reading a word in the cycle in which that word is written.
#: Without this, synthesis adds registers and multiplexers where block RAM does not return the old word in
#: that cycle.
NEVER_READ_AS_WRITTEN = {_NO_RW_CHECK: 1}

#: For a memory that must be block RAM even if it is small: small devices run out of LUTs first.
BLOCK_RAM = {"ram_style": "block"}

_MODULE = re.compile(r"(?m)^(?=module )")
_MEMORY = re.compile(rf"attribute \\{_NO_RW_CHECK} 1\n(?:  attribute .*\n)*  memory width \d+ size \d+ \\(\S+)")
_READ_PORT = re.compile(r"(?ms)^  cell \$memrd_v2 .*?^  end$")
_ASYNCHRONOUS = r"parameter \CLK_ENABLE 0"
_COLLISIONS = re.compile(r"(COLLISION_X_MASK) (\d+)'0+")


def allow_collisions(rtlil: str) -> str:
    """Return RTLIL in which clocked read ports of memories with ``NEVER_READ_AS_WRITTEN`` allow collisions.

    yosys applies the attribute only when it infers a read port from Verilog. Amaranth's RTLIL has explicit read
    ports, so this function sets the ports' parameter.
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
