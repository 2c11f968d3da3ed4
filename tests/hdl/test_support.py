"""The fixture itself: a broken stream must be caught."""

from types import MappingProxyType

import pytest
from amaranth import ClockDomain, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.sim.rtl.monitor import Monitored
from fanin.sim.rtl.stalls import LENGTHS, Phase, Side, Stalls
from tests.support import new_seed, simulate


class _Pass(wiring.Component):
    def __init__(self, *, fault: str = ""):
        self.fault = fault
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]
        if self.fault == "wait":
            m.d.comb += self.o.valid.eq(self.i.valid & self.o.ready)
        if self.fault == "change":
            n = Signal(8)
            m.d.sync += n.eq(n + 1)
            m.d.comb += self.o.payload.eq(n)
        return m


def test_every_payload_arrives_in_order_under_stalls():
    log = simulate(_Pass(), drive={"i": list(range(50))}, collect={"o": 50}, stall=0.5)
    assert [p for _, p in log["o"]] == list(range(50))


def test_full_rate_without_stalls():
    log = simulate(_Pass(), drive={"i": list(range(50))}, collect={"o": 50}, stall=0)
    cycles = [c for c, _ in log["o"]]
    assert cycles[-1] - cycles[0] == 49


def test_monitor_catches_a_payload_that_changes():
    with pytest.raises(AssertionError, match=r"_Pass.o: payload changed from 0x[0-9a-f]+ to 0x"):
        simulate(_Pass(fault="change"), drive={"i": [0] * 50}, collect={"o": 50}, stall=0.5)


def test_monitor_catches_a_valid_that_waits_for_ready():
    with pytest.raises(AssertionError, match="waits for ready"):
        simulate(_Pass(fault="wait"), drive={"i": [0] * 50}, collect={"o": 50}, stall=0.5)


class _Inside(wiring.Component):
    """Its ports keep the contract, but inside it offers what nobody takes, and withdraws it.

    With ``reset`` the part inside is reset as that happens: then it may.
    """

    def __init__(self, *, fault: str = "", reset: bool = False):
        self.fault, self.reset = fault, reset
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sound = sound = _Pass()
        part = _Pass(fault=self.fault)
        beat = Signal(4)
        m.submodules.part = ResetInserter(beat.all())(part) if self.reset else part
        connect_typed(m, wiring.flipped(self.i), sound.i)
        connect_typed(m, sound.o, wiring.flipped(self.o))
        m.d.sync += beat.eq(beat + 1)
        m.d.comb += part.i.valid.eq(beat != 0)
        return m


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("change", "_Inside/_Pass.o: payload changed from 0x"),
        ("", "_Inside/_Pass.[io]: valid withdrawn before ready"),
    ],
)
def test_streams_inside_are_watched(fault, message):
    with pytest.raises(AssertionError, match=message):
        simulate(_Inside(fault=fault), drive={"i": [0] * 50}, collect={"o": 50})


def test_a_stream_may_be_excused_where_it_lies():
    parts = {"_Inside/_Pass.i", "_Inside/_Pass.o"}
    simulate(_Inside(), drive={"i": [0] * 50}, collect={"o": 50}, excused=parts)
    with pytest.raises(AssertionError, match=r"_Inside/_Pass\.o: valid withdrawn"):
        simulate(
            _Inside(), drive={"i": [0] * 50}, collect={"o": 50}, excused={"_Pass.i", "Pass.o", "_Inside.o"}
        )


class _Elsewhere(wiring.Component):
    """A stream of another domain, which offers in each second cycle."""

    domains = MappingProxyType({"o": "other"})

    def __init__(self):
        super().__init__({"o": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        m.d.other += self.o.valid.eq(~self.o.valid)
        return m


def test_a_stream_is_watched_in_its_own_domain():
    top = Module()
    top.domains += [ClockDomain("sync"), ClockDomain("other")]
    top.submodules.dut = Monitored(_Elsewhere())
    sim = Simulator(top)
    sim.add_clock(4e-9, domain="other")  # sync stands still
    with pytest.raises(AssertionError, match=r"_Elsewhere\.o: valid withdrawn before ready"):
        sim.run_until(40e-9)


def test_a_reset_may_withdraw_what_a_part_offers():
    simulate(_Inside(reset=True), drive={"i": [0] * 50}, collect={"o": 50})


@pytest.mark.parametrize("depth", [1, 16, 48])
def test_a_short_run_fills_and_drains_a_queue(depth):
    dut = StreamFIFO(shape=8, depth=depth)
    levels = []

    async def observe(ctx):
        async for _, _, level in ctx.tick().sample(dut.level):
            levels.append(level)

    simulate(dut, drive={"i": [0] * 150}, collect={"o": 150}, processes=[observe])
    assert depth in levels
    assert 0 in levels[levels.index(depth) : levels.index(depth) + 300]


def test_stalls_of_a_seed_are_the_same_and_odds_of_0_are_none():
    def pauses(odds, seed):
        stalls = Stalls(odds, seed)
        return [stalls.pauses(side.value, side, cycle) for cycle in range(2000) for side in Side]

    assert pauses(0.3, 1) == pauses(0.3, 1) != pauses(0.3, 2)
    assert not any(pauses(0, 1))
    assert {*pauses({"sink": 0.999}, 1)[::2]} == {False}


def test_each_side_is_much_slower_than_the_other_in_every_round():
    stalls = Stalls(0.5, new_seed())
    cycles = range(max(LENGTHS) * len(Phase))
    passed = [[not stalls.pauses("", side, cycle) for side in Side] for cycle in cycles]
    spells = [[sum(side) for side in zip(*passed[at : at + 32], strict=True)] for at in cycles[:-32:8]]
    assert any(source == 32 and sink < 8 for source, sink in spells)
    assert any(source < 8 and sink == 32 for source, sink in spells)
    assert [32, 32] in spells


def test_what_never_arrives_is_an_error():
    with pytest.raises(AssertionError, match="still pending"):
        simulate(_Pass(), drive={"i": [1]}, collect={"o": 2}, limit=100)
