# amaranth: UnusedElaboratable=no
"""An AXI4-Lite master that is bounded, and a decoder for several slaves: against slaves that pause and fail."""

import random

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import AXI4LiteSignature, Resp
from fanin.hdl.bus.axi_lite_decoder import AxiLiteDecoder
from fanin.hdl.bus.axi_lite_master import AxiLiteMaster, LiteResult
from tests.hdl.net.control.bench import Slave
from tests.support import new_seed, simulate

REGIONS = ((0x0000, 12), (0x4000, 8), (0x1_0000, 16))
TIMEOUT = 200


class Words:
    """A slave's words, of which one is bad."""

    def __init__(self, number):
        self.number = number
        self.words = {}

    def __getitem__(self, address):
        if address == 0x40:
            raise KeyError(address)
        return self.words.get(address, self.number << 28 | address)

    def __setitem__(self, address, data):
        if address == 0x40:
            raise KeyError(address)
        self.words[address] = data


class Bus(wiring.Component):
    """Master and decoder."""

    def __init__(self):
        self.master = AxiLiteMaster(timeout=TIMEOUT)
        self.decoder = AxiLiteDecoder(regions=REGIONS)
        ports = {f"m{n}": Out(AXI4LiteSignature(address_width=bits)) for n, (_, bits) in enumerate(REGIONS)}
        streams = {
            "request": self.master.signature.members["request"],
            "result": Out(stream.Signature(LiteResult)),  # that it is always taken, the test sees to
        }
        super().__init__(streams | ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.master = master = self.master
        m.submodules.decoder = decoder = self.decoder
        wiring.connect(m, wiring.flipped(self.request), master.request)
        m.d.comb += [self.result.valid.eq(master.result.valid), self.result.p.eq(master.result.p)]
        wiring.connect(m, master.axil, decoder.axil)
        for n in range(len(REGIONS)):
            wiring.connect(m, getattr(decoder, f"m{n}"), wiring.flipped(getattr(self, f"m{n}")))
        return m


def find(address):
    """Which slave an address belongs to, and what it is there; None for nobody's."""
    for n, (base, bits) in enumerate(REGIONS):
        if base <= address < base + (1 << bits):
            return n, address - base
    return None, 0


@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_every_access_reaches_its_slave_and_brings_its_answer(patience):
    seed = new_seed()
    rng = random.Random(seed)
    dut, buses, model = Bus(), [Words(n) for n in range(3)], [Words(n) for n in range(3)]
    slaves = [
        Slave(getattr(dut, f"m{n}"), bus, patience=patience, seed=seed + n) for n, bus in enumerate(buses)
    ]
    requests, results = [], []
    for _ in range(80):
        base, bits = rng.choice((*REGIONS, (0x1000, 12), (0x4100, 8), (0x8000_0000, 31)))
        address = base + 4 * rng.choice((0, 0x10, 1, rng.randrange(1 << bits - 2)))
        write, data = rng.getrandbits(1), rng.getrandbits(32)
        requests.append({"write": write, "address": address, "data": data})
        n, at = find(address)
        try:
            if n is None:
                raise KeyError
            if write:
                model[n][at] = data
            results.append((0, None if write else model[n][at]))
        except KeyError:
            results.append((1, None))
    log = simulate(
        dut,
        drive={"request": requests},
        collect={"result": len(requests)},
        stall={},
        processes=[slave.process for slave in slaves],
        seed=seed,
    )
    found = [(result.error, result.data) for _, result in log["result"]]
    assert [
        (e, want[1] if want[1] is None else d) for (e, d), want in zip(found, results, strict=True)
    ] == results
    assert [bus.words for bus in buses] == [bus.words for bus in model]


def test_a_silent_slave_costs_its_time_and_no_more():
    """Two accesses fail, the second at once; when the late answer has come, the next one works."""
    dut = AxiLiteMaster(timeout=TIMEOUT)
    slave = Slave(dut.axil, Words(0), patience=0)
    slave.silent = True
    times = []

    async def main(ctx):
        for silent in (True, True, False):
            if not silent:
                slave.silent = False
                await ctx.tick().repeat(20)
            ctx.set(dut.request.p, {"write": 0, "address": 0x10, "data": 0})
            ctx.set(dut.request.valid, 1)
            await ctx.tick().until(dut.request.ready)
            ctx.set(dut.request.valid, 0)
            cycles = 0
            while not ctx.get(dut.result.valid):
                await ctx.tick()
                cycles += 1
                assert ctx.get(dut.axil.arvalid) or not silent
            times.append((cycles, ctx.get(dut.result.p.error)))
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(main)
    sim.add_testbench(slave.process, background=True)
    sim.run()
    assert [error for _, error in times] == [1, 1, 0]
    assert times[0][0] == TIMEOUT
    assert times[1][0] <= 1


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ((), "at least one"),
        (((0x800, 12),), "multiples of their size"),
        (((1 << 32, 12),), "multiples of their size"),
        (((0, 33),), "multiples of their size"),
        (((0, 12), (0xF00, 8)), "must not overlap, as those at 0x0 and 0xf00"),
    ],
)
def test_regions_that_cannot_be_told_apart(regions, message):
    with pytest.raises(ValueError, match=message):
        AxiLiteDecoder(regions=regions)


def test_a_timeout_of_one_cycle_is_none():
    with pytest.raises(ValueError, match="timeout must be at least 2 cycles, not 1"):
        AxiLiteMaster(timeout=1)


def test_latency_of_the_decoder_is_that_of_its_docstring():
    dut = AxiLiteDecoder(regions=REGIONS)
    seen = {}

    async def main(ctx):
        ctx.set(dut.axil.araddr, 0x4004)
        ctx.set(dut.axil.arvalid, 1)
        for cycle in range(20):
            if ctx.get(dut.m1.arvalid):
                seen.setdefault("offered", cycle)
                assert ctx.get(dut.m1.araddr) == 4
                ctx.set(dut.m1.arready, 1)
            if "offered" in seen and cycle == seen["offered"] + 3:
                ctx.set(dut.m1.rvalid, 1)
                ctx.set(dut.m1.rresp, Resp.SLVERR)
                seen["given"] = cycle
            if ctx.get(dut.axil.rvalid):
                assert Resp(ctx.get(dut.axil.rresp)) is Resp.SLVERR
                seen["answered"] = cycle
                return
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(main)
    sim.run()
    assert (seen["offered"], seen["answered"] - seen["given"]) == (1, 1)
