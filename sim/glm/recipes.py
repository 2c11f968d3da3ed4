"""Learning rates of GLMs, by data set and loss."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.fixed import Loss, unknown_loss


@dataclass(frozen=True)
class Rates:
    """Learning rate γ for each loss, for mini-batches of 32. A step uses γ / samples of a mini-batch."""

    linear: float
    logistic: float
    hinge: float

    def of(self, loss: Loss) -> float:
        """Return the rate for a loss. Raises ValueError for a loss without one."""
        match loss:
            case Loss.LINEAR:
                return self.linear
            case Loss.LOGISTIC:
                return self.logistic
            case Loss.HINGE:
                return self.hinge
            case _:
                raise unknown_loss(loss)


#: Rates of the bundled sets: each loss falls from the first epoch on.
BUNDLED = {
    "breast_cancer": Rates(linear=0.5, logistic=8.0, hinge=8.0),
    "digits": Rates(linear=0.05, logistic=1.0, hinge=0.5),
}
#: Default rates for a file, as a start of tuning.
FILE_RATES = Rates(linear=0.05, logistic=8.0, hinge=8.0)


def rate_of(source: str, loss: Loss) -> float:
    """Return the default learning rate γ for a data set and a loss.

    ``source``: name of a bundled set. For any other source, such as a file, the rate is that of ``FILE_RATES``.
    """
    return BUNDLED.get(source, FILE_RATES).of(loss)
