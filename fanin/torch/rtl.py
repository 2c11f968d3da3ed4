"""Nodes in RTL that add the ranks' vectors up."""

from __future__ import annotations

import numpy as np
import torch.distributed as dist

from fanin.clock import CLOCK_MHZ
from fanin.errors import InputError, ToolFailed
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.ring.service import Nodes, RingService
from fanin.torch.adders import Float32, Sum
from fanin.torch.options import Options
from fanin.torch.wire import Wire

_TEXT_BYTES = 500  # of an error that rank 0 tells the others


class RtlRing:
    """The nodes of all ranks, in a co-simulation that rank 0 starts; a rank gets what its node has stored."""

    def __init__(self, options: Options, wire: Wire, *, seconds: float):
        self._wire = wire
        nodes = Nodes(options.ring, wire.size, options.link)
        self._service = None if wire.rank else RingService(nodes, seconds=seconds)

    def all_reduce(self, own: Float32) -> Sum:
        """The nodes' sum; at the first one the simulator is built, unless it is kept from before."""
        vectors, sums, cycles, failure = self._wire.gather(own), None, 0, ""
        if self._service and vectors:
            try:
                sums, cycles = self._service.all_reduce(vectors)
            except (InputError, SimulationFailed, ToolFailed) as error:
                failure = " ".join(str(error).split("\n"))
        told = np.zeros(_TEXT_BYTES, np.uint8)
        text = (failure or f"{cycles}").encode()[:_TEXT_BYTES]
        told[: len(text)] = np.frombuffer(text, np.uint8)
        told = self._wire.scatter([told] * self._wire.size if vectors else None, told)
        said = told.tobytes().rstrip(b"\0").decode(errors="replace")
        if not said.isdecimal():
            raise dist.DistBackendError(f"the nodes' simulation, at the group's first rank: {said}")
        return Sum(self._wire.scatter(sums, own), int(said) / (CLOCK_MHZ * 1e6))

    def close(self) -> None:
        """End the simulation."""
        if self._service:
            self._service.close()
