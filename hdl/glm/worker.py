"""GLM worker: engines, their adder, the loss unit, and counters of a run."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.fixed import MANTISSA_BITS, MAX_SHIFT, VALUE_BITS, Loss, check_frac
from fanin.glm.facts import MAX_ENGINES
from fanin.hdl.emit import shared
from fanin.hdl.glm.decay import NodeDecay
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.forward import forward_latency
from fanin.hdl.glm.loss import LossUnit, loss_latency
from fanin.hdl.glm.loss_sequence import LossSequence
from fanin.hdl.glm.reducer import ActivationReducer, reducer_latency
from fanin.hdl.glm.replay import backward_latency
from fanin.hdl.glm.shapes import EngineEvents, EngineShape, ModelPortSignature
from fanin.hdl.glm.vanilla import VanillaPhases
from fanin.hdl.stream.connect import connect_typed

EPOCH_COUNT_BITS = 32


def counts_layout(engines: int, values: int) -> data.StructLayout:
    """Return the layout of the amounts by which a cycle advances the node's counters.

    - ``words``: engines whose forward took a word.
    - ``model_wait``, ``fifo_full``, ``pa_full``, ``no_word``: engines that took no word for this cause (see
      ``EngineEvents``).
    - ``backward_idle``: engines with backward idle.
    - ``clamps``: values clamped.
    """
    of_engines = ("words", "model_wait", "fifo_full", "pa_full", "no_word", "backward_idle")
    return data.StructLayout({name: range(engines + 1) for name in of_engines} | {"clamps": range(values + 1)})


class Training(data.Struct):
    """Parameters of a run besides its shape; constant during the run.

    - ``epochs``: number of epochs, at least 1.
    - ``loss``: loss function.
    - ``mantissa`` and ``shift``: rate γ/B as ``mantissa`` / 2^``shift``.
    - ``clamp_bits``: c of docs/systems/aggregation.md, "Clamp".
    - ``decay``: decay of the weights; only of a worker with ``l2``.
    - ``serial``: forward and backward do not overlap; only of a worker with ``vanilla``.
    """

    epochs: EPOCH_COUNT_BITS
    loss: Loss
    mantissa: MANTISSA_BITS
    shift: range(MAX_SHIFT + 1)
    clamp_bits: 5
    decay: NodeDecay
    serial: 1


class GlmWorker(wiring.Component):
    """Worker that trains one slice of the model: takes sample words, labels and FAs, and returns PAs.

    ``start`` trains ``epochs`` epochs; ``busy`` falls when the last weight is written. Until then the streams
    must carry exactly the data of the run:

    - per engine, ``epochs`` times the words of the data set;
    - per micro-batch, its labels and one FA, in the order of the PAs, each FA after its PA.

    After ``abort`` the model is undefined.

    Members
    -------
    ``samples`` : In, E × stream of ``lanes * banks`` bits
        One bit plane of one chunk; bit lanes·b + k is sample b, feature k.
    ``labels`` : In, stream of ``loss_lanes`` × signed(32)
        Labels of a micro-batch, in one item or several.
    ``pa`` : Out, stream of ``banks`` × signed(32)
        Partial activations, clamped.
    ``fa`` : In, stream of ``banks`` × signed(32)
        Full activations. While not ``running``, an FA is taken and dropped.
    ``came`` : In, 1; with ``vanilla`` alone
        Pulse: the node has received an FA, which will be on ``fa`` later, in the order of the PAs.
    ``shape`` : In, ``EngineShape``
        Loop counts; constant while ``busy``, and for 2 cycles before ``start``.
    ``training`` : In, ``Training``
        Parameters of the run; constant while ``busy``, and for 2 cycles before ``start``.
    ``start`` : In, 1
        Pulse, only while not ``busy``: start a run. A word that waits on ``samples`` already belongs to the new
        run.
    ``abort`` : In, 1
        Pulse: abort the run; ``running`` falls. Words, labels and FAs are taken and dropped until ``flush``.
        From the next cycle until then ``pa.ready`` must be high. Give ``flush`` after 16 cycles without a word,
        without a label and with backward idle.
    ``flush`` : In, 1
        Pulse: drop the rest of an aborted run; ``busy`` falls.
    ``clear`` : In, 1
        Pulse, only while not ``busy``: set the model to zero.
    ``engine`` : In, range(engines)
        Engine that ``host`` accesses.
    ``host`` : In, ``ModelPortSignature``
        Access to the weights; only while not ``busy``.
    ``busy`` : Out, 1
        The worker is ``running``, or ``clear`` is in progress.
    ``running`` : Out, 1
        High from ``start`` until the last weight is written.
    ``events`` : Out, ``EngineEvents``
        Events of engine 0.
    ``counts`` : Out, ``counts_layout(engines, values)``
        Counts of a cycle. Stalls count during a run, until engine 0 has taken its last word.

    Parameters
    ----------
    ``engines`` : int, 1…8
        Number of engines.
    ``lanes``, ``banks``, ``depth``, ``fifo_depth``
        Sizes of each engine; see ``Engine``.
    ``frac`` : int, 6…28
        Fractional bits of weights and activations.
    ``loss_lanes`` : int, a divisor of ``banks``; all of them by default
        Samples whose loss is derived at once.
    ``l2`` : bool
        Whether weights can decay.
    ``vanilla`` : int
        Maximum number of micro-batches in a mini-batch that is trained without overlap; 0 (the default): such
        training is not possible.

    Latency
    -------
    - From the last word of a micro-batch to ``pa``: ``pa_latency`` cycles, 16 at 4 to 8 engines of 64 lanes.
    - From ``fa`` to the first gradient: 12 + ``banks / loss_lanes`` cycles at 8 banks, 13 by default.
    - One word a cycle. A micro-batch every cycle, or every ``banks / loss_lanes`` + 1 cycles if ``loss_lanes``
      are fewer than ``banks``, but at most one in the cycles of its words.
    - A mini-batch of M micro-batches costs M·C·s + T + ``pipeline`` + s cycles. T is the time from ``pa`` to
      ``fa``; ``pipeline`` is 29 at 4 to 8 engines by default.

    Source
    ------
    P4SGD, section IV; docs/ARCHITECTURE.md, "The mini-batch, in cycles".
    """

    engine_type: type[Engine] = Engine

    def __init__(
        self,
        *,
        engines: int = 1,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        frac: int = 24,
        loss_lanes: int | None = None,
        l2: bool = False,
        vanilla: int = 0,
    ):
        if engines not in range(1, MAX_ENGINES + 1):
            raise ValueError(f"engines must be from 1 to {MAX_ENGINES}, not {engines!r}")
        check_frac(frac)
        self.engines = engines
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.fifo_depth = fifo_depth
        self.frac = frac
        self.l2 = l2
        self.vanilla = vanilla
        self.loss_lanes = loss_lanes = banks if loss_lanes is None else loss_lanes
        self.pa_latency = forward_latency(lanes) + reducer_latency(engines)
        # Cycles from a PA to the next mini-batch's PA, not counting that mini-batch's words, the network, and
        # one cycle per plane.
        self.pipeline = self.pa_latency + loss_latency(banks, loss_lanes) + backward_latency(banks) - 1
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        vector = stream.Signature(data.ArrayLayout(signed(VALUE_BITS), self.values))
        labels = stream.Signature(data.ArrayLayout(signed(VALUE_BITS), self.loss_lanes))
        return {
            "samples": In(stream.Signature(self.lanes * self.banks)).array(self.engines),
            "labels": In(labels),
            "pa": Out(vector),
            "fa": In(vector),
            "shape": In(EngineShape),
            "training": In(Training),
            "start": In(1),
            "abort": In(1),
            "flush": In(1),
            "clear": In(1),
            "engine": In(range(self.engines)),
            "host": In(ModelPortSignature(depth=self.depth, lanes=self.lanes)),
            "busy": Out(1),
            "running": Out(1),
            "events": Out(EngineEvents),
            "counts": Out(counts_layout(self.engines, self.values)),
        } | ({"came": In(1)} if self.vanilla else {})

    @property
    def values(self) -> int:
        """Return the number of values of ``pa`` and ``fa``, which is that of a packet."""
        return self.banks

    @property
    def registers_fa_ready(self) -> bool:
        """Return whether ``fa.ready`` depends on registers alone."""
        return self.loss_lanes < self.banks

    def elaborate(self, platform: Any) -> Module:
        """Connect engines, reducer and loss unit: PAs go through the reducer, FAs through the loss unit.

        ``dropping`` starts in the cycle after ``abort``, in which the network takes a PA that waits. The loss
        unit is reset in the cycle of ``abort`` itself: its neighbours are all ready in that cycle.
        """
        m = Module()
        dropping = Signal()
        with m.If(self.abort):
            m.d.sync += dropping.eq(1)
        with m.Elif(self.flush):
            m.d.sync += dropping.eq(0)
        drop = self.abort | dropping
        engines = [self._engine(m, number) for number in range(self.engines)]
        reducer = ActivationReducer(engines=self.engines, banks=self.banks)
        loss = self._loss_unit()
        m.submodules.reducer = ResetInserter(dropping | self.start)(reducer)  # engines start with all credits
        m.submodules.loss = ResetInserter(drop | self.start)(loss)
        for engine, port in zip(engines, reducer.i, strict=True):
            connect_typed(m, engine.pa, port)
        answers = Cat(engine.host.read_data for engine in engines)
        m.d.comb += self.host.read_data.eq(answers.word_select(self.engine, VALUE_BITS))
        m.d.comb += [
            loss.labels.payload.eq(self.labels.payload),
            loss.labels.valid.eq(self.labels.valid),
            self.labels.ready.eq(loss.labels.ready | drop),
            loss.loss.eq(self.training.loss),
            loss.mantissa.eq(self.training.mantissa),
            loss.shift.eq(self.training.shift),
        ]
        m.d.comb += [engine.drop.eq(drop) for engine in engines]
        self._connect_scales(m, loss, engines)
        m.d.comb += self.counts.clamps.eq(self._exchange(m, engines, reducer, loss, dropping))
        self._run(m, engines)
        return m

    def _connect_scales(self, m: Module, loss: Any, engines: list[Any]) -> None:
        """Backward never stalls inside a micro-batch: all engines take a scale in the same cycle."""
        m.d.comb += loss.scale.ready.eq(engines[0].scale.ready)
        for engine in engines:
            m.d.comb += [
                engine.scale.payload.eq(loss.scale.payload),
                engine.scale.valid.eq(loss.scale.valid),
            ]

    def _loss_unit(self) -> Any:
        if self.loss_lanes == self.banks:
            return LossUnit(banks=self.banks, frac=self.frac)
        return LossSequence(banks=self.banks, at_once=self.loss_lanes, frac=self.frac)

    def _exchange(self, m: Module, engines: list[Any], reducer: Any, loss: Any, dropping: Value) -> Value:
        """Connect the data that the network carries, here activations; return how many values were clamped."""
        connect_typed(m, reducer.o, flipped(self.pa))
        may_pass = self._take_turns(m, engines) if self.vanilla else Const(1)
        m.d.comb += [
            loss.fa.payload.eq(self.fa.payload),
            loss.fa.valid.eq(self.fa.valid & self.running & may_pass),
            self.fa.ready.eq(loss.fa.ready & may_pass | ~self.running | self.abort),
            reducer.clamp_bits.eq(self.training.clamp_bits),
        ]
        return reducer.clamped

    def _take_turns(self, m: Module, engines: list[Any]) -> Value:
        """Separate forward and backward for vanilla training; return whether FAs may pass.

        FAs wait until backward's turn. Chunks that backward writes reach forward only after that turn.
        """
        m.submodules.phases = phases = VanillaPhases(micro_batches=self.vanilla)
        m.d.comb += [
            phases.on.eq(self.training.serial),
            phases.restart.eq(self.start | self.flush),
            phases.events.eq(engines[0].events),
            phases.came.eq(self.came),
            *(engine.hold.eq(phases.backward) for engine in engines),
        ]
        return ~self.training.serial | phases.backward

    def _engine_options(self) -> dict[str, Any]:
        """Return the parameters of an engine besides its size."""
        return {"l2": self.l2} | ({"vanilla": True} if self.vanilla else {})

    def _engine(self, m: Module, number: int) -> Any:
        size = {"lanes": self.lanes, "banks": self.banks, "depth": self.depth, "fifo_depth": self.fifo_depth}
        m.submodules[f"engine_{number}"] = engine = shared(self.engine_type(**(self._engine_options() | size)))
        connect_typed(m, flipped(self.samples[number]), engine.samples)
        selected = self.engine == number
        m.d.comb += [
            engine.shape.eq(self.shape),
            engine.start.eq(self.start | self.flush),
            engine.clear.eq(self.clear),
            engine.host.chunk.eq(self.host.chunk),
            engine.host.lane.eq(self.host.lane),
            engine.host.read.eq(self.host.read & selected),
            engine.host.write.eq(self.host.write & selected),
            engine.host.write_data.eq(self.host.write_data),
        ]
        if self.l2:
            decay = self.training.decay
            m.d.comb += [
                engine.decay.shift.eq(decay.decay_shift),
                engine.decay.spared.eq(decay.spared & (decay.spared_engine == number)),
                engine.decay.lane.eq(decay.spared_lane),
                engine.decay.chunk.eq(decay.spared_chunk),
            ]
        return engine

    def _run(self, m: Module, engines: list[Any]) -> None:
        """End a run when backward has taken its last word and has nothing left to write."""
        to_take = self._pending(m, engines[0].events.forward_last, name="forward")
        to_write = self._pending(m, engines[0].events.backward_last, name="backward")
        writing = Cat(engine.busy for engine in engines).any()
        with m.If(self.start):
            m.d.sync += self.running.eq(1)
        with m.Elif(self.abort | ~(to_write | writing)):
            m.d.sync += self.running.eq(0)
        m.d.comb += self.busy.eq(self.running | writing)
        self._count(m, [engine.events for engine in engines], to_take)

    def _pending(self, m: Module, last: Value, *, name: str) -> Signal:
        """Return a register that is high while the run has micro-batches left; a pulse on ``last`` ends one.

        Two nested countdowns: micro-batches of an epoch, and epochs. ``wraps`` of the inner one steps the
        outer.
        """
        pending = Signal(name=f"{name}_pending")
        wraps = last
        for loop, length in ("epoch", self.shape.epoch), ("epochs", self.training.epochs):
            first = Signal.like(length, name=f"{name}_{loop}_first")
            iterations_left = Signal.like(length, name=f"{name}_{loop}_left")  # rounds after this one
            ends = iterations_left == 0
            m.d.sync += first.eq(length - 1)
            with m.If(self.start | wraps):
                m.d.sync += iterations_left.eq(Mux(self.start | ends, first, iterations_left - 1))
            wraps = wraps & ends
        with m.If(self.start):
            m.d.sync += pending.eq(1)
        with m.Elif(self.abort | wraps):
            m.d.sync += pending.eq(0)
        return pending

    def _count(self, m: Module, events: list[Any], to_take: Signal) -> None:
        """Drive the counts.

        Events describe the previous cycle, so a run's first events come one cycle after its start.
        """
        counts = self.counts
        was_to_take = Signal()
        was_running = Signal()
        m.d.sync += [was_to_take.eq(to_take), was_running.eq(self.running)]
        m.d.comb += self.events.eq(events[0])
        for name in "model_wait", "fifo_full", "pa_full", "no_word":
            total = sum(event[name] for event in events)
            m.d.sync += counts[name].eq(Mux(to_take & was_to_take, total, 0))
        m.d.sync += [
            counts.words.eq(Mux(self.running, sum(port.valid & port.ready for port in self.samples), 0)),
            counts.backward_idle.eq(Mux(was_running, sum(event.backward_idle for event in events), 0)),
        ]
