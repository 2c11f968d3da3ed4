"""Tasks to try codecs on: four networks with their data, none of which needs a download.

Each rate is the best one without a codec of 0.005, 0.01, 0.02, 0.05, 0.1, 0.2 and 0.4. The digit classifier
has table I's rate (INCEPTIONN, section VII-A).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fanin.sim.codec.trainers import Training
from fanin.sim.learning.mlp import CLASSES, HIDDEN, Descent, Mlp
from fanin.sim.learning.mnist import load_mnist
from fanin.sim.learning.templates import Templates

MNIST_EPOCHS = 17  # of 600 iterations, together table I's 10,000
HARD = Templates()
NOISY = Templates(classes=50, noise=1.5)


def hdc(mnist: Path | None = None) -> Training:
    """Return INCEPTIONN's digit classifier, on MNIST from a folder or scikit-learn's digits."""
    if mnist is None:
        return Training()
    data = load_mnist(mnist)
    network = Mlp((data[0].images.shape[1], *[HIDDEN] * 4, CLASSES))
    return Training(epochs=MNIST_EPOCHS, network=network, data=lambda seed: data)


def cnn() -> Training:
    """Return two convolutions on scikit-learn's digits. Raises ImportError without PyTorch."""
    from fanin.sim.learning.convolutional import Convolutions, FlatNetwork

    return Training(network=FlatNetwork(Convolutions, channels=32), descent=Descent(rate=0.2))


def residual() -> Training:
    """Return residual blocks with a norm per sample, on noisy templates. Raises ImportError without PyTorch."""
    from fanin.sim.learning.convolutional import FlatNetwork, Residual

    network = FlatNetwork(Residual, side=NOISY.side, classes=NOISY.classes)
    return Training(network=network, data=NOISY, epochs=10, descent=Descent(rate=0.02, reductions=2))


def templates() -> Training:
    """Return five layers on a hundred templates, eight samples per worker and iteration."""
    network = Mlp((HARD.side**2, *[64] * 4, HARD.classes))
    descent = Descent(rate=0.02, reductions=2)
    return Training(network=network, data=HARD, epochs=10, batch=8, descent=descent)


TASKS: dict[str, Callable[[], Training]] = {
    "hdc": hdc,
    "cnn": cnn,
    "residual": residual,
    "templates": templates,
}
