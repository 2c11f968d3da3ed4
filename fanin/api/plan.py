"""``fanin.plan``: placement of a CNN's layers on the devices of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.api.folder import Folder, PathLike, install_advice, run_in_folder
from fanin.api.signature import with_options
from fanin.cnn.plan.options import PlanOptions
from fanin.runs.output import PLAN, SWEEP, is_kind

if TYPE_CHECKING:  # not needed by every function
    from fanin.cnn.plan.execute import SweepPoint


class Planned(Folder):
    """Plan, and the folder that ``fanin plan`` writes; an argument of ``fanin.cluster_build``."""

    mark = PLAN.mark
    result: list[SweepPoint]  #: devices, parts and the plan itself; one entry

    @property
    def throughput(self) -> float:
        """Frames per second while frames stream."""
        return float(self.values["throughput"])

    @property
    def bound(self) -> float:
        """Proven upper bound of the throughput of all plans."""
        return float(self.values["bound"])

    @property
    def limit(self) -> dict[str, Any]:
        """Resource that limits the throughput: of a device, and of a layer if it belongs to one."""
        return dict(self.values["limit"])


class Sweep(Folder):
    """Plans for several numbers of devices, or of parts in model parallelism."""

    mark = SWEEP.mark
    result: list[SweepPoint]  #: devices, parts and the plan itself, of each plan

    @property
    def plans(self) -> list[dict[str, Any]]:
        """Row per plan: devices, mp, throughput, bound, folder."""
        return list(self.values["plans"])


def _opened(folder: Path, said: str) -> Planned | Sweep:
    return (Sweep if is_kind(folder, SWEEP) else Planned)(folder, said)


@with_options(PlanOptions, required=("model", "cluster"), excluded=("check",))
def plan(model: PathLike, cluster: PathLike, **options: Any) -> Planned | Sweep:
    """Place a CNN's layers on a cluster's devices for the highest training throughput; a sweep for ``devices``.

    Options are those of ``fanin plan``; without ``output`` the plan's folder is a temporary one. Several values
    of ``mp`` also make a sweep. Raises InputError if no plan is possible.

    Source: NADA, section IV; docs/systems/planner.md.
    """
    with install_advice():
        from fanin.cnn.plan.execute import execute

    return run_in_folder(
        _opened, ("plan",), PlanOptions, {"model": model, "cluster": cluster, **options}, execute
    )
