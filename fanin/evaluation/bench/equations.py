"""Benchmark of P4SGD's table I on simulated RTL: a mini-batch's cycles against the paper's equations 1 to 3."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanin.evaluation.bench import nodes
from fanin.evaluation.bench.figure import Figure
from fanin.evaluation.bench.nodes import NodeMeasurement
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.glm.facts import MICRO_BATCH, GlmConfig
from fanin.wire.aggregation import frame_length

ENGINES = 8
BATCHES = (16, 64, 256, 1024)
CASES = ((1, 16_384), (4, 47_236))  # workers, D; the second is rcv1
TOLERANCE = 5.0  # percent, between RTL and equation
EQUATION = "equation"


def figure_2(latency_ns: float) -> tuple[list[Figure], Iterator[Result]]:
    """Return figure 2 for each case: three kinds of parallelism over B, with the paper's T_l."""
    figures = [
        Figure(
            f"figure 2: {_setting(*case)}",
            _setting(*case),
            "mini-batch size B",
            "cycles of a mini-batch",
            log_y=True,
            over=EQUATION,
            note=f"RTL, T_l = {latency_ns / 1000:g} µs, 4 bits; equations 1 to 3 from M, C·s and T_l.",
        )
        for case in CASES
    ]
    return figures, _points(figures, latency_ns)


def _setting(workers: int, columns: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}, D {columns}"


def _points(figures: list[Figure], latency_ns: float) -> Iterator[Result]:
    for (workers, columns), figure in zip(CASES, figures, strict=True):
        measure = partial(
            nodes.measure, workers=workers, columns=columns, latency_ns=latency_ns, mini_batches=1
        )
        config = nodes.node(ENGINES, vanilla=True)
        smallest = measure(config, batch=BATCHES[0])
        assert smallest.paths is not None, "model-parallel"
        latency = smallest.latency + smallest.paths.word_to_agg + smallest.paths.result_to_gradient
        yield Result(f"table 1: {_setting(workers, columns)}: T_l, with the node's own", latency, "cycles")
        for batch in BATCHES:
            pipelined = measure(config, batch=batch)
            yield from _comparison(figure, "P4SGD MP", pipelined, equation_3(pipelined, latency))
            vanilla = measure(config, batch=batch, vanilla=True)
            yield from _comparison(figure, "vanilla MP", vanilla, equation_2(vanilla, latency))
        for batch in BATCHES:
            data_parallel = measure(nodes.node(ENGINES, data_parallel=True), batch=batch)
            yield from _comparison(figure, "DP", data_parallel, equation_1(data_parallel, latency))


def equation_1(measurement: NodeMeasurement, latency: int) -> int:
    """Return T_f + T_b of MB samples + D / BW + T_l, in cycles."""
    return (
        measurement.ideal
        + _micro_batch_cycles(measurement)
        + _transfer_cycles(measurement, measurement.shape.columns)
        + latency
    )


def equation_2(measurement: NodeMeasurement, latency: int) -> int:
    """Return T_f + T_b + B / BW + T_l, in cycles; T_f and T_b are M·C·s each."""
    return 2 * measurement.ideal + _transfer_cycles(measurement, measurement.shape.batch) + latency


def equation_3(measurement: NodeMeasurement, latency: int) -> int:
    """Return T_f of MB samples + T_b + MB / BW + T_l, in cycles."""
    return (
        _micro_batch_cycles(measurement)
        + measurement.ideal
        + _transfer_cycles(measurement, MICRO_BATCH)
        + latency
    )


def _micro_batch_cycles(measurement: NodeMeasurement) -> int:
    return measurement.shape.words_per_micro_batch


def _transfer_cycles(measurement: NodeMeasurement, values: int) -> int:
    """Return n / BW: the cycles of ``values`` on a node's MAC."""
    node = measurement.shape.node
    return -(-values // node.values) * packet_cycles(node)


def packet_cycles(node: GlmConfig) -> int:
    """Return the MAC cycles of a node's frames in an AllReduce: an AGG and, with acknowledgements, an ACK."""
    beats = -(-8 * frame_length(node.encap, node.values) // node.mac_width)
    return beats * len(node.protocol.to_switch)


def _comparison(figure: Figure, kind: str, measurement: NodeMeasurement, equation: int) -> Iterator[Result]:
    """Yield measured cycles, the equation's cycles, and their relative difference.

    RTL overlaps phases that an equation adds up, so a limit applies only to the remaining difference. Equation
    3 adds up backward of the last micro-batch and forward of the next. Equation 1 adds up computation and
    exchange of gradients, although the ACKs overlap the next mini-batch; there is no limit for it.
    """
    shape = measurement.shape
    number = {"DP": 1, "vanilla MP": 2, "P4SGD MP": 3}[kind]
    figure.add(f"{kind}, RTL", shape.batch, measurement.mini_batch)
    figure.add(f"{kind}, {EQUATION}", shape.batch, equation)
    name = f"table 1: {kind}, {_setting(shape.workers, shape.columns)}, B {shape.batch}"
    setting = (f"workers {shape.workers}", f"d {shape.columns}", f"b {shape.batch}")
    id_prefix = identifier("glm.table_1", kind, *setting)
    yield Result(f"{name}: measured", measurement.mini_batch, "cycles", id=f"{id_prefix}.cycles")
    yield Result(f"{name}: equation {number}", equation, "cycles", id=f"{id_prefix}.equation_{number}")
    if number == 2:
        yield Result(f"{name}: off equation 2", abs(_deviation(measurement, equation)), "%", TOLERANCE)
        return
    yield Result(f"{name}: RTL over equation {number}", _deviation(measurement, equation), "%")
    if number == 3:
        reduced = equation - _micro_batch_cycles(measurement)
        yield Result(f"{name}: off equation 3 less C·s", abs(_deviation(measurement, reduced)), "%", TOLERANCE)


def _deviation(measurement: NodeMeasurement, equation: int) -> float:
    """Return the deviation of the measured cycles from the equation's, in per cent."""
    return 100 * (measurement.mini_batch / equation - 1)
