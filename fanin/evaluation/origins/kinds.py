"""Kinds of origin of a figure, and the rule that joins the origins of several figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class OriginKind(StrEnum):
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


INPUTS = (OriginKind.QUOTED, OriginKind.FITTED)
UNMEASURED = (*INPUTS, OriginKind.DERIVED_QUOTED, OriginKind.DERIVED)


@dataclass(frozen=True)
class Input:
    """Input of a model or a measurement.

    - ``name``: unique description.
    - ``kind``: quoted or fitted.
    """

    name: str
    kind: OriginKind = OriginKind.QUOTED

    def __post_init__(self) -> None:
        if self.kind not in INPUTS:
            raise ValueError(f"an input must be {' or '.join(INPUTS)}, not {self.kind}")


@dataclass(frozen=True)
class Origin:
    """Origin of a figure: its kind and its inputs."""

    kind: OriginKind
    inputs: tuple[Input, ...] = ()

    @property
    def text(self) -> str:
        """Names of the inputs by kind, such as ``fitted: a; b. quoted: c``."""
        names_by_kind = {
            kind: [input_.name for input_ in self.inputs if input_.kind is kind] for kind in reversed(INPUTS)
        }
        return ". ".join(f"{kind}: {'; '.join(names)}" for kind, names in names_by_kind.items() if names)


def derived(*inputs: Input) -> Origin:
    """Return the origin of a figure that follows from ``inputs`` alone."""
    fitted = any(input_.kind is OriginKind.FITTED for input_ in inputs)
    return Origin(OriginKind.DERIVED if fitted else OriginKind.DERIVED_QUOTED, inputs)


def join_origins(origins: Iterable[Origin]) -> Origin:
    """Return the origin of a number that is computed from figures of these origins.

    A single origin is returned as it is. A number computed only from inputs and derived figures is derived. An
    input beside a measured figure does not change the kind. Raises ValueError without origins.
    """
    members = list(origins)
    if not members:
        raise ValueError("a number must be computed from one figure at least")
    if len(members) == 1:
        return members[0]
    inputs = tuple(dict.fromkeys(input_ for origin in members for input_ in origin.inputs))
    kinds = [origin.kind for origin in members if origin.kind not in INPUTS]
    last = max(kinds, key=list(OriginKind).index, default=OriginKind.DERIVED)
    return derived(*inputs) if last in UNMEASURED else Origin(last, inputs)
