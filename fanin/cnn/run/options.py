"""Options of ``fanin cluster build``, ``fanin cluster run`` and ``fanin cluster verify``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.base.limits import MAX_SEED
from fanin.runs.option import OUTPUT, REQUIRED, FileUse, Group, RunOptions, Trait, option
from fanin.runs.output import PCAP_FILE
from fanin.runs.shared_options import fault, images
from fanin.runs.wave import WaveOptions

LINKS = (RELIABLE, PUBLISHED) = ("reliable", "published")
ENCAPS = ("l2", "udp")  # by fanin.wire.ethernet
ARITHMETICS = ("c", "rtl")  # values of fanin.sim.cosim.arrays.Arith, whose import would slow --help down
PLACES = ("rtl", "golden")  # by fanin.cnn.run.machine

CONNECTIONS = Trait("several devices")
FRAMES = Trait("frames between devices in RTL")

_PLACE = Group("")  # options that the help lists without a title
_CONNECTIONS = Group("connections, of several devices")
_TRAINING = Group("training")
_MACHINE = Group("machine")
_NETWORK = Group("network, of several devices with --on rtl")
_CHECKPOINTS = Group("checkpoints", training=False)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(RunOptions):
    """Options of ``fanin cluster build`` and ``fanin.cluster_build``."""

    plan: Path = option(
        _PLACE, REQUIRED, "the folder of fanin plan", "PLAN", positional=True, file_use=FileUse.INPUT
    )
    output: Path = option(_PLACE, REQUIRED, "the build's folder", "BUILD", short="-o", file_use=FileUse.OUTPUT)
    verilog: bool = option(_PLACE, False, "also write each node's Verilog and C header")
    arith: str = option(
        _PLACE,
        "c",
        "binary32 operators in the co-simulation: C of the same latency, or RTL",
        choices=ARITHMETICS,
    )
    link: str | None = option(
        _CONNECTIONS,
        None,
        "a lost frame is retransmitted, or ends the run as in the published NADA",
        choices=LINKS,
        default_text=RELIABLE,
        trait=CONNECTIONS,
    )
    encap: str | None = option(
        _CONNECTIONS,
        None,
        "raw Ethernet, or UDP over IPv4",
        choices=ENCAPS,
        default_text=ENCAPS[0],
        trait=CONNECTIONS,
    )


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(WaveOptions, RunOptions):
    """Options of ``fanin cluster run`` and ``fanin.cluster``."""

    build: Path | None = option(
        _PLACE, None, "the folder of fanin cluster build", "BUILD", positional=True, file_use=FileUse.INPUT
    )
    data: str = images(_PLACE)

    epochs: int = option(_TRAINING, 15, "passes over the images", "N")
    batch: int = option(_TRAINING, 32, "frames from update to update", "N")
    lr: float = option(_TRAINING, 0.1, "learning rate of the first epoch", "R")
    momentum: float = option(_TRAINING, 0.9, "share of a velocity that stays", "M")
    schedule: str = option(_TRAINING, "cosine", "schedule of the rate: constant, cosine, step:30:0.1", "S")
    seed: int = option(_TRAINING, 0, "seed of first parameters and the frames' order", "N")
    init: Path | None = option(
        _TRAINING,
        None,
        "first parameters: a checkpoint, as of fanin cluster init",
        "FILE",
        file_use=FileUse.INPUT,
    )

    on: str = option(_MACHINE, "rtl", "train in RTL, or on its golden model", choices=PLACES)

    drop: float = fault(_NETWORK, FRAMES)
    duplicate: float = fault(_NETWORK, FRAMES)
    reorder: float = fault(_NETWORK, FRAMES)
    corrupt: float = fault(_NETWORK, FRAMES)
    network_seed: int | None = option(
        _NETWORK,
        None,
        "seed of the network's faults",
        "N",
        default_text="--seed",
        low=0,
        high=MAX_SEED,
        trait=FRAMES,
    )
    cut: str | None = option(
        _NETWORK,
        None,
        "fpga1@12: cut off a device in the run's batch 12, counted from 1; fpga1-fpga2@12: these two from "
        "one another",
        "DEVICE@BATCH",
        trait=FRAMES,
    )
    pcap: bool = option(_NETWORK, False, f"write all frames to {PCAP_FILE} in the run's folder", trait=FRAMES)

    checkpoint: int | None = option(
        _CHECKPOINTS,
        None,
        "keep the state every N batches of an epoch, and after the epoch",
        "N",
        default_text="after each epoch",
    )
    output: Path = option(
        OUTPUT, Path("runs/cluster"), "the run's folder", "RUN", short="-o", file_use=FileUse.OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(RunOptions):
    """Options of ``fanin cluster verify``."""

    build: Path = option(
        _PLACE,
        REQUIRED,
        "the folder of fanin cluster build, or of fanin plan",
        "BUILD",
        positional=True,
        file_use=FileUse.INPUT,
    )
    data: str | None = option(
        _PLACE,
        None,
        "images, as for fanin cluster run; default: images and labels drawn from --seed",
        "DATA",
        positional=True,
        file_use=FileUse.INPUT,
    )
    layers: str | None = option(
        _PLACE,
        None,
        "names of layers, separated by commas; * matches any characters",
        "NAME,…",
        default_text="all",
    )

    frames: int = option(_TRAINING, 2, "frames of the batch", "N", low=2, high=256)
    seed: int = option(
        _TRAINING, 0, "seed of first parameters, drawn images and stalls", "N", low=0, high=MAX_SEED
    )
    init: Path | None = option(
        _TRAINING,
        None,
        "first parameters: a checkpoint, as of fanin cluster init",
        "FILE",
        file_use=FileUse.INPUT,
    )

    workers: int | None = option(_MACHINE, None, "workers on this machine", "N", default_text="one per core")
    scheduler: str | None = option(
        _MACHINE, None, "scheduler of a Dask cluster, tls://HOST:PORT or tcp://HOST:PORT", "ADDRESS"
    )
    output: Path = option(
        OUTPUT, Path("runs/verify"), "the verification's folder", "DIR", short="-o", file_use=FileUse.OUTPUT
    )
