"""How long each part of the asynchronous run takes: workers, links, server.

Their sources: docs/systems/param-server-time.md.
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
    """How long a worker takes for a gradient.

    ``per_sample`` seconds for each sample of its batch, times a log-normal factor of mean 1, ``jitter`` its
    logarithm's standard deviation; with probability ``straggle_odds`` also times ``straggle_factor``. ``slow``
    has factors of workers that are always slower. Raises ValueError that names parameter, value and limit.
    """

    per_sample: float
    jitter: float = 0.0
    straggle_odds: float = 0.0
    straggle_factor: float = 1.0
    slow: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("per_sample", "jitter", "straggle_odds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, not {getattr(self, name)!r}")
        if self.straggle_odds > 1:
            raise ValueError(f"straggle_odds must be at most 1, not {self.straggle_odds!r}")
        for name, factor in (
            ("straggle_factor", self.straggle_factor),
            *(("slow", f) for f in self.slow.values()),
        ):
            if not 0 < factor < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {factor!r}")

    def seconds(self, worker: int, batch: int, rng: np.random.Generator) -> float:
        """Of one gradient."""
        factor = self.slow.get(worker, 1.0)
        factor *= math.exp(self.jitter * rng.standard_normal() - self.jitter**2 / 2)
        if rng.random() < self.straggle_odds:
            factor *= self.straggle_factor
        return self.per_sample * batch * factor


PACKET_BYTES = MAX_PAYLOAD
#: What is on a link beside a packet's payload: preamble, headers, ICRC, FCS and gap.
PACKET_OVERHEAD = AROUND_FRAME + header_bytes(Opcode.WRITE_MIDDLE) + ICRC_BYTES


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What everything but computing takes, in seconds, and in seconds a byte.

    ``byte``: of a link, each way; ``message`` and ``packet``: of any write, and of each of its packets, on its
    link; ``latency``: from a write's last byte on its link to where it is seen, with ``first`` and ``last`` for
    each byte of its first packet and of its last one, which are stored on the way before they are sent on;
    ``update``: of w, for one gradient; ``turnaround``: at least, from the beginning of one update to the next;
    ``landing``: from a row's last word to its first one, read back from memory; ``post``: of a worker's host,
    from one server's write of a gradient to the next one's; ``copy``: of w, when a worker takes the model out
    of its buffer. With ``one_pass`` the server pushes w while it updates it; without, it updates with all new
    gradients and then pushes to all their workers, as in algorithm 1.
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
        """Seconds that a write of ``size`` bytes occupies its link."""
        return self.message + sum(self.packets(size))

    def packets(self, size: float) -> list[float]:
        """Seconds of each of its packets."""
        whole = math.ceil(size / PACKET_BYTES) - 1
        sizes = [PACKET_BYTES] * whole + [size - whole * PACKET_BYTES]
        return [size * self.byte + self.packet for size in sizes]

    def arrival(self, size: float) -> float:
        """Seconds from the end of that to where its last byte is seen."""
        rest = size % PACKET_BYTES or PACKET_BYTES
        return self.latency + min(size, PACKET_BYTES) * self.first + rest * self.last


_ROUND_TRIP = 20e-6  # seconds, and more than that


def patience(writes: int, seconds: float) -> float:
    """Seconds after which a write is sent again: twice what all of them take on one link, and a round trip."""
    return _ROUND_TRIP + 2 * writes * seconds


#: 100 Gb/s, as in the paper and in fanin's NIC.
LINK_BYTE = 1 / 12.5e9
_CYCLE = 4e-9
WORD_BITS = 512
_WORD = WORD_BITS // 8

#: fanin's server and NICs of 512 bits at 250 MHz, links of 100 Gb/s and 100 ns, a switch of 400 ns, memories of
#: 64 cycles: a word a cycle in the same pass as the push. Fitted to the RTL
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

#: Nothing but computing and the update: one node alone has no links.
ALONE = Costs(byte=0.0, latency=0.0, update=0.0)
