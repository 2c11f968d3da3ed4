"""Emitted Verilog, cut into the blocks that are Verilated apart, each with the modules that it contains."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from fanin.sim.cosim.templates import template

_SHAPE = r"(?:signed )?(?:\[.*?\] )?"
#: Declarations, in a row, of what yosys and Amaranth have named: ``\\$12``, and wires that have another's name
#: and a number, ``\\axi__araddr$224``. These have a name of their own in the module that they come from.
_UNNAMED = re.compile(
    r"(?:^(?:  \(\*.*\*\)\n)*  "
    rf"(?:(?:wire|input|output) {_SHAPE}\\\S*\$|reg {_SHAPE}\\\$).*;\n)+",
    re.MULTILINE,
)


@dataclass(frozen=True)
class BlockPort:
    """A port of a module, clock and reset apart."""

    name: str
    width: int
    output: bool

    @property
    def bits(self) -> str:
        """Its range in Verilog, where it has one."""
        return f"[{self.width - 1}:0] " if self.width > 1 else ""

    @property
    def argument(self) -> str:
        """What it is as an argument of a function of DPI in C."""
        if self.width > 1:
            return "svBitVecVal *" if self.output else "const svBitVecVal *"
        return "svBit *" if self.output else "svBit"


@dataclass(frozen=True)
class Block:
    """A module's Verilog, with all that it contains but the modules of other blocks.

    Its outputs must be registers, where it is Verilated apart: as a model V``module``.
    """

    module: str
    verilog: str
    ports: tuple[BlockPort, ...]

    @property
    def named(self) -> str:
        """``verilog`` with what has no name in the source, as ``\\$12``, left out of waveforms.

        That is most of it, and Verilator may then optimise it as it does without waveforms.
        """
        return _UNNAMED.sub(r"/* verilator tracing_off */\n\g<0>/* verilator tracing_on */\n", self.verilog)

    def stub(self, *, waves: bool = False) -> str:
        """What stands in its place, in SystemVerilog: it steps a model through ``source``.

        With ``waves``, the model follows its inputs between its edges, too, while a waveform is written.
        """
        return template("block.sv.j2").render(module=self.module, ports=self.ports, waves=waves)

    def source(self, *, waves: bool = False) -> str:
        """C++ that makes and steps models. It calls ``fanin_block_failed`` when an output is no register."""
        return template("block.cpp.j2").render(module=self.module, ports=self.ports, waves=waves)


def cut(verilog: str, top: str, apart: Collection[str] = ()) -> list[Block]:
    """Cut what ``emit_verilog`` wrote: modules of the classes ``apart`` become blocks of their own.

    ``apart`` are names of classes, of shared components. The block of the module ``top`` comes last, each after
    those that it instantiates. Raises ValueError for a class without a module.
    """
    modules = _modules(verilog)
    classes = dict(re.findall(r"^//   (\w+): (\w+)\(", verilog, re.MULTILINE))
    if missing := set(apart) - {classes[module] for module in classes if module != top}:
        raise ValueError(f"apart names {', '.join(sorted(missing))}, of which there is none")
    roots = {module for module, name in classes.items() if name in apart} | {top}
    blocks: dict[str, Block] = {}

    def add(root: str) -> None:
        inside, others = _contents(root, roots, modules)
        for other in others:
            if other not in blocks:
                add(other)
        text = "".join(modules[module] for module in modules if module in inside)
        blocks[root] = Block(root, text, _ports(modules[root]))

    add(top)
    return list(blocks.values())


def _modules(verilog: str) -> dict[str, str]:
    """The text of each module, with what stands before it but the comment at the top of the file."""
    texts = re.sub(r"\A(//.*\n)+", "", verilog).split("endmodule\n")[:-1]
    names = re.findall(r"^module (\w+)\(", verilog, re.MULTILINE)
    return {name: f"{text}endmodule\n" for name, text in zip(names, texts, strict=True)}


def _contents(root: str, roots: set[str], modules: dict[str, str]) -> tuple[set[str], list[str]]:
    """The modules of a block, and the other blocks that they instantiate, in the order of the text."""
    inside, others, left = {root}, [], [root]
    while left:
        for module in re.findall(r"^  (\w+) \S+ +\($", modules[left.pop()], re.MULTILINE):
            if module in roots:
                others.append(module)
            elif module in modules and module not in inside:
                inside.add(module)
                left.append(module)
    return inside, others


def _ports(module: str) -> tuple[BlockPort, ...]:
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?\\?(\w+) ?;", module, re.MULTILINE)
    return tuple(
        BlockPort(name, int(last or 0) + 1, way == "output")
        for way, last, name in found
        if name not in ("clk", "rst")
    )
