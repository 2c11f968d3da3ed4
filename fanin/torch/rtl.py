"""Adders that run on the group's first rank: nodes in RTL, or the emitted switch program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch.distributed as dist

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import SPECIAL_EXPONENT
from fanin.golden import scaled
from fanin.sim.network import NetworkConfig
from fanin.sim.ring.service import Nodes, RingService
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.make import make_switch
from fanin.torch.adders import Float32, Sum, Vector
from fanin.torch.halves import HalfFormat
from fanin.torch.options import Options
from fanin.torch.peers import peer_text
from fanin.torch.wire import Wire

_Add = Callable[[list[Vector]], tuple[list[Vector], float]]
_TIMEOUT_NS = 1e8  # until a packet is sent again: links lose no packets, but may be slow
_MESSAGE_BYTES = 500  # maximum size of the first rank's message: seconds, or an error


def _add_at_first_rank(wire: Wire, vector: Vector, add: _Add) -> Sum:
    """Return this rank's sum of all ranks' vectors, which ``add`` computes on the first rank.

    ``add`` returns each rank's sum, and the seconds. Raises DistBackendError on all ranks if ``add`` fails.
    """
    vectors, sums, message = wire.gather(vector), None, ""
    if vectors:
        try:
            sums, seconds = add(vectors)
            message = repr(seconds)
        except Exception as error:  # any failure must reach the other ranks, which wait
            message = "failed: " + " ".join((str(error) or type(error).__name__).splitlines())
    padded = np.zeros(_MESSAGE_BYTES, np.uint8)
    encoded = message.encode()[:_MESSAGE_BYTES]
    padded[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    padded = wire.scatter([padded] * wire.size if vectors else None, padded)
    message = peer_text(padded.tobytes().rstrip(b"\0"))
    if message.startswith("failed"):
        raise dist.DistBackendError(f"the simulation at the group's first rank {message}")
    return Sum(wire.scatter(sums, vector), float(message))


class RtlRing:
    """Nodes of all ranks in a co-simulation; each rank gets the values that its own node stored.

    Each format of values in memory has its own nodes, which are built at their first vectors.
    """

    def __init__(self, options: Options, wire: Wire, *, seconds: float):
        self._options, self._wire, self._seconds = options, wire, seconds
        self._services: dict[HalfFormat | None, RingService] = {}

    def all_reduce(self, vector: Vector, tensor: HalfFormat | None = None) -> Sum:
        """Return the nodes' sum; the first call with a ``tensor`` builds the simulator unless it is cached."""

        def add(vectors: list[Vector]) -> tuple[list[Vector], float]:
            if tensor not in self._services:
                config = replace(self._options.ring, tensor=tensor)
                nodes = Nodes(config, self._wire.size, self._options.link)
                self._services[tensor] = RingService(nodes, seconds=self._seconds)
            operation = self._services[tensor].all_reduce(vectors)
            return operation.sums, operation.cycles / (CLOCK_MHZ * 1e6)

        return _add_at_first_rank(self._wire, vector, add)

    def close(self) -> None:
        """End the simulations."""
        for service in self._services.values():
            service.close()


class EmittedSwitch:
    """Emitted program in the embedded switch, with the golden model's workers."""

    def __init__(self, options: Options, wire: Wire):
        self._options, self._wire = options, wire

    def all_reduce(self, vector: Vector, tensor: HalfFormat | None = None) -> Sum:
        """Return the sum: the common exponent first, then integers, each with a newly started switch.

        ``tensor``: None.
        """
        assert tensor is None
        return _add_at_first_rank(self._wire, vector, self._add)

    def _add(self, vectors: list[Float32]) -> tuple[list[Float32], float]:
        workers = len(vectors)
        sums, seconds = self._add_integers(
            [scaled.one_hot(scaled.largest_exponent(vector)) for vector in vectors]
        )
        exponent = scaled.common_exponent(sums)
        if exponent == SPECIAL_EXPONENT:
            return [scaled.not_finite(vectors[0].size)] * workers, seconds
        sums, sum_seconds = self._add_integers(
            [scaled.integers(vector, exponent, workers) for vector in vectors]
        )
        return [scaled.floats(sums, exponent, workers)] * workers, seconds + sum_seconds

    def _add_integers(self, integers: list[scaled.Int32]) -> tuple[scaled.Int32, float]:
        """Return the sum of the workers' integers by a newly started switch, and the simulated seconds."""
        program = self._options.program(len(integers))
        network = NetworkConfig(link=self._options.link, timeout_ns=_TIMEOUT_NS)
        switch = make_switch(len(integers), kind=network.switch, config=program)
        reduced = allreduce(np.stack(integers), switch=switch, program=program, network=network)
        return reduced.sums, reduced.time_ns * 1e-9

    def close(self) -> None:
        """Do nothing."""
