"""Memories and flip-flops of a design before synthesis, read from its RTLIL.

RTLIL is the text format of yosys, with one item per line (yosys manual, "RTLIL text representation"). Amaranth
writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

LARGE_BITS = 1 << 16  # memories from this size on are listed by name
_COMMENT = "// area: "


@dataclass
class Memory:
    """Memory of a module, with ``depth`` words of ``width`` bits."""

    width: int
    depth: int
    filled: bool = False  #: it has initial contents
    clocked: bool = True  #: every read port has a register, as block RAM requires
    transparent: bool = False  #: a read port returns the word that is being written
    write_ports: int = 0
    read_ports: int = 0

    @property
    def bits(self) -> int:
        """Return the capacity in bits."""
        return self.width * self.depth


@dataclass
class Contents:
    """Contents of a module without those of its instances."""

    memories: dict[str, Memory] = field(default_factory=dict)
    flip_flops: int = 0
    instances: Counter[str] = field(default_factory=Counter)

    def add_cell(self, kind: str, parameters: Mapping[str, str]) -> None:
        """Count a cell, with its ``kind`` and ``parameters`` as in RTLIL."""
        if kind.startswith("\\"):
            self.instances[kind[1:]] += 1
        elif kind in ("$dff", "$adff"):  # the two kinds that Amaranth writes
            self.flip_flops += int(parameters["\\WIDTH"])
        elif kind in ("$meminit_v2", "$memrd_v2", "$memwr_v2"):
            memory = self.memories[json.loads(parameters["\\MEMID"])[1:]]
            memory.filled |= kind == "$meminit_v2"
            memory.write_ports += kind == "$memwr_v2"
            if kind == "$memrd_v2":
                memory.read_ports += 1
                memory.clocked &= parameters["\\CLK_ENABLE"] == "1"
                memory.transparent |= "1" in parameters["\\TRANSPARENCY_MASK"].partition("'")[2]


def read_rtlil(text: str) -> dict[str, Contents]:
    """Return the contents of every module, by name."""
    modules: dict[str, Contents] = {}
    module, kind = Contents(), ""
    parameters: dict[str, str] = {}
    for line in text.splitlines():
        match line.split():
            case ["module", name]:
                module = modules[name[1:]] = Contents()
            case ["memory", "width", width, "size", depth, name]:
                module.memories[name[1:]] = Memory(int(width), int(depth))
            case ["cell", kind, _]:
                parameters = {}
            case ["parameter", name, value]:
                parameters[name] = value
            case ["end"] if kind:
                module.add_cell(kind, parameters)
                kind = ""
    return modules


@dataclass(frozen=True)
class LargeMemory:
    """Group of ``count`` equal memories of the design: ``name`` in the module ``module``."""

    module: str
    name: str
    count: int
    width: int
    depth: int


@dataclass(frozen=True)
class Area:
    """Size of a design as described, in bits; synthesis may remove unused parts."""

    flip_flops: int
    memory_bits: int
    memories: tuple[LargeMemory, ...]  #: memories of ``LARGE_BITS`` and more, the largest first

    @classmethod
    def of(cls, modules: Mapping[str, Contents], top: str) -> Area:
        """Return the area of a module with all that it instantiates, except modules that ``modules`` lacks."""
        counts: Counter[str] = Counter()
        for module in _instances(modules, top):
            counts[module] += 1
        held = [
            LargeMemory(module, name, count, memory.width, memory.depth)
            for module, count in counts.items()
            for name, memory in modules[module].memories.items()
        ]
        held.sort(key=lambda memory: (-memory.width * memory.depth, memory.module, memory.name))
        return cls(
            sum(count * modules[module].flip_flops for module, count in counts.items()),
            sum(memory.count * memory.width * memory.depth for memory in held),
            tuple(memory for memory in held if memory.width * memory.depth >= LARGE_BITS),
        )

    @property
    def comment(self) -> str:
        """Return the comment line of an emitted file that records the area."""
        return _COMMENT + json.dumps(asdict(self))

    @classmethod
    def read(cls, verilog: str) -> Area:
        """Return the area that ``comment`` recorded in an emitted file.

        Raises ValueError if there is no such line.
        """
        for line in verilog.splitlines():
            if line.startswith(_COMMENT):
                said = json.loads(line.removeprefix(_COMMENT))
                memories = tuple(LargeMemory(**memory) for memory in said.pop("memories"))
                return cls(**said, memories=memories)
        raise ValueError("the Verilog has no line with its area")


def _instances(modules: Mapping[str, Contents], top: str) -> Iterator[str]:
    """Yield the module of every instance within ``top``, ``top`` included."""
    yield top
    for module, count in modules[top].instances.items():
        if module in modules:
            for _ in range(count):
                yield from _instances(modules, module)
