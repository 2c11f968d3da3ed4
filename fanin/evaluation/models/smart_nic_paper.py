"""AI Smart NIC's published figures, its printed inputs, and inputs fitted to some figures.

Six inputs are fitted to six figures; the model then predicts the others. docs/systems/gradient-training.md
compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from fanin.codec.facts import Bfp
from fanin.evaluation.models import smart_nic
from fanin.evaluation.models.smart_nic import Conventional, SmartNic, Worker
from fanin.sim.ring.collectives import Link, Scheme, ring
from fanin.sim.ring.profile import Cores
from fanin.sim.ring.timeline import Span, makespan

WIDTHS = (2048,) * 20
BATCHES = (448, 1792)
PROTOTYPE, LARGE = 6, 32  # numbers of nodes: measured, and predicted by the paper's model

ETHERNET = 40e9  # bit/s of the smart NIC's link
BASELINE_BYTE = 8 / 100e9  # seconds, β: the baseline has 100 Gb/s
BASELINE_SLOWDOWN = 1.11  # factor of the backward pass's time with 2 of 28 cores communicating
PCIE = 2 * 8 * 8e9 * 128 / 130 * 0.81  # bit/s of Gen3 x8, both directions, without headers
BFP16 = Bfp().ratio
UPDATE = 0.0  # T_U: the published figures leave no time for it


@dataclass(frozen=True)
class Inputs:
    """Fitted inputs.

    - ``flops``: per entry of ``BATCHES``; the larger batch keeps 28 cores busier.
    - ``adds``: P_FPGA of the smart NIC.
    - ``latency``: α of the baseline.
    - ``add``, ``lone_add``: γ of the baseline's two threads, and of the naive baseline's single thread. Both
      include all work per byte except sending: copies, sums and the update of the weights.
    """

    flops: tuple[float, float]
    adds: float
    latency: float
    add: float
    lone_add: float

    def worker(self, batch: int) -> Worker:
        """Return the worker at a mini-batch size of the paper."""
        return Worker(self.flops[BATCHES.index(batch)], UPDATE)

    def nic(self, ratio: float = 1.0) -> SmartNic:
        """Return the smart NIC with a codec of the given compression ratio."""
        return SmartNic(ETHERNET, PCIE, self.adds, ratio)

    def cores(self) -> Cores:
        """Return the baseline's hosts, to train on them."""
        return Cores(self.baseline().link, self.lone_add, BASELINE_SLOWDOWN)

    def baseline(self) -> Conventional:
        """Return the baseline: regular NICs with two communicating threads."""
        return Conventional(Link(self.latency, BASELINE_BYTE, self.add), BASELINE_SLOWDOWN)


def smart(inputs: Inputs, batch: int, nodes: int, ratio: float = 1.0) -> list[Span]:
    """Return an iteration with smart NICs."""
    times = smart_nic.layers(WIDTHS, batch, inputs.worker(batch), inputs.nic(ratio), nodes)
    return smart_nic.trace(times)


def conventional(inputs: Inputs, batch: int, nodes: int, scheme: Scheme = ring) -> list[Span]:
    """Return an iteration with regular NICs, all-reduce overlapped."""
    return smart_nic.overlapped(WIDTHS, batch, inputs.worker(batch), inputs.baseline(), nodes, scheme)


def naive(inputs: Inputs, batch: int, nodes: int) -> list[Span]:
    """Return an iteration with regular NICs, all-reduce exposed."""
    baseline = inputs.baseline()
    single_threaded = replace(baseline, link=replace(baseline.link, add=inputs.lone_add))
    return smart_nic.naive(WIDTHS, batch, inputs.worker(batch), single_threaded, nodes)


@dataclass(frozen=True)
class Fact:
    """A published number and the model's function for it.

    - ``id``: unique identifier.
    - ``published``: the paper's number, in ``unit``.
    - ``model``: function that computes the number from the inputs.
    - ``fitted``: True if an input is chosen to meet the number, which then does not test the model.
    """

    id: str
    name: str
    published: float
    unit: str
    model: Callable[[Inputs], float]
    fitted: bool = False


def _relative_time(inputs: Inputs, batch: int, nodes: int, ratio: float) -> float:
    """Return the time with smart NICs as a share of the baseline's."""
    return makespan(smart(inputs, batch, nodes, ratio)) / makespan(conventional(inputs, batch, nodes))


def _relative_exposed(inputs: Inputs, ratio: float) -> float:
    """Return the prototype's exposed all-reduce at the smaller batch as a share of the baseline's."""
    smart_spans, baseline_spans = smart(inputs, 448, PROTOTYPE, ratio), conventional(inputs, 448, PROTOTYPE)
    return smart_nic.exposed(smart_spans) / smart_nic.exposed(baseline_spans)


def _relative_backward(inputs: Inputs) -> float:
    """Return the prototype's backward pass at the smaller batch as a share of the baseline's."""
    smart_spans, baseline_spans = smart(inputs, 448, PROTOTYPE), conventional(inputs, 448, PROTOTYPE)
    return smart_nic.backward(smart_spans) / smart_nic.backward(baseline_spans)


def _naive_share(inputs: Inputs) -> float:
    """Return the share of the naive iteration in which the all-reduce is exposed."""
    spans = naive(inputs, 1792, PROTOTYPE)
    return smart_nic.exposed(spans) / makespan(spans)


def _naive_over_overlapped(inputs: Inputs, measure: Callable[[list[Span]], float]) -> float:
    """Return a measure of the naive iteration relative to that of the overlapped one."""
    return measure(naive(inputs, 1792, PROTOTYPE)) / measure(conventional(inputs, 1792, PROTOTYPE))


def speedup(inputs: Inputs, batch: int, nodes: int, spans: list[Span]) -> float:
    """Return the speed-up over a single node, which has nothing to all-reduce (figure 4b)."""
    return nodes * makespan(smart(inputs, batch, 1)) / makespan(spans)


FACTS = (
    Fact(
        "b_448.nodes_6.smart_nic.time_saved",
        "B = 448, 6 nodes: time saved",
        18,
        "%",
        lambda inputs: 100 - 100 * _relative_time(inputs, 448, 6, 1),
        fitted=True,
    ),
    Fact(
        "b_448.nodes_6.smart_nic.exposed_saved",
        "B = 448, 6 nodes: exposed all-reduce saved",
        37,
        "%",
        lambda inputs: 100 - 100 * _relative_exposed(inputs, 1),
        fitted=True,
    ),
    Fact(
        "b_448.nodes_6.bfp.exposed_saved",
        "B = 448, 6 nodes, BFP: exposed all-reduce saved",
        95,
        "%",
        lambda inputs: 100 - 100 * _relative_exposed(inputs, BFP16),
        fitted=True,
    ),
    Fact(
        "b_448.nodes_32.smart_nic.faster",
        "B = 448, 32 nodes: faster",
        1.8,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 448, 32, 1),
        fitted=True,
    ),
    Fact(
        "b_1792.nodes_32.smart_nic.faster",
        "B = 1792, 32 nodes: faster",
        1.4,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 1792, 32, 1),
        fitted=True,
    ),
    Fact(
        "b_1792.nodes_6.naive.exposed",
        "B = 1792, 6 nodes, naive: all-reduce exposed",
        51,
        "% of time",
        lambda inputs: 100 * _naive_share(inputs),
        fitted=True,
    ),
    Fact(
        "b_448.nodes_6.bfp.time_saved",
        "B = 448, 6 nodes, BFP: time saved",
        40,
        "%",
        lambda inputs: 100 - 100 * _relative_time(inputs, 448, 6, BFP16),
    ),
    Fact(
        "b_448.nodes_6.bfp.faster",
        "B = 448, 6 nodes, BFP: faster",
        1.6,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 448, 6, BFP16),
    ),
    Fact(
        "b_448.nodes_6.smart_nic.backward_saved",
        "B = 448, 6 nodes: backward pass saved",
        10,
        "%",
        lambda inputs: 100 - 100 * _relative_backward(inputs),
    ),
    Fact(
        "b_448.nodes_32.bfp.faster",
        "B = 448, 32 nodes, BFP: faster",
        2.5,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 448, 32, BFP16),
    ),
    Fact(
        "b_1792.nodes_6.smart_nic.faster",
        "B = 1792, 6 nodes: faster",
        1.1,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 1792, 6, 1),
    ),
    Fact(
        "b_1792.nodes_32.bfp.faster",
        "B = 1792, 32 nodes, BFP: faster",
        1.4,
        "×",
        lambda inputs: 1 / _relative_time(inputs, 1792, 32, BFP16),
    ),
    Fact(
        "b_1792.nodes_32.smart_nic.of_the_ideal",
        "B = 1792, 32 nodes: of the ideal speed-up",
        100,
        "%",
        lambda inputs: 100 / 32 * speedup(inputs, 1792, 32, smart(inputs, 1792, 32)),
    ),
    Fact(
        "b_1792.nodes_6.naive_over_overlapped",
        "B = 1792, 6 nodes: naive over overlapped",
        1.85,
        "×",
        lambda inputs: _naive_over_overlapped(inputs, makespan),
    ),
    Fact(
        "b_1792.nodes_6.exposed_naive_over_overlapped",
        "B = 1792, 6 nodes: exposed, naive over overlapped",
        50,
        "×",
        lambda inputs: _naive_over_overlapped(inputs, smart_nic.exposed),
    ),
)

_START = Inputs(flops=(2e12, 4e12), adds=2e9, latency=1e-4, add=3e-10, lone_add=7e-10)


@cache
def fitted() -> Inputs:
    """Return the inputs with which the model meets the fitted figures exactly."""
    scale = np.array([*_START.flops, _START.adds, _START.latency, _START.add, _START.lone_add])
    fitted_facts = [fact for fact in FACTS if fact.fitted]

    def inputs(factors: npt.NDArray[np.float64]) -> Inputs:
        flops_448, flops_1792, *parameters = (factors * scale).tolist()
        return Inputs((flops_448, flops_1792), *parameters)

    def relative_errors(factors: npt.NDArray[np.float64]) -> list[float]:
        return [fact.model(inputs(factors)) / fact.published - 1 for fact in fitted_facts]

    return inputs(least_squares(relative_errors, np.ones(len(scale))).x)
