"""Arrays with a body in C inside of nodes: one of a kind, several, and in blocks that are apart."""

import numpy as np
import pytest

from fanin.golden import fp32
from fanin.sim.cosim.arrays import OPERATORS, Arith
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import Group, Simulator, simulation_sources
from tests.sim.cosim import kinds
from tests.sim.cosim.array_node import REGISTERS, TERMS, ArrayNode
from tests.support import slow

RUNS = 20


def program(a, b):
    """Adds the products of each row, one after the other, and reads the total."""
    at, steps = REGISTERS.offset, HostProgram()
    for run, operands in enumerate(zip(a.view(np.uint32), b.view(np.uint32), strict=True)):
        for side, row in zip("ab", operands, strict=True):
            for term, value in enumerate(row.tolist()):
                steps.write(at(f"{side}{term}"), value)
        steps.write(at("control"), 1).poll(at("runs"), run + 1)
    return steps.read(at("total"))


def total(a, b):
    result = np.float32(0)
    for products in fp32.multiply(a, b):
        result = fp32.add(fp32.add(*products), result)
    return int(result.view(np.uint32))


@pytest.mark.verilator
@pytest.mark.parametrize(
    ("nodes", "options"),
    [
        (2, {"arith": Arith.C, "separate": ("Accumulator",)}),
        *slow((1, {"arith": Arith.C}), (2, {}), (2, {"separate": OPERATORS})),
    ],
    ids=["several, apart", "one", "rtl", "rtl, operators apart"],
)
def test_nodes_accumulate_products(nodes, options, tmp_path):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, nodes, RUNS, TERMS)).astype(np.float32)
    request = kinds.request(tmp_path, nodes=nodes, memories=[[] for _ in range(nodes)])
    request.phases = [Phase("add", [program(a[node], b[node]) for node in range(nodes)])]
    result = Simulator([Group(ArrayNode(), nodes, **options)], quiet=True).run(request)
    assert [int(reads[0]) for reads in result.phases[0].reads] == [total(a[n], b[n]) for n in range(nodes)]


def test_c_is_in_the_sources_only_where_it_is_asked_for():
    rtl, in_c = (simulation_sources([Group(ArrayNode(), 2, arith=arith)]) for arith in Arith)
    assert "arrays.cpp" not in rtl.top
    assert in_c.top["arrays.cpp"].count("\nvoid fanin_") == 2
    assert in_c.verilog == rtl.verilog, "the text of the nodes is that which is emitted"
    assert [source.models["array_node"]["array_node.v"].count("DPI-C") for source in (rtl, in_c)] == [0, 2]
