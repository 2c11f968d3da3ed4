"""Base class of all kinds of layer: shapes, parallelism, cost as a function of both (NADA, sections III, IV).

Each kind has a file of its own in this folder, which states all that is particular to the kind: shape, cost,
latencies, actors of the flow model, golden kernel, binary64, operator of ONNX, name of the component. Code that
works on layers asks these, and has no table by kind; ``kinds.py`` finds the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import isqrt
from typing import Any, ClassVar

from fanin.cnn.flow.times import Cycles, latest, paced
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import WORD_BITS, Family, Memory, Operations
from fanin.cnn.layers.latencies import ADDER
from fanin.cnn.layers.logic import channel_units, logic_luts, node_luts, units_luts
from fanin.cnn.layers.port import BEAT_WORDS, WRITE_QUEUE, beat_bits, read_queue

MAX_SIZE = 1 << 20  # of every dimension: far above any frame
MAX_WORDS = 1 << 32  # of a frame, and
MAX_CYCLES = 1 << 48  # of a frame on one multiplier: products of costs fit 64 bits

PIPELINE = 32  #: cycles of a layer without rows from a word in to its word out, at most
REUSE = ADDER + 1  #: cycles until an accumulator may be read again: the adder's and the write

Prices = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, order=True)
class Shape:
    """A feature map: rows, columns, channels."""

    h: int
    w: int
    c: int

    @property
    def words(self) -> int:
        """Features of a frame."""
        return self.h * self.w * self.c

    def __str__(self) -> str:
        return f"{self.h}×{self.w}×{self.c}"


@dataclass(frozen=True, order=True)
class Parallelism:
    """How much of a layer works at once (NADA, table I). Every value divides its dimension."""

    pic: int = 1  #: input channels
    poc: int = 1  #: output channels
    ph: int = 1  #: columns of the output
    pi: int = 1  #: words a cycle in, per input
    po: int = 1  #: words a cycle out


class Storage(StrEnum):
    """Where the two words of every parameter lie."""

    CHIP = "chip"
    DRAM = "dram"


@dataclass(frozen=True)
class Cost:
    """What a layer takes of a device. ``dram_read`` and ``dram_write`` in bits per frame."""

    cycles: int  #: per frame
    dsp: int
    luts: int
    ram_bits: int
    ram_blocks: tuple[int, ...]  #: per kind of the family
    dram_read: int
    dram_write: int


def divisors(number: int) -> list[int]:
    """All of them, ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def check_sizes(**sizes: object) -> None:
    """Raise ValueError for what is no positive integer."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            raise ValueError(f"{name} must be an integer in 1…{MAX_SIZE}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a model, as hardware.

    ``gradient``: some ancestor has parameters, so a gradient leaves through the inputs. Raises ValueError for
    shapes that it cannot have; the message does not name the layer.
    """

    kind: ClassVar[str]  #: its name in plans; in the model language, too
    component: ClassVar[str] = ""  #: "module.Class" in ``fanin.hdl.layers``; none: store or network stand there
    spilled_component: ClassVar[str] = ""  #: the same with parameters in DRAM
    onnx: ClassVar[str] = ""  #: operator of ONNX that is the whole layer; none: see ``onnx_nodes``
    onnx_fields: ClassVar[Mapping[str, str]] = {}  #: fields by the operator's attributes
    plan_fields: ClassVar[tuple[str, ...]] = ()  #: fields that a plan states of the layer
    joins: ClassVar[bool] = False  #: whether branches meet in it, so that one waits for the other
    takes_turns: ClassVar[bool] = False  #: whether it takes, and gives back, its inputs one by one
    pauses: ClassVar[bool] = False  #: whether words wait between frames, for ``pause`` cycles
    hands_on: ClassVar[bool] = False  #: whether a word leaves as it comes, so that it paces nothing
    keeps_channels: ClassVar[bool] = False  #: whether each channel of the output depends on one of the input
    OPERATORS: ClassVar[Prices] = {}  #: FP32 operators (mac, mul, add) by part: see ``operations``
    LUTS: ClassVar[Prices] = {}  #: LUTs of a unit of ``logic_units``, by family
    SPILLED_LUTS: ClassVar[Prices] = {}  #: the same with parameters in DRAM
    inputs: tuple[Shape, ...]
    gradient: bool = False

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ValueError where the inputs do not fit the layer."""

    @property
    def input(self) -> Shape:
        """The first input; all others have its shape, but a loss' labels."""
        return self.inputs[0]

    @property
    def output(self) -> Shape:
        """The feature map that it makes."""
        return self.input

    @property
    def parameters(self) -> int:
        """Trained words."""
        return 0

    @property
    def saved(self) -> int:
        """Words of a frame that are kept for the way back: one DRAM write and one read each."""
        return 0

    @property
    def fan_in(self) -> int:
        """Weights of an output word, by which first weights are drawn; 0 where parameters begin at 0."""
        return 0

    def zero_state(self) -> State:
        """State of a layer that has learned nothing, in memory order; empty for most kinds."""
        return {}

    def memory_blocks(self, p: Parallelism) -> tuple[int, ...] | None:
        """Axes of the weights that memory has in another order; None where memory has the words as they are."""
        return None

    @property
    def state_words(self) -> int:
        """Words of a checkpoint: parameters and their velocities, and state that is no parameter."""
        return 2 * self.parameters

    def save_lanes(self, p: Parallelism) -> int:
        """Words a cycle of what is saved; consecutive words, as the frame has them."""
        return p.po

    @property
    def delay(self) -> Fraction:
        """Frames between the first word in and the first word out."""
        return Fraction(0)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Frames, at most, by which a position leaves later than it came, forward and back.

        At the layer's own rate: in a slower frame they are fewer.
        """
        pause = Fraction(PIPELINE, self.cycles(p))
        return pause, pause

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Where its parameters may lie."""
        return (Storage.CHIP,)

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every choice that could be worth building."""
        for lanes in divisors(self.output.c):
            yield Parallelism(pi=lanes, po=lanes)

    def lanes(self, p: Parallelism) -> int:
        """How often the operators of the ways are there."""
        return p.po

    def compute_cycles(self, p: Parallelism) -> int:
        """Cycles of a frame, streams apart."""
        return 0

    def memory_cycles(self, storage: Storage) -> int:
        """Where parameters lie in DRAM, a cycle for every beat that is read: what was saved, and passes."""
        if storage is Storage.CHIP:
            return 0
        passes = (2 + self.gradient) * ceil_div(self.parameters, BEAT_WORDS)
        return ceil_div(self.saved, BEAT_WORDS) + passes

    def cycles(self, p: Parallelism, storage: Storage = Storage.CHIP) -> int:
        """Cycles of a frame: the slowest of computing, input, output and memory. All three ways run at once."""
        return max(
            self.compute_cycles(p),
            self.memory_cycles(storage),
            *(ceil_div(shape.words, p.pi) for shape in self.inputs),
            ceil_div(self.output.words, p.po),
        )

    def operations(self, p: Parallelism) -> Operations:
        """FP32 operators: forward, input gradient and weight gradient each have their own.

        ``OPERATORS`` has those of a lane by way; ``fixed``, ``fixed_gradient`` and ``update`` are per layer.
        """
        total = {"mac": 0, "mul": 0, "add": 0}
        parts = [("forward", self.lanes(p)), ("fixed", 1)]
        if self.gradient:
            parts += [("input_gradient", self.lanes(p)), ("fixed_gradient", 1)]
        if self.parameters:
            parts += [("weight_gradient", self.lanes(p)), ("update", 1)]
        for part, times in parts:
            for kind, count in self.OPERATORS.get(part, {}).items():
                total[kind] += count * times
        return total

    def parameter_width(self, p: Parallelism) -> int:
        """Parameters that are read in one cycle."""
        return p.po

    def resident(self, p: Parallelism) -> tuple[Memory, ...]:
        """Both words of every parameter, on chip. Two ways read weights, by ports of their own."""
        velocity = memory(self.parameters, self.parameter_width(p))
        return replace(velocity, dual=True), velocity

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Memories apart from queues of the memory port and parameters whose storage is the chip."""
        return ()

    def queues(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Those of the memory port: of what is saved and comes back, and of parameters in DRAM."""
        found = []
        if self.saved:
            found += [WRITE_QUEUE, read_queue(self.save_lanes(p))]
        if self.parameters and storage is Storage.DRAM:
            # velocities, and weights forward and, where there is a gradient, backward; both of them back
            found += [*(2 + self.gradient) * [read_queue(self.parameter_width(p))], *2 * [WRITE_QUEUE]]
        return tuple(found)

    def memories(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """All memories but queues of a few words, which are LUTs."""
        parameters = self.resident(p) if self.parameters and storage is Storage.CHIP else ()
        return (*self.buffers(p, storage), *parameters, *self.queues(p, storage))

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """Units that the prices of its logic are for.

        layer: counters, control; lane: a word of the stream, its lines and parameters; gradient: the same back.
        """
        back = int(self.gradient)
        return {"layer": 1, "lane": p.po, "gradient": back, "gradient_lane": back * p.po}

    def logic_prices(self, storage: Storage) -> Prices:
        """LUTs of a unit, by family."""
        return self.SPILLED_LUTS if storage is Storage.DRAM and self.SPILLED_LUTS else self.LUTS

    def store_streams(self, p: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Words of each stream that the store reads for it, and writes."""
        ends = bool(self.saved) * [self.save_lanes(p)]
        if storage is Storage.CHIP:
            return ends, ends
        width = self.parameter_width(p)
        return ends + (2 + self.gradient) * [width], ends + 2 * [width]

    def logic(self, p: Parallelism, storage: Storage, family: Family) -> int:
        """LUTs beside operators and memories: its own, its channels' of the store, its place in the node."""
        luts = units_luts(family, self.logic_prices(storage), self.logic_units(p))
        for end, streams in zip(("read", "write"), self.store_streams(p, storage), strict=True):
            luts += sum(logic_luts(family, end, channel_units(lanes)) for lanes in streams)
        return luts + node_luts(family, [p.po, *self.gradient * len(self.inputs) * [p.pi]])

    def cost(
        self,
        p: Parallelism,
        storage: Storage,
        family: Family,
        *,
        sums: int = 0,
        queues: tuple[Memory, ...] = (),
    ) -> Cost:
        """What it takes of a device of that family, and ``sums`` adders and ``queues`` beside it."""
        memories = (*self.memories(p, storage), *queues)
        operations = self.operations(p)
        operations = {**operations, "add": operations["add"] + sums}
        spilled = self.parameters if storage is Storage.DRAM else 0
        return Cost(
            cycles=self.cycles(p, storage),
            dsp=family.dsp_blocks(operations),
            luts=family.luts(operations)
            + family.ram_luts(memories)
            + self.logic(p, storage, family)
            + logic_luts(family, "fork", {"sum": sums}),
            ram_bits=sum(m.bits for m in memories),
            ram_blocks=family.ram_blocks(memories),
            # Weights are read forward and for the input gradient, the velocity is read and written.
            dram_read=beat_bits(self.saved) + (2 + self.gradient) * beat_bits(spilled),
            dram_write=beat_bits(self.saved) + beat_bits(spilled),
        )

    @property
    def trains(self) -> bool:
        """Whether a layer behind it needs to send gradients back."""
        return bool(self.parameters) or self.gradient

    def pause(self, p: Parallelism) -> int:
        """Cycles in which no word comes in, between a frame's last and the next one's first."""
        return 0

    def output_times(self, p: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """When each position of the output has left; ``inputs``: when those of each input have come."""
        return paced(latest(inputs) + PIPELINE, ceil_div(self.output.c, p.po))

    def gradient_times(self, p: Parallelism, came: Cycles, port: int) -> Cycles:
        """When the gradient of each position of an input has left; ``came``: when those of the output came."""
        return paced(came + PIPELINE, ceil_div(self.inputs[port].c, p.pi))

    def actors(self, stage: Any, sources: list[Any]) -> Any:
        """Add the actors from inputs to output; return their ``Flows``. ``stage``: ``StageActors``."""
        raise ValueError(f"{stage.name}: no flow is known of layers of kind {self.kind}")

    def actors_back(self, stage: Any, flows: Any, came: Any) -> None:
        """Add the actors from the output's gradient to those of the inputs, if it has such."""

    def golden(
        self, k: Kernels, p: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames | None]:
        """The output, and the words that a frame's way back needs. With ``train``, ``state`` may change."""
        raise TypeError(f"{self.kind} is no layer that trains")

    def golden_back(
        self, k: Kernels, p: Parallelism, state: State, saved: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """The gradient of each input; ``saved``: what ``golden`` gave. ``state`` may change."""
        raise TypeError(f"{self.kind} has no way back")

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """The output in binary64, of tensors that PyTorch derives; ``torch``: the module."""
        raise TypeError(f"{self.kind} has no function in binary64")

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add the nodes that the trained layer becomes; ``graph``: a ``StageNodes`` of ``fanin.cnn.run``."""
        if not self.onnx:
            raise TypeError(f"{self.kind} has no operator in ONNX")
        graph.node(self.onnx, sources, **{name: getattr(self, each) for name, each in self.onnx_fields.items()})

    def torch_arrays(self, state: State) -> State:
        """Arrays of the trained layer with PyTorch's names and axes."""
        return {}


def check_limits(layer: Layer) -> None:
    """Raise ValueError for a layer whose costs are too large to reckon with."""
    made = layer.output
    check_sizes(vertical=made.h, horizontal=made.w, channels=made.c)
    if made.words > MAX_WORDS:
        raise ValueError(f"makes {made}; a frame has at most {MAX_WORDS} words")
    if (cycles := layer.compute_cycles(Parallelism())) > MAX_CYCLES:
        raise ValueError(f"multiplies {cycles} times a frame; at most {MAX_CYCLES} times are supported")


def memory(words: int, lanes: int) -> Memory:
    """A memory of ``words`` words that hands out ``lanes`` of them a cycle."""
    return Memory(width=WORD_BITS * lanes, depth=ceil_div(words, lanes))
