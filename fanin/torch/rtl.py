"""What is carried out at the group's first rank: nodes in RTL, or the emitted switch program."""

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
_PATIENCE_NS = 1e8  # until a packet is sent again: links lose none, but may be slow
_TEXT_BYTES = 500  # of what the first rank tells the others: seconds, or an error


def _at_first_rank(wire: Wire, own: Float32, add: _Add) -> Sum:
    """``add`` gets all vectors, and gives what each rank gets, and the seconds.

    Raises DistBackendError at all ranks where it fails.
    """
    vectors, sums, said = wire.gather(own), None, ""
    if vectors:
        try:
            sums, seconds = add(vectors)
            said = repr(seconds)
        except Exception as error:  # whatever it is, the other ranks wait for it
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
    """The nodes of all ranks in a co-simulation; a rank gets what its own node has stored."""

    def __init__(self, options: Options, wire: Wire, *, seconds: float):
        self._wire = wire
        nodes = Nodes(options.ring, wire.size, options.link)
        self._service = RingService(nodes, seconds=seconds)  # begins with its first vectors

    def all_reduce(self, own: Float32) -> Sum:
        """The nodes' sum; at the first one the simulator is built, unless it is kept from before."""
        return _at_first_rank(self._wire, own, self._add)

    def _add(self, vectors: list[Float32]) -> tuple[list[Float32], float]:
        served = self._service.all_reduce(vectors)
        return served.sums, served.cycles / (CLOCK_MHZ * 1e6)

    def close(self) -> None:
        """End the simulation."""
        self._service.close()


class EmittedSwitch:
    """The emitted program in the embedded switch, between the golden model's workers."""

    def __init__(self, options: Options, wire: Wire):
        self._options, self._wire = options, wire

    def all_reduce(self, own: Float32) -> Sum:
        """The largest exponent first, then the integers; each time the switch has forgotten the last."""
        return _at_first_rank(self._wire, own, self._add)

    def _add(self, vectors: list[Float32]) -> tuple[list[Float32], float]:
        workers = len(vectors)
        sums, seconds = self._through([scaled.places(scaled.exponent(own)) for own in vectors])
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
        """There is nothing."""
