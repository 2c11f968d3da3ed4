"""A loss that is added: each place that has something to say about losses refuses it until it does."""

import gc

import numpy as np
import pytest
from amaranth.back import rtlil

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.golden import float64, metrics
from fanin.glm.golden.rate import default_rate
from fanin.hdl.glm.loss import LossUnit
from fanin.sim.glm import data

ONES = np.ones(4)

#: To add a loss, touch these.
PLACES = {
    "whether labels are classes": lambda loss: loss.classifies,
    "the label store": lambda loss: fixed.labels(ONES, loss, 24),
    "the derivative": lambda loss: fixed.df(ONES, ONES, loss, 24),
    "the derivative in float64": lambda loss: float64.derivative(ONES, ONES, loss),
    "loss and accuracy": lambda loss: metrics.score(ONES, ONES, loss),
    "the loss unit": lambda loss: rtlil.convert(LossUnit(banks=1, frac=24)),
    "its default learning rate": lambda loss: default_rate(np.ones((4, 2), np.uint8), 4, loss),
    "data sets": lambda loss: data.read("breast_cancer", loss),
}


@pytest.fixture
def huber(monkeypatch):
    """A loss of no meaning, which is a member of ``Loss`` in every way."""
    loss = int.__new__(Loss, max(Loss) + 1)
    loss._name_, loss._value_ = "HUBER", int(loss)
    monkeypatch.setitem(Loss._member_map_, "HUBER", loss)
    monkeypatch.setattr(Loss, "_member_names_", [*Loss._member_names_, "HUBER"])
    assert list(Loss)[-1] is loss
    return loss


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")  # of a module that was given up
@pytest.mark.parametrize("place", PLACES)
def test_a_loss_that_is_not_stated_is_refused_by_name(huber, place):
    with pytest.raises(ValueError, match=r"loss must be one of linear, logistic, hinge, not <Loss.HUBER: 3>"):
        PLACES[place](huber)
    gc.collect()


@pytest.mark.parametrize("place", PLACES)
def test_every_loss_is_stated(place):
    for loss in Loss:
        PLACES[place](loss)


def test_losses_have_numbers_without_a_gap():
    """A node refuses a register that holds more than the last one (``RunCheck``)."""
    assert sorted(Loss) == list(range(len(Loss)))
