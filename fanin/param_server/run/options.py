"""Options of ``fanin ps train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.base.limits import MAX_SEED
from fanin.param_server.facts import (
    MAX_SERVERS,
    MAX_SLOTS,
    MODELS,
    WIDTHS,
    Algorithm,
    ParamServerConfig,
    PushAfter,
    Receivers,
)
from fanin.rdma.facts import MAX_QUEUE_PAIRS
from fanin.runs.option import OUTPUT, FileUse, Group, RunOptions, Trait, option
from fanin.runs.shared_options import fault, images
from fanin.runs.wave import WaveOptions

BUNDLED = "digits"  # as in fanin.sim.learning.workloads, whose import loads scikit-learn

RTL = Trait("RTL")
RANDOM_FEATURES = Trait("random features")

_DATA = Group("")
_MODEL = Group("model")
_SERVERS = Group("parameter server")
_TIME = Group("time of the workers")
_NETWORK = Group("network, of --on rtl")
_OF_MODEL = "the model's"


@dataclass(frozen=True, kw_only=True)
class ParamServerOptions(WaveOptions, RunOptions):
    """Options of ``fanin ps train`` and ``fanin.ps_train``."""

    data: str = images(_DATA)

    model: str = option(
        _MODEL,
        MODELS[0],
        "softmax regression, the same on random Fourier features, or 128 hidden units",
        choices=MODELS,
    )
    epochs: int | None = option(
        _MODEL, None, "passes over the training samples", "N", low=1, high=10**6, default_text=_OF_MODEL
    )
    batch: int = option(_MODEL, 8, "samples of a worker's mini-batch", "B", changeable=True)
    lr: float | None = option(
        _MODEL,
        None,
        "learning rate α",
        "A",
        low=1e-9,
        high=1e9,
        default_text=_OF_MODEL,
        aliases=("rate",),
        changeable=True,
    )
    decay: float | None = option(
        _MODEL, None, "λ: adds λ/2 · |w|² to the loss", "L", low=0, high=1e9, default_text=_OF_MODEL
    )
    features: int | None = option(
        _MODEL,
        None,
        "random features of lr-rff",
        "D",
        low=1,
        high=10**6,
        default_text=_OF_MODEL,
        trait=RANDOM_FEATURES,
    )
    gamma: float | None = option(
        _MODEL,
        None,
        "γ of lr-rff's Gaussian kernel",
        "G",
        low=1e-9,
        high=1e9,
        default_text=_OF_MODEL,
        trait=RANDOM_FEATURES,
    )
    dtype: str = option(
        _MODEL, "float64", "number format of the workers", choices=("float64", "float32"), changeable=True
    )
    seed: int = option(_MODEL, 0, "seed of split, shuffle, times and faults", "N", low=0, high=MAX_SEED)
    optimum: bool | None = option(
        _MODEL,
        None,
        "find w* of a convex model, for figure 8's measures",
        default_text="on the digits; MNIST takes long",
    )

    algorithm: Algorithm = option(
        _SERVERS, Algorithm.WILD, "update with each gradient as it arrives, or wait for all", changeable=True
    )
    push_after: PushAfter | None = option(
        _SERVERS,
        None,
        "wild: push w after every gradient, or as in the paper after a scan of all slots, to the workers whose "
        "gradients it found",
        default_text=f"{PushAfter.GRADIENT}, of --costs cluster {PushAfter.SCAN}",
        changeable=True,
    )
    receivers: Receivers = option(
        _SERVERS,
        Receivers.BARTER,
        "wild: push w to the workers whose gradients were added since the last push, or to all workers",
        changeable=True,
    )
    workers: int = option(
        _SERVERS, ParamServerConfig.workers, "workers", "N", low=1, high=MAX_QUEUE_PAIRS, changeable=True
    )
    slots: int = option(
        _SERVERS,
        ParamServerConfig.slots,
        "gradients of a worker in flight",
        "K",
        low=1,
        high=MAX_SLOTS,
        changeable=True,
    )
    warm_up: int | None = option(
        _SERVERS,
        None,
        "first epochs, in which a worker uses one slot because w changes fast",
        "E",
        low=0,
        high=10**6,
        default_text=_OF_MODEL,
        changeable=True,
    )
    servers: int = option(
        _SERVERS,
        ParamServerConfig.servers,
        "servers, with a shard of w each",
        "S",
        low=1,
        high=MAX_SERVERS,
        changeable=True,
    )
    on: str = option(
        _SERVERS, "rtl", "run in RTL or on the event model", choices=("rtl", "model"), training=False
    )
    width: int = option(
        _SERVERS,
        ParamServerConfig.width,
        "with --on rtl: bits of a word; fewer bits simulate faster and transfer slower",
        choices=WIDTHS,
    )

    costs: str = option(
        _TIME,
        "design",
        "times of everything but computing: fanin's hardware, or the paper's cluster (needs --on model)",
        choices=("design", "cluster"),
        changeable=True,
    )
    sample_seconds: float | None = option(
        _TIME,
        None,
        "time to compute a sample",
        "T",
        low=0,
        high=3600,
        default_text="that of the paper's table 2",
        changeable=True,
    )
    jitter: float = option(
        _TIME, 0.1, "σ of a gradient's time, log-normal, mean 1", "J", low=0, high=10, changeable=True
    )
    stragglers: tuple[str, ...] | None = option(
        _TIME,
        None,
        "3:2.5: worker 3 always takes 2.5 times as long; 5%:4: any gradient 4 times, in 5 of 100 cases",
        "WHO:TIMES,…",
        changeable=True,
    )
    stop: tuple[str, ...] | None = option(
        _TIME, None, "4:0.02: worker 4 stops answering after 0.02 simulated seconds", "WORKER:T,…"
    )

    drop: float = fault(_NETWORK, RTL)
    duplicate: float = fault(_NETWORK, RTL)
    reorder: float = fault(_NETWORK, RTL)
    pcap: Path | None = option(
        _NETWORK,
        None,
        "write all frames to this file",
        "FILE",
        file_use=FileUse.CAPTURE,
        trait=RTL,
        training=False,
    )

    beside: tuple[str, ...] | None = option(
        OUTPUT,
        None,
        "train again with changed options, and show both; algorithm=sync; repeatable",
        "NAME=VALUE,…",
    )
    output: Path = option(
        OUTPUT, Path("runs/ps"), "the run's folder", "DIR", short="-o", file_use=FileUse.OUTPUT
    )
