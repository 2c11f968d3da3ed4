"""Conversion of RTLIL to Verilog for simulators and vendors' tools, with yosys."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Mapping

from fanin.base.tools import verilog_yosys
from fanin.hdl.area import Contents, Memory

_INTERNAL_ATTRIBUTES = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding")
LINE = 1000  #: characters after which a line is broken after its next comma
_LOOP_STEPS = 4096  # maximum iterations of a loop; Quartus accepts 5,000
# Smallest memories that must be block RAM or UltraRAM; the tool chooses for smaller ones. ULTRA_BITS exceeds
# all block RAM of the largest ECP5, so the attribute excludes no device that could hold the memory.
BLOCK_DEPTH, BLOCK_BITS = 512, 1 << 14  # half a block RAM of Xilinx
ULTRA_DEPTH, ULTRA_BITS = 4096, 1 << 22  # the depth of an UltraRAM


def memory_style(memory: Memory) -> dict[str, str]:
    """Return attributes that select the kind of memory, for Vivado and yosys, and for Quartus.

    Quartus ignores a kind that the device does not have (Intel, "ramstyle Verilog HDL Synthesis Attribute").

    A read port that returns the word being written may become an address register in Verilog. Vivado makes
    block RAM of it, whose output is unpredictable in that cycle (UG901, "RW_ADDR_COLLISION") unless an
    attribute requests a bypass.
    """
    collision = {"rw_addr_collision": "yes"} if memory.transparent else {}
    return _kind(memory) | collision


def _kind(memory: Memory) -> dict[str, str]:
    """Return the attributes for block RAM or UltraRAM; none if the tool may choose."""
    if not memory.clocked or memory.write_ports != 1 or memory.depth < BLOCK_DEPTH or memory.bits < BLOCK_BITS:
        return {}
    ultra = memory.depth >= ULTRA_DEPTH and memory.bits >= ULTRA_BITS
    if ultra and not memory.filled and memory.read_ports == 1:  # UltraRAM starts as zeros
        return {"ram_style": "ultra", "ramstyle": "M20K"}
    return {"ram_style": "block", "ramstyle": "M20K"}


def to_verilog(text: str, modules: Mapping[str, Contents]) -> str:
    """Return Verilog of an RTLIL text with the names of ``plain_names``; ``modules``: the contents of the text.

    Raises ValueError for a block that Verilator would misread, RuntimeError if yosys fails.
    """
    attributes = " ".join(f"-remove {name}" for name in _INTERNAL_ATTRIBUTES)
    script = [
        f"read_rtlil <<rtlil\n{_with_memory_styles(text, modules)}\nrtlil",
        "proc -nomux -norom",
        "memory_collect",
        f"attrmap {attributes}",
        f"attrmap -modattr {attributes}",
        "write_verilog -norename",
    ]
    done = subprocess.run(
        [*verilog_yosys(), "-q", "-"], input="\n".join(script), capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"yosys failed: {done.stderr.strip()[-2000:]}")
    verilog = re.sub(r"\A/\*.*?\*/\n", "", done.stdout)  # drop the header with the version of yosys
    _check_self_readers(verilog)
    edits = (_shorten_constants, _remove_empty_wires, _guard_simulation, _zero_memories, _trigger_blocks)
    for edit in (*edits, _break_lines):
        verilog = edit(verilog)
    return verilog.lstrip()


def _with_memory_styles(text: str, modules: Mapping[str, Contents]) -> str:
    """Return RTLIL whose memories have the attributes of ``memory_style``."""

    def styled(line: re.Match[str]) -> str:
        memory = modules[module].memories.get(line["name"]) if module in modules else None
        style = memory_style(memory) if memory else {}
        return "".join(f'  attribute \\{name} "{value}"\n' for name, value in style.items()) + line[0]

    module = ""
    parts = re.split(r"(?m)^(module \\.*\n)", text)
    for place, part in enumerate(parts):
        if place % 2:
            module = part.removeprefix("module \\").strip()
        else:
            parts[place] = re.sub(r"(?m)^  memory .*\\(?P<name>\S+)$", styled, part)
    return "".join(parts)


def plain_names(text: str) -> str:
    """Return RTLIL with names that need no escape in Verilog, or no escape that tools fail on."""
    return _plain_module_names(_plain_field_names(text))


def _for_simulation(lines: str) -> str:
    """Wrap lines so that synthesis skips them.

    yosys and Vivado set the macro ``SYNTHESIS``, and Quartus obeys the comments. The macro is outside, since
    yosys warns of such comments if it reads them.
    """
    return f"`ifndef SYNTHESIS\n// synthesis translate_off\n{lines}// synthesis translate_on\n`endif\n"


def _shorten_constants(verilog: str) -> str:
    """Remove leading zeros of long constants, and the copies of registers' initial values at other wires.

    A register keeps its initial value in its declaration, with the digits that matter: ``257'h0``. Verilog
    fills a constant of a given size with zeros. A wire that only names a register again repeats the value as an
    attribute, which no tool needs.
    """
    verilog = re.sub(r"^ *\(\* init = \S+ \*\)\n", "", verilog, flags=re.MULTILINE)
    return re.sub(r"\b(\d+'h)0{8,}(?=[0-9a-f])", r"\1", verilog)


def _remove_empty_wires(verilog: str) -> str:
    """Remove wires of no bits, ``[-1:0]``: they are unused, and Verilog would give them two bits."""
    return re.sub(r"^(  \(\*.*\*\)\n)*  (wire|reg) \[-1:0\] \S+ ?;\n", "", verilog, flags=re.MULTILINE)


def _guard_simulation(verilog: str) -> str:
    """Wrap blocks that print, assert, assume or cover as simulation only."""
    block = r"^  always @.*(?: begin\n(?:    .*\n)*  end\n|\n(?:    .*\n)+)"
    simulated = re.compile(r"^ +(\$write|assert|assume|cover) ?\(", re.MULTILINE)

    def guard(match: re.Match[str]) -> str:
        return _for_simulation(match[0]) if simulated.search(match[0]) else match[0]

    return re.sub(block, guard, verilog, flags=re.MULTILINE)


def _zero_memories(verilog: str) -> str:
    """Initialise every memory without contents to zeros in simulation, as in Amaranth's simulator.

    FPGA memories start as zeros without this.
    """
    count = itertools.count()

    def loops(match: re.Match[str]) -> str:
        index, depth = f"fanin_zero{next(count)}", int(match["last"]) + 1
        lines = f"  integer {index};\n"
        for first in range(0, depth, _LOOP_STEPS):
            last = min(first + _LOOP_STEPS, depth) - 1
            lines += (
                f"  initial for ({index} = {first}; {index} <= {last}; {index} = {index} + 1)"
                f" {match['name']} [{index}] = 0;\n"
            )
        return f"{match[0]}\n{_for_simulation(lines)}".rstrip("\n")

    memory = r"^  reg (\[\d+:0\] )?(?P<name>\S+)\s+\[(?P<last>\d+):0\];"
    filled = r"(?!\n  initial begin\n    (?P=name)\s*\[0\] = )"
    return re.sub(memory + "$" + filled, loops, verilog, flags=re.MULTILINE)


def _trigger_blocks(verilog: str) -> str:
    """Make every combinational block run once at time 0, even if none of its inputs changes then.

    In yosys' output each such block reads a register that starts as 0. In Verilog the initialisation is a
    change that runs the block; in SystemVerilog it is not, and the block's outputs would stay X. Verilator runs
    all blocks anyway, and warns of such an assignment.
    """

    def change(match: re.Match[str]) -> str:
        lines = f"`ifndef VERILATOR\n  initial {match[1]} <= 1;\n`endif\n"
        return f"{match[0]}\n{_for_simulation(lines)}".rstrip("\n")

    return re.sub(r"^  reg (\\\$auto\$verilog_backend\S+) +(?:= 0)?;$", change, verilog, flags=re.MULTILINE)


def _break_lines(verilog: str) -> str:
    """Break long lists into lines: Verilator reads at most 40,000 tokens in a line."""
    return re.sub(f"(.{{{LINE}}}.*?, )", r"\1\n    ", verilog)


_NAME = r"\\\S+ |[A-Za-z_]\w*"  # an escaped identifier ends with a space


def _check_self_readers(verilog: str) -> None:
    """Raise ValueError for a combinational block that drives one part of a signal and reads another part of it.

    Verilator (5.048) assumes that such a block does not depend on the signal, and silently computes with the
    old value of the other part.
    """
    for module in re.split(r"(?m)^(?=module )", verilog):
        for block in re.findall(r"(?ms)^  always @\* begin\n(.*?)^  end$", module):
            target = rf"(?m)^ *({_NAME})(?:\[[\d:]+\] ?)?\s*= "
            read = set(re.findall(_NAME, re.sub(target, "", block)))
            for name in read.intersection(re.findall(target, block)):
                raise ValueError(
                    f"{module.split('(')[0].strip()}: the block that drives part of {name.strip()} reads "
                    "another part of it; let it read a signal of its own"
                )


def _plain_field_names(text: str) -> str:
    """Return RTLIL with ``signal.0`` for an array's field, which Amaranth calls ``signal[0]``.

    yosys takes ``signal[0]`` for a bit of a port, and fails when it maps the module separately. Slices have a
    space before their bracket and stay unchanged.
    """
    return re.sub(r"\\\S+\[\S+", lambda match: re.sub(r"\[(\d+)\]", r".\1", match[0]), text)


def _plain_module_names(text: str) -> str:
    """Return RTLIL with ``parent__child`` for Amaranth's ``parent.child``, which Verilog must escape."""
    names = re.findall(r"^module \\(\S+)$", text, re.MULTILINE)
    plain = {name: re.sub(r"\W", "_", name.replace(".", "__")) for name in names}
    if len(set(plain.values())) != len(names):
        raise ValueError(f"module names clash: {sorted(names)}")
    return re.sub(
        r"^(module|  cell) \\(\S+)",
        lambda match: f"{match[1]} \\{plain.get(match[2], match[2])}",
        text,
        flags=re.MULTILINE,
    )
