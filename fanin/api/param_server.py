"""``fanin.ps_train``: training by an asynchronous parameter server over one-sided writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fanin.api.folder import Folder, PathLike, install_advice, run_in_folder
from fanin.api.signature import with_options
from fanin.param_server.run.options import BUNDLED, ParamServerOptions
from fanin.runs.output import PARAM_SERVER_RUN

if TYPE_CHECKING:  # not needed by every function
    from fanin.sim.param_server.training import Outcome


class ParamServerRun(Folder):
    """A training, and the folder that ``fanin ps train`` writes."""

    mark = PARAM_SERVER_RUN.mark
    #: Epochs, w, spans of time and counts of gradients: of the run, then of those beside it.
    result: list[Outcome]


@with_options(ParamServerOptions)
def ps_train(data: PathLike = BUNDLED, **options: Any) -> ParamServerRun:
    """Train with a parameter server in FPGAs, asynchronously (RDMA-wild) or in steps (Sync-DSGD).

    Options are those of ``fanin ps train``; without ``output`` the run's folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed if gradients were lost or applied twice, or the model diverged.

    Source: RDMA-wild; docs/systems/param-server-training.md.
    """
    with install_advice():
        from fanin.param_server.run.execute import execute

    arguments = {"data": data, **options}
    return run_in_folder(ParamServerRun, ("ps", "train"), ParamServerOptions, arguments, execute)
