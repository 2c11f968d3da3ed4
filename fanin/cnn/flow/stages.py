"""The actors of each layer: what its component in hdl/layers takes and gives, with its room and its cycles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fanin.cnn.facts import LABELS_PORT, Stage
from fanin.cnn.flow import parts as p
from fanin.cnn.flow.graph import Actor, Channel, Graph, Pattern, Selection, Source, at_first, at_last
from fanin.cnn.flow.parts import Parts
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.layer import REUSE, Storage, ceil_div
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import NORM_INTERVAL, NORM_PAUSE, OnlineNorm
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.schedule import Raster, Schedule, Way
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

LOSS_OUTPUT, LOSS_GRADIENT = 8, 15  #: cycles from a label to what it makes
NORM_FORWARD, NORM_BACK = 15, 28  #: from a word to its result
NORM_PAUSE_BACK = 52  #: cycles behind the words of a frame, besides those of its channels
MAX_POOL = 3  #: cycles from a word to the largest


@dataclass
class Flows:
    """Where a stage's words are, so far.

    ``saved``: what it saves, with the words of a frame. ``replay``: what comes back of that. ``admits``: tokens
    of the frames that may go forward. ``finished``: actors, firings of a frame, and cycles from the last of
    these until the frame's gradient is in the velocities.
    """

    output: Source | None = None
    saved: Source | None = None
    replay: Source | None = None
    admits: Channel | None = None
    finished: list[tuple[Actor, int, float]] = field(default_factory=list)
    gradients: list[Source] = field(default_factory=list)  #: of each input


@dataclass(frozen=True)
class StageActors:
    """Adds a stage's actors to a graph."""

    graph: Graph
    stage: Stage

    @property
    def parts(self) -> Parts:
        """What the layer is made of."""
        return Parts(self.graph, self.stage.name)

    @property
    def transfers(self) -> int:
        """Of a frame of the output."""
        return self.stage.layer.output.words // self.stage.parallelism.po

    @property
    def groups(self) -> int:
        """Transfers of a position of the output."""
        return ceil_div(self.stage.layer.output.c, self.stage.parallelism.po)

    def forward(self, sources: list[Source]) -> Flows:
        """From its inputs to its output."""
        layer = self.stage.layer
        match layer:
            case Conv():
                return self._convolution(sources[0])
            case AvgPool():
                sums = self._windows(sources[0], layer.schedule(self.stage.parallelism))
                return Flows(Source(self._piped("mean", [Source(sums)], p.MULTIPLIER)))
            case MaxPool():
                return self._max_pool(sources[0])
            case Im2col():
                return self._im2col(sources[0])
            case GlobalAvgPool():
                return Flows(Source(self._global_pool(sources[0])))
            case OnlineNorm():
                return self._norm(sources[0])
            case Relu():
                return self._give_and_save(sources[0])
            case Bias():
                return self._bias(sources[0])
            case Add():
                return Flows(Source(self._piped("adds", sources, p.ADDER)))
            case Concat():
                return Flows(Source(self._concat(sources)))
            case SoftCrossLoss():
                return self._loss(sources)
        raise ValueError(f"{self.stage.name}: no flow is known of layers of kind {layer.kind}")

    def backward(self, flows: Flows, came: Source) -> None:
        """From the gradient of its output to those of its inputs, if it has such."""
        layer = self.stage.layer
        match layer:
            case Conv():
                self._convolution_back(flows, came)
            case AvgPool() | MaxPool():
                flows.gradients = [self._pool_back(flows, came)]
            case Im2col():
                flows.gradients = [Source(self._im2col_back(came))]
            case GlobalAvgPool():
                flows.gradients = [Source(self._global_pool_back(came))]
            case OnlineNorm():
                flows.gradients = [Source(self._norm_back(flows, came))]
            case Relu():
                assert flows.replay is not None
                flows.gradients = [Source(self._joined("back", [came, flows.replay], p.SLICE, 1))]
            case Bias():
                self._bias_back(flows, came)
            case Add():
                flows.gradients = [Source(came.channel, came.selection) for _ in layer.inputs]
            case Concat():
                flows.gradients = [self._part(came, port) for port in range(len(layer.inputs))]

    def _joined(
        self, what: str, sources: list[Source], capacity: int, delay: float, intervals: object = 1
    ) -> Channel:
        """A word of each source makes one."""
        actor = self.parts.actor(what, self.transfers, intervals)
        channel = self.parts.channel("outputs" if what in ("adds", "forward") else what, capacity)
        for source in sources:
            self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=delay)
        return channel

    def _piped(self, what: str, sources: list[Source], latency: int) -> Channel:
        """Through a PipelineQueue."""
        return self._joined(what, sources, latency + 2, latency + 1)

    def _give_and_save(self, source: Source) -> Flows:
        """A register slice to the next layer, and one to memory."""
        transfers = self.transfers
        flows = Flows(Source(self.parts.passed("outputs", source, transfers, p.SLICE)))
        if self.stage.layer.saved:
            flows.saved = Source(self.parts.passed("saved words", source, transfers, p.SLICE))
        return flows

    def _convolution(self, source: Source) -> Flows:
        layer, lanes = self.stage.layer, self.stage.parallelism
        assert isinstance(layer, Conv)
        schedule, flows = layer.schedule(lanes), Flows()
        transfers = ceil_div(layer.input.words, lanes.pi)
        flows.saved = Source(self.parts.passed("saved words", source, transfers, p.SLICE))
        flows.admits = self.parts.channel("frames", 1 << 40)
        flows.output = Source(self._windows(source, schedule, flows.admits))
        return flows

    def _windows(self, source: Source, schedule: Schedule, admits: Channel | None = None) -> Channel:
        """Rows, blocks, results."""
        parts, raster, lanes = self.parts, schedule.features, self.stage.parallelism
        sums = p.forward_latency(schedule)
        late = self._answered(p.row_transfers(raster, lanes.pi))
        rows = parts.lines("rows", source, raster, schedule.feature_rows, lanes.pi, late=late)
        results = parts.channel("results", schedule.result_rows)
        blocks = self._blocks(schedule, rows, results, sums)
        if admits is not None:
            if answer := self._answered(0):
                admits = parts.passed("weights", Source(admits), 1, 1 << 40, answer)
            self.graph.take(blocks, admits, at_first(schedule.blocks))
        return parts.reader("outputs", results, schedule.outputs, lanes.po)

    def _blocks(self, schedule: Schedule, rows: Channel, results: Channel, sums: int) -> Actor:
        """The forward way; ``sums``: cycles from a step to its result."""
        steps = p.block_steps(schedule, Way.FORWARD)
        cycles = max(schedule.block_cycles(Way.FORWARD), self._pass_cycles)
        actor = self.parts.actor("forward", schedule.blocks, cycles)
        late = cycles - schedule.block_cycles(Way.FORWARD)
        self.graph.take(actor, rows, p.rows_needed(schedule), p.rows_done(schedule), late + steps + p.FREED)
        self.graph.give(actor, results, delay=late + steps + sums + p.FILLED)
        return actor

    @property
    def _pass_cycles(self) -> int:
        """Cycles of a pass over parameters in memory, a beat a cycle; 0 where they are on chip."""
        stage = self.stage
        return ceil_div(stage.layer.parameters, 16) if stage.storage is Storage.DRAM else 0

    def _answered(self, transfers: int) -> int:
        """Cycles from a frame's last transfer until memory has answered; it is asked at the first."""
        answer = p.MEMORY_LATENCY + p.READ if self.stage.storage is Storage.DRAM else 0
        return max(answer - transfers, 0)

    def _convolution_back(self, flows: Flows, came: Source) -> None:
        layer, lanes = self.stage.layer, self.stage.parallelism
        assert isinstance(layer, Conv)
        assert flows.replay is not None
        schedule, late = layer.schedule(lanes), self._answered(self.transfers)
        weights = p.weight_gradient(self.parts, schedule, came, flows.replay, late)
        products = p.LINES + p.MULTIPLIER + p.ADDER * (lanes.ph - 1).bit_length()
        steps = p.block_steps(schedule, Way.WEIGHT_GRADIENT)
        flows.finished.append((weights, schedule.blocks, steps + products + p.ADDER))
        if layer.gradient:
            depth = 1 if schedule.depthwise else schedule.lanes_out
            terms = p.LINES + p.MULTIPLIER + p.ADDER * (depth - 1).bit_length()
            if self.stage.storage is Storage.DRAM:
                terms += schedule.tile * schedule.ogs  # until the last tile is folded
            given, actor = p.input_gradient(self.parts, schedule, came, terms, late=late)
            flows.gradients = [Source(given)]
            steps = p.block_steps(schedule, Way.INPUT_GRADIENT)
            flows.finished.append((actor, schedule.blocks, steps + p.LINES))

    def _max_pool(self, source: Source) -> Flows:
        layer = self.stage.layer
        assert isinstance(layer, MaxPool)
        schedule, parts = layer.schedule(self.stage.parallelism), self.parts
        raster = schedule.features
        pairs = replace(schedule.outputs, lanes=2 * schedule.outputs.lanes)
        rows = parts.lines("rows", source, raster, schedule.feature_rows, schedule.p.pi)
        results = parts.channel("results", schedule.result_rows)
        self._blocks(schedule, rows, results, p.LINES + MAX_POOL)
        return self._give_and_save(Source(parts.reader("largest words", results, pairs, 2 * schedule.p.po)))

    def _pool_back(self, flows: Flows, came: Source) -> Source:
        layer = self.stage.layer
        assert isinstance(layer, AvgPool | MaxPool)
        schedule = layer.schedule(self.stage.parallelism)
        terms = p.LINES + (p.MULTIPLIER if isinstance(layer, AvgPool) else 1)
        places = [] if flows.replay is None else [flows.replay]  # of the largest words
        return Source(p.input_gradient(self.parts, schedule, came, terms, *places)[0])

    def _im2col(self, source: Source) -> Flows:
        layer, lanes, parts = self.stage.layer, self.stage.parallelism, self.parts
        assert isinstance(layer, Im2col)
        raster = layer.raster(lanes)
        rows = parts.lines("rows", source, raster, raster.ring(layer.cycles(lanes)), lanes.pi)
        across = layer.output.words // lanes.pi // layer.output.h  # steps of an output row
        walk = parts.actor("forward", layer.output.words // lanes.pi)
        need, done = _rows_by_step(raster, across)
        self.graph.take(walk, rows, need, done, p.FREED + 1)
        words = parts.channel("windows", p.LINES + 2)
        self.graph.give(walk, words, delay=p.LINES + 2)
        return Flows(parts.resized("outputs", Source(words), layer.output.words, lanes.pi, lanes.po))

    def _im2col_back(self, came: Source) -> Channel:
        layer, lanes, parts = self.stage.layer, self.stage.parallelism, self.parts
        assert isinstance(layer, Im2col)
        raster = layer.raster(lanes)
        sums = parts.channel("rows of input gradients", raster.ring_back(layer.cycles(lanes), layer.ADDED))
        words = parts.resized("gradients", came, layer.output.words, lanes.po, lanes.pi)
        position = layer.output.c // lanes.pi
        walk = parts.actor(
            "back", layer.output.words // lanes.pi, p.paced(position, layer.position_cycles(lanes))
        )
        across = layer.output.words // lanes.pi // layer.output.h
        need, done = _rows_by_step(raster, across)
        self.graph.take(walk, words)
        self.graph.give(walk, sums, done, need, p.ADDED + 1)
        return parts.reader("input gradients", sums, raster, lanes.pi)

    def _global_pool(self, source: Source) -> Channel:
        layer, groups = self.stage.layer, self.groups
        positions = layer.input.h * layer.input.w
        latency = p.ADDER + 1 + p.MULTIPLIER
        actor = self.parts.actor("sums", positions * groups, p.paced(groups, REUSE))
        channel = self.parts.channel("means", latency + 2)
        means = Pattern.of(np.maximum(np.arange(positions * groups) - (positions - 1) * groups + 1, 0))
        self.graph.take(actor, source)
        self.graph.give(actor, channel, means, delay=latency + 1)
        return channel

    def _global_pool_back(self, came: Source) -> Channel:
        layer, groups, parts = self.stage.layer, self.groups, self.parts
        positions = layer.input.h * layer.input.w
        takes, shares = parts.actor("takes gradients", groups), parts.channel("shares", 2)
        self.graph.take(takes, came)
        self.graph.give(takes, shares, at_last(groups), at_first(groups), p.MULTIPLIER + 1)
        gives, channel = parts.actor("back", positions * groups), parts.channel("input gradients", 1, 0)
        self.graph.take(gives, shares, at_first(positions * groups), at_last(positions * groups))
        self.graph.give(gives, channel)
        return channel

    def _norm(self, source: Source) -> Flows:
        """1/σ of all channels to memory, words to both; the next frame begins when state has changed."""
        layer, groups, words = self.stage.layer, self.groups, self.transfers
        assert isinstance(layer, OnlineNorm)
        scales = groups if layer.saved else 0
        intervals = np.ones(scales + words)
        intervals[scales + groups - 1 :: groups] += max(REUSE - groups, 0)
        intervals[-1] += NORM_INTERVAL * layer.input.c + NORM_PAUSE
        actor = self.parts.actor("forward", scales + words, intervals)
        results = self.parts.channel("results", p.RESULTS)
        counts = np.arange(scales + words) - scales + 1
        self.graph.take(actor, source, Pattern.of(np.maximum(counts, 1)), Pattern.of(np.maximum(counts, 0)))
        self.graph.give(actor, results, delay=NORM_FORWARD)
        if not scales:
            return Flows(Source(results))
        outputs = Selection(scales + words, tuple(range(scales, scales + words)))
        return Flows(Source(results, outputs), Source(results))

    def _norm_back(self, flows: Flows, came: Source) -> Channel:
        layer, groups, words = self.stage.layer, self.groups, self.transfers
        assert flows.replay is not None
        intervals = np.ones(groups + words)
        intervals[2 * groups - 1 :: groups] += max(REUSE - groups, 0)
        intervals[-1] += NORM_INTERVAL * layer.input.c + NORM_PAUSE_BACK
        actor = self.parts.actor("back", groups + words, intervals)
        results = self.parts.channel("input gradients", p.RESULTS)
        counts = Pattern.of(np.maximum(np.arange(groups + words) - groups + 1, 0))
        self.graph.take(actor, flows.replay)
        self.graph.take(actor, came, counts)
        self.graph.give(actor, results, counts, delay=NORM_BACK)
        return results

    def _bias(self, source: Source) -> Flows:
        flows = Flows(admits=self.parts.channel("frames", 1 << 40))
        actor = self.parts.actor("forward", self.transfers)
        outputs = self.parts.channel("outputs", p.ADDER + 3)
        assert flows.admits is not None
        self.graph.take(actor, source)
        self.graph.take(actor, flows.admits, at_first(self.transfers))
        self.graph.give(actor, outputs, delay=p.ADDER + 2)
        flows.output = Source(outputs)
        return flows

    def _bias_back(self, flows: Flows, came: Source) -> None:
        actor = self.parts.actor("back", self.transfers, p.paced(self.groups, REUSE))
        self.graph.take(actor, came)
        if self.stage.layer.gradient:
            given = self.parts.channel("input gradients", p.SLICE)
            self.graph.give(actor, given)
            flows.gradients = [Source(given)]
        flows.finished.append((actor, self.transfers, REUSE))

    def _concat(self, sources: list[Source]) -> Channel:
        layer, lanes = self.stage.layer, self.stage.parallelism
        actor, outputs = self.parts.actor("forward", self.transfers), self.parts.channel("outputs", p.SLICE)
        turn = np.repeat(np.arange(len(sources)), [shape.c // lanes.pi for shape in layer.inputs])
        for port, source in enumerate(sources):
            self.graph.take(actor, source, Pattern.of(np.cumsum(turn == port)))
        self.graph.give(actor, outputs)
        return outputs

    def _part(self, came: Source, port: int) -> Source:
        """Of a concatenation's gradient, the words of an input."""
        shapes, lanes = self.stage.layer.inputs, self.stage.parallelism.pi
        begin = sum(shape.c for shape in shapes[:port]) // lanes
        chosen = range(begin, begin + shapes[port].c // lanes)
        if came.selection is None:
            return Source(came.channel, Selection(self.groups, tuple(chosen)))
        outer = came.selection  # of a concatenation behind this one, a position's tokens each time
        return Source(came.channel, Selection(outer.size, tuple(outer.chosen[k] for k in chosen)))

    def _loss(self, sources: list[Source]) -> Flows:
        """Words are taken; after a while, as labels come, the same number is given."""
        layer, rows = self.stage.layer, self.transfers
        wait = layer.cycles(self.stage.parallelism) - 2 * rows + 1
        intervals = np.ones(2 * rows)
        intervals[rows - 1] = wait
        actor = self.parts.actor("forward", 2 * rows, intervals)
        taken = Pattern.of(np.minimum(np.arange(2 * rows) + 1, rows))
        given = Pattern.of(np.maximum(np.arange(2 * rows) + 1 - rows, 0))
        self.graph.take(actor, sources[1 - LABELS_PORT], taken)
        self.graph.take(actor, sources[LABELS_PORT], given)
        outputs = self.parts.channel("outputs", p.RESULTS)
        self.graph.give(actor, outputs, given, delay=LOSS_OUTPUT)
        flows = Flows(Source(outputs))
        if layer.gradient:
            gradients = self.parts.channel("input gradients", p.RESULTS)
            self.graph.give(actor, gradients, given, delay=LOSS_GRADIENT)
            flows.gradients = [Source(gradients)]
        return flows


def _rows_by_step(raster: Raster, across: int) -> tuple[Pattern, Pattern]:
    """Rows that the ``across`` steps of each output row need, and those that the last of them leaves behind."""
    rows = range(raster.steps)
    need = np.repeat([raster.last(row) + 1 for row in rows], across)
    done = np.repeat([raster.first(row) for row in rows], across)
    done[across - 1 :: across] = [raster.first(row + 1) for row in rows]
    return Pattern.of(need, raster.height), Pattern.of(done, raster.height)
