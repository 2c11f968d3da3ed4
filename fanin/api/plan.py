"""``fanin.plan``: a CNN's layers on the devices of a cluster."""

from __future__ import annotations

from typing import Any

from fanin.api.commands import Folder, PathLike, carried_out
from fanin.cli.output import PLAN, SWEEP
from fanin.cli.plan import factors


class Planned(Folder):
    """A plan, and the folder that ``fanin plan`` writes; ``fanin.cluster_build`` takes it."""

    mark = PLAN.mark

    @property
    def throughput(self) -> float:
        """Frames per second while frames stream."""
        return float(self.values["throughput"])

    @property
    def bound(self) -> float:
        """No plan reaches more."""
        return float(self.values["bound"])

    @property
    def limit(self) -> dict[str, Any]:
        """What keeps the rate down: a resource of a device, and of a layer where it is a layer's."""
        return dict(self.values["limit"])


class Sweep(Folder):
    """Plans for several numbers of devices, or of parts of model parallelism."""

    mark = SWEEP.mark

    @property
    def plans(self) -> list[dict[str, Any]]:
        """A row for each: devices, mp, throughput, bound, folder."""
        return list(self.values["plans"])


def plan(
    model: PathLike,
    cluster: PathLike,
    *,
    output: PathLike | None = None,
    mp: str | int = "1",
    devices: str | int | None = None,
    batch: int = 256,
    time_limit: float | None = None,
    gap: float = 0.5,
    workers: int = 2,
    seed: int = 0,
) -> Planned | Sweep:
    """Place a CNN's layers on a cluster's devices for the highest training throughput; a sweep for ``devices``.

    Arguments are the options of ``fanin plan``; without ``output`` its folder is a temporary one. Raises
    InputError where no plan is possible. Several values of ``mp`` make a sweep, too.

    Source: NADA, section IV; docs/systems/planner.md.
    """
    if devices is not None or len(factors(str(mp))) > 1:
        return carried_out(Sweep, ("plan",), locals())
    return carried_out(Planned, ("plan",), locals())
