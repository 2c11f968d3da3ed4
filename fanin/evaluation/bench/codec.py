"""Benchmark of the codecs: latency, throughput, depth, area, RTL against NumPy, INCEPTIONN's table III."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import (
    FLOAT_BITS,
    MAX_BOUND,
    MIN_BOUND,
    Bf16,
    Bfp,
    CodecConfig,
    Fp16,
    Half,
    Inceptionn,
    Mode,
    Mx,
)
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden.samples import samples
from fanin.codec.run.measure import Meter, Row, paper_rows
from fanin.evaluation.bench.area import part_figures
from fanin.evaluation.bench.result import Result
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.sim.codec.cosim import CodecRtl, encode_frame
from fanin.sim.codec.gradients import gradients
from fanin.sim.codec.tags import BOUNDS

MAX_LATENCY = 20  # cycles, compression and decompression
MAX_NS = 590  # latency of a network of FPGAs with lossy compression (TPDS, February 2026)
KINDS = {"compressible": 0.0, "incompressible": 1.5}  # values with the highest and the lowest ratio
MIN_COMPRESSIBLE, TOLERANCE = 0.99, 0.01  # groups a cycle
STALLS = (0.1, 0.2)  # probabilities of stalls at input and output, for every second bound
LONG_FRAME, FRAMES = 512, 32  # groups of a frame, frames
# Codecs and the width of their words in bits; a word of INCEPTIONN is a group.
CODECS: tuple[tuple[CodecConfig, int], ...] = (
    (Inceptionn(group=8), 256),
    (Inceptionn(group=16), 512),
    (Bfp(), 256),
    (Bfp(), 512),
    (Mx(), 512),
    (Bf16(), 512),
    (Fp16(), 512),
)
MORE_FORMATS: tuple[tuple[CodecConfig, int], ...] = (
    (Bfp(4, 3), 256),
    (Bfp(64, 15), 512),
    (Bfp(32, 8), 256),
    (Bfp(4, 7, 5, 8), 512),
    (Mx(Element.E2M1, 16), 256),
    (Mx(Element.INT8, 64, Rounding.STOCHASTIC), 512),
    (Fp16(Rounding.STOCHASTIC), 256),
)
#: Formats that are mapped, besides ``CODECS``. Decompressors do not depend on the rounding.
MAPPED_FORMATS: tuple[tuple[CodecConfig, int], ...] = (
    (Bfp(exponent=5), 512),
    (Mx(rounding=Rounding.STOCHASTIC), 512),
    (Fp16(Rounding.STOCHASTIC), 512),
)


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured: half an hour, most of it builds and synthesis.

    Raises InputError unless there are values to compare.
    """
    if args.values < 1:
        raise InputError(f"--values {args.values}: must be at least 1")
    yield from _table_3(BOUNDS)
    for config, width in CODECS:
        rtl = CodecRtl(config, width=width, quiet=True)
        name = f"{config.kind}, {width} bits"
        yield from latency(name, config, rtl)
        yield from throughput(name, config, rtl)
        yield from equality(name, config, rtl, args.values)
    for config, width in MORE_FORMATS:
        rtl = CodecRtl(config, width=width, quiet=True)
        yield from equality(f"{config}, {width} bits", config, rtl, args.values)
    for config, width in CODECS + MAPPED_FORMATS:
        yield from area(config, width)


def _frame(rtl: CodecRtl, value: float, words: int) -> bytes:
    """Return a frame of ``words`` words of equal values."""
    return np.full(words * rtl.word_bytes * 8 // FLOAT_BITS, value, dtype="<f4").tobytes()


def latency(name: str, config: CodecConfig, rtl: CodecRtl) -> Iterator[Result]:
    """Yield the latency from a frame's only group or block to the first output word, both directions added."""
    block = config.block if isinstance(config, Bfp | Mx) else 1
    words = -(-block * FLOAT_BITS // 8 // rtl.word_bytes)
    cycles = 0
    for value in KINDS.values():
        frame = _frame(rtl, value, words)
        compression = rtl.compress([frame], config)
        decompression = rtl.decompress([encode_frame(frame, config)], [len(frame)])
        runs = compression, decompression
        cycles = max(cycles, sum(int(run.output_cycles[0] - run.input_cycles[0]) for run in runs))
    yield Result(f"{name}: compression and decompression", cycles, "cycles", MAX_LATENCY)
    ns = 1000 * cycles / CLOCK_MHZ
    yield Result(f"{name}: the same at {CLOCK_MHZ:g} MHz", ns, "ns", MAX_NS, note="a compressing FPGA network")


def throughput(name: str, config: CodecConfig, rtl: CodecRtl) -> Iterator[Result]:
    """Yield the throughput of back-to-back frames, in words of values per cycle."""
    minimum = MIN_COMPRESSIBLE
    for kind, value in KINDS.items():
        if kind == "incompressible" and isinstance(config, Inceptionn):
            minimum = FLOAT_BITS * config.group // 8 / config.max_group_bytes - TOLERANCE
        frames = [_frame(rtl, value, LONG_FRAME)] * FRAMES
        compression = rtl.compress(frames, config)
        streams = [encode_frame(frame, config) for frame in frames]
        decompression = rtl.decompress(streams, [len(frame) for frame in frames])
        for direction, run in (("compressor", compression), ("decompressor", decompression)):
            rate = LONG_FRAME * FRAMES / run.cycles
            yield Result(f"{name}: {direction}, {kind}", rate, "groups/cycle", minimum, at_least=True)


def equality(name: str, config: CodecConfig, rtl: CodecRtl, count: int) -> Iterator[Result]:
    """Yield differences between RTL and NumPy in both directions; for INCEPTIONN, with every bound and mode."""
    if not isinstance(config, Inceptionn):
        yield _differences(f"{name}: RTL ≠ NumPy", [config], rtl, count)
        return
    for mode in Mode:
        bounds = range(MIN_BOUND, MAX_BOUND + 1)
        configs = [replace(config, bound=bound, mode=mode) for bound in bounds]
        yield _differences(f"{name}, {mode.name.lower()}: RTL ≠ NumPy", configs, rtl, count)


def _differences(name: str, configs: Sequence[CodecConfig], rtl: CodecRtl, count: int) -> Result:
    checks = [
        check
        for seed, config in enumerate(configs)
        for check in rtl.check(
            config, samples(count, seed), seed=seed, stalls=STALLS if seed % 2 else (0.0, 0.0)
        )
    ]
    first_mismatch = next((check.first for check in checks if check.mismatches), "")
    amount = f"{len(configs)} × {count:,} values each way"
    return Result(
        name, sum(check.mismatches for check in checks), "values", 0, note=f"{amount} {first_mismatch}".strip()
    )


def area(config: CodecConfig, width: int) -> Iterator[Result]:
    """Yield area and depth of the compressor and, except with stochastic rounding, of the decompressor."""
    stochastic = isinstance(config, Mx | Half) and config.rounding is Rounding.STOCHASTIC
    for make in (make_compressor,) if stochastic else (make_compressor, make_decompressor):
        component = make(config, width)
        parameters = "" if isinstance(config, Inceptionn) else f", {config}"  # INCEPTIONN's are registers
        yield from part_figures(component, f"{type(component).__name__}{parameters}, {width} bits")


def _table_3(bounds: Sequence[int]) -> Iterator[Result]:
    """Yield table III on the trained network's gradients, with the paper's row in the notes."""
    paper = {row.bound: row for row in paper_rows(bounds)}
    for stage, values in gradients().items():
        for bound in bounds:
            for mode in Mode:
                meter = Meter(Inceptionn(bound, mode))
                meter.add(values)
                row = meter.row()
                name = f"gradients, {stage}: {mode.name.lower()}, 2^-{bound}"
                note = f"{_shares(row)}; the paper: {_shares(paper[bound])}, {paper[bound].ratio:.1f}×"
                yield Result(name, row.ratio, "× smaller", note=note)
        meter = Meter(Bfp())
        meter.add(values)
        yield Result(f"gradients, {stage}: {Bfp()}", meter.row().ratio, "× smaller")


def _shares(row: Row) -> str:
    assert row.shares is not None
    return "/".join(f"{100 * share:.1f}" for share in row.shares.values()) + " %"
