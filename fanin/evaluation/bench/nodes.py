"""Measurement of simulated GLM nodes for benchmarks: cycles of a few mini-batches of synthetic words.

Terms of P4SGD: a node sends the partial activations (PA) of a micro-batch in an AGG frame. The switch adds them
and returns the full activations (FA) in a RESULT frame. M is the micro-batches of a mini-batch; C·s is the
words of a micro-batch per engine; T_l is the time from an AGG to its RESULT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fanin import fixed
from fanin.base.limits import CLOCK_MHZ
from fanin.fixed import Loss
from fanin.glm.facts import MICRO_BATCH, PRESETS, GlmConfig, Partitioning, TrainShape
from fanin.hbm import Hbm
from fanin.hdl.glm.replay import backward_latency
from fanin.link import LinkConfig
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.course import TrainRun
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.operations import times_of
from fanin.wire.aggregation import MAX_VALUES, Protocol

CYCLE_NS = 1000 / CLOCK_MHZ
RATE = 2.0**-10  # learning rate; cycles do not depend on it
MINI_BATCHES = 3  # intervals between mini-batches that are measured
_MAX_EVENTS = 1 << 20  # entries of the timeline: more than any measurement has


def node(engines: int, *, data_parallel: bool = False, vanilla: bool = False) -> GlmConfig:
    """Return a u280 node with ``engines`` engines. ``vanilla``: the node can also train without overlap.

    The exchange of a data-parallel node is as short as possible. Its packets have as many gradients as a switch
    adds, and its protocol needs no acknowledgements. That protocol takes two slots an operation, so the
    preset's 256 slots allow 128 operations in flight, which keep the MAC busy at the paper's T_l.
    """
    if data_parallel:
        return replace(
            PRESETS["u280"],
            engines=engines,
            mode=Partitioning.DATA_PARALLEL,
            protocol=Protocol.SWITCHML,
            gradient_values=MAX_VALUES,
        )
    return replace(PRESETS["u280"], engines=engines, vanilla=vanilla)


def build(config: GlmConfig, workers: int, *, clock_mhz: float = CLOCK_MHZ, hbm: Hbm | None = None) -> Cosim:
    """Return simulated nodes, Verilated once. ``hbm``: memory of the samples, if any."""
    return _build(config, workers, clock_mhz, hbm)


# Only the last build is kept: eight nodes are large, and benchmarks measure one configuration after the other.
@lru_cache(maxsize=1)
def _build(config: GlmConfig, workers: int, clock_mhz: float, hbm: Hbm | None) -> Cosim:
    return Cosim(config, workers=workers, clock_mhz=clock_mhz, hbm=hbm)


def network(latency_ns: float) -> NetworkConfig:
    """Return a network with ideal links and a switch of ``latency_ns``; T_l is one cycle longer."""
    link = LinkConfig(delay_ns=0, gbps=float("inf"))
    return NetworkConfig(link=link, switch_ns=latency_ns, timeout_ns=1e6)


@dataclass(frozen=True)
class PathLatencies:
    """Latencies of an activation's path to the switch and back, in cycles."""

    word_to_agg: int  #: maximum from the last word of a micro-batch to its AGG on ``mac_tx``
    pa_to_agg: int  #: maximum from a PA's transfer into the transport to its AGG on ``mac_tx``
    pa_to_pa: int  #: maximum between PAs of a mini-batch at the transport's input; 0 for a single PA
    result_to_fa: int  #: from the first RESULT on ``mac_rx`` to the transport's output of the FA
    result_to_gradient: int  #: from the first RESULT on ``mac_rx`` to the first gradient


@dataclass(frozen=True)
class NodeMeasurement:
    """Measured cycles of mini-batches on simulated nodes."""

    shape: TrainShape
    mini_batch: int  #: maximum between the last PAs of two successive mini-batches
    latency: int  #: T_l: maximum from an AGG on ``mac_tx`` to its RESULT on ``mac_rx``
    paths: PathLatencies | None  #: None in data-parallel mode: no activation is on the network
    cycles_per_second: float  #: simulated cycles per s of processor time

    @property
    def ideal(self) -> int:
        """Minimum cycles of a mini-batch, at one word a cycle: M·C·s."""
        return self.shape.micro_batches * self.shape.words_per_micro_batch

    @property
    def utilisation(self) -> float:
        """Share of cycles in which a word is taken, in %."""
        return 100 * self.ideal / self.mini_batch


def measure(
    config: GlmConfig,
    *,
    workers: int = 1,
    columns: int,
    batch: int,
    latency_ns: float = 0.0,
    precision: int = fixed.DEFAULT_PRECISION,
    mini_batches: int = MINI_BATCHES,
    vanilla: bool = False,
) -> NodeMeasurement:
    """Train on synthetic words, and measure cycles, which do not depend on the data.

    One mini-batch more than ``mini_batches`` is trained: the end of the first one starts the first of
    ``mini_batches`` intervals.

    - ``workers``: number of nodes.
    - ``columns``: features of a sample.
    - ``batch``: samples of a mini-batch, of all workers together.
    - ``latency_ns``: latency of the switch.
    - ``precision``: bits of a feature.
    - ``vanilla``: train without overlap of forward and backward.
    """
    shape = TrainShape(
        node=config,
        workers=workers,
        samples=(mini_batches + 1) * batch,
        columns=columns,
        batch=batch,
        precision=precision,
        vanilla=vanilla,
    )
    return _measurement(train(shape, network(latency_ns)), shape)


def train(
    shape: TrainShape, network_config: NetworkConfig, *, clock_mhz: float = CLOCK_MHZ, hbm: Hbm | None = None
) -> TrainRun:
    """Train one epoch on random features, and record the nodes' events.

    Each worker's memory holds a single micro-batch (``part``), which the worker reads again and again: times do
    not depend on the data. Model-parallel workers have different columns of the same samples.
    """
    samples_per_worker = min(shape.batch_per_worker, MICRO_BATCH)
    samples = samples_per_worker * (shape.workers if shape.data_parallel else 1)
    part = replace(shape, samples=samples, batch=samples)
    rng = np.random.default_rng(shape.columns)
    features = rng.integers(0, 1 << shape.precision, (samples, shape.columns), dtype=np.uint8)
    labels = fixed.labels(rng.integers(0, 2, samples), Loss.LOGISTIC, shape.node.frac)
    return build(shape.node, shape.workers, clock_mhz=clock_mhz, hbm=hbm).train(
        shape,
        features,
        labels,
        loss=Loss.LOGISTIC,
        rate=fixed.learning_rate(RATE),
        epochs=1,
        network=network_config,
        part=part,
        events=_MAX_EVENTS,
        models=False,
    )


def _measurement(run: TrainRun, shape: TrainShape) -> NodeMeasurement:
    """Return the measurement of node 0; all nodes do the same."""
    cycles = events(run, 0)
    # A mini-batch has ``operations`` PAs (model-parallel: one for each micro-batch), and ends with the last
    # one. Its last word is no end: in data-parallel mode, engine 0 continues after its own sums, before the
    # other engines.
    ends = cycles["pa"][shape.operations - 1 :: shape.operations]
    return NodeMeasurement(
        shape=shape,
        mini_batch=int(np.diff(ends).max()),
        latency=int(np.max(times_of(run.raw).allreduce_cycles)),
        paths=None if shape.data_parallel else _path_latencies(run, shape, cycles),
        cycles_per_second=run.raw.cycles / run.raw.cpu_seconds,
    )


def _path_latencies(run: TrainRun, shape: TrainShape, cycles: Mapping[str, np.ndarray]) -> PathLatencies:
    """Return the latencies of a model-parallel node from the cycles of its events, by event name.

    Every operation is a micro-batch.
    """
    # These two events report the previous cycle.
    last_word, backward_word = cycles["forward_last"] - 1, cycles["backward_first"] - 1
    agg, pa = cycles["agg"], cycles["pa"]
    first_result = agg[0] + times_of(run.raw).allreduce_cycles[0]
    to_gradient = backward_latency(MICRO_BATCH) - 1  # the gradient is complete a cycle before the weight
    return PathLatencies(
        word_to_agg=int((agg - last_word).max()),
        pa_to_agg=int((agg - pa).max()),
        pa_to_pa=int(np.diff(pa.reshape(-1, shape.operations)).max(initial=0)),
        result_to_fa=int(cycles["fa"][0] - first_result),
        result_to_gradient=int(backward_word[0] - first_result) + to_gradient,
    )


def events(run: TrainRun, number: int) -> Mapping[str, np.ndarray]:
    """Return the cycles of the events of node ``number``, by name, each ascending. The run must have events."""
    timeline = run.timeline
    assert timeline is not None
    of_node = timeline.node == number
    return {
        name: timeline.cycle[of_node & (timeline.event == index)].astype(np.int64)
        for index, name in enumerate(timeline.names)
    }
