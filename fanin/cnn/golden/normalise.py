"""Golden model of online normalisation, bit-exact with hardware (docs/systems/layers.md, "Numbers")."""

from __future__ import annotations

import numpy as np

from fanin.cnn.golden.folds import fold
from fanin.cnn.golden.functions import rsqrt
from fanin.cnn.layers.arithmetic import Float32, Frames, State
from fanin.cnn.layers.online_norm import Constants, OnlineNorm
from fanin.golden.fp32 import add, multiply


def online_norm(layer: OnlineNorm, state: State, x: Frames, train: bool) -> tuple[Frames, Float32]:
    """Return outputs and saved words. Each frame is normalised with the state after the previous frame.

    Saved words of a frame are 1/σ of every channel, then the output y. Evaluation does not change the state.
    """
    outputs, saved = [], []
    for frame in x:
        d = add(frame.reshape(-1, layer.input.c), -state["mean"])
        y = multiply(d, state["scale"])
        outputs.append(y.reshape(frame.shape))
        saved.append(np.concatenate([state["scale"], y.ravel()]))
        if train:
            _update_statistics(layer.constants, state, d)
    return np.array(outputs), np.array(saved)


def _update_statistics(c: Constants, state: State, d: Float32) -> None:
    """Update the state's mean, variance and scale after a frame. ``d``: the frame's words minus the mean."""
    shift, square = multiply(fold(d), c.mean_factor), multiply(fold(multiply(d, d)), c.mean_factor)
    excess = add(square, -multiply(c.beta, multiply(shift, shift)))
    state["mean"] = add(state["mean"], multiply(c.beta, shift))
    state["variance"] = add(multiply(c.alpha, state["variance"]), multiply(c.beta, excess))
    state["scale"] = rsqrt(add(state["variance"], c.epsilon))


def online_norm_back(layer: OnlineNorm, state: State, replay: Float32, gradient: Frames) -> Frames:
    """Return the input gradients, frame by frame, each with the control terms after the previous frame."""
    c, channels = layer.constants, layer.input.c
    gradients = []
    for words, frame in zip(replay, gradient, strict=True):
        scale, y = words[:channels], words[channels:].reshape(-1, channels)
        a = add(frame.reshape(y.shape), -multiply(state["ey"], y))
        dx = add(multiply(a, scale), -state["e1"])
        gradients.append(dx.reshape(frame.shape))
        for name, total in (("ey", fold(multiply(a, y))), ("e1", fold(dx))):
            state[name] = add(state[name], multiply(c.gain, multiply(total, c.mean_factor)))
    return np.array(gradients)
