"""What yosys makes of memories, products and carries: the routed netlist does what its source does."""

import functools
import operator

import pytest
from amaranth import Signal, signed
from amaranth.lib.memory import Memory

from fanin.sim.boards.board import BoardConfig, Clock
from fanin.sim.boards.model import routed_model, source_model
from fanin.sim.boards.netlist import read_netlist
from tests.sim.boards.build import Pinned, place_ports
from tests.sim.boards.compare import assert_equal, random_pins, traces

pytestmark = pytest.mark.verilator

PERIOD, OTHER_PERIOD = 8000, 6900


def folded(value, width):
    """A value on few pins: it is cut into pieces, which are added without carries."""
    return functools.reduce(operator.xor, (value[low : low + width] for low in range(0, len(value), width)))


def check(pinned, folder, *, cycles=1500, seed=1, rare=()):
    routed = place_ports(pinned, folder)
    models = [routed_model(routed), source_model(folder / "top.il")]
    clocks = {"one_clk": Clock(PERIOD, 1000), "two_clk": Clock(OTHER_PERIOD, 1300)}
    configs = [BoardConfig(model, {n: c for n, c in clocks.items() if n in model.inputs}) for model in models]
    print(f"seed {seed}")
    stimulus = random_pins(pinned.inputs(), PERIOD, cycles, seed, rare)
    assert_equal(models[0].outputs, traces(configs, folder, stimulus, cycles * PERIOD))
    return read_netlist(routed)


# name: width, depth, write granularity, transparent, second clock, contents
MEMORIES = {
    "bit": (1, 16384, None, False, False, False),
    "pair": (2, 8192, None, False, True, True),
    "nibble": (4, 4096, None, False, False, True),
    "byte": (9, 2048, None, False, True, True),
    "word": (18, 1024, 9, False, False, True),
    "wide": (36, 512, 9, False, True, True),
    "transparent": (18, 1024, None, True, False, True),
    "enables": (36, 512, 9, True, False, False),
}


def add_memory(p, name, width, depth, granularity, transparent, second, filled):
    contents = (
        [(index * 0x9E3779B97F4A7C15 >> 13) & (1 << width) - 1 for index in range(depth)] if filled else []
    )
    memory = p.m.submodules[f"memory_{name}"] = Memory(shape=width, depth=depth, init=contents)
    write = memory.write_port(domain="one", granularity=granularity)
    read = memory.read_port(domain="two" if second else "one", transparent_for=(write,) if transparent else ())
    # The device has few pins: all share their inputs. Few addresses, so that reads find what was written.
    write_to, read_from = p.port("i_to", 5), p.port("i_from", 5)
    for index in range(len(write.addr)):
        p.m.d.comb += [write.addr[index].eq(write_to[index % 5]), read.addr[index].eq(read_from[index % 5])]
    p.m.d.comb += [
        write.data.eq(p.port("i_data", 36)),
        write.en.eq(p.port("i_write", 4)),
        read.en.eq(p.port("i_enable", 1)),
        p.port(f"o_{name}", width).eq(read.data),
    ]


@pytest.mark.slow
def test_block_ram_in_every_width(tmp_path):
    seen = set()
    p = Pinned()
    for name, parameters in MEMORIES.items():
        add_memory(p, name, *parameters)
    netlist = check(p, tmp_path)
    for cell in netlist.cells.values():
        if cell.kind == "DP16KD":
            seen |= {(port, cell.number(f"DATA_WIDTH_{port}")) for port in "AB"}
    print(sorted(seen), {c.text("WRITEMODE_A") for c in netlist.cells.values() if c.kind == "DP16KD"})
    assert seen >= {("A", w) for w in (1, 2, 4, 9, 18)} | {("B", w) for w in (1, 2, 4, 9, 18, 36)}


@pytest.mark.slow
def test_products(tmp_path):
    p = Pinned()
    kinds = {"u": lambda width: width, "s": signed}
    for signs in ("uu", "ss", "us"):
        for a, b in ((18, 18), (9, 9), (17, 4), (30, 25)):
            first, second = Signal(kinds[signs[0]](a)), Signal(kinds[signs[1]](b))
            p.m.d.comb += [first.eq(p.port("i_a", 30)), second.eq(p.port("i_b", 25))]
            product = Signal(signed(a + b), name=f"p{a}_{b}_{signs}")
            p.m.d.one += product.eq(first * second)
            p.m.d.two += p.port(f"o_{signs}_{a}", 10).eq(folded(product, 10))
    netlist = check(p, tmp_path)
    assert {"MULT18X18D", "TRELLIS_COMB"} <= {cell.kind for cell in netlist.cells.values()}


def test_distributed_ram_carries_and_controls(tmp_path):
    p = Pinned()
    for name, (width, depth) in {"small": (7, 16), "deeper": (4, 64), "wider": (20, 32)}.items():
        memory = Memory(shape=width, depth=depth, init=[3 * index % 16 for index in range(depth)])
        p.m.submodules[name] = memory
        write, read = memory.write_port(domain="one"), memory.read_port(domain="comb")
        p.m.d.comb += [
            write.addr.eq(p.port("i_to", 6)),
            write.data.eq(p.port("i_data", 20)),
            write.en.eq(p.port("i_write", 1)),
            read.addr.eq(p.port("i_from", 6)),
        ]
        p.m.d.two += p.port(f"o_{name}", width).eq(read.data)
    x, y = p.port("i_x", 40), p.port("i_y", 40)
    total = p.port("o_total", 40)
    with p.m.If(p.port("i_clear", 1)):
        p.m.d.one += total.eq(77)
    with p.m.Elif(p.port("i_add", 1)):
        p.m.d.one += total.eq(total + x - y)
    p.m.d.two += p.port("o_less", 1).eq(x < y)
    p.m.d.one += p.port("o_chosen", 1).eq(x.bit_select(y[:6], 1))
    p.m.d.one += p.port("o_any", 3).eq((x.any() ^ y.xor()) + x.all())
    netlist = check(p, tmp_path, rare=("i_clear",))
    modes = {cell.text("MODE", "LOGIC") for cell in netlist.cells.values() if cell.kind == "TRELLIS_COMB"}
    assert modes >= {"LOGIC", "CCU2", "DPRAM"}
    assert any(cell.bit("FXA") for cell in netlist.cells.values())
