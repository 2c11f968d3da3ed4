"""Adders that run on the group's first rank: nodes in RTL, or the emitted switch program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.distributed as dist

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import SPECIAL_EXPONENT
from fanin.golden import scaled
from fanin.sim.network import NetworkConfig
from fanin.sim.ring.service import Nodes, RingService
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.make import make_switch
from fanin.torch.adders import Float32, Sum
from fanin.torch.options import Options
from fanin.torch.wire import Wire

_Add = Callable[[list[Float32]], tuple[list[Float32], float]]
_PATIENCE_NS = 1e8  # until a packet is sent again: links lose no packets, but may be slow
_TEXT_BYTES = 500  # of the first rank's message: seconds, or an error


def _at_first_rank(wire: Wire, own: Float32, add: _Add) -> Sum:
    """Call ``add`` on the first rank with all vectors; it returns each rank's result, and the seconds.

    Raises DistBackendError on all ranks if ``add`` fails.
    """
    vectors, sums, said = wire.gather(own), None, ""
    if vectors:
        try:
            sums, seconds = add(vectors)
            said = repr(seconds)
        except Exception as error:  # any failure must reach the other ranks, which wait
            said = "failed: " + " ".join((str(error) or type(error).__name__).splitlines())
    told = np.zeros(_TEXT_BYTES, np.uint8)
    text = said.encode()[:_TEXT_BYTES]
    told[: len(text)] = np.frombuffer(text, np.uint8)
    told = wire.scatter([told] * wire.size if vectors else None, told)
    said = told.tobytes().rstrip(b"\0").decode(errors="replace")
    if said.startswith("failed"):
        raise dist.DistBackendError(f"the simulation at the group's first rank {said}")
    return Sum(wire.scatter(sums, own), float(said))


class RtlRing:
    """Nodes of all ranks in a co-simulation; each rank gets the values that its own node stored."""

    def __init__(self, options: Options, wire: Wire, *, seconds: float):
        self._wire = wire
        nodes = Nodes(options.ring, wire.size, options.link)
        self._service = RingService(nodes, seconds=seconds)  # starts with the first vectors

    def all_reduce(self, own: Float32) -> Sum:
        """Return the nodes' sum; the first call builds the simulator unless it is cached."""
        return _at_first_rank(self._wire, own, self._add)

    def _add(self, vectors: list[Float32]) -> tuple[list[Float32], float]:
        served = self._service.all_reduce(vectors)
        return served.sums, served.cycles / (CLOCK_MHZ * 1e6)

    def close(self) -> None:
        """End the simulation."""
        self._service.close()


class EmittedSwitch:
    """Emitted program in the embedded switch, with the golden model's workers."""

    def __init__(self, options: Options, wire: Wire):
        self._options, self._wire = options, wire

    def all_reduce(self, own: Float32) -> Sum:
        """Return the sum: largest exponent first, then integers, each with a newly started switch."""
        return _at_first_rank(self._wire, own, self._add)

    def _add(self, vectors: list[Float32]) -> tuple[list[Float32], float]:
        workers = len(vectors)
        sums, seconds = self._through([scaled.one_hot(scaled.exponent(own)) for own in vectors])
        largest = scaled.largest(sums)
        if largest == SPECIAL_EXPONENT:
            return [scaled.not_finite(vectors[0].size)] * workers, seconds
        sums, more = self._through([scaled.integers(own, largest, workers) for own in vectors])
        return [scaled.floats(sums, largest, workers)] * workers, seconds + more

    def _through(self, given: list[scaled.Int32]) -> tuple[scaled.Int32, float]:
        program, network = (
            self._options.program(len(given)),
            NetworkConfig(link=self._options.link, timeout_ns=_PATIENCE_NS),
        )
        switch = make_switch(len(given), kind=network.switch, config=program)
        reduced = allreduce(np.stack(given), switch=switch, program=program, network=network)
        return reduced.sums, reduced.time_ns * 1e-9

    def close(self) -> None:
        """Do nothing."""
