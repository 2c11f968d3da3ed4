"""A software switch that executes P4_16 text, right or not at all (docs/reference/embedded.md)."""

from fanin.sim.switch.embedded.errors import P4Error, Refused, UndefinedRefused
from fanin.sim.switch.embedded.program import Program, Switch, load

__all__ = ["P4Error", "Program", "Refused", "Switch", "UndefinedRefused", "load"]
