"""Walk over the parameters of a layer, one by one, to update, load or dump them."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.arith.select import select
from fanin.hdl.emit import shared
from fanin.hdl.layers.interface import LayerControl, Mode
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

_SELECTED_BITS = 3  # bits of a lane's number decoded per cycle: one of eight lanes
_FIFO_WORDS = 16  # more than the words in flight between a memory's address and the FIFO


def read_latency(lanes: int) -> int:
    """Return the cycles from an address to a lane's word: memory, and one per selection among eight."""
    return 1 + max(1, -(-(lanes - 1).bit_length() // _SELECTED_BITS))


def update_latency(lanes: int) -> int:
    """Return the cycles of an update beyond one per parameter: begin, read, multiply, add, and write."""
    return 1 + read_latency(lanes) + ARITHMETIC_LATENCY


ARITHMETIC_LATENCY = FP32Multiplier.LATENCY + FP32Adder.LATENCY


def updated_parameter(
    m: Module, weight: Value, velocity: Value, eta: Value, momentum: Value, valid: list[Any]
) -> tuple[Value, Value]:
    """Return a parameter's w ⊕ (η ⊗ v) and μ ⊗ v, ``ARITHMETIC_LATENCY`` cycles later.

    ``valid``: flags of a valid parameter in this cycle, one cycle ago, and so on.
    """
    m.submodules.products = products = shared(LaneArray(trees=(((0, 0),), ((0, 1),))))  # v ⊗ η, v ⊗ μ
    m.submodules.sum = total = shared(AdderArray(lanes=1))
    m.d.comb += [
        products.a[0].eq(velocity),
        products.b[0].eq(eta),
        products.b[1].eq(momentum),
        products.valid.eq(valid[0]),
        total.a[0].eq(delayed(m, weight, products.latency, name="weight")[-1]),
        total.b[0].eq(products.o[0]),
        total.valid.eq(valid[products.latency]),
    ]
    return total.o[0], delayed(m, products.o[1], total.latency, name="decayed")[-1]


class _Place:
    """Pointer to a parameter: lane by lane, word by word; each ``step`` moves it to the next parameter.

    ``with_velocities``: after the last weight follow the velocities. ``last``: the parameter is the last one.
    """

    def __init__(self, m: Module, *, lanes: int, depth: int, step: Value, with_velocities: Value, name: str):
        self.lane = Signal(range(lanes), name=f"{name}_lane")
        self.address = Signal(range(depth), name=f"{name}_address")
        self.velocities = Signal(name=f"{name}_velocities")  # the second memory
        last_lane, last_address = self.lane == lanes - 1, self.address == depth - 1
        self.last = last_lane & last_address & (self.velocities | ~with_velocities)
        with m.If(step):
            m.d.sync += self.lane.eq(Mux(last_lane, 0, self.lane + 1))
            with m.If(last_lane):
                m.d.sync += self.address.eq(Mux(last_address, 0, self.address + 1))
                with m.If(last_address):
                    m.d.sync += self.velocities.eq(~self.velocities & with_velocities)


class ParameterWalk(wiring.Component):
    """Walk over all parameters of a layer, one a cycle, for an update, a load or a dump.

    An update replaces every weight by w ⊕ (``eta`` ⊗ v), and its velocity by μ ⊗ v. A job in mode LOAD takes
    all weights in memory order, lane by lane, and then all velocities. Mode DUMP sends them in the same order.

    Members
    -------
    ``control`` : In, ``LayerControl``
        The job; a start in mode LOAD or DUMP begins a transfer.
    ``update`` : In(1)
        Pulse: update all parameters; not during a load or dump.
    ``eta`` : In(32)
        −learning rate / frames of the batch; stable from ``update`` to ``updated``.
    ``updated`` : Out(1)
        Pulse: the last parameter is being written.
    ``load``, ``dump`` : In, Out, streams of words of 32 bits
        Words of a load or a dump.
    ``done`` : Out(1)
        No load or dump is in progress.
    ``reading`` : Out(1)
        Read the words at ``read_address``.
    ``read_address`` : Out, range(depth)
        Address of the words to read in both memories.
    ``weights``, ``velocities`` : In, ``ArrayLayout(32, lanes)``
        Words that were read, one cycle after ``read_address``.
    ``writing`` : Out(1)
        An update or a load is in progress: ``write_address`` is in use.
    ``write_address`` : Out, range(depth)
        Address of the word to write in both memories.
    ``weight_lanes``, ``velocity_lanes`` : Out(lanes)
        Lane of each memory in which ``new`` is written at ``write_address``; one-hot or 0.
    ``new`` : Out, ``StructLayout`` of ``weight`` and ``velocity``, 32 bits each
        Values to write.

    Parameters
    ----------
    ``lanes`` : int, at least 1
    ``depth`` : int, at least 1

    Latency
    -------
    ``updated`` follows ``update`` by ``depth`` · ``lanes`` + ``update_latency(lanes)`` cycles. Load and dump
    move a word a cycle.

    Source
    ------
    NADA, section IV-C and table I: momentum; docs/systems/layers.md, "Numbers", "Training".
    """

    def __init__(self, *, lanes: int, depth: int):
        for name, value in ("lanes", lanes), ("depth", depth):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self.lanes = lanes
        self.depth = depth
        word = data.ArrayLayout(WORD_BITS, lanes)
        super().__init__(
            {
                "control": In(LayerControl),
                "update": In(1),
                "eta": In(WORD_BITS),
                "updated": Out(1),
                "load": In(stream.Signature(WORD_BITS)),
                "dump": Out(stream.Signature(WORD_BITS)),
                "done": Out(1),
                "reading": Out(1),
                "read_address": Out(range(depth)),
                "weights": In(word),
                "velocities": In(word),
                "writing": Out(1),
                "write_address": Out(range(depth)),
                "weight_lanes": Out(lanes),
                "velocity_lanes": Out(lanes),
                "new": Out(data.StructLayout({"weight": WORD_BITS, "velocity": WORD_BITS})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a pointer for reads or loaded words, and a pointer for writes that follows it."""
        m = Module()
        step = Signal()
        all_read = Signal()
        store = Signal()
        updating = Signal()
        loading = Signal()
        dumping = Signal()
        m.submodules.credits = credits = Credits(limit=_FIFO_WORDS, full=True)
        size: dict[str, Any] = {"lanes": self.lanes, "depth": self.depth, "with_velocities": ~updating}
        read = _Place(m, step=step, name="read", **size)
        write = _Place(m, step=store, name="write", **size)
        stored = store & write.last
        with m.FSM():
            with m.State("idle"):
                m.d.comb += self.done.eq(1)
                m.d.sync += all_read.eq(0)
                with m.If(self.update):
                    m.next = "update"
                with m.Elif(self.control.start):
                    with m.If(self.control.mode == Mode.LOAD):
                        m.next = "load"
                    with m.If(self.control.mode == Mode.DUMP):
                        m.next = "dump"
            with m.State("update"):
                m.d.comb += [updating.eq(1), self.done.eq(1), self.updated.eq(stored)]
                with m.If(stored):
                    m.next = "idle"
            with m.State("load"):
                m.d.comb += loading.eq(1)
                with m.If(stored):
                    m.next = "idle"
            with m.State("dump"):
                m.d.comb += dumping.eq(1)
                with m.If(all_read & (credits.count == _FIFO_WORDS)):
                    m.next = "idle"
        with m.If(step & read.last):
            m.d.sync += all_read.eq(1)
        m.d.comb += [
            step.eq(~all_read & (updating | loading & self.load.valid | dumping & credits.ok)),
            self.load.ready.eq(loading & ~all_read),
            self.reading.eq(updating | dumping),
            self.read_address.eq(read.address),
            self.writing.eq(updating | loading),
            self.write_address.eq(write.address),
            self.weight_lanes.eq(Mux(store & ~write.velocities, 1 << write.lane, 0)),
            self.velocity_lanes.eq(Mux(store & (write.velocities | updating), 1 << write.lane, 0)),
        ]
        weight, velocity = self._lane_read(m, read.lane)
        is_velocity = delayed(m, read.velocities, read_latency(self.lanes), name="is_velocity")[-1]
        self._dump(m, credits, dumping & step, Mux(is_velocity, velocity, weight))
        self._drive_new(m, store, updating & step, loading & step, weight, velocity)
        return m

    def _lane_read(self, m: Module, lane: Signal) -> tuple[Value, Value]:
        """Return weight and velocity at the read pointer, ``read_latency`` cycles later."""
        remaining_index: Any = delayed(m, lane, 1, name="lane")[-1]
        lanes: list[Any] = [Cat(self.weights[k], self.velocities[k]) for k in range(self.lanes)]
        for level in range(1, read_latency(self.lanes)):
            index, remaining_index = remaining_index[:_SELECTED_BITS], remaining_index[_SELECTED_BITS:]
            lanes += [Const(0, 2 * WORD_BITS)] * (-len(lanes) % (1 << len(index)))
            groups = [lanes[k : k + (1 << len(index))] for k in range(0, len(lanes), 1 << len(index))]
            lanes = [
                delayed(m, select(group, index), 1, name=f"lane_{level}_{k}")[-1]
                for k, group in enumerate(groups)
            ]
            remaining_index = delayed(m, remaining_index, 1, name=f"lane_{level}")[-1]
        (parameter,) = lanes
        return parameter[:WORD_BITS], parameter[WORD_BITS:]

    def _dump(self, m: Module, credits: Credits, read: Value, parameter: Value) -> None:
        """Send parameters to the FIFO. A credit reserves room for every parameter that is ``read``."""
        m.submodules.fifo = fifo = StreamFIFO(shape=WORD_BITS, depth=_FIFO_WORDS)
        connect_typed(m, fifo.o, flipped(self.dump))
        m.d.comb += [
            credits.take.eq(read),
            credits.give.eq(self.dump.valid & self.dump.ready),
            fifo.i.valid.eq(delayed(m, read, read_latency(self.lanes), name="dumped", reset_less=False)[-1]),
            fifo.i.payload.eq(parameter),
        ]

    def _drive_new(
        self, m: Module, store: Signal, updated: Value, loaded: Value, weight: Value, velocity: Value
    ) -> None:
        """Drive ``store`` and ``new``: a loaded word, or the update of the parameter that was read."""
        cycles = read_latency(self.lanes) + ARITHMETIC_LATENCY
        valid = delayed(m, updated, cycles, name="updated", reset_less=False)
        new_weight, new_velocity = updated_parameter(
            m, weight, velocity, self.eta, self.control.momentum, valid[read_latency(self.lanes) :]
        )
        m.d.sync += [
            store.eq(valid[-1] | loaded),
            self.new.weight.eq(new_weight),
            self.new.velocity.eq(new_velocity),
        ]
        with m.If(loaded):
            m.d.sync += [self.new.weight.eq(self.load.payload), self.new.velocity.eq(self.load.payload)]
