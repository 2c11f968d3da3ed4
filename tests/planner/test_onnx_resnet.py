"""ResNet-18 as PyTorch exports it: read, and planned."""

import warnings
from collections import Counter

import pytest
import torch
from torch import nn

from fanin.planner.cluster import load_cluster
from fanin.planner.model.onnx_model import load_onnx
from fanin.planner.plan.plan import make_plan
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits


class Block(nn.Module):
    """He et al., CVPR 2016, figure 2, with a projection where sizes change."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))
        self.short = (
            nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 or inputs != outputs else None
        )

    def forward(self, x):
        y = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(y + (self.norms[2](self.short(x)) if self.short else x))


def resnet18():
    head = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    sizes += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*head, *(Block(*size) for size in sizes), *tail)


def export(path, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older exporter's age
        torch.onnx.export(resnet18().eval(), (torch.zeros(1, 3, 224, 224),), path, dynamo=False, **how)
    return load_onnx(path)


@pytest.fixture
def trains(tmp_path):
    return export(
        tmp_path / "resnet18.onnx", training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False
    )


def test_resnet18_is_read_as_it_trains(trains):
    found = Counter(node.layer.kind for node in trains.nodes)
    assert (found["conv"], found["online_norm"], found["max_pool"], found["add"]) == (20, 20, 1, 8)
    assert trains.parameters == 11_689_512 - 4_800  # torchvision's, but for the scales of batch normalisation
    assert trains.notes == ()


@pytest.mark.slow
def test_resnet18_has_a_plan(trains):
    plan = make_plan(Instance(trains, load_cluster("u280x6")), Limits(seconds=300, gap=0.2))
    assert plan.throughput > 0
    assert 0 <= plan.gap < 1


def test_the_default_export_is_warned_of(tmp_path):
    model = export(tmp_path / "folded.onnx")
    assert not any(node.layer.kind == "online_norm" for node in model.nodes)
    (note,) = model.notes
    assert "batch normalisation is folded into" in note
    assert "and 19 more" in note
