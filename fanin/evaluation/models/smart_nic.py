"""AI Smart NIC's performance model (section IV-C), the trace of an iteration (figure 3b), and the baselines.

Times are in seconds, sizes in bits, rates in bits or operations a second. Layers are numbered from the input. A
layer of width M has a weight matrix of M × M. docs/systems/gradient-training.md lists the paper's inputs and
the fitted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fanin.codec.facts import FLOAT_BITS
from fanin.sim.ring import collectives, timeline
from fanin.sim.ring.collectives import Link
from fanin.sim.ring.timeline import Span, Task

WORKER, NIC, THREADS = "worker", "NIC", "communication threads"


@dataclass(frozen=True)
class Worker:
    """Parameters of a worker.

    - ``flops``: P_Worker, operations a second.
    - ``update``: T_U in seconds per weight.
    """

    flops: float
    update: float = 0.0


@dataclass(frozen=True)
class SmartNic:
    """Parameters of a smart NIC.

    - ``ethernet`` · ``utilisation``: α·BW_eth.
    - ``pcie``: BW_pcie, both directions together.
    - ``adds``: P_FPGA.
    - ``ratio``: β, the codec's compression ratio on the link; 1 without a codec.
    """

    ethernet: float
    pcie: float
    adds: float
    ratio: float = 1.0
    utilisation: float = 1.0

    def ring(self, width: int, nodes: int) -> float:
        """Return T_ring: the layer's gradients over the link."""
        return _bits(width, nodes) * 2 * (nodes - 1) / (nodes * self.utilisation * self.ethernet * self.ratio)

    def add(self, width: int, nodes: int) -> float:
        """Return T_add as printed: all 2(N − 1) steps pass the adders, though only N − 1 of them need a sum."""
        return _bits(width, nodes) * 2 * (nodes - 1) / (nodes * self.adds * FLOAT_BITS)

    def memory(self, width: int, nodes: int) -> float:
        """Return T_mem: gradients from the worker's memory, and the sum back."""
        return 2 * _bits(width, nodes) / self.pcie

    def all_reduce(self, width: int, nodes: int) -> float:
        """Return T_AR, the slowest of the three; 0 for a single node, which has nothing to reduce."""
        if nodes == 1:
            return 0.0
        return max(self.ring(width, nodes), self.add(width, nodes), self.memory(width, nodes))


def _bits(width: int, nodes: int) -> int:
    """Return R: the bits of the layer's gradients, padded to N equal chunks."""
    return FLOAT_BITS * nodes * -(-(width**2) // nodes)


@dataclass(frozen=True)
class Layer:
    """Times of a layer in seconds: T_F, T_B, T_AR, T_U."""

    forward: float
    backward: float
    all_reduce: float
    update: float


def layers(widths: Sequence[int], batch: int, worker: Worker, nic: SmartNic, nodes: int) -> list[Layer]:
    """Return the times of each layer with ``batch`` samples per node, from the input on."""
    return [
        Layer(
            forward=2 * width**2 * batch / worker.flops,
            backward=4 * width**2 * batch / worker.flops,
            all_reduce=nic.all_reduce(width, nodes),
            update=width**2 * worker.update,
        )
        for width in widths
    ]


def total(times: Sequence[Layer]) -> float:
    """Return T_total as printed. Raises ValueError for a single layer, which the formula does not cover."""
    if len(times) < 2:
        raise ValueError(f"layers must be at least 2, not {len(times)}: the formula has T_B of layer L - 1")
    last = len(times) - 1
    seconds = sum(time.forward for time in times) + times[last].backward
    seconds += max(times[last - 1].backward, times[last].all_reduce)
    for layer in range(1, last):
        seconds += max(times[layer + 1].update + times[layer - 1].backward, times[layer].all_reduce)
    return seconds + max(times[1].update, times[0].all_reduce) + times[0].update


def trace(times: Sequence[Layer], *, blocking: bool = True) -> list[Span]:
    """Return the trace of figure 3b: the worker computes, the NIC reduces.

    With ``blocking``, as in the paper, the thread that requested a layer's all-reduce waits for it after the
    next layer's backward pass. Otherwise requests queue at the NIC, and weights are updated after the last
    backward pass.
    """
    count = len(times)
    tasks = [Task(f"F{k}", WORKER, times[k].forward) for k in range(count)]
    backward = [Task(f"B{k}", WORKER, times[k].backward) for k in reversed(range(count))]
    update = [Task(f"U{k}", WORKER, times[k].update, (f"AR{k}",)) for k in reversed(range(count))]
    leading_layers = min(2, count) if blocking else count  # layers of the backward pass before the first wait
    tasks += backward[:leading_layers]
    for k in range(count):
        tasks += [update[k], *backward[leading_layers + k : leading_layers + k + 1]]
    tasks += [Task(f"AR{k}", NIC, times[k].all_reduce, (f"B{k}",)) for k in reversed(range(count))]
    return timeline.run(tasks)


@dataclass(frozen=True)
class Conventional:
    """Regular NICs and MPI: all-reduce by the CPU (section III).

    - ``link``: α, β and γ of the communicating threads.
    - ``slowdown``: factor of the backward pass's time while some cores communicate.
    """

    link: Link
    slowdown: float

    def all_reduce(self, width: int, nodes: int, scheme: collectives.Scheme = collectives.ring) -> float:
        """Return T_AR of an MPI algorithm, with the threads' work on the weights; 0 for one node."""
        return scheme(nodes, width**2 * FLOAT_BITS / 8, self.link) if nodes > 1 else 0.0


def overlapped(
    widths: Sequence[int],
    batch: int,
    worker: Worker,
    baseline: Conventional,
    nodes: int,
    scheme: collectives.Scheme = collectives.ring,
) -> list[Span]:
    """Return the trace of the paper's baseline: some cores all-reduce and update, the others compute slower."""
    slowdown = baseline.slowdown if nodes > 1 else 1.0
    count = len(widths)
    tasks = [Task(f"F{k}", WORKER, 2 * widths[k] ** 2 * batch / worker.flops) for k in range(count)]
    for k in reversed(range(count)):
        tasks.append(Task(f"B{k}", WORKER, 4 * widths[k] ** 2 * batch / worker.flops * slowdown))
        tasks.append(Task(f"AR{k}", THREADS, baseline.all_reduce(widths[k], nodes, scheme), (f"B{k}",)))
    return timeline.run(tasks)


def naive(widths: Sequence[int], batch: int, worker: Worker, baseline: Conventional, nodes: int) -> list[Span]:
    """Return the trace of the naive baseline: after each layer, all cores wait while one thread all-reduces."""
    count = len(widths)
    tasks = [Task(f"F{k}", WORKER, 2 * widths[k] ** 2 * batch / worker.flops) for k in range(count)]
    for k in reversed(range(count)):
        dependencies = (f"AR{k + 1}",) if k + 1 < count else ()
        tasks.append(Task(f"B{k}", WORKER, 4 * widths[k] ** 2 * batch / worker.flops, dependencies))
        tasks.append(Task(f"AR{k}", THREADS, baseline.all_reduce(widths[k], nodes), (f"B{k}",)))
    return timeline.run(tasks)


def backward(spans: Sequence[Span]) -> float:
    """Return the seconds of the backward pass in a trace, without waits."""
    return sum(span.task.seconds for span in spans if span.task.name.startswith("B"))


def exposed(spans: Sequence[Span]) -> float:
    """Return the seconds in which the worker waited for an all-reduce."""
    return timeline.idle(spans, WORKER)
