"""Boards in the harness: frames through RGMII, clocks apart, the routed netlist against its source."""

import random
import signal
import subprocess
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fanin.base.errors import ToolFailed
from fanin.sim.boards import board
from fanin.sim.boards.board import BoardConfig, Boards, Clock, on_the_wire
from fanin.sim.boards.direct import LoggedBoards
from fanin.sim.boards.model import routed_model, source_model
from tests.sim.boards.build import place
from tests.sim.boards.compare import assert_equal, traces
from tests.sim.boards.designs import PHY, RgmiiLoop

pytestmark = pytest.mark.verilator

CRYSTAL = {"clk25_0": Clock.of_mhz(25)}
LOCKED = 1_500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    place(RgmiiLoop(), folder)
    return folder


@pytest.fixture(scope="module")
def models(folder):
    return [routed_model(folder / "routed.json"), source_model(folder / "top.il")]


def random_frames(draw, count, most=200):
    return [draw.randbytes(draw.randint(60, most)) for _ in range(count)]


def test_frames_come_back_whatever_the_clocks(models):
    draw = random.Random(5)
    frames = random_frames(draw, 30)
    phys = [replace(PHY, ppm=ppm, phase_ps=draw.randint(0, 8000)) for ppm in (200, 0, -200)]
    configs = [BoardConfig(models[0], {"clk25_0": Clock.of_mhz(25, ppm=-phy.ppm / 2)}, [phy]) for phy in phys]
    with Boards(configs, optimise="-Og") as boards:
        boards.run(LOCKED)
        for number in range(len(configs)):
            for frame in frames:
                boards.send(number, frame)
        sent = boards.run(LOCKED + 80_000_000)
        print([len([x for x in sent if x.board == n]) for n in range(3)])
        assert not boards.busy
    for number in range(len(configs)):
        own = [one for one in sent if one.board == number]
        assert [one.fault for one in own] == [""] * len(frames)
        assert [one.data for one in own] == frames


def test_netlist_and_source_do_the_same_in_every_cycle(models, tmp_path):
    frames = random_frames(random.Random(6), 6, 90)
    phy = replace(PHY, ppm=50, phase_ps=777)

    def stimulus(boards):
        for index, frame in enumerate(frames):
            boards.send(0, frame, time=LOCKED)
            boards.set_pin(0, "mdio_0_i", index % 2, time=LOCKED + index * 1_000_003)
        boards.send_wire(0, on_the_wire(frames[0]), time=LOCKED, error_at=20)

    configs = [BoardConfig(model, CRYSTAL, [phy]) for model in models]
    found = traces(configs, tmp_path, stimulus, 12_000_000)
    assert_equal(models[0].outputs, found)
    outputs = models[0].outputs
    for name in ("led_0", "mdio_0_o", "mdio_0_t", "rgmii_0_tx_ctl", "rgmii_0_tx_data"):
        assert len(set(found[0][:, 1 + outputs.index(name)])) > 1, name


def test_pll_clocks_follow_from_the_netlist(models):
    for model in models:
        clocks = BoardConfig(model, {"clk25_0": Clock(Fraction(40_000), 100)}).all_clocks()
        assert clocks["pll_clkop"] == Clock(Fraction(8000), 100)
        assert clocks["pll_clkos"] == Clock(Fraction(17_600), 100 + 2 * 1600)  # two periods of the VCO late
        assert model.pins.locks == ["pll_lock"]
    with pytest.raises(ValueError, match=r"clocks must have 'clk25_0', the reference of pll_clkop"):
        BoardConfig(models[0], {}).all_clocks()


def test_faults_on_the_wire_are_seen(models):
    frame = bytes(range(80))
    wire = on_the_wire(frame)
    with Boards([BoardConfig(models[1], CRYSTAL, [PHY])], optimise="-Og") as boards:
        boards.run(LOCKED)
        boards.send_wire(0, on_the_wire(frame, fcs=bytes(4)))
        boards.send_wire(0, wire, error_at=30)
        boards.send_wire(0, wire[1:])
        boards.send_wire(0, on_the_wire(frame[:50]), gap=40)
        boards.send(0, frame[:50])
        sent = boards.run(LOCKED + 10_000_000)
        assert [one.fault for one in sent] == ["FCS", "transmit error", "preamble", "short", ""]
        assert sent[0].data == on_the_wire(frame, fcs=bytes(4))
        assert sent[3].gap - sent[2].gap in range(27, 30)  # its gap, in cycles of the other clock
        assert sent[4].data == frame[:50] + bytes(10)
        # Its end: 92 bytes of 8 ns at either side, the FIFO and the DDR cells between.
        assert 0 < sent[0].time - LOCKED - 92 * 8000 < 60 * 8000


def test_input_delays_are_those_of_the_netlist(tmp_path):
    """Where the PHY does not delay, 2 ns of delay lines at the data make each edge take the half before."""
    routed = place(RgmiiLoop(delay=80), tmp_path)
    for model in (routed_model(routed), source_model(tmp_path / "top.il")):
        assert model.pins.delays == {"rgmii_0_rx_ctl": 2000, "rgmii_0_rx_data": 2000}


def test_a_frame_s_time_and_the_ports_that_a_trace_is_asked_for(models, tmp_path):
    """The first and the last byte at the pins are when the log says, in cycles of the PHY's clock."""
    phy = replace(PHY, ppm=90, phase_ps=1234)
    with LoggedBoards([BoardConfig(models[1], CRYSTAL, [phy])], optimise="-Og") as boards:
        boards.trace(0, tmp_path / "trace", ["rgmii_0_rx_ctl", "rgmii_0_tx_ctl"])
        boards.run(LOCKED)
        for size in (60, 100, 1000):
            boards.send(0, bytes(size), time=boards.time + 100_003)
            boards.run(boards.time + 30_000_000)
        assert [len(one.data) for one in boards.sent[0]] == [60, 100, 1000]
    trace = np.fromfile(tmp_path / "trace", dtype=np.uint64).reshape(-1, 3)
    came = np.diff(trace[:, 1].astype(int), prepend=0) != 0
    edges = (trace[came, 0] / 1000).reshape(-1, 2)
    told = np.array([(one.start, one.end) for one in boards.delivered[0]])
    late = edges - told  # a change is seen at the next edge of some clock
    assert ((late >= 0) & (late < 4000)).all(), late


def test_a_signal_of_the_source_becomes_an_output(folder, models):
    outputs = source_model(folder / "top.il", expose=["locked"]).outputs
    assert set(outputs) - set(models[1].outputs) == {"locked"}


def test_a_phy_in_reset_loses_frames(models, monkeypatch):
    """The LED resets it: each frame that begins to leave turns it, and the other pin turns it back."""
    frame = bytes(200)
    phy = replace(PHY, reset="led_0")
    with Boards([BoardConfig(models[1], CRYSTAL, [phy], pins={"mdio_0_i": 1})], optimise="-Og") as boards:
        boards.send(0, frame)  # before the LED is lit
        boards.power_up()
        assert boards.read_pin(0, "led_0") == 1
        assert boards.lost(0) == (1, 0)
        for expected in ((2, 1), (3, 1)):  # one is cut on both its ways; the next never comes
            boards.send(0, frame)
            assert boards.run(boards.time + 10_000_000) == []
            assert boards.lost(0) == expected
            assert boards.read_pin(0, "led_0") == 0
        monkeypatch.setattr("fanin.sim.boards.board.MAX_RESET_PS", 50_000_000)
        with pytest.raises(ToolFailed, match=r"board 0 holds its PHY in reset for 0.05 ms"):
            boards.power_up()
        boards.set_pin(0, "mdio_0_i", 0)
        boards.power_up()


def test_misuse(models):
    with Boards([BoardConfig(models[1], CRYSTAL, [PHY])], optimise="-Og") as boards:
        boards.run(1000)
        with pytest.raises(ValueError, match=r"time must be at least 1000.* not 999"):
            boards.send(0, bytes(60), time=999)
        with pytest.raises(ValueError, match=r"port must be one of clk25_0, .* not 'nothing'"):
            boards.read_pin(0, "nothing")
        assert boards.read_pin(0, "pll_lock") == 0
        boards.run(LOCKED)
        assert boards.read_pin(0, "pll_lock") == 1
        boards._process.kill()
        with pytest.raises(ToolFailed, match="the boards' simulation has ended"):
            boards.run(LOCKED + 1)


def test_a_simulation_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(board, "_END_SECONDS", 0.1)
    boards = object.__new__(Boards)
    boards._process = process = subprocess.Popen(
        ["sleep", "100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    boards._commands, boards._replies = process.stdin, process.stdout
    with pytest.raises(ToolFailed, match=r"did not end in 0.1 s"):
        boards.close()
    assert process.returncode == -signal.SIGKILL
