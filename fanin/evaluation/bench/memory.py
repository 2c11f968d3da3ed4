"""Benchmark of a GLM node's reads from HBM: rate, and the read-ahead for a word a cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fanin.base.limits import CLOCK_MHZ
from fanin.evaluation.bench import nodes
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.hbm import HBM2, Hbm
from fanin.sim.glm.data import TABLE_II

COLUMNS = TABLE_II["rcv1"].features
MIN_WORDS = 20_000  # minimum words of an engine: 20 refreshes
READ_AHEAD = (32, 64, 128, 256, 512)
MAX_CYCLES_A_WORD = 1.01  # including the wait for the first word
CARD_CHANNELS = 32  # pseudo-channels of a U280
FUTURE_MHZ = 225.0  # P4SGD, section VII: 512 bits a cycle from one pseudo-channel


@dataclass(frozen=True)
class Case:
    """A memory and the clock of the nodes that read it."""

    id: str  #: part of the figures' identifiers
    name: str  #: name for a reader
    hbm: Hbm | None  #: memory; None for a constant latency
    clock_mhz: float = CLOCK_MHZ
    limit: float | None = None  #: maximum cycles of a word; None for no limit


_SHARED = replace(HBM2, ports_per_channel=2)
CASES = (
    Case("constant", "constant latency", None, limit=MAX_CYCLES_A_WORD),
    Case("channel_a_port", "HBM2, a pseudo-channel a port", HBM2, limit=MAX_CYCLES_A_WORD),
    Case("channel_an_engine", "HBM2, a pseudo-channel an engine", _SHARED),
    Case(
        f"channel_an_engine_{FUTURE_MHZ:g}_mhz",
        f"HBM2, a pseudo-channel an engine, {FUTURE_MHZ:g} MHz",
        _SHARED,
        FUTURE_MHZ,
    ),
)


def measure(folder: Path) -> Iterator[Result]:
    """Yield the figures as they are measured; then write ``memory.json`` and ``memory.png`` into ``folder``."""
    paths = outputs("memory", folder)
    for engines in (1, 8):
        for case in CASES:
            yield from _case(case, nodes.node(engines))
    figure = Figure(
        "read ahead",
        f"8 engines, a pseudo-channel a port, {CLOCK_MHZ:g} MHz",
        "words read ahead",
        "cycles a word",
        note="RTL; samples in HBM2, refreshes included (docs/reference/memory.md).",
    )
    for read_ahead in READ_AHEAD:
        node = replace(nodes.node(8), read_ahead=read_ahead)
        for case in CASES[:2]:
            cycles, _ = cycles_of_a_word(case, node)
            yield figure.add(case.name, read_ahead, cycles)
    write([figure], paths)


def cycles_of_a_word(case: Case, node: GlmConfig) -> tuple[float, float]:
    """Return two rates in cycles per word: cycles in which an engine takes or lacks a word, and all cycles."""
    shape = TrainShape(node=node, workers=1, samples=8, columns=COLUMNS, batch=8)
    micro_batches = -(-MIN_WORDS // shape.words_per_micro_batch)
    shape = replace(shape, samples=8 * micro_batches, batch=8 * micro_batches)
    run = nodes.train(shape, nodes.network(0), clock_mhz=case.clock_mhz, hbm=case.hbm)
    (counters,) = run.counters
    words = counters["words"]
    return (words + counters["stall_no_word"]) / words, counters["cycles"] * node.engines / words


def _case(case: Case, node: GlmConfig) -> Iterator[Result]:
    cycles, all_cycles = cycles_of_a_word(case, node)
    name = f"{node.engines} engine{'s' * (node.engines > 1)}, {case.name}"
    note = f"{all_cycles:.3f} with what else a mini-batch waits for"
    id_prefix = identifier("glm.memory", f"engines {node.engines}", case.id)
    yield Result(
        f"{name}: cycles a word", cycles, "cycles", case.limit, note=note, id=f"{id_prefix}.cycles_a_word"
    )
    yield Result(f"{name}: waiting for memory", 100 * (1 - 1 / cycles), "%")
    if case.hbm:
        rate = node.engines * node.word_bits / 8 * case.clock_mhz / 1000 / cycles
        share = 100 * rate / (CARD_CHANNELS * case.hbm.gigabytes_a_second)
        note, text = f"{rate:.1f} GB/s", f"{name}: of the card's bandwidth"
        yield Result(text, share, "%", note=note, id=f"{id_prefix}.of_the_card")
