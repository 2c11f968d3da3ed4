"""Layers without jobs of their own in Amaranth's simulator, both ways at once, beside the golden model."""

import numpy as np

from fanin.cnn.golden import layers as golden
from fanin.hdl.layers.interface import Mode
from tests.fp32_values import SPECIAL
from tests.support import simulate

ODD = 0.2  # share of words on which arithmetic goes wrong


def drawn(rng, count, shape):
    """Frames of words of all signs and sizes, some of them zeros, subnormals, infinities or NaN."""
    size = (count, shape.h, shape.w, shape.c)
    words = (rng.standard_normal(size) * 2.0 ** rng.integers(-8, 8, size)).astype(np.float32)
    odd = rng.choice(np.array(SPECIAL, np.uint32), size).view(np.float32)
    return np.where(rng.random(size) < ODD, odd, words)


def transfers(words, lanes):
    """Words, in their order, as the payloads of a stream."""
    return np.ascontiguousarray(words).view(np.uint32).reshape(-1, lanes).tolist()


def frame_transfers(frames, lanes):
    """Saved words of each frame as payloads; a frame's last payload is filled up with zeros."""
    return transfers(np.pad(frames, ((0, 0), (0, -frames.shape[1] % lanes))), lanes)


def collected(log, name):
    """The payloads that left a stream."""
    return [list(payload) for _, payload in log[name]]


def check(make, layer, p, *, seed, mode=Mode.TRAIN, frames=4, stall=0.3, limit=20_000):
    """Run a component on random frames; assert all that leaves it, and return when."""
    rng = np.random.default_rng(seed)
    inputs = [drawn(rng, frames, shape) for shape in layer.inputs]
    outputs, saved = golden.forward(layer, p, {}, inputs, train=mode is Mode.TRAIN)
    drive = {f"features[{n}]": transfers(x, p.pi) for n, x in enumerate(inputs)}
    expected = {"outputs": transfers(outputs, p.po)}
    if layer.saved_words:
        expected["save"] = frame_transfers(saved, layer.save_lanes(p))
    if layer.gradient and mode is Mode.TRAIN:
        gradient = drawn(rng, frames, layer.output)
        drive["gradients"] = transfers(gradient, p.po)
        if layer.saved_words:
            drive["replay"] = expected["save"]
        for n, dx in enumerate(golden.backward(layer, p, {}, saved, gradient)):
            expected[f"input_gradients[{n}]"] = transfers(dx, p.pi)
    log = simulate(
        make(layer=layer, parallelism=p),
        drive=drive,
        collect={name: len(items) for name, items in expected.items()},
        settings={"control.mode": mode},
        stall=stall,
        seed=seed,
        limit=limit,
    )
    for name, items in expected.items():
        assert collected(log, name) == items, name
    return {name: [cycle for cycle, _ in found] for name, found in log.items()}


def starts(cycles, frames):
    """When the first transfer of every frame came."""
    return cycles[:: len(cycles) // frames]
