"""How long a host computes: the worker of the AI Smart NIC's model (section IV-C), its memory and its PCIe."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.codec.facts import FLOAT_BITS
from fanin.sim.ring.collectives import Link, ring

_UPDATE_BYTES = 5 * FLOAT_BITS // 8  # of a weight: itself and its velocity read and written, its gradient read
_FORWARD_FLOPS, _BACKWARD_FLOPS = 2, 4  # of a weight and sample, as the paper counts them


@dataclass(frozen=True)
class Cores:
    """A host that reduces on its own cores, with a conventional NIC (section III).

    ``link``: α, β and γ of the threads that communicate while the others compute, ``slowdown`` times as long in
    the backward pass. ``lone_add`` is γ of the one thread that communicates while all others wait. Both γ
    include what these threads do to the weights.
    """

    link: Link
    lone_add: float
    slowdown: float

    def seconds(self, values: int, nodes: int, *, alone: bool) -> float:
        """Of a ring all-reduce of so many values."""
        add = self.lone_add if alone else self.link.add
        return ring(nodes, values * FLOAT_BITS / 8, Link(self.link.latency, self.link.byte, add))


@dataclass(frozen=True, kw_only=True)
class WorkerProfile:
    """``flops`` a second; ``memory_bandwidth`` in bytes a second; ``pcie`` in bit/s, each way.

    ``slowdown``: how much longer the backward pass takes where some cores have something else to do.

    The defaults are the paper's worker: 28 cores at a mini-batch of 448, six channels of DDR4-2933 of which a
    stream reaches three quarters, PCIe Gen3 x8 of which 81 % are payload (docs/systems/gradient-training.md).
    Raises ValueError for what is not above 0.
    """

    flops: float = 2.08e12
    memory_bandwidth: float = 105e9
    pcie: float = 51e9
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        for name in ("flops", "memory_bandwidth", "pcie", "slowdown"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}")

    def forward(self, values: int, batch: int) -> float:
        """Seconds of a layer of so many weights."""
        return _FORWARD_FLOPS * values * batch / self.flops

    def backward(self, values: int, batch: int) -> float:
        """Seconds of its backward pass: its gradient, and the derivative by its inputs."""
        return self.slowdown * _BACKWARD_FLOPS * values * batch / self.flops

    def update(self, values: int) -> float:
        """Seconds in which memory has moved what an update with momentum reads and writes."""
        return _UPDATE_BYTES * values / self.memory_bandwidth
