"""``fanin.ps_train``: a model trained by an asynchronous parameter server over one-sided writes."""

from __future__ import annotations

from fanin.api.commands import Folder, PathLike, Repeatable, carried_out
from fanin.cli.output import PARAM_SERVER_RUN


class ParamServerRun(Folder):
    """A training, and the folder that ``fanin ps train`` writes."""

    mark = PARAM_SERVER_RUN.mark


def ps_train(
    data: PathLike = "digits",
    *,
    model: str = "lr",
    epochs: int | None = None,
    batch: int = 8,
    rate: float | None = None,
    decay: float | None = None,
    features: int | None = None,
    gamma: float | None = None,
    dtype: str = "float64",
    seed: int = 0,
    optimum: bool | None = None,
    algorithm: str = "wild",
    push_after: str | None = None,
    receivers: str = "barter",
    workers: int = 15,
    slots: int = 1,
    warm_up: int | None = None,
    servers: int = 1,
    on: str = "rtl",
    width: int = 512,
    costs: str = "design",
    sample_seconds: float | None = None,
    jitter: float = 0.1,
    stragglers: Repeatable | None = None,
    stop: Repeatable | None = None,
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    pcap: PathLike | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
    beside: Repeatable | None = None,
    output: PathLike | None = None,
) -> ParamServerRun:
    """Train with a parameter server in FPGAs, asynchronously (RDMA-wild) or in steps (Sync-DSGD).

    Arguments are the options of ``fanin ps train``; without ``output`` its folder is a temporary one. Raises
    InputError for bad arguments, CheckFailed where the hardware's result differs from the model's.

    Source: RDMA-wild; docs/systems/param-server-training.md.
    """
    return carried_out(ParamServerRun, ("ps", "train"), locals())
