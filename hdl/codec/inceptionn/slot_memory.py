"""Memory with one word for each held burst, in the burst's slot."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Value
from amaranth.lib.memory import Memory

from fanin.hdl.codec.inceptionn.shapes import SLOTS


def slot_memory(m: Module, name: str, *, write: Value, slot: Value, word: Any, read: Value) -> Any:
    """Build a memory and return the word in slot ``read``, combinationally.

    In a cycle with ``write``, ``word`` is stored in ``slot``; it can be read from the next cycle on.
    """
    m.submodules[name] = memory = Memory(shape=word.shape(), depth=SLOTS, init=[])
    write_port, read_port = memory.write_port(), memory.read_port(domain="comb")
    m.d.comb += [
        write_port.en.eq(write),
        write_port.addr.eq(slot),
        write_port.data.eq(word),
        read_port.addr.eq(read),
    ]
    return read_port.data
