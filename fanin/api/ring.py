"""``fanin.ring_train``: training over NICs that add gradients in a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fanin.api.folder import Folder, PathLike, install_advice, run_in_folder
from fanin.api.signature import with_options
from fanin.ring.run.options import RingOptions
from fanin.runs.output import RING_RUN

if TYPE_CHECKING:  # not needed by every function
    from fanin.ring.run.backend import Result


class RingRun(Folder):
    """A training, and the folder that ``fanin ring train`` writes."""

    mark = RING_RUN.mark
    result: Result | None = None  #: epochs, last weights, times of each host, counters of each node


@with_options(RingOptions)
def ring_train(data: PathLike | None = None, **options: Any) -> RingRun:
    """Train a network on nodes whose NICs add gradients (AI Smart NIC), or with INCEPTIONN's hosts and NICs.

    Options are those of ``fanin ring train``; without ``output`` the run's folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed if a step is not bit-exact.

    Source: AI Smart NIC; INCEPTIONN; docs/systems/ring-training.md.
    """
    with install_advice():
        from fanin.ring.run.execute import execute

    return run_in_folder(RingRun, ("ring", "train"), RingOptions, {"data": data, **options}, execute)
