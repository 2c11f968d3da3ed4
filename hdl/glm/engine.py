"""Engine of the GLM worker: forward, replay FIFO, backward and model memories of one slice of the model."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.glm.backward import Backward
from fanin.hdl.glm.decay import EngineDecay
from fanin.hdl.glm.forward import Forward, forward_latency
from fanin.hdl.glm.model import ModelMemories
from fanin.hdl.glm.replay import backward_latency
from fanin.hdl.glm.shapes import (
    WEIGHT,
    ActivationSignature,
    EngineEvents,
    EngineShape,
    ModelPortSignature,
    check_engine,
)
from fanin.hdl.memory import NEVER_READ_AS_WRITTEN
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits


class Engine(wiring.Component):
    """Forward and backward propagation of one slice of the model, one word of bit planes a cycle.

    Words arrive in the order of the data set: micro-batch, chunk, plane. Epochs may follow one another without
    a pause. Backward replays the words from a FIFO when the micro-batch's scales arrive. Scales arrive in the
    order of the PAs, each after its PA. The last micro-batch of a mini-batch writes both model memories;
    forward of the next mini-batch follows it chunk by chunk. Host and ``clear`` may use the model while not
    ``busy``.

    Members
    -------
    ``samples`` : In, stream of ``lanes * banks`` bits
        Bit plane j of one chunk; bit lanes·b + k is sample b, feature k. Waits until the first ``start``.
    ``pa`` : Out, ``ActivationSignature``
        Exact partial activations, one per micro-batch.
    ``scale`` : In, stream of ``ArrayLayout(signed(32), banks)``
        Scales of a micro-batch, γ/B · df of every sample.
    ``shape`` : In, ``EngineShape``
        Loop counts; constant from 4 cycles before ``start``. ``chunks`` is at most ``depth``, ``chunks *
        planes`` at most ``fifo_depth``.
    ``start`` : In(1)
        Pulse: start a run of epochs with the current model, drop the rest of an aborted run and restore all PA
        credits. The last word or scale must be 16 cycles ago.
    ``drop`` : In(1)
        Abort the run: take and drop words and scales until ``start``.
    ``clear`` : In(1)
        Pulse, only while not ``busy``: set the model to zero.
    ``host`` : In, ``ModelPortSignature``
        Access to the weights; only while not ``busy``.
    ``busy`` : Out(1)
        Words are in the replay FIFO, updates are in flight, or ``clear`` is in progress.
    ``events`` : Out, ``EngineEvents``
        Events of the previous cycle.
    ``decay`` : In, ``EngineDecay``; with ``l2`` alone
        Decay of the weights, applied together with the gradient of a mini-batch's first micro-batch.
    ``hold`` : In(1); with ``vanilla`` alone
        Withhold chunks that backward writes from forward; afterwards forward gets one a cycle.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, 1 to 4096
        Chunks that each model memory holds.
    ``fifo_depth`` : int, at least 1
        Words that the replay FIFO holds; full speed needs chunks · planes + T_l + 48.
    ``l2`` : bool
        Whether weights can decay.
    ``vanilla`` : bool
        Whether forward can be made to wait for the end of backward.

    Latency
    -------
    One word a cycle forward and backward at once, no bubble between micro-batches. At 64 lanes and 8 banks:

    - ``pa_latency`` = 9 cycles from the last word to ``pa``.
    - 5 cycles from ``scale`` to the first gradient.
    - ``write_latency`` = 6, plus planes, cycles from ``scale`` until chunk 0 is readable and a word that waits
      for it is accepted.

    ``events`` come one cycle late, ``clear`` takes ``depth`` + 2 cycles.

    Source
    ------
    P4SGD, section IV-A2; docs/ARCHITECTURE.md, "The mini-batch, in cycles".
    """

    def __init__(
        self,
        *,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        l2: bool = False,
        vanilla: bool = False,
    ):
        check_engine(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.fifo_depth = fifo_depth
        self.l2 = l2
        self.vanilla = vanilla
        self.pa_latency = forward_latency(lanes)
        self.write_latency = backward_latency(banks)  # without the cycle that each plane adds
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        """Return the ports; the data-parallel engine adds more."""
        options = {"decay": In(EngineDecay)} if self.l2 else {}
        options |= {"hold": In(1)} if self.vanilla else {}
        return {
            "samples": In(stream.Signature(self.lanes * self.banks)),
            "pa": Out(ActivationSignature(banks=self.banks)),
            "scale": In(stream.Signature(data.ArrayLayout(WEIGHT, self.banks))),
            "shape": In(EngineShape),
            "start": In(1),
            "drop": In(1),
            "clear": In(1),
            "host": In(ModelPortSignature(depth=self.depth, lanes=self.lanes)),
            "busy": Out(1),
            "events": Out(EngineEvents),
            **options,
        }

    def elaborate(self, platform: Any) -> Module:
        """Build and connect forward, replay FIFO, backward and model."""
        m = Module()
        size = {"lanes": self.lanes, "banks": self.banks, "depth": self.depth}
        m.submodules.forward = forward = Forward(**size, fifo_depth=self.fifo_depth)
        m.submodules.backward = backward = Backward(**size, l2=self.l2)
        m.submodules.model = model = ModelMemories(lanes=self.lanes, depth=self.depth)
        connect_typed(m, flipped(self.samples), forward.samples)
        connect_typed(m, forward.pa, flipped(self.pa))
        connect_typed(m, flipped(self.scale), backward.scale)
        connect_typed(m, flipped(self.host), model.host)
        for part in forward, backward:
            m.d.comb += [part.shape.eq(self.shape), part.start.eq(self.start), part.drop.eq(self.drop)]
        m.d.comb += [
            model.forward_chunk.eq(forward.chunk),
            forward.weights.eq(model.forward_weights),
            forward.written.eq(self._release(m, model)),
            model.backward_chunk.eq(backward.chunk),
            backward.stored.eq(model.backward_weights),
            backward.override.eq(model.override),
            backward.override_value.eq(model.override_value),
            model.update.eq(backward.update),
            model.weights.eq(backward.weights),
            model.clear.eq(self.clear),
            forward.freed.eq(backward.take),
        ]
        if self.l2:
            m.d.comb += backward.decay.eq(self.decay)
        replay_pending = self._replay(m, forward, backward)
        m.d.sync += self.busy.eq(replay_pending | backward.busy | model.clearing | self.clear)
        self._events(m, forward, backward)
        return m

    def _release(self, m: Module, model: ModelMemories) -> Value:
        """Return a pulse for each chunk of the updated model that forward may now use.

        Without ``vanilla`` that is each chunk as it is written. With it, credits count written chunks while
        ``hold`` is high, and one credit is spent per cycle afterwards.
        """
        if not self.vanilla:
            return model.written
        m.submodules.withheld = withheld = Credits(limit=self.depth)
        released = (withheld.ok | model.written) & ~self.hold
        m.d.comb += [
            withheld.restart.eq(self.start),
            withheld.give.eq(model.written),
            withheld.take.eq(released),
        ]
        return released

    def _replay(self, m: Module, forward: Forward, backward: Backward) -> Any:
        """Build the replay FIFO, a circular buffer without flags; return whether it holds a word.

        It cannot overflow, because forward needs a credit for each word. It cannot underflow, because a
        micro-batch's scales arrive after all its words.
        """
        self._words(m, forward.word, forward.keep, backward.word, backward.take)
        level = Signal(range(self.fifo_depth + 1))
        m.d.sync += level.eq(level + forward.keep - backward.take)
        with m.If(self.start):
            m.d.sync += level.eq(0)
        return level.any()

    def _words(self, m: Module, word: Value, keep: Value, replayed: Value, take: Value) -> None:
        """Build the memory of the replay FIFO: ``keep`` stores ``word``; ``replayed`` follows ``take`` by 2."""
        m.submodules.replay = replay = Memory(
            shape=self.lanes * self.banks, depth=self.fifo_depth, init=[], attrs=NEVER_READ_AS_WRITTEN
        )
        write, read = replay.write_port(), replay.read_port()
        stored = Signal.like(replayed, reset_less=True)
        m.d.sync += stored.eq(read.data)
        m.d.comb += [write.data.eq(word), write.en.eq(keep), replayed.eq(stored)]
        for port, step in (write, keep), (read, take):
            with m.If(step):
                m.d.sync += port.addr.eq(Mux(port.addr == self.fifo_depth - 1, 0, port.addr + 1))
            with m.If(self.start):
                m.d.sync += port.addr.eq(0)

    def _events(self, m: Module, forward: Forward, backward: Backward) -> None:
        armed = Signal()
        with m.If(self.start):
            m.d.sync += armed.eq(1)
        forward_events = forward.events
        m.d.sync += [
            self.events.forward_first.eq(forward_events.first),
            self.events.forward_last.eq(forward_events.last),
            self.events.backward_first.eq(backward.first),
            self.events.backward_last.eq(backward.last),
            self.events.model_wait.eq(forward_events.model_wait),
            self.events.fifo_full.eq(forward_events.fifo_full),
            self.events.pa_full.eq(forward_events.pa_full),
            self.events.no_word.eq(forward_events.no_word),
            self.events.backward_idle.eq(armed & ~backward.take),
        ]
