"""What a design holds before synthesis: its memories and flip-flops, read from its RTLIL.

RTLIL is yosys' text, a line per thing (yosys manual, "RTLIL text representation"). Amaranth writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

LARGE_BITS = 1 << 16  # a memory of no less is named on its own
_COMMENT = "// area: "


@dataclass
class Memory:
    """A memory of a module, of ``depth`` words of ``width`` bits."""

    width: int
    depth: int
    filled: bool = False  #: it begins with contents
    clocked: bool = True  #: every read port has a register, as block RAM asks for
    transparent: bool = False  #: a read port shows the word that is being written
    write_ports: int = 0
    read_ports: int = 0

    @property
    def bits(self) -> int:
        """Of its contents."""
        return self.width * self.depth


@dataclass
class Contents:
    """What a module holds, apart from what its instances do."""

    memories: dict[str, Memory] = field(default_factory=dict)
    flip_flops: int = 0
    instances: Counter[str] = field(default_factory=Counter)

    def add_cell(self, kind: str, parameters: Mapping[str, str]) -> None:
        """Count a cell; ``kind`` and ``parameters`` as RTLIL has them."""
        if kind.startswith("\\"):
            self.instances[kind[1:]] += 1
        elif kind in ("$dff", "$adff"):  # the two that Amaranth makes
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
    """The contents of every module, by name."""
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
    """``count`` equal memories of the design, ``name`` in the module ``module``."""

    module: str
    name: str
    count: int
    width: int
    depth: int


@dataclass(frozen=True)
class Area:
    """Bits of a design as it is described; synthesis may find some that it does not need."""

    flip_flops: int
    memory_bits: int
    memories: tuple[LargeMemory, ...]  #: those of ``LARGE_BITS`` and more, the largest first

    @classmethod
    def of(cls, modules: Mapping[str, Contents], top: str) -> Area:
        """That of a module with all that it instantiates, but modules that are not given."""
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
        """The line of the emitted file that says it."""
        return _COMMENT + json.dumps(asdict(self))

    @classmethod
    def read(cls, verilog: str) -> Area:
        """What ``comment`` says in an emitted file. Raises ValueError if it has none."""
        for line in verilog.splitlines():
            if line.startswith(_COMMENT):
                said = json.loads(line.removeprefix(_COMMENT))
                memories = tuple(LargeMemory(**memory) for memory in said.pop("memories"))
                return cls(**said, memories=memories)
        raise ValueError("no line of the Verilog says its area")


def _instances(modules: Mapping[str, Contents], top: str) -> Iterator[str]:
    """The module of every instance within ``top``, itself included."""
    yield top
    for module, count in modules[top].instances.items():
        if module in modules:
            for _ in range(count):
                yield from _instances(modules, module)
