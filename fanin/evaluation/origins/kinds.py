"""Kinds of origin of a figure, and the rule that joins the origins of several figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class How(StrEnum):
    """Kind of a number's origin. A number that depends on several figures has the last kind in this order."""

    RTL = "RTL"  #: cycles or values of the emitted Verilog in simulation
    SYNTHESIS = "synthesis"  #: cells that yosys maps the emitted Verilog to
    GOLDEN = "golden model"  #: values of a model that RTL equals bit for bit
    TIMED = "time model held to RTL"  #: times of a model that a test holds to the RTL's cycles
    PLAN = "plan"  #: a choice of the planner or of the switch program's layout, from fanin's cost functions
    HOST = "this machine"  #: seconds of a library on the processor that measures
    QUOTED = "quoted"  #: a number of a paper, a standard or a data sheet, or a stated setting
    FITTED = "fitted"  #: an input chosen so that a model meets a number of the paper
    DERIVED_QUOTED = "derived from quoted"  #: follows from quoted inputs by algebra
    DERIVED = "derived from fitted"  #: follows from inputs by algebra; at least one input is fitted


INPUTS = (How.QUOTED, How.FITTED)
GIVEN = (*INPUTS, How.DERIVED_QUOTED, How.DERIVED)  # nothing in them is measured


@dataclass(frozen=True)
class Input:
    """A number that a model or a measurement is given.

    ``name``: as a reader sees it, unique. ``how``: quoted or fitted.
    """

    name: str
    how: How = How.QUOTED

    def __post_init__(self) -> None:
        if self.how not in INPUTS:
            raise ValueError(f"an input must be {' or '.join(INPUTS)}, not {self.how}")


@dataclass(frozen=True)
class Origin:
    """Origin of a figure: its kind and its inputs."""

    how: How
    inputs: tuple[Input, ...] = ()

    @property
    def text(self) -> str:
        """The inputs by kind: ``fitted: a; b. quoted: c``."""
        named = {kind: [each.name for each in self.inputs if each.how is kind] for kind in reversed(INPUTS)}
        return ". ".join(f"{kind}: {'; '.join(names)}" for kind, names in named.items() if names)


def derived(*inputs: Input) -> Origin:
    """Return the origin of a figure that only ``inputs`` determine."""
    fitted = any(each.how is How.FITTED for each in inputs)
    return Origin(How.DERIVED if fitted else How.DERIVED_QUOTED, inputs)


def joined(origins: Iterable[Origin]) -> Origin:
    """Return the origin of a number that is computed from figures of these origins; a single one stays.

    A number of inputs and derived figures alone is derived; an input beside a measured figure does not
    change the kind. Raises ValueError for no figure.
    """
    each = list(origins)
    if not each:
        raise ValueError("a number must be computed from one figure at least")
    if len(each) == 1:
        return each[0]
    inputs = tuple(dict.fromkeys(given for origin in each for given in origin.inputs))
    hows = [origin.how for origin in each if origin.how not in INPUTS]
    last = max(hows, key=list(How).index, default=How.DERIVED)
    return derived(*inputs) if last in GIVEN else Origin(last, inputs)
