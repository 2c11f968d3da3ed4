"""Benchmark of one-sided writes: link use, latency, area and logic depth of the NIC's parts."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from amaranth.lib import wiring

from fanin.base.limits import CLOCK_MHZ
from fanin.evaluation.bench.area import part_figures
from fanin.evaluation.bench.rdma_latency import Move, NicMeter
from fanin.evaluation.bench.result import Result
from fanin.hdl.rdma.fetch import PayloadFetch
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.receiver import Receiver
from fanin.hdl.rdma.regions import RegionTable
from fanin.hdl.rdma.requester import Requester
from fanin.hdl.rdma.responder import Responder
from fanin.hdl.rdma.store import PayloadStore
from fanin.hdl.rdma.transmitter import Transmitter
from fanin.link import LinkConfig
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Ending, RdmaConfig, Region, Write
from fanin.sim.rdma.cosim import Pair, RdmaCosim, RdmaRun
from fanin.wire.ethernet import AROUND_FRAME
from fanin.wire.rdma import ICRC_BYTES, Opcode, header_bytes

MIB = 1 << 20
WRITES = 4  # number of writes, of 1 MiB each
MTU = 4096
WINDOW = 1024  # packets; several round trips at any MTU
TIMEOUT = 100_000  # cycles; longer than all writes, so that no packet is sent again
SPACE = (WRITES + 1) * MIB  # bytes of a memory
KEY = 0x1234
FULL_RATE = LinkConfig(gbps=float("inf"))  # the MAC's rate, a word a cycle
PACED_LINK = LinkConfig()
ALIGNED, UNALIGNED = 0, (1, 21 * 64 + 55)  # offsets of a write's first byte in its 4 KiB page, for link use

MIN_LINK_USE = 98.0  # %; 64 of 65 words are 98.46 %
MAX_SEND, MAX_RECEIVE = 24, 16  # cycles
PAGE_OFFSETS = (0, 55, 4096 - 43)  # such offsets for latency; the last write crosses a page boundary


@dataclass(frozen=True)
class Case:
    """Back-to-back writes of 1 MiB.

    - ``mtu``: path MTU, in bytes.
    - ``source``: offset of the first byte in its page.
    - ``link``: the link between the nodes.
    """

    mtu: int
    source: int
    link: LinkConfig = FULL_RATE


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured. Takes ten minutes, mostly for synthesis."""
    config = RdmaConfig()
    yield from latency(config)
    yield from link_use(config)
    for component in mapped(config):
        yield from part_figures(component)


def latency(config: RdmaConfig) -> Iterator[Result]:
    """Yield latencies of the NIC alone, with frames that start after the whole payload or its first word."""
    payload_first, cut_through = (NicMeter(replace(config, start_words=words)) for words in (0, 1))
    word = config.width // 8
    word_moves, mtu_moves = ([Move(size, offset) for offset in PAGE_OFFSETS] for size in (word, MTU))
    sent_cycles, received_cycles = payload_first.measure(word_moves + mtu_moves, word_moves + mtu_moves)
    cut_through_cycles, _ = cut_through.measure(word_moves + mtu_moves, [])
    for name, cycles in (("whole payload first", sent_cycles), ("cut-through", cut_through_cycles)):
        yield _latency(
            f"post → mac_tx, {word} bytes, {name}", cycles[: len(word_moves)], MAX_SEND, _NO_MEMORY_NOTE
        )
    note = "start_words = 1, for a memory that does not pause"
    yield _latency(
        f"post → mac_tx, {MTU} bytes, cut-through", cut_through_cycles[len(word_moves) :], MAX_SEND, note
    )
    note = "start_words = 0: waits until memory has given the last word, one a cycle"
    yield _latency(
        f"post → mac_tx, {MTU} bytes, whole payload first", sent_cycles[len(word_moves) :], None, note
    )
    for size, cycles in ((word, received_cycles[: len(word_moves)]), (MTU, received_cycles[len(word_moves) :])):
        yield _latency(f"mac_rx → write.wvalid, {size} bytes", cycles, MAX_RECEIVE, "from the last word")


_NO_MEMORY_NOTE = "to the first word, without the memory's own latency"


def _latency(name: str, cycles: list[int], limit: float | None, note: str) -> Result:
    """Return the maximum latency over ``PAGE_OFFSETS``; ``cycles``: latency for each offset."""
    cycles_text = ", ".join(map(str, cycles))
    offsets_text = ", ".join(map(str, PAGE_OFFSETS))
    return Result(
        name, max(cycles), "cycles", limit, note=f"{note}; {cycles_text} at byte {offsets_text} of a page"
    )


def link_use(config: RdmaConfig) -> Iterator[Result]:
    """Yield the link use of writes from node 0 to node 1, at the MAC's speed and at 100 Gb/s."""
    cosim = RdmaCosim(config, clock_mhz=CLOCK_MHZ)
    for source in (ALIGNED, *UNALIGNED):
        yield _share(cosim, Case(MTU, source), MIN_LINK_USE)
    for mtu in (1024, 256):
        for source in (ALIGNED, UNALIGNED[-1]):
            yield _share(cosim, Case(mtu, source))
    for source in (ALIGNED, UNALIGNED[-1]):
        yield _paced(cosim, Case(MTU, source, PACED_LINK))


def _share(cosim: RdmaCosim, case: Case, limit: float | None = None) -> Result:
    """Return the share of cycles in which ``mac_tx`` has a word of payload, in per cent."""
    run = _run(cosim, case)
    cycles, beats = _cycles(run), _busy(run)
    words = WRITES * MIB * 8 / cosim.config.width
    name = f"payload of mac_tx, MTU {case.mtu}, {_alignment(case)}"
    note = f"{WRITES} MiB, first to last beat: {words:,.0f} words in {beats:,} beats and {cycles:,} cycles"
    return Result(name, 100 * words / cycles, "%", limit, at_least=True, note=note)


def _paced(cosim: RdmaCosim, case: Case) -> Result:
    """Return the payload rate relative to the link's maximum with full middle packets."""
    run = _run(cosim, case)
    nanoseconds = _cycles(run) * cosim.period_ps / 1000
    gbps = WRITES * MIB * 8 / nanoseconds
    frame = header_bytes(Opcode.WRITE_MIDDLE) + case.mtu + ICRC_BYTES
    maximum = case.link.gbps * case.mtu / (frame + AROUND_FRAME)
    name = f"payload at {case.link.gbps:g} Gb/s, MTU {case.mtu}, {_alignment(case)}"
    return Result(name, 100 * gbps / maximum, "% of most", note=f"{gbps:.2f} of {maximum:.2f} Gb/s")


def _alignment(case: Case) -> str:
    """Return the alignment of the source, as text."""
    return f"source ≡ {case.source % 64} (mod 64)" if case.source % 64 else "aligned source"


def _run(cosim: RdmaCosim, case: Case) -> RdmaRun:
    """Carry out the writes. Raises AssertionError unless all bytes arrive and each packet is sent once."""
    content = random.Random(case.source).randbytes(SPACE)
    writes = [Write(tag, case.source + tag * MIB, tag * MIB, KEY, MIB) for tag in range(WRITES)]
    region = Region(0, SPACE, KEY, frozenset([FIRST_QUEUE_PAIR]))
    run = cosim.run(
        memories=[content, bytes(SPACE)],
        pairs=[Pair.of((0, 0), (1, 0), mtu=case.mtu, window=WINDOW)],
        regions=[[], [region]],
        writes=[[(0, write) for write in writes], []],
        link=case.link,
        timeout=TIMEOUT,
    )
    size = WRITES * MIB
    assert run.memories[1][:size] == content[case.source : case.source + size]
    assert [done.ending for done in run.completions[0]] == [Ending.DONE] * WRITES
    assert run.counters[0]["went_back"] == run.counters[1]["lost"] == 0
    return run


def _cycles(run: RdmaRun) -> int:
    """Return the cycles from node 0's first beat to its last one; node 0 sends only writes."""
    intervals = run.raw.occupied[0]
    return int(intervals[-1, 1] - intervals[0, 0])


def _busy(run: RdmaRun) -> int:
    """Return the number of cycles in which node 0's link was occupied."""
    return int(np.diff(run.raw.occupied[0].astype(np.int64), axis=1).sum())


def mapped(config: RdmaConfig) -> list[wiring.Component]:
    """Return the designs to map: each part with registered ports, and the whole NIC without."""
    return [*parts(config), RdmaNic(config=config)]


def parts(config: RdmaConfig) -> list[wiring.Component]:
    """Return the parts of a NIC, with the NIC's own parameters."""
    path = {"width": config.width, "address_width": config.address_width}
    return [
        PayloadFetch(**path, depth=config.fetch_words, start_words=config.start_words),
        PayloadStore(**path),
        Transmitter(width=config.width),
        Receiver(config=config),
        Requester(config=config),
        Responder(config=config),
        RegionTable(config=config),
    ]
