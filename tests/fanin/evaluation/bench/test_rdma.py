"""``fanin bench rdma``: what is measured of a run, its limits, and that a worse NIC misses them."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import area, rdma, rdma_latency
from fanin.evaluation.bench.netlist import Area, Depth, Goal
from fanin.evaluation.bench.rdma_latency import Move, NicMeter
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.regions import RegionTable
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.fork import StreamFork
from fanin.link import LinkConfig
from fanin.rdma.facts import PRESETS, Ending, RdmaConfig
from fanin.sim.rdma.cosim import RdmaCosim

TINY = PRESETS["tiny"]


class FakeCosim:
    """Carries out the writes in no time; ``intervals`` are when the link was occupied."""

    config = RdmaConfig()
    period_ps = 4000

    def __init__(self, *intervals, went_back=0):
        self.intervals, self.went_back = np.array(intervals, np.uint64), went_back

    def run(self, *, memories, writes, **_):
        there = bytearray(memories[1])
        for _, write in writes[0]:
            there[write.remote : write.remote + write.length] = memories[0][
                write.local : write.local + write.length
            ]
        return SimpleNamespace(
            memories=[memories[0], there],
            completions=[[SimpleNamespace(ending=Ending.DONE) for _ in writes[0]], []],
            counters=[{"went_back": self.went_back}, {"lost": 0}],
            raw=SimpleNamespace(occupied=[self.intervals, None]),
        )


def test_a_pause_between_frames_costs_link_use():
    words = rdma.WRITES * rdma.MIB // 64
    case = rdma.Case(4096, 1)
    whole = rdma._share(FakeCosim([5, 5 + words]), case, rdma.MIN_LINK_USE)
    assert (whole.value, whole.ok) == (100, True)
    paused = rdma._share(FakeCosim([5, 105], [2205, 2005 + words]), case, rdma.MIN_LINK_USE)
    assert paused.value == pytest.approx(100 * words / (words + 2000))
    assert not paused.ok
    assert f"in {words - 100:,} beats and {words + 2000:,} cycles" in paused.note


def test_packets_that_go_out_twice_are_no_measurement():
    with pytest.raises(AssertionError):
        rdma._share(FakeCosim([0, 70_000], went_back=1), rdma.Case(4096, 0))


def test_a_paced_link_has_room_for_payload_and_for_what_surrounds_it():
    packets = rdma.WRITES * rdma.MIB // 4096
    cycles = packets * (8 + 54 + 4096 + 4 + 4 + 12) // 50  # 50 bytes a cycle are 100 Gb/s
    result = rdma._paced(FakeCosim([0, cycles]), rdma.Case(4096, 0, rdma.PACED_LINK))
    assert result.value == pytest.approx(100, abs=0.01)
    assert result.note == "98.04 of 98.04 Gb/s"


@pytest.mark.slow
@pytest.mark.verilator
def test_nodes_are_measured_in_the_simulator(monkeypatch):
    """Few packets: 64 of 65 words are payload's, and 64 of 66 of each write's first one."""
    monkeypatch.setattr(rdma, "MIB", 1 << 14)
    monkeypatch.setattr(rdma, "SPACE", 5 << 14)
    cosim = RdmaCosim(RdmaConfig(), nodes=2, quiet=True)
    result = rdma._share(cosim, rdma.Case(4096, 55), 98)
    assert result.value == pytest.approx(100 * 4 * 64 / (3 * 65 + 66))
    result = rdma._paced(cosim, rdma.Case(4096, 0, LinkConfig(gbps=10)))
    assert 99 < result.value <= 100


def test_latency_is_counted_between_the_streams_without_the_memorys():
    moves = [Move(16, 0), Move(16, 3, 1), Move(400, 4090)]
    sent, received = NicMeter(TINY).measure(moves, moves)
    assert len(sent) == len(received) == 3
    assert all(10 < cycles < 40 for cycles in (*sent[:2], *received))
    assert sent[2] - sent[0] > 400 // 16 - 2  # all of it comes first


def test_the_nics_latency_is_as_it_says():
    moves = [Move(64, place) for place in rdma.PAGE_OFFSETS]
    latencies = [max(cycles) for cycles in NicMeter(RdmaConfig()).measure(moves, moves)]
    said = re.search(r"(\d+) cycles from ``post``.* (\d+) from the last word on", RdmaNic.__doc__, re.DOTALL)
    assert latencies == list(map(int, said.groups()))


@pytest.mark.slow
def test_a_slower_memory_does_not_count(monkeypatch):
    fast, _ = NicMeter(TINY).measure([Move(16, 0)], [])
    monkeypatch.setattr(rdma_latency, "MEMORY_LATENCY", 50)
    assert NicMeter(TINY).measure([Move(16, 0)], []) == (fast, [])


@pytest.mark.slow
def test_cut_through_saves_the_payloads_words():
    (cut,), _ = NicMeter(replace(TINY, start_words=1)).measure([Move(400, 5)], [])
    (whole,), _ = NicMeter(TINY).measure([Move(400, 5)], [])
    assert 20 <= whole - cut <= 26


def test_the_parts_are_those_of_the_nic_as_it_makes_them():
    config = RdmaConfig(start_words=1, fetch_words=400)
    nic, parts = RdmaNic(config=config), rdma.parts(config)
    module = nic.elaborate(None)
    inside = [part for part, _ in module._named_submodules.values()]
    for unused in (nic, module, *inside, *parts):
        unused._MustUse__used = True
    made = {type(part).__name__: part for part in inside if not isinstance(part, StreamFIFO | StreamFork)}
    for part in parts:
        other = made.pop(type(part).__name__)
        for name in ("config", "width", "address_width", "depth", "start_words", "outstanding"):
            assert getattr(part, name, None) == getattr(other, name, None)
    assert not made


def test_depth_mapped_for_depth_has_the_limit(monkeypatch):
    def synthesise(verilog, top, goal=Goal.DEPTH):
        return Area(depth=Depth(5 if goal is Goal.DEPTH else 3, 1, 20))

    monkeypatch.setattr(area, "synthesise", synthesise)
    results = {result.name: result for result in area.part_figures(RegionTable(config=TINY))}
    depth = results["RegionTable: LUTs between registers"]
    assert (depth.value, depth.ok) == (5, False)


def test_a_missed_limit_is_an_exit_status(capsys, monkeypatch):
    late = iter([([25, 25, 25, 90, 90, 90], [17] * 6), ([24] * 6, [])])
    monkeypatch.setattr(NicMeter, "measure", lambda *_: next(late))
    monkeypatch.setattr(rdma, "link_use", lambda config: iter(()))
    monkeypatch.setattr(rdma, "mapped", lambda config: [])
    assert main(["bench", "rdma", "--json"]) == 1
    rows = {row["name"]: row["ok"] for row in json.loads(capsys.readouterr().out)["figures"]}
    assert [name for name, ok in rows.items() if not ok] == [
        "post → mac_tx, 64 bytes, whole payload first",
        "mac_rx → write.wvalid, 64 bytes",
        "mac_rx → write.wvalid, 4096 bytes",
    ]
    assert rows["post → mac_tx, 4096 bytes, whole payload first"]
