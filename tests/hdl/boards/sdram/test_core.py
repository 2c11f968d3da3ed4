"""litedram's Verilog: the module that SdramMemory instantiates, the same each time."""

import os
import re
import subprocess
import sys

import pytest

from fanin.boards.sdram import SDRAM_4M, SDRAM_8M

pytestmark = pytest.mark.needs("litedram")
WRITE = """
from fanin.hdl.boards.sdram.core import core_verilog
from fanin.boards.sdram import {sdram} as sdram
print(core_verilog(sdram, sdram.timing(50e6), ports=2))
"""


def written(sdram, hash_seed):
    """By a process of its own."""
    command = [sys.executable, "-W", "error", "-c", WRITE.format(sdram=sdram)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("name", "sdram"), [("SDRAM_8M", SDRAM_8M), ("SDRAM_4M", SDRAM_4M)])
def test_the_module_has_the_chips_pins_and_a_port_for_each_memory(name, sdram):
    verilog = written(name, 1)
    pins = re.findall(r"(input|output)(?: reg)? (?:\[(\d+):0\] )?(\w+)", verilog.partition(");")[0])
    widths = {pin: (way, int(high or 0) + 1) for way, high, pin in pins}
    address = (sdram.words - 1).bit_length()
    ports = {"valid": 1, "write": 1, "address": address, "data": 32}
    expected = {f"p{n}_{pin}": ("input", bits) for n in range(2) for pin, bits in ports.items()}
    ports = {"ready": 1, "taken": 1, "word": 32, "given": 1}
    expected |= {f"p{n}_{pin}": ("output", bits) for n in range(2) for pin, bits in ports.items()}
    outputs = {"ras_n": 1, "cas_n": 1, "we_n": 1, "ba": sdram.banks // 2, "a": 11, "dq_o": 32, "dq_oe": 1}
    expected |= {pin: ("output", bits) for pin, bits in outputs.items()}
    expected |= {"dq_i": ("input", 32), "sys_clk": ("input", 1), "sys_rst": ("input", 1)}
    assert verilog.count("module sdram_core(") == 1
    assert widths == expected


@pytest.mark.slow  # two processes that load litedram
def test_another_process_writes_the_same():
    assert written("SDRAM_8M", 1) == written("SDRAM_8M", 2)
