"""What derives from a register map: offsets, documentation, C header, host operations."""

import json
import os
import re
import subprocess

import pytest

from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.host.driver import Batch, Operation, RegisterDriver
from fanin.sim.cosim.build import find_verilator

MAP = RegisterMap(
    (
        Register(
            "control", "pulse", "Commands.", (Field("start", 1, "Begin."), Field("wipe", 1, "Zero counters."))
        ),
        Register(
            "rate", "rw", "Learning rate.", (Field("mantissa", 16, "m"), Field("shift", 6, "s", reset=24))
        ),
        Register("level", "ro", "A level."),
        Register("address", "rw", "Where the samples lie.", bits=40, count=2),
        Register("drops", "counter", "Frames lost."),
        Register("model", "window", "Weights."),
    ),
    clear="wipe",
)


def test_registers_follow_each_other_and_two_words_are_aligned():
    assert [MAP.offset(register.name) for register in MAP.registers] == [0, 4, 8, 16, 32, 36]
    assert MAP.offset("address", 1) == 24
    assert MAP.size == 40
    with pytest.raises(IndexError, match="address has 2 elements; there is no 2"):
        MAP.offset("address", 2)
    with pytest.raises(KeyError, match="no register is called 'nothing'"):
        MAP.offset("nothing")


def test_a_batch_turns_names_into_bus_operations_and_words_into_values():
    batch = Batch(MAP, base=0x1000)
    batch.write("rate", mantissa=-1, shift=3).write("address", 0x12_3456_789A, index=1).read("rate")
    batch.read("address", index=0).write("control", start=1).read("level")
    assert batch.operations == [
        Operation(0x1004, 0x3FFFF),
        Operation(0x1018, 0x3456_789A),
        Operation(0x101C, 0x12),
        Operation(0x1004),
        Operation(0x1010),
        Operation(0x1014),
        Operation(0x1000, 1),
        Operation(0x1008),
    ]
    values = batch.results([0x3FFFF, 0x89ABCDEF, 0x55, 7])
    assert values == [{"mantissa": 0xFFFF, "shift": 3}, 0x55_89AB_CDEF, 7]
    with pytest.raises(ValueError, match="words must be the 4 that were read, not 3"):
        batch.results([1, 2, 3])


@pytest.mark.parametrize(
    ("name", "value", "fields", "message"),
    [
        ("level", 1, {}, "register level is ro: it cannot be written"),
        ("drops", 1, {}, "register drops is counter: it cannot be written"),
        ("rate", None, {"mantissa": 1}, "register rate: missing field shift"),
        ("rate", None, {"mantissa": 1, "shift": 1, "x": 0}, "register rate: unknown field x"),
        ("rate", 1, {}, "register rate: give its fields by name"),
        ("rate", None, {"mantissa": 1 << 16, "shift": 0}, "field mantissa must fit 16 bits, not 65536"),
        ("address", 1 << 40, {}, "field address must fit 40 bits"),
    ],
)
def test_writes_that_cannot_be_are_refused(name, value, fields, message):
    with pytest.raises(ValueError, match=message):
        Batch(MAP).write(name, value, **fields)


def test_both_drivers_read_back_what_they_wrote():
    memory = {}

    driver = RegisterDriver(MAP, memory.__getitem__, memory.__setitem__, base=64)
    driver.write("address", 0xAB_CDEF_0123, index=1)
    assert driver.read("address", index=1) == 0xAB_CDEF_0123
    driver.write("rate", mantissa=5, shift=6)
    assert driver.read("rate") == {"mantissa": 5, "shift": 6}


def test_markdown_has_every_register_and_field():
    lines = MAP.markdown().splitlines()
    assert "| 0x004 | `rate` | rw | | | | Learning rate. |" in lines
    assert "| | | | 21…16 | `shift` | 0x18 | s |" in lines
    assert "| 0x010 | `address[2]` | rw | 39…0 |  | 0x0 | Where the samples lie. |" in lines
    assert {line.count("|") for line in lines} == {8}


def test_the_c_header_compiles_and_says_the_same(tmp_path):
    (tmp_path / "registers.h").write_text(MAP.c_header())
    checks = {"ADDRESS_OFFSET": 16, "ADDRESS_STRIDE": 8, "ADDRESS_COUNT": 2, "RATE_SHIFT_SHIFT": 16}
    checks |= {"RATE_SHIFT_MASK": 0x3F0000, "CONTROL_WIPE_MASK": 2}
    body = "".join(f'static_assert(FANIN_{name} == {value}, "");\n' for name, value in checks.items())
    (tmp_path / "check.cpp").write_text(f'#include "registers.h"\n#include "registers.h"\n{body}')
    subprocess.run(["g++", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "check.cpp"], check=True)


def test_the_verilog_header_says_the_same(tmp_path):
    """A reset value other than 0 is named, too; verified by a module that includes the file."""
    expected = {"ADDRESS_OFFSET": 16, "ADDRESS_STRIDE": 8, "ADDRESS_COUNT": 2, "RATE_SHIFT_SHIFT": 16}
    expected |= {"RATE_SHIFT_MASK": 0x3F0000, "CONTROL_WIPE_MASK": 2, "RATE_RESET": 24 << 16}
    text = MAP.verilog_header("NODE")
    found = re.findall(r"^localparam \[31:0\] NODE_(\w+) = 32'([hd])(\w+);", text, re.MULTILINE)
    numbers = {name: int(digits, 16 if base == "h" else 10) for name, base, digits in found}
    assert expected.items() <= numbers.items()
    assert len(numbers) == text.count("localparam")
    assert [name for name in numbers if name.endswith("_RESET")] == ["RATE_RESET"]
    (tmp_path / "map.vh").write_text(text)
    checks = "".join(f"if (NODE_{name} != {value}) $error;\n" for name, value in expected.items())
    (tmp_path / "top.v").write_text(f'module top;\n`include "map.vh"\n{checks}endmodule\n')
    verilator = find_verilator()
    command = [verilator.program, "--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-GENUNNAMED", "top.v"]
    environment = os.environ | dict(verilator.environment)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_dictionary_is_json_and_has_every_register_and_field():
    said = json.loads(json.dumps(MAP.as_dict()))
    registers = {register["name"]: register for register in said["registers"]}
    assert said["size"] == 40
    assert registers["address"]["offset"] == 16
    assert (registers["address"]["count"], registers["address"]["stride"]) == (2, 8)
    assert registers["rate"]["fields"][1] == {
        "name": "shift",
        "shift": 16,
        "bits": 6,
        "reset": 24,
        "description": "s",
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Field("a b", 1, ""), "name of a field must be an identifier, not 'a b'"),
        (lambda: Field("a", 0, ""), "bits of field a must be from 1 to 64, not 0"),
        (lambda: Field("a", 2, "", reset=4), "reset of field a must fit 2 bits, not 4"),
        (lambda: Register("a", "ro", "", bits=33), "bits of register a must be at most 32, not 33"),
        (lambda: Register("a", "rw", "", bits=65), "bits of field a must be from 1 to 64, not 65"),
        (lambda: Register("a", "counter", "", bits=16), "counter register a must have whole words"),
        (lambda: Register("a", "rw", "", count=0), "count of register a must be at least 1, not 0"),
        (lambda: Register("a", "counter", "", step=33), "step of register a must be from 1 to 32 bits, not 33"),
        (lambda: RegisterMap((Register("a", "rw", ""),) * 2), "register name used twice: a"),
        (lambda: RegisterMap((Register("a", "rw", ""),), clear="a"), "clear must name a pulse of one bit"),
        (lambda: RegisterMap((Register("a", "rw", "", count=1025),)), "must cover the map's 4100 bytes"),
    ],
)
def test_maps_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
