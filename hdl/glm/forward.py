"""Forward propagation of one engine: from words of bit planes to partial activations."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.bit_serial import PairShifter
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.glm.bank import Bank, SparseBank, bank_latency
from fanin.hdl.glm.sequence import Sequencer, next_needs_chunk
from fanin.hdl.glm.shapes import WEIGHT, ActivationSignature, EngineShape, check_engine
from fanin.hdl.stream.credits import Credits

MODEL_CYCLES = 2  # from a chunk's address to its weights: memory, output register


def forward_latency(lanes: int) -> int:
    """Return the cycles from a micro-batch's last word to its PA."""
    return MODEL_CYCLES + PairShifter.LATENCY + bank_latency(lanes)


class ForwardEvents(data.Struct):
    """Events of forward in this cycle; see ``EngineEvents``."""

    first: 1
    last: 1
    model_wait: 1
    fifo_full: 1
    pa_full: 1
    no_word: 1


class Forward(wiring.Component):
    """Forward pass: accepts a word when everything downstream has room, then never stalls.

    A word waits for room in the replay FIFO and in the PA queue. In the first micro-batch of a mini-batch, the
    first word of a chunk also waits until the previous mini-batch has written that chunk. An accepted word
    moves one stage each cycle, together with its weights and flags.

    Members
    -------
    ``samples`` : In, stream of ``lanes * banks`` bits
        Bit plane j of one chunk; bit lanes·b + k is sample b, feature k. ``ready`` depends on registers alone.
    ``pa`` : Out, ``ActivationSignature``
        Partial activations, one per micro-batch.
    ``shape`` : In, ``EngineShape``
        Loop counts.
    ``start`` : In(1)
        Pulse: start an epoch and drop the rest of the previous one.
    ``drop`` : In(1)
        Take and drop words, from the next cycle until one cycle after ``drop`` falls.
    ``chunk`` : Out, range(depth)
        Chunk whose weights are needed.
    ``weights`` : In, ``ArrayLayout(signed(32), lanes)``
        Weights of the chunk, two cycles after ``chunk``.
    ``written`` : In(1)
        Pulse: one more chunk of the model is final for this mini-batch, and readable in the next cycle.
    ``word`` : Out(lanes * banks)
        Word for the replay FIFO, one cycle after its acceptance.
    ``keep`` : Out(1)
        Write ``word`` to the replay FIFO in this cycle.
    ``freed`` : In(1)
        Pulse: a word has left the replay FIFO.
    ``events`` : Out, ``ForwardEvents``
        Events of this cycle.

    Parameters
    ----------
    ``lanes`` : int, a power of two, 2 to 64
        Features of a word.
    ``banks`` : int, even, at least 2
        Samples of a micro-batch.
    ``depth`` : int, 1 to 4096
        Maximum number of chunks.
    ``fifo_depth`` : int, at least 1
        Words that the replay FIFO holds.

    Latency
    -------
    ``latency`` = 4 + ``Bank.latency``: 9 cycles at 64 lanes from a micro-batch's last word to ``pa.valid``. One
    word a cycle, without a bubble between micro-batches.

    Source
    ------
    P4SGD, section IV-A; ARCHITECTURE, the mini-batch in cycles.
    """

    def __init__(self, *, lanes: int = 64, banks: int = 8, depth: int = 4096, fifo_depth: int = 4096):
        check_engine(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth)
        self.lanes = lanes
        self.banks = banks
        self.depth = depth
        self.fifo_depth = fifo_depth
        self.latency = forward_latency(lanes)
        super().__init__(self._members())

    def _members(self) -> dict[str, Any]:
        return {
            "samples": In(stream.Signature(self.lanes * self.banks)),
            "pa": Out(ActivationSignature(banks=self.banks)),
            "shape": In(EngineShape),
            "start": In(1),
            "drop": In(1),
            "chunk": Out(range(self.depth)),
            "weights": In(data.ArrayLayout(WEIGHT, self.lanes)),
            "written": In(1),
            "word": Out(self.lanes * self.banks),
            "keep": Out(1),
            "freed": In(1),
            "events": Out(ForwardEvents),
        }

    def elaborate(self, platform: Any) -> Module:
        """Build the acceptance of words, then the pipeline."""
        m = Module()
        m.submodules.sequencer = sequencer = Sequencer(depth=self.depth)
        position = sequencer.position
        accept = Signal()
        dropping = Signal()
        m.d.sync += dropping.eq(self.drop)
        m.d.comb += [
            sequencer.shape.eq(self.shape),
            sequencer.start.eq(self.start),
            sequencer.step.eq(accept),
            self.chunk.eq(position.chunk),
            accept.eq(self.samples.valid & self.samples.ready & ~dropping),
        ]
        self._acceptance(m, position, accept, dropping)
        last = position.last_plane & position.last_chunk
        flags = {"load": position.first_plane, "first": position.first_word, "done": accept & last}
        self._pipeline(m, self.samples.payload, accept, **flags)
        return m

    def _acceptance(self, m: Module, position: Any, accept: Signal, dropping: Signal) -> None:
        """Compute ``ready`` as a register, one cycle ahead.

        If the word at ``position`` is accepted in this cycle, the new ``ready`` is for the next word; since
        this word takes a credit, at least two are needed (``several``). If not, the new ``ready`` is for this
        word.
        """
        fifo_credits, pa_credits, chunk_credits = self._credits(m, accept, position)
        # Room in the PA queue matters at a first word only, but checking it at every word needs less logic. A
        # chunk that is written in this cycle counts at once, since it is on the critical path of a mini-batch's
        # end.
        ready_if_accepted = (
            fifo_credits.several
            & pa_credits.several
            & (
                ~next_needs_chunk(position)
                | chunk_credits.several
                | self.written
                | (chunk_credits.ok & ~position.needs_chunk)
            )
        )
        ready_if_not = (
            fifo_credits.ok & pa_credits.ok & (~position.needs_chunk | chunk_credits.ok | self.written)
        )
        armed = Signal()
        started = Signal()
        ready = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(self.start):
            m.d.sync += [armed.eq(1), ready.eq(0)]
        with m.Else():
            m.d.sync += ready.eq(Mux(accept, ready_if_accepted, ready_if_not))
        m.d.comb += [
            self.samples.ready.eq(ready | dropping),
            self.events.first.eq(accept & position.first_word),
            self.events.last.eq(accept & position.last_plane & position.last_chunk),
            self.events.no_word.eq(ready & ~self.samples.valid),
        ]
        with m.If(armed & ~ready & ~started):
            with m.If(position.needs_chunk & ~chunk_credits.ok):
                m.d.comb += self.events.model_wait.eq(1)
            with m.Elif(~fifo_credits.ok):
                m.d.comb += self.events.fifo_full.eq(1)
            with m.Else():
                m.d.comb += self.events.pa_full.eq(1)

    def _credits(self, m: Module, accept: Signal, position: Any) -> tuple[Credits, Credits, Credits]:
        """Return credits for words in the replay FIFO, micro-batches in the PA queue, and final chunks."""
        m.submodules.chunk_credits = chunk_credits = Credits(limit=self.depth)
        m.d.comb += [
            chunk_credits.restart.eq(self.start),
            chunk_credits.initial.eq(self.shape.chunks),
            chunk_credits.give.eq(self.written),
            chunk_credits.take.eq(accept & position.needs_chunk),
        ]
        return *self._room(m, accept, position.first_word), chunk_credits

    def _room(self, m: Module, accept: Signal, first: Value) -> tuple[Credits, Credits]:
        """Return credits for words in the replay FIFO, and for micro-batches in the PA queue.

        ``first``: the accepted word is a micro-batch's first.
        """
        m.submodules.fifo_credits = fifo_credits = Credits(limit=self.fifo_depth)
        m.submodules.pa_credits = pa_credits = Credits(limit=ActivationSignature.QUEUE)
        m.d.sync += fifo_credits.give.eq(self.freed & ~self.start)
        m.d.comb += [
            fifo_credits.initial.eq(self.fifo_depth),
            fifo_credits.take.eq(accept),
            pa_credits.initial.eq(ActivationSignature.QUEUE),
            pa_credits.give.eq(self.pa.taken),
            pa_credits.take.eq(accept & first),
        ]
        for credits in fifo_credits, pa_credits:
            m.d.comb += credits.restart.eq(self.start)
        return fifo_credits, pa_credits

    def _pipeline(
        self,
        m: Module,
        word: Value,
        step: Value,
        *,
        load: Value,
        first: Value,
        done: Value,
        restart: Value | None = None,
    ) -> None:
        """Build the pipeline. Cycle 0 is a word's acceptance; index n of a list is n cycles later.

        - ``step``: a word enters; ``load``, ``first``: it is the first of a chunk, of a micro-batch.
        - ``done``: a micro-batch ends.
        - ``restart``: a micro-batch begins without a word; None: it always begins with one.
        """
        to_shifter = MODEL_CYCLES
        to_bank = to_shifter + PairShifter.LATENCY
        valid = delayed(m, step, to_bank, name="valid", reset_less=False)
        loads = delayed(m, load, to_shifter, name="load")
        firsts = delayed(m, first, to_bank, name="first")
        words = delayed(m, word, to_bank, name="word")
        m.d.comb += [self.word.eq(words[1]), self.keep.eq(valid[1])]

        if restart is not None:
            restarts = delayed(m, restart, to_bank, name="restart", reset_less=False)

        m.submodules.shifter = shifter = PairShifter(inputs=self.lanes)
        m.d.comb += [
            shifter.i.eq(self.weights),
            shifter.step.eq(valid[to_shifter]),
            shifter.load.eq(loads[to_shifter]),
        ]
        bank_type = Bank if restart is None else SparseBank
        for b in range(self.banks):
            m.submodules[f"bank_{b}"] = bank = shared(bank_type(lanes=self.lanes))
            m.d.comb += [
                bank.terms.eq(shifter.o),
                bank.bits.eq(words[to_bank].word_select(b, self.lanes)),
                bank.valid.eq(valid[to_bank]),
                bank.first.eq(firsts[to_bank]),
                self.pa.payload[b].eq(bank.o),
            ]
            if restart is not None:
                m.d.comb += bank.restart.eq(restarts[to_bank])
        m.d.comb += self.pa.valid.eq(delayed(m, done, self.latency, name="done", reset_less=False)[-1])
