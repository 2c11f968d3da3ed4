"""A small network, its plan and build, and images, made once."""

from types import SimpleNamespace

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.cnn.run import rtl

MODEL = """
from fanin.planner import *

x = add_input("image", [6, 6, 2])
x = relu(bias(online_norm(conv(4, 3, 1, x), forward=0.9, backward=0.8)))
x = max_pool(2, 2, x)
x = bias(dense(3, x))
add_output("class", soft_cross_loss(x, add_input("label", [3])))
"""
SMALLER = """
[[device]]
name = "one"
part = "arria10"
dsp = 24

[[device]]
name = "two"
part = "arria10"
dsp = 26
"""
TRAIN, TEST = 40, 12


def images(count, seed):
    """Three classes of images that a network can tell apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    words = rng.normal(0, 0.3, (count, 6, 6, 2)) + labels[:, None, None, None] * np.array([0.5, -0.4])
    return words.astype(np.float32), labels


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """``model``, ``plan``, ``build``, ``data``: paths; ``other``: a plan of two devices, of other bits."""
    folder = tmp_path_factory.mktemp("cluster")
    paths = SimpleNamespace(**{name: folder / name for name in ("plan", "build", "other")})
    paths.model, paths.data = folder / "small.py", folder / "data.npz"
    paths.model.write_text(MODEL)
    (x_train, y_train), (x_test, y_test) = images(TRAIN, 1), images(TEST, 2)
    np.savez(paths.data, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    assert main(["plan", str(paths.model), "arria10x1", "-o", str(paths.plan), "--workers", "1"]) == 0
    smaller = folder / "smaller.toml"
    smaller.write_text(SMALLER)
    assert main(["plan", str(paths.model), str(smaller), "-o", str(paths.other), "--workers", "1"]) == 0
    with pytest.MonkeyPatch.context() as patch:  # the simulator takes a minute, and the golden model needs none
        patch.setattr(rtl, "Rtl", lambda *_: None)
        assert main(["cluster", "build", str(paths.plan), "-o", str(paths.build)]) == 0
    return paths
