"""Emitted aggregation program in the embedded switch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from fanin.p4.aggregation import ProgramConfig, register_words
from fanin.p4.control import MulticastGroup, TableEntry
from fanin.p4.emit import program_text
from fanin.sim.switch.embedded import Program, Switch, load
from fanin.sim.switch.embedded.trace import Tracer
from fanin.sim.switch.program import ProgramSwitch, split_words
from fanin.wire.ethernet import Endpoint


class EmbeddedPipeline:
    """A running program as :class:`fanin.sim.switch.program.Pipeline`, whose registers are 32-bit words."""

    def __init__(self, config: ProgramConfig, switch: Switch):
        self.switch = switch
        self._words = register_words(config)
        self.process: Callable[[int, bytes], list[tuple[int, bytes]]] = switch.process
        self.insert: Callable[[TableEntry], None] = switch.insert
        self.delete: Callable[[TableEntry], None] = switch.delete
        self.set_multicast_group: Callable[[MulticastGroup], None] = switch.set_multicast_group
        self.delete_multicast_group: Callable[[int], None] = switch.delete_multicast_group
        self.direct_counter: Callable[[TableEntry], tuple[int, int]] = switch.direct_counter

    def reset_register(self, name: str, start: int, count: int) -> None:
        """Set a range of a register to 0."""
        register = self.switch.registers[name]
        zero = (0,) * len(register[start]) if isinstance(register[start], tuple) else 0
        for index in range(start, start + count):
            register[index] = zero

    def read_register(self, name: str, index: int) -> tuple[int, ...]:
        """Return an entry's words; v1model packs a pair, TNA has a struct."""
        value = self.switch.registers[name][index]
        return value if isinstance(value, tuple) else split_words(value, self._words[name])


@functools.lru_cache(maxsize=4)
def _program(config: ProgramConfig) -> Program:
    return load(program_text(config), "aggregation.p4")


def embedded_switch(
    config: ProgramConfig,
    *,
    endpoint: Endpoint,
    ports: Sequence[int],
    tracer: Tracer | None = None,
) -> ProgramSwitch:
    """Return the program of ``config``, printed, loaded and running without a job."""
    pipeline = EmbeddedPipeline(config, _program(config).switch(ports, tracer))
    return ProgramSwitch(config=config, pipeline=pipeline, endpoint=endpoint, ports=ports)
