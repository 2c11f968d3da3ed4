"""Compute time of a host: the worker of the AI Smart NIC's model (section IV-C), its memory and its PCIe."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.codec.facts import FLOAT_BITS
from fanin.sim.ring.collectives import Link, ring

_UPDATE_BYTES = 5 * FLOAT_BITS // 8  # per weight: read and write weight and velocity, read the gradient
_FORWARD_FLOPS, _BACKWARD_FLOPS = 2, 4  # per weight and sample, as the paper counts them


@dataclass(frozen=True)
class Cores:
    """A host that reduces on its own cores, with a conventional NIC (section III).

    - ``link``: α, β and γ of the threads that communicate while the others compute.
    - ``lone_add``: γ of a single communicating thread, for which all others wait.
    - ``slowdown``: factor of the backward pass's time while threads communicate.

    Both γ include these threads' update of the weights.
    """

    link: Link
    lone_add: float
    slowdown: float

    def seconds(self, values: int, nodes: int, *, single_thread: bool) -> float:
        """Return the seconds of a ring all-reduce of ``values`` values."""
        add = self.lone_add if single_thread else self.link.add
        return ring(nodes, values * FLOAT_BITS / 8, Link(self.link.latency, self.link.byte, add))


@dataclass(frozen=True, kw_only=True)
class WorkerProfile:
    """Speeds of a worker's processor, memory and PCIe.

    - ``flops``: operations a second.
    - ``memory_bandwidth``: bytes a second.
    - ``pcie``: bit/s in each direction.
    - ``slowdown``: factor of the backward pass's time if some cores do other work.

    The defaults are the paper's worker (docs/systems/gradient-training.md) at a mini-batch of 448. It has 28
    cores, six channels of DDR4-2933, and PCIe Gen3 x8. A memory stream reaches three quarters of the channels'
    rate, and 81 % of PCIe are payload.
    Raises ValueError for a value that is not above 0.
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
        """Return the seconds of the forward pass of a layer with ``values`` weights."""
        return _FORWARD_FLOPS * values * batch / self.flops

    def backward(self, values: int, batch: int) -> float:
        """Return the seconds of a layer's backward pass: its gradient, and the derivative by its inputs."""
        return self.slowdown * _BACKWARD_FLOPS * values * batch / self.flops

    def update(self, values: int) -> float:
        """Return the seconds of memory traffic of an update with momentum."""
        return _UPDATE_BYTES * values / self.memory_bandwidth
