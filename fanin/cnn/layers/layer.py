"""Base class of a CNN's layers: shapes, parallelism, and cost as a function of both (NADA, sections III, IV).

Each kind of layer has a file in this folder, with:

- shape, cost and latencies
- actors of the flow model
- golden kernel and binary64 function
- ONNX operator
- name of the component

Other code calls these methods and has no table by kind. ``kinds.py`` finds the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import product
from math import isqrt
from typing import Any, ClassVar

from fanin.cnn.flow.times import Cycles, latest, paced
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import WORD_BITS, Family, Memory, Operations
from fanin.cnn.layers.latencies import ADDER
from fanin.cnn.layers.logic import channel_units, logic_luts, node_luts, units_luts
from fanin.cnn.layers.port import BEAT_WORDS, WRITE_QUEUE, beat_bits, read_queue

MAX_SIZE = 1 << 20  # largest dimension: far above any frame
MAX_WORDS = 1 << 32  # words of a frame; with MAX_CYCLES, products of costs fit 64 bits
MAX_CYCLES = 1 << 48  # cycles of a frame on one multiplier

#: Cycles, at most, from an input word to its output word, of a layer without a ring of rows. An upper bound for
#: planning; the longest is online normalisation's backward pass, 28.
PIPELINE = 32
#: Cycles from a read of an accumulator until it may be read again: addition and write. The latency of ``Fold``
#: (hdl/layers/fold.py).
REUSE = ADDER + 1

Prices = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, order=True)
class Shape:
    """Shape of a feature map: rows, columns, channels."""

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
    """Parallelism of a layer: the five values of NADA, table I, with the paper's names.

    Each of ``pic``, ``poc`` and ``ph`` divides its dimension. ``pi`` divides the channels of every input,
    ``po`` those of the output, so ⌈c / po⌉ transfers are a position.
    """

    pic: int = 1  #: input channels processed at once
    poc: int = 1  #: output channels computed at once
    ph: int = 1  #: columns of the output computed at once
    pi: int = 1  #: words a cycle of each input stream
    po: int = 1  #: words a cycle of the output stream
    frames: int = 1  #: frames for which each parameter is read once; a power of two, 1 unless they are in DRAM


class Storage(StrEnum):
    """Memory of a layer's parameters; a parameter takes two words, its weight and its velocity."""

    CHIP = "chip"
    DRAM = "dram"


@dataclass(frozen=True)
class Cost:
    """Cost of a layer on a device."""

    cycles: int  #: clock cycles per frame
    dsp: int  #: DSP blocks
    luts: int
    ram_bits: int
    ram_blocks: tuple[int, ...]  #: blocks of each kind of RAM, in the order of ``Family.ram``
    dram_read: int  #: bits per frame
    dram_write: int  #: bits per frame


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def check_sizes(**sizes: object) -> None:
    """Raise ValueError for a size that is no integer from 1 to ``MAX_SIZE``."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            raise ValueError(f"{name} must be an integer in 1…{MAX_SIZE}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Layer of a model, as hardware.

    ``inputs``: shape of each input.
    ``gradient``: true if an upstream layer has parameters, so that a gradient leaves through the inputs.

    Raises ValueError for invalid shapes; the message does not name the layer.
    """

    kind: ClassVar[str]  #: name in plans and in the model language
    component: ClassVar[str] = ""  #: "module.Class" in ``fanin.hdl.layers``; empty for the store or the network
    spilled_component: ClassVar[str] = ""  #: "module.Class" with parameters in DRAM
    onnx: ClassVar[str] = ""  #: ONNX operator of the whole layer; empty if ``onnx_nodes`` is overridden
    onnx_fields: ClassVar[Mapping[str, str]] = {}  #: field of the layer for each attribute of the operator
    plan_fields: ClassVar[tuple[str, ...]] = ()  #: fields of the layer in a plan
    build_fields: ClassVar[tuple[str, ...]] = ()  #: fields that decide how the layer is built, not its results
    joins: ClassVar[bool] = False  #: true if branches meet at the layer, so that the earlier map waits
    takes_turns: ClassVar[bool] = False  #: true if inputs are read, and gradients sent, one after the other
    pauses: ClassVar[bool] = False  #: true if the layer takes no words for ``pause`` cycles between frames
    passes_through: ClassVar[bool] = False  #: true if words leave at the pace at which they arrive
    channelwise: ClassVar[bool] = False  #: true if each output channel depends on one input channel
    OPERATORS: ClassVar[Prices] = {}  #: FP32 operators (mac, mul, add) by part: see ``operations``
    LUTS: ClassVar[Prices] = {}  #: LUTs of a unit of ``logic_units``, by family: ``fanin.cnn.layers.logic``
    SPILLED_LUTS: ClassVar[Prices] = {}  #: LUTs of a unit with parameters in DRAM, by family
    inputs: tuple[Shape, ...]
    gradient: bool = False

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ValueError if the inputs do not fit the layer."""

    @property
    def input(self) -> Shape:
        """Shape of the first input; other inputs have the same shape, except a loss's labels."""
        return self.inputs[0]

    @property
    def output(self) -> Shape:
        """Shape of the output."""
        return self.input

    @property
    def parameters(self) -> int:
        """Number of trained words."""
        return 0

    @property
    def saved_words(self) -> int:
        """Words of a frame that are saved in DRAM for the backward pass: each is written and read once."""
        return 0

    def as_published(self) -> Layer:
        """Return the layer with the saved words of NADA's layer; by default the layer itself."""
        return self

    @property
    def fan_in(self) -> int:
        """Weights that contribute to an output word, for initial weights; 0 if parameters start at 0."""
        return 0

    def zero_state(self) -> State:
        """Return the untrained state in memory order; empty for most kinds."""
        return {}

    def memory_blocks(self, parallelism: Parallelism) -> tuple[int, ...] | None:
        """Return the axes into which the weights' array splits, so that memory can have another order of words.

        The axes are (ky, kx, ig, i, g, og, o), as in ``fanin.cnn.golden.image``. None: memory has the array's
        order.
        """
        return None

    @property
    def state_words(self) -> int:
        """Words of a checkpoint: parameters, velocities, and other state."""
        return 2 * self.parameters

    def save_lanes(self, parallelism: Parallelism) -> int:
        """Return the saved words of a cycle, which are consecutive words of the frame."""
        return parallelism.po

    @property
    def delay(self) -> Fraction:
        """Time from the first input word to the first output word, in frames."""
        return Fraction(0)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the largest lag of a position in frames: of outputs forward, of input gradients backward.

        The lags hold at the layer's own rate. At a slower rate they are smaller.
        """
        lag = Fraction(PIPELINE, self.cycles(parallelism))
        return lag, lag

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Possible memories of the parameters."""
        return (Storage.CHIP,)

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every choice of parallelism that may be worth building."""
        for lanes in divisors(self.output.c):
            yield Parallelism(pi=lanes, po=lanes)

    def builds(self) -> Iterator[tuple[Parallelism, Storage]]:
        """Yield every choice of parallelism and storage that may be worth building."""
        yield from product(self.parallelisms(), self.storages)

    def lanes(self, parallelism: Parallelism) -> int:
        """Return the lanes of each way (forward, input gradient, weight gradient): copies of its operators."""
        return parallelism.po

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame's computation, not limited by streams or memory."""
        return 0

    def memory_cycles(self, parallelism: Parallelism, storage: Storage) -> int:
        """Return the cycles of a frame's reads from DRAM, a beat a cycle; 0 for parameters on chip.

        The reads are the saved words and, for each way that uses them, all parameters, once a group of frames.
        """
        if storage is Storage.CHIP:
            return 0
        passes = (2 + self.gradient) * ceil_div(self.parameters, BEAT_WORDS)
        return ceil_div(self.saved_words, BEAT_WORDS) + ceil_div(passes, parallelism.frames)

    def cycles(self, parallelism: Parallelism, storage: Storage = Storage.CHIP) -> int:
        """Return the cycles of a frame: the maximum of computation, inputs, output and memory."""
        return max(
            self.compute_cycles(parallelism),
            self.memory_cycles(parallelism, storage),
            *(ceil_div(shape.words, parallelism.pi) for shape in self.inputs),
            ceil_div(self.output.words, parallelism.po),
        )

    def operations(self, parallelism: Parallelism) -> Operations:
        """Return the number of FP32 operators of each kind. The ways share none.

        In ``OPERATORS``, ``forward``, ``input_gradient`` and ``weight_gradient`` are per lane, and ``fixed``,
        ``fixed_gradient`` and ``update`` per layer.
        """
        total = {"mac": 0, "mul": 0, "add": 0}
        parts = [("forward", self.lanes(parallelism)), ("fixed", 1)]
        if self.gradient:
            parts += [("input_gradient", self.lanes(parallelism)), ("fixed_gradient", 1)]
        if self.parameters:
            parts += [("weight_gradient", self.lanes(parallelism)), ("update", 1)]
        for part, times in parts:
            for kind, count in self.OPERATORS.get(part, {}).items():
                total[kind] += count * times
        return total

    def parameter_width(self, parallelism: Parallelism) -> int:
        """Return the parameters read in one cycle."""
        return parallelism.po

    def resident(self, parallelism: Parallelism) -> tuple[Memory, ...]:
        """Return the on-chip memories of weights (two read ports: forward, input gradient) and velocities."""
        velocity = memory(self.parameters, self.parameter_width(parallelism))
        return replace(velocity, dual=True), velocity

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the layer's memories, except queues of the memory port and parameters on chip."""
        return ()

    def queues(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the queues of the memory port, for saved words and for parameters in DRAM."""
        queues = []
        if self.saved_words:
            queues += [WRITE_QUEUE, read_queue(self.save_lanes(parallelism))]
        if self.parameters and storage is Storage.DRAM:
            # reads: velocities, weights forward, weights backward with a gradient; writes: weights, velocities
            queues += [
                *(2 + self.gradient) * [read_queue(self.parameter_width(parallelism))],
                *2 * [WRITE_QUEUE],
            ]
        return tuple(queues)

    def memories(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return all memories except queues of a few words, which are LUTs."""
        parameters = self.resident(parallelism) if self.parameters and storage is Storage.CHIP else ()
        return (*self.buffers(parallelism, storage), *parameters, *self.queues(parallelism, storage))

    def logic_units(self, parallelism: Parallelism) -> Mapping[str, int]:
        """Return the number of each unit of logic that ``LUTS`` has a price for.

        - layer: counters and control.
        - lane: a word of the stream, its lines and parameters.
        - gradient, gradient_lane: counterparts of the backward pass.
        """
        backward = int(self.gradient)
        return {
            "layer": 1,
            "lane": parallelism.po,
            "gradient": backward,
            "gradient_lane": backward * parallelism.po,
        }

    def logic_prices(self, storage: Storage) -> Prices:
        """Return the LUTs of each unit, by family."""
        return self.SPILLED_LUTS if storage is Storage.DRAM and self.SPILLED_LUTS else self.LUTS

    def store_streams(self, parallelism: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Return the words of a transfer, for each stream from DRAM, and for each stream to DRAM."""
        saved_streams = bool(self.saved_words) * [self.save_lanes(parallelism)]
        if storage is Storage.CHIP:
            return saved_streams, saved_streams
        width = self.parameter_width(parallelism)
        return saved_streams + (2 + self.gradient) * [width], saved_streams + 2 * [width]

    def logic(self, parallelism: Parallelism, storage: Storage, family: Family) -> int:
        """Return the LUTs of the layer, its DRAM channels and node logic, except operators and memories."""
        luts = units_luts(family, self.logic_prices(storage), self.logic_units(parallelism))
        for direction, streams in zip(("read", "write"), self.store_streams(parallelism, storage), strict=True):
            luts += sum(logic_luts(family, direction, channel_units(lanes)) for lanes in streams)
        return luts + node_luts(family, [parallelism.po, *self.gradient * len(self.inputs) * [parallelism.pi]])

    def cost(
        self,
        parallelism: Parallelism,
        storage: Storage,
        family: Family,
        *,
        sums: int = 0,
        queues: tuple[Memory, ...] = (),
    ) -> Cost:
        """Return the cost on a device of ``family``.

        ``sums``: adders in addition to the layer's own.
        ``queues``: memories in addition to the layer's own.
        """
        memories = (*self.memories(parallelism, storage), *queues)
        operations = self.operations(parallelism)
        operations = {**operations, "add": operations["add"] + sums}
        spilled = beat_bits(self.parameters) if storage is Storage.DRAM else 0
        return Cost(
            cycles=self.cycles(parallelism, storage),
            dsp=family.dsp_blocks(operations),
            luts=family.luts(operations)
            + family.ram_luts(memories)
            + self.logic(parallelism, storage, family)
            + logic_luts(family, "fork", {"sum": sums}),
            ram_bits=sum(m.bits for m in memories),
            ram_blocks=family.ram_blocks(memories),
            # Once a group of frames, weights are read forward and for the input gradient, and velocities are
            # read and written.
            dram_read=beat_bits(self.saved_words) + ceil_div((2 + self.gradient) * spilled, parallelism.frames),
            dram_write=beat_bits(self.saved_words) + ceil_div(spilled, parallelism.frames),
        )

    @property
    def trains(self) -> bool:
        """True if downstream layers must send gradients back to this layer."""
        return bool(self.parameters) or self.gradient

    def pause(self, parallelism: Parallelism) -> int:
        """Return the cycles from a frame's last input word until the next frame's first may enter."""
        return 0

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return the cycle in which each output position has left.

        ``inputs``: arrival of each input's positions.
        """
        return paced(latest(inputs) + PIPELINE, ceil_div(self.output.c, parallelism.po))

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return the cycle in which each position's gradient has left input ``port``.

        ``arrivals``: arrival of the gradient of each output position.
        """
        return paced(arrivals + PIPELINE, ceil_div(self.inputs[port].c, parallelism.pi))

    def actors(self, stage: Any, sources: list[Any]) -> Any:
        """Add the flow model's actors of the forward pass. Return the stage's streams.

        ``stage``: ``StageActors`` of ``fanin.cnn.flow.stages``; the returned ``Flows`` is of that module too.
        ``sources``: the ``Source`` (``fanin.cnn.flow.graph``) of each input.
        """
        raise ValueError(f"{stage.name}: no flow is known of layers of kind {self.kind}")

    def actors_back(self, stage: Any, flows: Any, gradients: Any) -> None:
        """Add the actors of the backward pass, and set ``flows.input_gradients``. Default: no actors.

        ``flows``: the result of :meth:`actors`.
        ``gradients``: the ``Source`` of the output's gradient.
        """

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames | None]:
        """Return the output, and the words saved for the backward pass.

        ``train``: true if ``state`` may change.
        """
        raise TypeError(f"{self.kind} has no golden model")

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient of each input, and update ``state``. ``replay``: words that ``golden`` saved."""
        raise TypeError(f"{self.kind} has no backward pass")

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the output in binary64, differentiable by PyTorch. ``torch``: PyTorch's module."""
        raise TypeError(f"{self.kind} has no function in binary64")

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add the trained layer's ONNX nodes. ``graph``: a ``StageNodes`` of ``fanin.cnn.run``."""
        if not self.onnx:
            raise TypeError(f"{self.kind} has no operator in ONNX")
        graph.node(
            self.onnx,
            sources,
            **{attribute: getattr(self, field) for attribute, field in self.onnx_fields.items()},
        )

    def torch_arrays(self, state: State) -> State:
        """Return the arrays of the trained layer with PyTorch's names and axes."""
        return {}


def check_limits(layer: Layer) -> None:
    """Raise ValueError for a layer whose costs could exceed 64 bits."""
    output = layer.output
    check_sizes(vertical=output.h, horizontal=output.w, channels=output.c)
    if output.words > MAX_WORDS:
        raise ValueError(f"makes {output}; a frame has at most {MAX_WORDS} words")
    if (cycles := layer.compute_cycles(Parallelism())) > MAX_CYCLES:
        raise ValueError(f"multiplies {cycles} times a frame; at most {MAX_CYCLES} times are supported")


def memory(words: int, lanes: int) -> Memory:
    """Return a memory of ``words`` words that reads ``lanes`` words a cycle."""
    return Memory(width=WORD_BITS * lanes, depth=ceil_div(words, lanes))
