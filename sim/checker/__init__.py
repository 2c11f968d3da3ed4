"""The model checker of the aggregation protocol."""

from fanin.sim.checker.protocol import Protocol
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds

# By the names of ``fanin p4 check``.
PROTOCOLS: dict[str, type[Protocol]] = {"p4sgd": Rounds, "published": Published}
