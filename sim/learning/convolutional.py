"""Two small convolutional networks with flat float32 gradients in PyTorch: a plain one and a residual one.

The same seed gives the same bits on one machine with one thread (``torch.set_num_threads(1)``). Without
PyTorch, the import of this module raises ImportError.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fanin.sim.learning.mlp import CLASSES, Samples

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("convolutional networks need PyTorch: pip install 'fanin[torch]'") from error

from torch import Tensor, nn
from torch.func import functional_call

Float32 = npt.NDArray[np.float32]


class Convolutions(nn.Sequential):
    """Two convolutions of 3 × 3, each followed by a 2 × 2 maximum, and a linear layer."""

    def __init__(self, side: int, classes: int, channels: int):
        super().__init__(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * channels * (side // 4) ** 2, classes),
        )


class ResidualBlock(nn.Module):
    """x + convolution(ReLU(norm(convolution(ReLU(norm(x)))))).

    The norm is over a sample's own channels and pixels, so it needs no statistics of a batch.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.branch = nn.Sequential(*(layer for _ in range(2) for layer in _normalised_convolution(channels)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, with the shape of ``x``."""
        return x + self.branch(x)


def _normalised_convolution(channels: int) -> tuple[nn.Module, ...]:
    return nn.GroupNorm(1, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False)


class Residual(nn.Sequential):
    """A convolution that halves the image, ``blocks`` residual blocks, a norm, and a linear layer."""

    def __init__(self, side: int, classes: int, channels: int, blocks: int = 3):
        half = (side + 1) // 2
        super().__init__(
            nn.Conv2d(1, channels, 3, stride=2, padding=1),
            *(ResidualBlock(channels) for _ in range(blocks)),
            nn.GroupNorm(1, channels),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(channels * half**2, classes),
        )


@dataclass(frozen=True)
class FlatNetwork:
    """A module of ``kind`` whose parameters and gradients are one vector: its tensors in the module's order.

    Images are squares of ``side`` pixels, one per row of the samples. The loss is cross-entropy, in the type of
    the vector.
    """

    kind: type[Convolutions] | type[Residual]
    side: int = 8
    classes: int = CLASSES
    channels: int = 16

    @cached_property
    def _module(self) -> nn.Module:
        return self.kind(self.side, self.classes, self.channels)

    @property
    def count(self) -> int:
        """Number of values of the vector."""
        return sum(parameter.numel() for parameter in self._module.parameters())

    def module(self, seed: int) -> nn.Module:
        """Return a new module for :meth:`inputs`, with PyTorch's initialisation of each layer by ``seed``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.kind(self.side, self.classes, self.channels)

    def initial(self, seed: int) -> Float32:
        """Return the parameters of :meth:`module`."""
        parameters = self.module(seed).parameters()
        return torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).numpy()

    def inputs(self, samples: Samples) -> Tensor:
        """Return the images in a module's input shape."""
        return torch.from_numpy(samples.images).view(-1, 1, self.side, self.side)

    def _scores(self, flat: Tensor, samples: Samples) -> Tensor:
        parameters = dict(self._module.named_parameters())
        slices = flat.split([parameter.numel() for parameter in parameters.values()])
        views = {
            name: values.view_as(parameter)
            for (name, parameter), values in zip(parameters.items(), slices, strict=True)
        }
        return functional_call(self._module, views, self.inputs(samples).to(flat.dtype))

    def loss(self, vector: Float32, samples: Samples) -> float:
        """Return the mean cross-entropy of the samples."""
        with torch.no_grad():
            return self._loss(torch.from_numpy(vector), samples).item()

    def _loss(self, flat: Tensor, samples: Samples) -> Tensor:
        return nn.functional.cross_entropy(self._scores(flat, samples), torch.from_numpy(samples.digits))

    def gradient(self, vector: Float32, samples: Samples) -> Float32:
        """Return the gradient of the samples' mean loss, at the parameters ``vector``."""
        flat = torch.from_numpy(vector).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(flat, samples), flat)
        return gradient.numpy()

    def accuracy(self, vector: Float32, samples: Samples) -> float:
        """Return the share of correctly classified samples."""
        with torch.no_grad():
            predictions = self._scores(torch.from_numpy(vector), samples).argmax(dim=1).numpy()
        return float((predictions == samples.digits).mean())
