"""Convolutions in a bench: they learn from their own output as their golden model does."""

from dataclasses import replace

import numpy as np

from fanin.cnn.golden import layers as golden
from fanin.cnn.golden.image import state_image
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.golden.fp32 import multiply
from fanin.hdl.layers.convolution import Convolution
from fanin.hdl.layers.interface import Mode
from fanin.sim.cnn.layer_bench import Job, LayerBench
from tests.fp32_values import SPECIAL

LOOPS = {"save": "replay", "outputs": "gradients"}  # in training, the gradient of the output is the output
ODD = 1 / 500  # share of words on which arithmetic goes wrong


def conv(shape, outputs, kernel, *, stride=1, padding=0, groups=1, gradient=True):
    """A convolution; depthwise where every channel is a group. ``padding``: one number, or of each side."""
    kind = DepthwiseConv if groups == shape[-1] == outputs > 1 else Conv
    return kind(
        inputs=(Shape(*shape),),
        gradient=gradient,
        kernel=kernel if isinstance(kernel, tuple) else (kernel, kernel),
        stride=stride if isinstance(stride, tuple) else (stride, stride),
        padding=padding if isinstance(padding, tuple) else 4 * (padding,),
        output_channels=outputs,
        groups=groups,
    )


def dense(words, outputs, *, gradient=True):
    """A fully connected layer."""
    return Dense(inputs=(Shape(1, 1, words),), gradient=gradient, output_channels=outputs)


def parallel(pic, poc, ph, pi, po):
    """A Parallelism."""
    return Parallelism(pic=pic, poc=poc, ph=ph, pi=pi, po=po)


def build(cases):
    """A bench of cases: layer and parallelism by name."""
    return LayerBench({name: Convolution(layer=layer, parallelism=p) for name, (layer, p) in cases.items()})


def draw(rng, shape, odd=ODD):
    """Words of all signs and many sizes, a few of them zeros, subnormals, infinities or NaN."""
    words = (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 4, shape)).astype(np.float32)
    special = rng.choice(np.array(SPECIAL, np.uint32), shape).view(np.float32)
    return np.where(rng.random(shape) < odd, special, words)


class Learner:
    """Jobs of a layer and, as they are made, what its golden model makes of them."""

    def __init__(self, layer, p, *, seed, odd=ODD):
        self.layer, self.p, self.odd = layer, p, odd
        self.rng = np.random.default_rng(seed)
        self.jobs, self.expected = [], []
        shapes = {name: array.shape for name, array in layer.zero_state().items()}
        self.state = {name: multiply(draw(self.rng, shape, odd), 0.25) for name, shape in shapes.items()}
        self._add(Job(mode=Mode.LOAD, feeds={"load": self.image}), {})

    @property
    def image(self):
        """The state's words."""
        return state_image(self.layer, self.p, self.state)

    def train(self, frames, batch, momentum=0.9):
        """A job that learns."""
        x, rates = self._frames(frames), {"eta": -0.05 / batch, "last_eta": -0.05, "momentum": momentum}
        outputs, gradients, saved = [], [], []
        for begin in range(0, frames, batch):
            output, kept = golden.forward(self.layer, self.p, self.state, [x[begin : begin + batch]])
            gradients += golden.backward(self.layer, self.p, self.state, kept, output)
            eta = rates["last_eta" if begin + batch >= frames else "eta"]
            golden.update(self.layer, self.state, np.float32(eta), np.float32(rates["momentum"]))
            outputs.append(output)
            saved.append(kept)
        expected = {"outputs": outputs, "save": saved}
        if self.layer.gradient:
            expected["input_gradients0"] = gradients
        self._add(Job(frames=frames, batch=batch, feeds={"features0": bits(x)}, **rates), expected)

    def evaluate(self, frames):
        """A job that learns nothing."""
        x = self._frames(frames)
        output, _ = golden.forward(self.layer, self.p, self.state, [x], train=False)
        job = Job(mode=Mode.EVALUATE, frames=frames, batch=1, feeds={"features0": bits(x)})
        self._add(job, {"outputs": [output], "save": []})

    def dump(self):
        """A job that shows the state."""
        self._add(Job(mode=Mode.DUMP), {"dump": [self.image]})

    def check(self, bench, name, **options):
        """Run the jobs; assert all that leaves. Their results."""
        looped = options.get("loops", {}).keys()
        jobs = [
            replace(job, expect={name: sum(map(np.size, expected[name])) for name in expected.keys() - looped})
            for job, expected in zip(self.jobs, self.expected, strict=True)
        ]
        results = bench.run(name, jobs, **options)
        for number, (result, expected) in enumerate(zip(results, self.expected, strict=True)):
            for stream, arrays in expected.items():
                words = np.concatenate([np.empty(0, np.uint32), *map(bits, arrays)])
                np.testing.assert_array_equal(result.words[stream], words, f"{name}, job {number}, {stream}")
        return results

    def _frames(self, count):
        return draw(self.rng, (count, *(getattr(self.layer.inputs[0], axis) for axis in "hwc")), self.odd)

    def _add(self, job, expected):
        self.jobs.append(job)
        self.expected.append(expected)


def bits(array):
    """Words of an array, in order."""
    return np.ascontiguousarray(array).ravel().view(np.uint32)
