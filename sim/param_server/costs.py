"""Costs of the asynchronous run: times of workers, links and server.

docs/systems/param-server-time.md has their sources.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fanin.rdma.facts import MAX_PAYLOAD
from fanin.wire.ethernet import AROUND_FRAME
from fanin.wire.rdma import ICRC_BYTES, Opcode, header_bytes


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Compute time of a worker for one gradient.

    - ``per_sample``: seconds per sample of its batch.
    - ``jitter``: standard deviation of the logarithm of a log-normal factor with mean 1.
    - ``straggle_probability``: probability of an additional factor ``straggle_factor``.
    - ``straggle_factor``: factor of a straggling gradient.
    - ``slowdowns``: constant factors by worker.

    Raises ValueError that names parameter, value and limit.
    """

    per_sample: float
    jitter: float = 0.0
    straggle_probability: float = 0.0
    straggle_factor: float = 1.0
    slowdowns: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("per_sample", "jitter", "straggle_probability"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, not {getattr(self, name)!r}")
        if self.straggle_probability > 1:
            raise ValueError(f"straggle_probability must be at most 1, not {self.straggle_probability!r}")
        for name, factor in (
            ("straggle_factor", self.straggle_factor),
            *(("slowdowns", f) for f in self.slowdowns.values()),
        ):
            if not 0 < factor < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {factor!r}")

    def seconds(self, worker: int, batch: int, rng: np.random.Generator) -> float:
        """Return the seconds of one gradient."""
        factor = self.slowdowns.get(worker, 1.0)
        factor *= math.exp(self.jitter * rng.standard_normal() - self.jitter**2 / 2)
        if rng.random() < self.straggle_probability:
            factor *= self.straggle_factor
        return self.per_sample * batch * factor


PACKET_BYTES = MAX_PAYLOAD
#: Bytes on a link in addition to a packet's payload: preamble, headers, ICRC, FCS and gap.
PACKET_OVERHEAD = AROUND_FRAME + header_bytes(Opcode.WRITE_MIDDLE) + ICRC_BYTES


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of everything except computing, in seconds, or in seconds per byte.

    - ``byte``: per byte on a link, in each direction.
    - ``latency``: from a write's last byte on its link until the byte is visible in the receiver's memory.
    - ``update``: per byte, of updating w with one gradient.
    - ``message``: per write on its link.
    - ``packet``: per packet of a write on its link.
    - ``first``: added to ``latency`` per byte of a write's first packet, which is stored before it is
      forwarded.
    - ``last``: added to ``latency`` per byte of a write's last packet, which is stored before it is forwarded.
    - ``turnaround``: least time from the beginning of one update to the next.
    - ``landing``: from a row's last word written to its first word read back from memory.
    - ``post``: of a worker's host, from one server's write of a gradient to the next server's.
    - ``copy``: per byte, of a worker that takes the model out of its buffer.
    - ``one_pass``: the server pushes w while it updates it. Otherwise it updates with all new gradients and
      then pushes to all their workers, as in algorithm 1.
    """

    byte: float
    latency: float
    update: float
    message: float = 0.0
    packet: float = 0.0
    first: float = 0.0
    last: float = 0.0
    turnaround: float = 0.0
    landing: float = 0.0
    post: float = 0.0
    copy: float = 0.0
    one_pass: bool = False

    def write(self, size: float) -> float:
        """Return the seconds that a write of ``size`` bytes occupies its link."""
        return self.message + sum(self.packets(size))

    def packets(self, size: float) -> list[float]:
        """Return the seconds of each packet of a write of ``size`` bytes."""
        full_packets = math.ceil(size / PACKET_BYTES) - 1
        sizes = [PACKET_BYTES] * full_packets + [size - full_packets * PACKET_BYTES]
        return [size * self.byte + self.packet for size in sizes]

    def arrival(self, size: float) -> float:
        """Return the seconds from the end of a write on its link until its last byte is in memory."""
        last_packet = size % PACKET_BYTES or PACKET_BYTES
        return self.latency + min(size, PACKET_BYTES) * self.first + last_packet * self.last


_ROUND_TRIP = 20e-6  # seconds; above any round trip


def timeout_seconds(writes: int, seconds: float) -> float:
    """Return the timeout of a write in seconds: twice the time of ``writes`` on one link, plus a round trip.

    ``seconds``: time of one write on the link.
    """
    return _ROUND_TRIP + 2 * writes * seconds


#: 100 Gb/s, as in the paper and in fanin's NIC.
LINK_BYTE = 1 / 12.5e9
_CYCLE = 4e-9
WORD_BITS = 512
_WORD = WORD_BITS // 8

#: fanin's server and NICs of 512 bits at 250 MHz, links of 100 Gb/s and 100 ns, a switch of 400 ns, and
#: memories of 64 cycles. The server updates a word per cycle in the pass that pushes it. Fitted to the RTL
#: (docs/systems/param-server-time.md, "Time of the RTL").
DESIGN = Costs(
    byte=LINK_BYTE,
    packet=PACKET_OVERHEAD * LINK_BYTE,
    latency=325 * _CYCLE,
    first=4.9 * _CYCLE / _WORD,
    last=0.55 * _CYCLE / _WORD,
    update=_CYCLE / _WORD,
    turnaround=168 * _CYCLE,
    landing=138 * _CYCLE,
    post=86 * _CYCLE,
    copy=1 / 20e9,
    one_pass=True,
)

#: Only computing and the update take time: a single node has no links.
COMPUTE_ONLY = Costs(byte=0.0, latency=0.0, update=0.0)
