"""Benchmark of the embedded switch: load time of a program, and rate of aggregation packets."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator

from fanin.evaluation.bench.result import Result
from fanin.job import SWITCH, Job, default_member
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.p4.emit import program_text
from fanin.sim.switch.base import Switch
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Protocol, encode

WORKERS, SLOTS, VALUES = 4, 64, 8
PAPER_SLOTS = 1 << 16  # P4SGD, section IV-B
ROUNDS = 40  # rounds of each slot: 20,480 packets with ACKs
MAX_LOAD_SECONDS, MIN_RATE = 2.0, 10_000.0


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, in a minute."""
    yield from _stages()
    for target in Target:
        config = ProgramConfig(target=target, encap=Encap.UDP)
        yield Result(f"load, {target}, whole program", _load(config), "s", MAX_LOAD_SECONDS)
    for target, encap in itertools.product(Target, Encap):
        yield Result(
            f"embedded, {target}, {encap}", _embedded(target, encap), "packets/s", MIN_RATE, at_least=True
        )
    reference = ReferenceSwitch(endpoint=SWITCH, ports=WORKERS)
    yield Result("reference switch, l2", _rate(reference, Encap.L2), "packets/s")


def _stages() -> Iterator[Result]:
    """Yield the ingress stages on Tofino with the paper's slots, and with half of them."""
    for slots in (PAPER_SLOTS, PAPER_SLOTS // 2):
        stages = ProgramConfig(target=Target.TNA, slots=slots, values=VALUES).stages
        note = "the paper: 4 of 12" if slots == PAPER_SLOTS else ""
        figure_id = f"switch.tofino.slots_{slots}.stages"
        yield Result(f"Tofino, {slots:,} slots of {VALUES} values", stages, "stages", note=note, id=figure_id)


def _load(config: ProgramConfig) -> float:
    """Return the time from text to a running switch, in s; the first call includes the parser's start."""
    text = program_text(config)
    start = time.perf_counter()
    from fanin.sim.switch.embedded import load

    load(text).switch()
    return time.perf_counter() - start


def _embedded(target: Target, encap: Encap) -> float:
    from fanin.sim.switch.emitted import embedded_switch

    config = ProgramConfig(target=target, encap=encap, workers=WORKERS, slots=SLOTS)
    return _rate(embedded_switch(config, endpoint=SWITCH, ports=range(WORKERS)), encap)


def _rate(switch: Switch, encap: Encap) -> float:
    """Return input packets per s of all workers of a job, without loss, on one core."""
    members = tuple(map(default_member, range(WORKERS)))
    switch.add_job(Job(1, 0, SLOTS, members))
    frames = [
        (member.port, encode(packet, encap=encap, source=member.endpoint, destination=SWITCH))
        for round_number, slot, kind in itertools.product(
            range(1, ROUNDS + 1), range(SLOTS), Protocol.P4SGD.to_switch
        )
        for member in members
        for packet in [
            AggPacket(
                kind, 1, slot, round_number, member.bitmap, tuple(range(round_number, round_number + VALUES))
            )
        ]
    ]
    start = time.process_time()
    for port, frame in frames:
        switch.inject(port, frame, 0)
    seconds = time.process_time() - start
    counters = switch.job_counters(1)
    if counters.results != ROUNDS * SLOTS or counters.confirms != ROUNDS * SLOTS:
        raise AssertionError(f"the switch lost packets: {counters}")
    return len(frames) / seconds
