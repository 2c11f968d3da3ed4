"""The fixture itself: a broken stream must be caught."""

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.sim.rtl.monitor import ProtocolError
from tests.support import simulate


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
    with pytest.raises(ProtocolError):
        simulate(_Pass(fault="change"), drive={"i": [0] * 50}, collect={"o": 50}, stall=0.5)


def test_monitor_catches_a_valid_that_waits_for_ready():
    with pytest.raises(ProtocolError, match="waits for ready"):
        simulate(_Pass(fault="wait"), drive={"i": [0] * 50}, collect={"o": 50}, stall=0.5)


def test_what_never_arrives_is_an_error():
    with pytest.raises(AssertionError, match="still pending"):
        simulate(_Pass(), drive={"i": [1]}, collect={"o": 2}, limit=100)
