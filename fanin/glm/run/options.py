"""The options of ``fanin train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fanin.base.limits import CLOCK_MHZ
from fanin.fixed import DEFAULT_FRAC, DEFAULT_PRECISION, LOSSES
from fanin.glm.facts import PRESETS, ColumnRule, GlmConfig, Partitioning, SparseChoice
from fanin.hbm import CONSTANT, MEMORIES
from fanin.runs.option import OUTPUT, FileUse, Group, RunOptions, Trait, option
from fanin.runs.shared_options import LINKS, NETWORK, LinkOptions
from fanin.runs.wave import WaveOptions
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.base import SwitchKind
from fanin.wire.aggregation import Encap, Protocol

MEMORY = Trait("simulated memories")
PORTS = Trait("nodes at Linux interfaces")

_DATA = Group("")
_MODEL = Group("model")
_HARDWARE = Group("hardware")
_BOARDS = Group("boards")
_CHECKPOINTS = Group("checkpoints")


@dataclass(frozen=True, kw_only=True)
class GlmOptions(LinkOptions, WaveOptions, RunOptions):
    """Options of ``fanin train`` and ``fanin.train``."""

    data: str | None = option(
        _DATA,
        None,
        "a LIBSVM, CSV or .npz file, breast_cancer or digits",
        "DATA",
        positional=True,
        file_use=FileUse.INPUT,
    )
    target: str | None = option(
        _DATA, None, "column of a CSV file that has the labels; its last one by default", "NAME"
    )

    loss: str = option(_MODEL, "logistic", "loss to minimise", choices=tuple(LOSSES))
    epochs: int = option(_MODEL, 40, "passes over the training samples", "N")
    batch: int = option(_MODEL, 32, "samples of a mini-batch", "B")
    lr: float | None = option(
        _MODEL,
        None,
        "learning rate γ",
        "G",
        default_text="the power of two nearest to 1 over the samples' curvature",
    )
    l2: float = option(_MODEL, 0.0, "L2 regularisation λ, rounded so that γ·λ is a power of two", "LAMBDA")
    bias: bool = option(_MODEL, True, "add a constant column")
    shuffle: bool = option(_MODEL, True, "shuffle once, at load")
    test: float = option(_MODEL, 0.25, "share of the samples to hold out, stratified", "SHARE")
    seed: int = option(_MODEL, 0, "seed of split, shuffle and faults", "N")

    mode: Partitioning = option(
        _HARDWARE, Partitioning.MODEL_PARALLEL, "spread the model or the samples over the workers"
    )
    vanilla: bool = option(
        _HARDWARE,
        False,
        "disable the pipeline: forward for the whole mini-batch, then its AllReduces, then backward",
    )
    gradient_values: int = option(
        _HARDWARE,
        GlmConfig.gradient_values,
        "gradients of a packet, data-parallel: a power of two up to 32",
        "V",
    )
    sparse: SparseChoice = option(
        _HARDWARE,
        SparseChoice.AUTO,
        "nodes that leave out chunks of zeros; auto: for LIBSVM files, if that saves half of the words",
    )
    order: ColumnRule = option(
        _HARDWARE, ColumnRule.FREQUENCY, "order in which columns share chunks of sparse nodes; none: the data's"
    )
    workers: int = option(_HARDWARE, 4, "nodes", "W")
    engines: int | None = option(
        _HARDWARE, None, "engines of a node; the preset's by default", "E", exclusive="size"
    )
    preset: str = option(_HARDWARE, "demo", "sizes of a node", choices=tuple(PRESETS), exclusive="size")
    precision: int = option(_HARDWARE, DEFAULT_PRECISION, "bits of a feature", "S")
    frac: int = option(_HARDWARE, DEFAULT_FRAC, "fraction bits of a weight", "F")
    clock_mhz: float = option(_HARDWARE, CLOCK_MHZ, "clock of the nodes", "F")
    memory: str = option(
        _HARDWARE,
        CONSTANT,
        "memory of samples and labels: a constant latency, or banks with rows and refreshes",
        choices=tuple(MEMORIES),
        trait=MEMORY,
    )
    ports_per_channel: int | None = option(
        _HARDWARE, None, "with --memory hbm2: neighbouring ports that share a pseudo-channel; 1 by default", "N"
    )

    on: Path | None = option(
        _BOARDS,
        None,
        "train on these boards; they decide workers, preset, encap and clock, and this host is the switch",
        "BOARDS.toml",
        file_use=FileUse.INPUT,
    )

    ports: str | None = option(
        NETWORK,
        None,
        "Linux interfaces, one per node, to a switch that has the job (fanin p4 serve, or another); "
        "they decide workers",
        "IF,IF,…",
    )
    worker: str | None = option(
        NETWORK,
        None,
        "with --ports: numbers of the workers here, from 0; the other --workers train elsewhere",
        "R,…",
        trait=PORTS,
    )
    slowdown: float = option(
        NETWORK,
        NetworkConfig.slowdown,
        "with --ports: least real time of a second of the nodes' time, in seconds",
        "N",
        trait=PORTS,
    )
    racks: str | None = option(
        NETWORK,
        None,
        "a tree of switches, which decides workers: 4x8 has four racks of eight below a root; 2x4x8, 1+2",
        "GxM",
        trait=LINKS,
        exclusive="tree",
    )
    tree: Path | None = option(
        NETWORK,
        None,
        "a tree of switches from a file, which decides workers, slots and job (fanin p4 tree)",
        "TREE.toml",
        trait=LINKS,
        exclusive="tree",
        file_use=FileUse.INPUT,
    )
    switch: SwitchKind = option(NETWORK, SwitchKind.EMBEDDED, "switch that aggregates")
    protocol: Protocol = option(NETWORK, Protocol.P4SGD, "event that frees a slot; switchml: the baseline")
    encap: Encap = option(NETWORK, Encap.L2, "raw Ethernet, or UDP over IPv4")
    slots: int | None = option(NETWORK, None, "aggregation slots; the preset's by default", "N")
    timeout_ns: float | None = option(
        NETWORK,
        None,
        "fixed time until a packet is resent",
        "T",
        default_text="it follows the measured round trips",
    )
    retries: int = option(
        NETWORK, NetworkConfig.retries, "retransmissions of one packet until the job stops", "R"
    )
    stop: tuple[str, ...] | None = option(
        NETWORK,
        None,
        "1:1e-4: worker 1 stops answering after 1e-4 simulated seconds; a restart replaces it; of a tree also "
        "switch-1:1e-4, the link of switch-1 to its parent",
        "NAME:T,…",
        trait=LINKS,
    )

    checkpoint: int | None = option(
        _CHECKPOINTS,
        None,
        "keep the state every N epochs, and after the last one, in the run's folder",
        "N",
        low=1,
    )
    resume: Path | None = option(
        _CHECKPOINTS,
        None,
        "continue the run in this folder from its last whole state, with its options; -o: DIR by default",
        "DIR",
        file_use=FileUse.INPUT,
        training=False,
    )
    restart: int | None = option(
        _CHECKPOINTS,
        None,
        "after a failure of a node, restart from the last state as a new job; at most N times",
        "N",
        low=1,
    )

    output: Path | None = option(
        OUTPUT, None, "the run's folder; runs/DATA by default", "DIR", short="-o", file_use=FileUse.OUTPUT
    )
    pcap: Path | None = option(
        OUTPUT,
        None,
        "capture of the frames at the switch; DIR/frames.pcap by default",
        "FILE",
        file_use=FileUse.COPY,
    )
    model_out: Path | None = option(
        OUTPUT, None, "the model; DIR/model.npz by default", "FILE.npz", file_use=FileUse.COPY
    )
