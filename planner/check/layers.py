"""Expected facts of a plan's layers, computed from shapes and graph by the checker's own formulas.

Only hardware costs, such as DSPs, LUTs and RAM, come from ``fanin.cnn.layers``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import gcd, prod

from fanin.cnn.layers.family import Family, RamKind, family
from fanin.cnn.layers.layer import Layer, Parallelism, Storage
from fanin.cnn.layers.links import NO_CONTEXT, GraphContext, graph_contexts
from fanin.planner.check.kinds import CONVOLUTIONS, KINDS, WINDOWS
from fanin.planner.plan.read import DeviceEntry, LayerEntry, PlanFiles, Shape, layer_of

WORD_BITS = 32  # FP32; repeated here, as are all constants of the checker's rules
BEAT_BITS, BEAT_WORDS = 512, 16  # a beat of memory; frames and parameters occupy whole beats
FOLD_CYCLES = 8  # cycles until an accumulator may be read again
NORM_INTERVAL = 5  # cycles per channel of a normalisation's update after a frame
NORM_PAUSE = 140  # cycles of that update in addition
LARGEST_GROUP = 16  # frames for which a dense layer reads its parameters from DRAM once
LOSS_PAUSE = 199  # cycles of a loss per frame, in addition to those of the words


@dataclass(frozen=True)
class Facts:
    """Expected facts of a layer, independent of the plan's figures."""

    inputs: tuple[Shape, ...]
    output: Shape
    gradient: bool  #: true if an ancestor has parameters
    figures: Mapping[str, int]  #: figures by the names in FIGURES
    blocks: Mapping[str, int]  #: RAM blocks by kind
    delay: Fraction  #: frames
    hops: int  #: cut edges from the input to the layer

    @property
    def bits(self) -> int:
        """Bits of a map on the wire. Each row is sent in Ethernet frames of up to 1,408 bytes plus 88 bytes."""
        rows, columns, channels = self.output
        row = 4 * columns * channels
        return 8 * rows * (88 * _ceil(row, 1408) + 64 * _ceil(row, 64))


def shape_text(shape: Shape) -> str:
    """Return a shape as text, such as 8×8×16."""
    return "×".join(map(str, shape))


def derive(plan: PlanFiles) -> tuple[dict[str, Facts], list[str]]:
    """Return the facts of all layers, and lines about the first layer that cannot be built, if any.

    With such lines, the facts end before that layer.
    """
    facts: dict[str, Facts] = {}
    devices = {device.name: device for device in plan.devices}
    hardware_layers: list[Layer] = []
    for layer in plan.layers:
        edges = plan.input_edges[layer.name]
        inputs = tuple(facts[edge.source].output for edge in edges)
        violations = [
            f"{layer.name}: {cause}" for cause in _impossible(layer, inputs, [e.source for e in edges])
        ]
        if violations:
            return facts, violations
        gradient = any(
            facts[e.source].gradient or facts[e.source].figures["parameter_words"] > 0 for e in edges
        )
        hops = [facts[e.source].hops + plan.is_cut(e) for e in edges if not plan.is_label(e)]
        hardware_layers.append(layer_of(layer, inputs, gradient))
        facts[layer.name] = _facts(
            layer, inputs, hardware_layers[-1], hops[0] if hops else 0, devices[layer.device]
        )
    numbers = {layer.name: number for number, layer in enumerate(plan.layers)}
    sources = [[numbers[edge.source] for edge in plan.input_edges[layer.name]] for layer in plan.layers]
    for layer, hardware, context in zip(
        plan.layers, hardware_layers, graph_contexts(hardware_layers, sources), strict=True
    ):
        fact, (figures, blocks) = facts[layer.name], _costs(layer, hardware, context, devices[layer.device])
        facts[layer.name] = replace(fact, figures={**fact.figures, **figures}, blocks=blocks)
    return facts, []


def _impossible(layer: LayerEntry, inputs: tuple[Shape, ...], sources: list[str]) -> Iterator[str]:
    """Yield the reasons why a layer cannot be built. ``sources``: names of the layers that feed it."""
    sizes = {shape[:2] for shape in inputs} if layer.kind == "concat" else set(inputs)
    if len(sizes) > 1:
        yield (
            f"its inputs differ in {'rows or columns' if layer.kind == 'concat' else 'shape'}: "
            + " and ".join(
                f"{shape_text(shape)} by {source}" for shape, source in zip(inputs, sources, strict=True)
            )
        )
    for field, value in layer.constants.items():
        if not 0 < value < 1:
            yield f"{field} is {value}, and must lie between 0 and 1"
    if layer.kind not in WINDOWS:
        return
    height, width, channels = inputs[0]
    top, left, bottom, right = layer.padding
    if layer.kind == "dense":
        if (layer.kernel, layer.stride, layer.padding) != ((1, 1), (1, 1), (0, 0, 0, 0)) or layer.groups != 1:
            yield "a dense layer has a kernel of 1×1, stride 1×1, no padding and 1 group"
    elif layer.kernel[0] > top + height + bottom or layer.kernel[1] > left + width + right:
        padded = shape_text((top + height + bottom, left + width + right))
        yield f"a window of {shape_text(layer.kernel)} does not fit {padded} (padding included)"
    if layer.kind == "dwconv" and {layer.groups, layer.output_channels} != {channels}:
        yield (
            f"{layer.groups} groups and {layer.output_channels} output channels, "
            f"but a depthwise convolution of {channels} channels has as many of both"
        )
    if layer.kind == "conv" and (channels % layer.groups or layer.output_channels % layer.groups):
        yield (
            f"{layer.groups} groups do not divide {channels} input channels "
            f"and {layer.output_channels} output channels"
        )


def _facts(
    layer: LayerEntry, inputs: tuple[Shape, ...], hardware: Layer, hops: int, device: DeviceEntry
) -> Facts:
    output, gradient = _output(layer, inputs), hardware.gradient
    parameters = _parameter_words(layer, inputs)
    saved_words = _saved_words(layer, inputs, output, gradient)
    spilled_words = parameters if layer.parameters == "dram" else 0
    saved_bits, spilled_bits = (BEAT_BITS * _ceil(words, BEAT_WORDS) for words in (saved_words, spilled_words))
    frames = layer.parallelism.get("frames", 1)
    figures, blocks = _costs(layer, hardware, NO_CONTEXT, device)
    return Facts(
        inputs=inputs,
        output=output,
        gradient=gradient,
        figures={
            "parameter_words": parameters,
            "saved_words": saved_words,
            "cycles": max(
                _cycles(layer, inputs, output, gradient),
                _memory_cycles(saved_words, spilled_words, gradient, frames),
            ),
            "dram_read": saved_bits + _ceil((2 + gradient) * spilled_bits, frames),
            "dram_write": saved_bits + _ceil(spilled_bits, frames),
            **figures,
        },
        blocks=blocks,
        delay=hardware.delay,
        hops=hops,
    )


def _costs(
    layer: LayerEntry, hardware: Layer, context: GraphContext, device: DeviceEntry
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the hardware's costs in its context in the graph, and its RAM blocks by kind."""
    spills = layer.parameters == "dram" and hardware.parameters  # another rule reports the opposite
    storage = Storage.DRAM if spills else Storage.CHIP
    cost = context.cost(hardware, Parallelism(**layer.parallelism), storage, device_family(device))
    kinds = zip(device.ram, cost.ram_blocks, strict=True)
    figures = {
        "dsp": cost.dsp,
        "luts": cost.luts,
        "ram_bits": cost.ram_bits,
        "ram_blocks": sum(cost.ram_blocks),
    }
    return figures, {kind.kind: blocks for kind, blocks in kinds}


def _output(layer: LayerEntry, inputs: tuple[Shape, ...]) -> Shape:
    if layer.kind == "input":
        return layer.output
    height, width, channels = inputs[0]
    if layer.kind == "dense":
        return (1, 1, layer.output_channels)
    if layer.kind == "global_avg_pool":
        return (1, 1, channels)
    top, left, bottom, right = layer.padding  # layers without windows have a window of 1×1
    channels_by_kind = {
        "conv": layer.output_channels,
        "im2col": prod(layer.kernel) * channels,
        "concat": sum(shape[2] for shape in inputs),
    }
    return (
        (top + height + bottom - layer.kernel[0]) // layer.stride[0] + 1,
        (left + width + right - layer.kernel[1]) // layer.stride[1] + 1,
        channels_by_kind.get(layer.kind, channels),
    )


def _parameter_words(layer: LayerEntry, inputs: tuple[Shape, ...]) -> int:
    if layer.kind == "bias":
        return inputs[0][2]
    if layer.kind not in CONVOLUTIONS:
        return 0
    channels = prod(inputs[0]) if layer.kind == "dense" else inputs[0][2]
    return prod(layer.kernel) * channels // layer.groups * layer.output_channels


def _saved_words(layer: LayerEntry, inputs: tuple[Shape, ...], output: Shape, gradient: bool) -> int:
    saves = KINDS[layer.kind].saves
    if saves == "input":
        return prod(inputs[0])
    if not gradient or not saves:
        return 0
    if saves == "mask" and layer.masked:
        return _ceil(prod(output), WORD_BITS)
    return prod(output) + (output[2] if saves == "output and scales" else 0)  # 1/σ of every channel


def _cycles(layer: LayerEntry, inputs: tuple[Shape, ...], output: Shape, gradient: bool) -> int:
    """Return the cycles of a frame: the maximum of computation, inputs and output."""
    streams = [_ceil(prod(shape), layer.parallelism["pi"]) for shape in inputs]
    streams.append(_ceil(prod(output), layer.parallelism["po"]))
    fold_cycles = _fold_cycles(layer, inputs[0], gradient) if inputs else 0
    return max(
        fold_cycles,
        _window_layer_cycles(layer, inputs, output, gradient),
        _convolution_cycles(layer, inputs, output, gradient),
        *streams,
    )


def _memory_cycles(saved_words: int, spilled_words: int, gradient: bool, frames: int) -> int:
    """Return the cycles of a frame's DRAM reads, a beat each; 0 for parameters on chip."""
    if not spilled_words:
        return 0
    return _ceil(saved_words, BEAT_WORDS) + _ceil((2 + gradient) * _ceil(spilled_words, BEAT_WORDS), frames)


def _fold_cycles(layer: LayerEntry, shape: Shape, gradient: bool) -> int:
    """Return the cycles of a layer that folds over a frame's words or positions; 0 for other layers."""
    height, width, channels = shape
    lanes = layer.parallelism["po"]
    if layer.kind == "soft_cross_loss":
        words = prod(shape)
        return 2 * _ceil(words, lanes) + FOLD_CYCLES * words + (lanes - 1).bit_length() + LOSS_PAUSE
    if not KINDS[layer.kind].folds:
        return 0
    groups = _ceil(channels, lanes)
    update_cycles = (
        gradient * groups + NORM_INTERVAL * channels + NORM_PAUSE if layer.kind == "online_norm" else 0
    )
    return height * width * max(groups, FOLD_CYCLES) + update_cycles


def _window_layer_cycles(layer: LayerEntry, inputs: tuple[Shape, ...], output: Shape, gradient: bool) -> int:
    """Return the cycles of a layer that walks over windows without parameters; 0 for other layers."""
    positions = output[0] * output[1]
    if layer.kind in ("avg_pool", "max_pool"):
        return prod(layer.kernel) * max(positions * _ceil(output[2], layer.parallelism["po"]), FOLD_CYCLES)
    return positions * _window_cycles(layer, inputs, output, gradient) if layer.kind == "im2col" else 0


def _convolution_cycles(layer: LayerEntry, inputs: tuple[Shape, ...], output: Shape, gradient: bool) -> int:
    """Return the cycles of a convolution's slowest way, by blocks and rounds; 0 for other layers.

    docs/systems/layers.md, "The convolution", defines ways, blocks, positions and rounds.
    """
    if layer.kind not in CONVOLUTIONS:
        return 0
    p, taps = layer.parallelism, prod(layer.kernel)
    channels = prod(inputs[0]) if layer.kind == "dense" else inputs[0][2]
    # channel groups, and the steps of each group over its input and its output channels
    if layer.kind == "dwconv":
        groups, input_steps, output_steps = _ceil(channels, p["poc"]), 1, 1
    else:
        groups = layer.groups
        input_steps, output_steps = _ceil(channels // groups, p["pic"]), _ceil(output[2] // groups, p["poc"])
    if p.get("frames", 1) > 1:
        return _group_cycles(input_steps, output_steps, p["frames"], gradient)
    row_positions = _ceil(output[1], p["ph"])
    # possible sizes of a block, in positions
    if (layer.kernel, layer.stride, layer.padding) == ((1, 1), (1, 1), (0, 0, 0, 0)):
        blocks = _divisors(output[0] * row_positions)
    else:
        blocks = _divisors(row_positions) + [row_positions * rows for rows in _divisors(output[0])]
    sums = groups * min(output_steps, input_steps if gradient else output_steps)  # sums of a position
    block = next((size for size in blocks if size * sums >= FOLD_CYCLES), output[0] * row_positions)
    # (rounds of a block, steps of a round) of each way
    rounds = [
        (taps * input_steps, groups * output_steps * block),  # forward
        (block, taps * groups * input_steps * output_steps),  # weight gradient
    ]
    if gradient:
        rounds.append((taps * output_steps, groups * input_steps * block))  # input gradient
    return output[0] * row_positions // block * max(count * max(steps, FOLD_CYCLES) for count, steps in rounds)


def _group_cycles(input_steps: int, output_steps: int, frames: int, gradient: bool) -> int:
    """Return the cycles of a frame of a dense layer that works on groups of frames.

    Each way takes a step for each frame with each of the weights that it reads. Forward adds to the sums of all
    outputs in turn, the input gradient to those of all inputs. The weight gradient adds to the velocities of a
    tile of weights in turn, frame by frame.
    """
    if output_steps >= FOLD_CYCLES:
        tile = min(n for n in _divisors(output_steps) if n >= FOLD_CYCLES)
    else:
        tiles = [n * output_steps for n in _divisors(input_steps) if n * output_steps >= FOLD_CYCLES]
        tile = min(tiles, default=input_steps * output_steps)
    rounds = [
        (input_steps, output_steps * frames),
        (frames * input_steps * output_steps // tile, tile),
    ]
    if gradient:
        rounds.append((output_steps, input_steps * frames))
    return _ceil(max(count * max(steps, FOLD_CYCLES) for count, steps in rounds), frames)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _window_cycles(layer: LayerEntry, inputs: tuple[Shape, ...], output: Shape, gradient: bool) -> int:
    """Return the cycles of an im2col window: one per transfer, or more if a later window needs a word's sum."""
    (height, width), (down, right) = layer.kernel, layer.stride
    groups = _ceil(inputs[0][2], layer.parallelism["pi"])
    cycles = height * width * groups
    reach = min(width, output[1])
    for rows, columns in product(range(min(height, output[0])), range(1 - reach, reach)) if gradient else ():
        windows = rows * output[1] + columns  # distance of two windows that may share a word
        if windows > 0 and rows * down < height and abs(columns) * right < width:
            earlier = (rows * down * width + columns * right) * groups
            cycles = max(cycles, _ceil(FOLD_CYCLES + earlier, windows))
    return cycles


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def dimensions(layer: LayerEntry, facts: Facts) -> dict[str, tuple[int, str]]:
    """Return, for each parallelism of the layer's kind, the number that it must divide, with a name for it."""
    limits = {"po": (facts.output[2], "output channels")}
    if facts.inputs:
        channels = prod(facts.inputs[0]) if layer.kind == "dense" else gcd(*(s[2] for s in facts.inputs))
        limits["pi"] = (channels, "input channels")
    if layer.kind == "concat":
        limits["po"] = limits["pi"]
    elif layer.kind == "dwconv":
        limits |= {"poc": limits["po"], "ph": (facts.output[1], "columns")}
    elif layer.kind in CONVOLUTIONS:
        group = " of a group" if layer.groups > 1 else ""
        limits["pic"] = (channels // layer.groups, f"input channels{group}")
        limits["poc"] = (facts.output[2] // layer.groups, f"output channels{group}")
        limits["ph"] = (facts.output[1], "columns")
    if layer.kind == "dense" and layer.parameters == "dram":
        limits["frames"] = (LARGEST_GROUP, "frames, the largest group")
    return limits


def device_family(device: DeviceEntry) -> Family:
    """Return the device's family with the kinds of RAM block that the plan states."""
    kinds = tuple(RamKind(ram.kind, ram.from_bits, ram.shapes) for ram in device.ram)  # type: ignore[arg-type]
    return replace(family(device.family), ram=kinds)
