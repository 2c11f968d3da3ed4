# amaranth: UnusedElaboratable=no
"""Networks train in gates bit for bit as in golden, whatever memory does; a node says what went wrong."""

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest

from fanin.cnn.driver import CnnDriver
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.flow.execute import execute
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.predict import predict
from fanin.cnn.flow.sizes import SPARE_TRANSFERS, Flow
from fanin.cnn.flow.verdict import determine_liveness, find_deadlock
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.layers.family import family
from fanin.cnn.layers.port import BEAT_BITS
from fanin.cnn.memory import state_stages
from fanin.cnn.training import Job
from fanin.hdl.layers.node import ClusterNode
from fanin.hdl.layers.registers import Direction, Fifo
from fanin.planner.plan.network import STORE_SHARE
from fanin.sim.cnn.epochs import Epoch
from fanin.sim.cosim.arrays import Arith
from fanin.sim.cosim.simulator import SimulationFailed, simulation_sources
from tests.fanin.cnn.flow.turns import CONCAT, PERIOD, TURNS
from tests.sim.cnn.one_node import NodeCosim, part_of
from tests.support import slow

pytestmark = pytest.mark.verilator

FRAMES, CLASSES = 11, 3
JOB = Job.of(FRAMES, 4, 0.5, 0.9)  # the last batch has three frames


@dataclass(frozen=True)
class Trial:
    """A network, its node, data and an initial state."""

    name: str
    arith: Arith = Arith.C

    @property
    def network(self):
        return TURNS if self.name == TURNS.name else EXAMPLES[self.name]

    @cached_property
    def cosim(self):
        return NodeCosim(ClusterNode(network=self.network), arith=self.arith, quiet=True)

    @cached_property
    def data(self):
        rng = np.random.default_rng(5)
        shape = self.network.stages[self.network.images].layer.output
        images = rng.standard_normal((FRAMES, shape.h, shape.w, shape.c)).astype(np.float32)
        return images, np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, FRAMES)]

    @cached_property
    def states(self):
        return initial_state(self.network, 1)

    def words(self, states):
        """Of each stage that has state."""
        stages = self.network.stages
        return [
            state_image(stages[i].layer, stages[i].parallelism, states[i]) for i in state_stages(self.network)
        ]

    def run(self, jobs, **settings):
        images, labels = self.data
        epochs = [Epoch(job, images, labels, dump=True) for job in jobs]
        return self.cosim.run(self.words(self.states), epochs, **{"timeout": 20_000} | settings).epochs


TINY, STREAMED = Trial("tiny"), Trial("streamed")
TRIALS = [
    pytest.param(TINY, marks=pytest.mark.end_to_end),
    *slow(Trial("residual"), Trial("pools"), STREAMED, Trial("tiny", Arith.RTL)),
]


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_training_is_bit_exact_whatever_the_memorys_latency(trial):
    """Two epochs, and evaluation between them, which learns nothing."""
    jobs = (JOB, None, JOB)
    golden = GoldenNetwork(trial.network, trial.states)
    expected = []
    for job in jobs:
        results = golden.train(*trial.data, job) if job else golden.evaluate(trial.data[0])
        expected.append((results.reshape(FRAMES, CLASSES), trial.words(golden.states)))
    for latency in (64, 3, 250):
        for found, (results, states) in zip(trial.run(jobs, memory_latency=latency), expected, strict=True):
            assert np.array_equal(found.results.view(np.uint32), results.view(np.uint32))
            assert all(map(np.array_equal, found.states, states))


def test_a_job_that_trains_may_follow_another_at_once():
    """The second has other frames, another batch and rate; nothing is dumped or evaluated between them."""
    jobs = JOB, Job.of(7, 3, 0.25, 0.5)
    images, labels = TINY.data
    golden = GoldenNetwork(TINY.network, TINY.states)
    epochs = [Epoch(job, images[: job.frames], labels[: job.frames], dump=job is jobs[-1]) for job in jobs]
    for epoch, found in zip(epochs, TINY.cosim.run(TINY.words(TINY.states), epochs).epochs, strict=True):
        results = golden.train(epoch.images, epoch.labels, epoch.job).reshape(-1, CLASSES)
        assert np.array_equal(found.results.view(np.uint32), results.view(np.uint32))
        assert all(one.frames == epoch.job.frames for one in found.streams)
    assert all(map(np.array_equal, found.states, TINY.words(golden.states)))


def test_operators_are_verilated_once_however_many_there_are(monkeypatch):
    groups = []
    monkeypatch.setattr("fanin.sim.cnn.cosim.Cluster", lambda make, **_: groups.append(make()))
    for arith in Arith:
        NodeCosim(ClusterNode(network=TINY.network), arith=arith)
    rtl, in_c = map(simulation_sources, groups)
    assert set(rtl.models) == {"fp32_multiplier", "fp32_adder"}
    assert "arrays.cpp" not in rtl.top
    assert in_c.models == {}


@pytest.mark.slow
def test_weights_from_memory_keep_pace_with_the_multipliers():
    """Frames follow one another in the cycles of the slowest layer, whose weights are 108 beats a frame."""
    (epoch,) = STREAMED.run([None])
    group = max(stage.parallelism.frames for stage in STREAMED.network.stages)  # results come group by group
    cycles = np.array(epoch.result_cycles)
    period = max(cycles[group:] - cycles[:-group], key=abs) / group
    assert period <= Flow(STREAMED.network).period


def test_counters_say_what_each_stage_did():
    (epoch,) = TINY.run([JOB])
    assert epoch.result_cycles == sorted(epoch.result_cycles)
    assert len(epoch.result_cycles) == FRAMES
    cycles = epoch.counters["cycles"]
    for one in epoch.streams:
        assert one.nonfinite is None
        # Labels and results pass, and so does everything else: all frames, both ways.
        assert one.frames == FRAMES, one.stream
        assert 0 < one.busy + one.starved + one.blocked <= cycles


@pytest.mark.parametrize("trial", [TINY, *slow(Trial("residual"))], ids=str)
def test_fifos_say_how_full_they_have_been(trial):
    (epoch,) = trial.run([JOB])
    sizes = trial.cosim.fifos
    assert list(epoch.fifos) == list(sizes)
    waiting = {fifo.kind for fifo, size in sizes.items() if size}
    assert (waiting >= {Fifo.FORWARD, Fifo.BACKWARD}) == (trial.name == "residual")
    for fifo, level in epoch.fifos.items():
        assert min(1, sizes[fifo]) <= level <= sizes[fifo], fifo


def test_the_times_of_a_batch_are_kept():
    """Of the first one, frames 0 to 3: it goes forward, then back, then layers update themselves."""
    (epoch,) = TINY.run([JOB])
    network = TINY.network
    times = {(one.stream.stage, one.stream.direction): one for one in epoch.streams}
    for (stage, way), one in times.items():
        assert one.first < one.last, (stage, way)
        assert (one.updated > one.last) == (
            way is Direction.FORWARD and network.stages[stage].layer.parameters > 0
        )
    forward = [
        one
        for (_, way), one in times.items()
        if way is Direction.FORWARD and one.stream.stage != network.labels
    ]
    assert [one.first for one in forward] == sorted(one.first for one in forward)
    for stage in range(len(network.stages)):
        if (stage, Direction.BACKWARD) in times:
            back = times[stage, Direction.BACKWARD]
            assert back.first > times[stage, Direction.FORWARD].first
            if updated := times[stage, Direction.FORWARD].updated:
                assert 0 < updated - back.last < 500
    loss = times[network.loss, Direction.FORWARD]
    assert abs(loss.last - loss.first - (epoch.result_cycles[3] - epoch.result_cycles[0])) < 20


@pytest.mark.parametrize(("frame", "value"), [(6, np.nan), (0, np.inf)])
def test_the_first_infinity_or_nan_is_found(frame, value):
    """A pixel that is none shows in the images themselves; a weight that is too large where it is used."""
    images, labels = TINY.data
    spoilt = images.copy()
    spoilt[frame, 3, 2, 1] = value
    run = TINY.cosim.run(TINY.words(TINY.states), [Epoch(JOB, spoilt, labels)], timeout=20_000)
    first = CnnDriver.first_nonfinite(run.epochs[0].streams)
    assert (first.stream.stage, first.stream.direction, first.nonfinite) == (
        TINY.network.images,
        Direction.FORWARD,
        frame,
    )


def test_a_node_in_which_nothing_moves_for_long_fails():
    """Here it is memory that answers late."""
    with pytest.raises(SimulationFailed, match=r"the node failed by cycle \d+: TIMEOUT"):
        TINY.run([JOB], timeout=200, memory_latency=250)


@pytest.mark.parametrize("trial", [TINY, *slow(Trial("residual"), Trial("pools"))], ids=str)
def test_frames_drain_and_update_take_the_predicted_cycles(trial):
    """Within 2 %: each frame's result, from batch to batch, and the job to its end: drain and update."""
    images, labels = trial.data
    for frames, batch in ((1, 1), (10, 5)):
        epoch = Epoch(Job.of(frames, batch, 0.5, 0.9), images[:frames], labels[:frames])
        (found,) = trial.cosim.run(trial.words(trial.states), [epoch], timeout=20_000).epochs
        predicted = predict(trial.network, Sizes.of(Flow(trial.network)), batch=batch, batches=frames // batch)
        assert found.counters["cycles"] == pytest.approx(predicted.job, rel=0.02)
        assert np.diff(found.result_cycles) == pytest.approx(np.diff(predicted.results), rel=0.02, abs=8)
        ended = (
            found.counters["cycles"] - predicted.results[0] - (found.result_cycles[-1] - found.result_cycles[0])
        )
        after = predicted.job - predicted.results[-1]  # the last gradient's way back, and the last update
        assert ended == pytest.approx(after, rel=0.02)


@pytest.mark.slow
def test_frames_leave_stages_as_far_apart_as_predicted():
    """To the cycle: rings have all of their rows in simulation, too."""
    trial, frames = Trial("residual"), 10
    images, labels = trial.data
    epoch = Epoch(Job.of(frames, frames, 0.5, 0.9), images[:frames], labels[:frames])
    (found,) = trial.cosim.run(trial.words(trial.states), [epoch], timeout=20_000).epochs
    node = NodeGraph(trial.network, Sizes.of(Flow(trial.network)), frames)
    execution = execute(node.graph, frames, timed=True)
    for one in found.streams:
        if one.stream.direction is not Direction.FORWARD:
            continue
        output = node.flows[one.stream.stage].output
        readers = [port.actor for port in node.graph.ports if port.reads and port.source is output]
        if output is None or output.selection is not None or not readers:
            continue
        times = [execution.times(reader).reshape(frames, -1)[:, -1] for reader in readers]
        apart = max(taken[-1] for taken in times) - max(taken[0] for taken in times)
        assert one.last - one.first == apart, trial.network.stages[one.stream.stage].name


@pytest.mark.slow
@pytest.mark.parametrize(("frames", "batch"), [(2, 2), (12, 6)])  # whole groups of frames
def test_a_job_that_memory_limits_takes_the_predicted_cycles(frames, batch):
    """Within 2 %: its frames take more beats, of which the store makes use of 98 %, than the layers cycles."""
    stages, (images, labels) = STREAMED.network.stages, STREAMED.data
    costs = [stage.layer.cost(stage.parallelism, stage.storage, family("arria10")) for stage in stages]
    pace = sum(cost.dram_read for cost in costs) / BEAT_BITS / STORE_SHARE
    assert pace > Flow(STREAMED.network).period
    epoch = Epoch(Job.of(frames, batch, 0.5, 0.9), images[:frames], labels[:frames])
    (found,) = STREAMED.cosim.run(STREAMED.words(STREAMED.states), [epoch], timeout=20_000).epochs
    sizes = Sizes.of(Flow(STREAMED.network))
    predicted = predict(STREAMED.network, sizes, batch=batch, batches=frames // batch, pace=pace)
    assert found.counters["cycles"] == pytest.approx(predicted.job, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [23, 22])
@pytest.mark.parametrize("way", ["skews", "gradient_skews"])
def test_a_node_stops_where_and_at_what_the_flow_model_says(way, depth):
    """23 transfers beside two convolutions are just enough; with one less both name the same stream."""
    trial = Trial("residual")
    network, stages, sizes = trial.network, trial.network.stages, Sizes.of(Flow(trial.network))
    join = next(index for index, stage in enumerate(stages) if stage.name == "add")
    sizes = replace(sizes, **{way: {**getattr(sizes, way), (join, 1): depth}})
    cosim = NodeCosim(
        ClusterNode(network=network, rings=sizes.rings, skews=sizes.skews, gradient_skews=sizes.gradient_skews),
        quiet=True,
    )
    images, labels = trial.data
    for frames in (1, 6):
        graph = NodeGraph(network, sizes, batch=frames)
        execution = execute(graph.graph, frames, timed=False)
        assert execution.is_complete == (depth == 23)
        epoch = Epoch(Job.of(frames, frames, 0.5, 0.9), images[:frames], labels[:frames])
        if execution.is_complete:
            cosim.run(trial.words(trial.states), [epoch], timeout=20_000)
            continue
        stream = find_deadlock(graph, execution).stream
        what = f"what {stages[stream.stage].name} gives {'backward' if stream.backward else 'forward'}"
        with pytest.raises(SimulationFailed, match=f"TIMEOUT: {what} is not taken"):
            cosim.run(trial.words(trial.states), [epoch], timeout=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False])
def test_what_takes_turns_keeps_pace_and_does_not_stop_while_a_position_waits(waits):
    """With no more than is spare the node stops, as the flow model says."""
    trial = Trial(TURNS.name)
    sizes, (images, labels) = Sizes.of(Flow(TURNS)), trial.data
    skews = {
        edge: depth if waits or edge[0] != CONCAT else SPARE_TRANSFERS for edge, depth in sizes.skews.items()
    }
    assert (determine_liveness(TURNS, replace(sizes, skews=skews)).deadlock is None) == waits
    node = ClusterNode(network=TURNS, rings=sizes.rings, skews=skews, gradient_skews=sizes.gradient_skews)
    cosim, job = NodeCosim(node, quiet=True), Job.of(FRAMES, FRAMES, 0.5, 0.9)
    epoch = Epoch(job, images, labels, dump=True)
    if not waits:
        with pytest.raises(SimulationFailed, match="TIMEOUT"):
            cosim.run(trial.words(trial.states), [epoch], timeout=20_000)
        return
    (found,) = cosim.run(trial.words(trial.states), [epoch], timeout=20_000).epochs
    golden = GoldenNetwork(TURNS, trial.states)
    assert np.array_equal(found.results, golden.train(images, labels, job).reshape(FRAMES, CLASSES))
    assert all(map(np.array_equal, found.states, trial.words(golden.states)))
    assert max(np.diff(found.result_cycles)) == PERIOD


def test_a_node_of_another_network_is_refused():
    other = copy.copy(TINY.cosim)
    other.parts = [part_of(ClusterNode(network=EXAMPLES["residual"]))]
    residual = Trial("residual")
    with pytest.raises(SimulationFailed, match="the node's stages must be 14, not 10"):
        other.run(residual.words(residual.states), [Epoch(JOB, *TINY.data)])
