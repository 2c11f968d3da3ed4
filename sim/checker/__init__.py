"""The model checker of the aggregation protocol."""

from collections.abc import Callable
from functools import partial

from fanin import wire
from fanin.sim.checker.protocol import Protocol
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds

# By the names of ``fanin p4 check``; each takes ``workers``, ``slots`` and ``rounds``.
PROTOCOLS: dict[str, Callable[..., Protocol]] = {
    **{protocol.value: partial(Rounds, protocol=protocol) for protocol in wire.Protocol},
    "published": Published,
}
