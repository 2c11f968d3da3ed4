# amaranth: UnusedElaboratable=no
"""The registers that every node has: their place in the map, and counters with their sources."""

from enum import IntEnum

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.bus import common_registers as common
from fanin.hdl.bus.register_map import Access, Field
from fanin.hdl.bus.registers import RegisterFile
from fanin.host.driver import BaseDriver


class Cause(IntEnum):
    NONE = 0
    WORN_OUT = 5


MAP = common.node_map(
    common.identity_registers(0x1234, 3),
    [
        common.shape_register(Field("lanes", 5, "lanes")),
        common.control_register(Field("begin", 1, "begin")),
        common.status_register(Field("beginning", 1, "not begun"), *common.failure_fields(Cause, "over")),
    ],
    common.counter_registers({"cycles": "all", "words": "some"}, bits=64, steps={"words": 3}),
)
CONSTANTS = {"id": 0x1234, "version": 3, "lanes": 17}


def run(module, main):
    simulator = Simulator(module)
    simulator.add_clock(1e-8)
    simulator.add_testbench(main)
    simulator.run()


def test_the_map_has_them_in_order_and_clears_the_counters():
    names = [register.name for register in MAP.registers]
    assert names == ["id", "version", "shape", "control", "status", "cycles", "words"]
    assert MAP.clear == "clear_counters"
    assert [field.name for field in MAP["control"].fields] == ["begin", "clear_counters"]
    assert {field.name: field.bits for field in MAP["status"].fields} == {
        "beginning": 1,
        "failed": 1,
        "cause": 3,
    }
    assert MAP["status"].fields[2].doc == "0 NONE, 5 WORN_OUT"
    assert [(MAP[name].access, MAP[name].bits, MAP[name].step) for name in ("cycles", "words")] == [
        (Access.COUNTER, 64, 1),
        (Access.COUNTER, 64, 3),
    ]


@pytest.mark.parametrize("sources", [{"cycles": 1}, {"cycles": 1, "words": 1, "more": 1}])
def test_a_counter_without_a_source_and_a_source_without_a_counter_are_refused(sources):
    with pytest.raises(ValueError, match="sources must have the names \\['cycles', 'words'\\]"):
        common.drive_counters(Module(), RegisterFile(registers=MAP), sources)


def test_constants_are_there_at_once_and_counts_a_cycle_later():
    m, file, words = Module(), RegisterFile(registers=MAP), Signal(3)
    m.submodules.file = file
    common.drive_constants(m, file, CONSTANTS)
    common.drive_counters(m, file, {"cycles": 1, "words": words})

    async def main(ctx):
        ctx.set(words, 5)
        assert [ctx.get(getattr(file, name)) for name in CONSTANTS] == [0x1234, 3, 17]
        assert [ctx.get(file.cycles), ctx.get(file.words)] == [0, 0]
        await ctx.tick()
        assert [ctx.get(file.cycles), ctx.get(file.words)] == [1, 5]

    run(m, main)


def test_the_driver_knows_a_node_by_its_constants():
    driver = BaseDriver(MAP, CONSTANTS, base=64)
    assert [operation.address for operation in driver.identify().operations] == [64, 68, 72]
    driver.check_identity([0x1234, 3, {"lanes": 17}])
    for values, message in (
        ([0x1235, 3, {"lanes": 17}], f"the node's id must be {0x1234}, not {0x1235}"),
        ([0x1234, 4, {"lanes": 17}], "the node's version must be 3, not 4"),
        ([0x1234, 3, {"lanes": 16}], "the node's lanes must be 17, not 16"),
    ):
        with pytest.raises(ValueError, match=message):
            driver.check_identity(values)
    assert driver.counters_of([7, 8]) == {"cycles": 7, "words": 8}
