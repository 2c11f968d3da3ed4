"""Networks from PyTorch's newer exporter: the layers and weights of the module."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fanin.planner.model.onnx_model import load_onnx, onnx_weights

pytestmark = pytest.mark.slow  # torch.export takes seconds


class Mean(nn.Module):
    """The limits of relu6 and the axes of mean are numbers of 64 bits behind casts."""

    shape = (3, 16, 16)
    layers = ("conv", "bias", "online_norm", "bias", "relu6", "global_avg_pool", "dense", "bias")

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 10)

    def forward(self, x):
        return self.last(functional.relu6(self.norm(self.convolution(x))).mean([2, 3]))


class Flat(nn.Module):
    """Each channel is a group; flatten gives the dense layer its words in PyTorch's order."""

    shape = (1, 14, 14)
    layers = ("conv", "bias", "relu", "dwconv", "bias", "relu", "max_pool", "dense", "bias")

    def __init__(self):
        super().__init__()
        self.convolution, self.deep = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=4)
        self.last = nn.Linear(4 * 6 * 6, 10)

    def forward(self, x):
        y = functional.relu(self.deep(functional.relu(self.convolution(x))))
        return self.last(torch.flatten(functional.max_pool2d(y, 2), 1))


class View(nn.Module):
    """The shape of the view is computed from the batch."""

    shape, layers = (
        (3, 8, 8),
        ("conv", "bias", "online_norm", "bias", "relu", "global_avg_pool", "dense", "bias"),
    )

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.pool(functional.relu(self.norm(self.convolution(x)))).view(x.size(0), -1))


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of what it is going to change
@pytest.mark.parametrize("network", [Mean, Flat, View])
def test_layers_and_weights_are_the_modules(tmp_path, network):
    torch.manual_seed(7)
    module, path = network().eval(), tmp_path / "net.onnx"
    torch.onnx.export(module, (torch.randn(1, *network.shape),), path, optimize=False)
    model = load_onnx(path)
    ends = {"input", "soft_cross_loss", "output"}
    assert tuple(node.layer.kind for node in model.nodes if node.layer.kind not in ends) == network.layers
    assert model.notes == ()
    weights = list(onnx_weights(path).values())
    convolution = module.convolution.weight.detach().numpy().transpose(2, 3, 1, 0)
    assert np.array_equal(weights[0], convolution)
    dense, bias = weights[-2:]
    assert np.array_equal(bias, module.last.bias.detach().numpy())
    last = module.last.weight.detach().numpy()
    if network is Flat:  # fanin's order is row, column, channel
        last = last.reshape(10, 4, 6, 6).transpose(0, 2, 3, 1).reshape(10, -1)
    assert np.array_equal(dense[0, 0], last.T)
