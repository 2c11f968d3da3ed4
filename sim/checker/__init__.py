"""Model checker of the aggregation protocol, the reliable link and the parameter server's writes."""

from collections.abc import Callable
from functools import partial

from fanin.sim.checker.protocol import ProtocolModel
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds
from fanin.wire import aggregation as wire

# Protocols by their names in ``fanin p4 check``. Each is built with ``workers``, ``slots`` and ``rounds``.
PROTOCOLS: dict[str, Callable[..., ProtocolModel]] = {
    **{protocol.value: partial(Rounds, protocol=protocol) for protocol in wire.Protocol},
    "published": Published,
}
