"""Rectifier max(x, 0) (layer kind ``relu``). Hardware: ``hdl/layers/relu.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, comparable
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Layer, Parallelism, ceil_div


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """Rectifier max(x, 0); it needs no operators, only LUTs.

    For the backward pass it saves a bit of each output, high if its gradient passes, in words of 32 bits. The
    least significant bit is the first output's.
    """

    kind: ClassVar[str] = "relu"
    component: ClassVar[str] = "relu.Relu"
    onnx: ClassVar[str] = "Relu"
    channelwise: ClassVar[bool] = True
    passes_through: ClassVar[bool] = True
    # Units of ``LUTS``; ``logic_units`` has the number of each.
    # layer, lane, gradient_lane: of a layer that saves words, or has no gradient.
    # mask, mask_lane: a layer that saves masks, and a word of its stream.
    LUTS: ClassVar = {
        "ultrascale": {"layer": 3, "lane": 41, "gradient_lane": 68, "mask": 173, "mask_lane": 81},
        "ecp5": {"layer": 4, "lane": 175, "gradient_lane": 111, "mask": 204, "mask_lane": 109},
    }
    plan_fields: ClassVar[tuple[str, ...]] = ("masked",)
    build_fields: ClassVar[tuple[str, ...]] = ("masked",)
    masked: bool = True  #: true to save a bit of each output, false to save the outputs, as NADA does

    def as_published(self) -> Relu:
        """Return the layer without a mask."""
        return replace(self, masked=False)

    @property
    def saves_masks(self) -> bool:
        """True if the layer saves a bit of each output."""
        return self.masked and self.gradient

    @property
    def saved_words(self) -> int:
        """Words of the mask, or of the output if not ``masked``; 0 without gradient."""
        if not self.gradient:
            return 0
        return ceil_div(self.output.words, WORD_BITS) if self.masked else self.output.words

    def save_lanes(self, parallelism: Parallelism) -> int:
        """Return the words of a transfer. Masks: the least power of two that has the bits of a cycle."""
        if not self.masked:
            return super().save_lanes(parallelism)
        return 1 << (ceil_div(parallelism.po, WORD_BITS) - 1).bit_length()

    def logic_units(self, parallelism: Parallelism) -> Mapping[str, int]:
        """Return the units of a layer with masks, or of one without."""
        masks = {"mask": int(self.saves_masks), "mask_lane": int(self.saves_masks) * parallelism.po}
        others = super().logic_units(parallelism)
        return masks | {name: 0 if self.saves_masks else number for name, number in others.items()}

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add a register slice to the next layer and, if words are saved, one or a packer to memory."""
        if not self.saves_masks:
            return stage.give_and_save(sources[0])
        outputs = stage.parts.copy("outputs", sources[0], stage.transfers, parts.SLICE_PAYLOADS)
        widths = stage.parallelism.po, WORD_BITS * self.save_lanes(stage.parallelism)
        return Flows(
            Source(outputs), Source(stage.parts.gearbox("masks", sources[0], self.output.words, *widths))
        )

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add an actor that pairs each gradient with its saved bit or output."""
        assert flows.replay is not None
        saved = flows.replay
        if self.masked:
            widths = WORD_BITS * self.save_lanes(stage.parallelism), stage.parallelism.po
            saved = Source(stage.parts.gearbox("saved masks", saved, self.output.words, *widths))
        flows.input_gradients = [Source(stage.join("back", [gradients, saved], parts.SLICE_PAYLOADS, 1))]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames]:
        """Return max(x, 0), a NaN passes, and the saved words."""
        y = self.rectified(inputs[0])
        return y, mask_words(self.passes(y)).view(np.float32) if self.masked else y

    def rectified(self, x: Frames) -> Frames:
        """Return max(x, 0); a NaN passes."""
        return np.where(np.signbit(x) & ~np.isnan(x), np.float32(0), x)

    def passes(self, y: Frames) -> NDArray[np.bool_]:
        """Return where the gradient passes: the output is a NaN or above 0."""
        return (comparable(y) > 0) | np.isnan(y)

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient where it passes, else 0."""
        if self.masked:
            passes = mask_bits(replay, self.output.words).reshape(gradient.shape)
        else:
            passes = self.passes(replay.reshape(gradient.shape))
        return (np.where(passes, gradient, np.float32(0)),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return max(x, 0)."""
        return torch.relu(inputs[0])


def mask_words(passes: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return the words of each frame's mask; unused bits are 0."""
    bits = passes.reshape(len(passes), -1)
    padded = np.zeros((len(bits), WORD_BITS * ceil_div(bits.shape[1], WORD_BITS)), np.bool_)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u4")


def mask_bits(words: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return the first ``count`` bits of each frame's mask, the inverse of :func:`mask_words`."""
    octets = np.ascontiguousarray(words.reshape(len(words), -1)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=count, bitorder="little").astype(np.bool_)
