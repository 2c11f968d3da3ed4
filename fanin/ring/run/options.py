"""Options of ``fanin ring train``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fanin.base.limits import MAX_SEED
from fanin.codec.facts import Codec
from fanin.codec.run.options import CODEC, CodecOptions
from fanin.ring.facts import MAX_NODES, MIN_NODES, PRESETS
from fanin.ring.groups import Scheme
from fanin.runs.option import OUTPUT, FileUse, Group, RunOptions, Trait, option
from fanin.runs.shared_options import fault, images
from fanin.runs.wave import WaveOptions
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import MAX_OUTSTANDING, Overlap


class System(StrEnum):
    """A paper's system of hosts and NICs."""

    SMART_NIC = "smart-nic"
    INCEPTIONN = "inceptionn"


class Reducer(StrEnum):
    """Part that adds gradients up in a system of smart NICs."""

    NIC = "nic"
    HOST = "host"


class Platform(StrEnum):
    """Platform that smart NICs run on."""

    RTL = "rtl"
    MODEL = "model"


SIZES = {8: PRESETS["prototype"], 16: PRESETS["u280"]}  #: sizes of a smart NIC by its lanes
#: Default link rate: of the prototype with 8 lanes, and of INCEPTIONN's cluster.
GBPS = {
    System.SMART_NIC: 40.0,
    System.INCEPTIONN: 10.0,
}

HIDDEN = 128  #: default units of the hidden layer

SMART = Trait("smart NICs")
ADDING = Trait("smart NICs that add up")
PARTS = Trait("a network and memories whose time is not part of α, β and γ")
FRAMES = Trait("simulated frames")

_DATA = Group("")
_MODEL = Group("model")
_RING = Group("ring")
_HOSTS = Group("hosts", training=False)
_NETWORK = Group("network", training=False)


@dataclass(frozen=True, kw_only=True)
class RingOptions(CodecOptions, WaveOptions, RunOptions):
    """Options of ``fanin ring train`` and ``fanin.ring_train``."""

    data: str = images(_DATA)

    layers: str | None = option(
        _MODEL,
        None,
        "widths from input to output, or a file with them",
        "W,W,…",
        default_text=f"features, {HIDDEN}, classes",
        file_use=FileUse.INPUT,
    )
    epochs: int = option(_MODEL, 10, "passes over the training samples", "N", low=1, high=10**6, training=False)
    batch: int = option(_MODEL, 32, "samples of a node's mini-batch", "B")
    lr: float = option(_MODEL, 0.1, "learning rate", "A", low=1e-9, high=1e9, aliases=("rate",))
    momentum: float = option(_MODEL, 0.9, "share of the last update that is added to the next", "M")
    decay: float = option(
        _MODEL, 0.0, "share of a weight that is added to its gradient", "D", low=0.0, high=1e9
    )
    seed: int = option(_MODEL, 0, "seed of split, shuffle, first weights and faults", "N", low=0, high=MAX_SEED)

    system: System = option(
        _RING,
        System.SMART_NIC,
        "smart-nic: NICs add gradients up; inceptionn: hosts add up over sockets, NICs have the codec",
    )
    nodes: int = option(_RING, 4, "nodes that train", "N", low=MIN_NODES, high=MAX_NODES)
    exchange: Scheme = option(_RING, Scheme.RING, "all-reduce scheme of the nodes, or of those of a group")
    groups: str | None = option(_RING, None, "groups and nodes of a group; 4x4: four groups of four", "GxM")
    above: Scheme | None = option(_RING, None, "all-reduce scheme of the groups", default_text="as --exchange")
    lanes: int = option(_RING, 8, "values that a smart NIC adds in a cycle", choices=tuple(SIZES), trait=SMART)
    codec: Codec = option(CODEC, Codec.NONE, "codec of the gradients")
    all_reduce: Reducer = option(
        _RING,
        Reducer.NIC,
        "add gradients up in smart NICs, or on their hosts' cores",
        trait=SMART,
        training=False,
    )
    on: Platform | None = option(
        _RING,
        None,
        "run the smart NICs in RTL, or on a model",
        default_text="rtl; model for --all-reduce host",
        trait=SMART,
        training=False,
    )

    overlap: Overlap = option(
        _HOSTS,
        Overlap.BACKWARD,
        "overlap an all-reduce with the backward pass of the layers below, or with nothing",
        trait=SMART,
    )
    outstanding: int = option(
        _HOSTS, 1, "unfinished all-reduces of a host", "K", low=1, high=MAX_OUTSTANDING, trait=ADDING
    )
    flops: float = option(
        _HOSTS, WorkerProfile.flops, "compute rate of a host", "F", unit="FLOP/s", low=1e6, high=1e21
    )
    memory_bandwidth: float = option(
        _HOSTS,
        WorkerProfile.memory_bandwidth,
        "bandwidth of a host's memory, which decides the time of an update",
        "B",
        unit="bytes/s",
        low=1e6,
        high=1e18,
        trait=PARTS,
    )
    pcie: float = option(
        _HOSTS,
        WorkerProfile.pcie,
        "bandwidth between a host's memory and its smart NIC, each way",
        "P",
        unit="bit/s",
        low=1e8,
        high=1e15,
        trait=ADDING,
    )

    gbps: float | None = option(
        _NETWORK,
        None,
        "rate of a link",
        "G",
        unit="Gb/s",
        default_text=", ".join(f"{gbps:g} of {system}" for system, gbps in GBPS.items()),
        trait=PARTS,
    )
    drop: float = fault(_NETWORK, FRAMES)
    duplicate: float = fault(_NETWORK, FRAMES)
    reorder: float = fault(_NETWORK, FRAMES)
    corrupt: float = fault(_NETWORK, FRAMES)
    stop: tuple[str, ...] | None = option(
        _NETWORK, None, "2:1e-4: node 2 stops answering after 1e-4 simulated seconds", "NODE:T,…", trait=FRAMES
    )
    pcap: Path | None = option(
        _NETWORK, None, "write all frames to this file", "FILE", trait=FRAMES, file_use=FileUse.CAPTURE
    )

    resume: Path | None = option(
        OUTPUT,
        None,
        "continue after the last whole epoch of the run in this folder, with its model and data",
        "DIR",
        file_use=FileUse.INPUT,
    )
    output: Path = option(
        OUTPUT, Path("runs/ring"), "the run's folder", "DIR", short="-o", file_use=FileUse.OUTPUT
    )

    @property
    def link_gbps(self) -> float:
        """Rate of a link in Gb/s: the given one, or that of the system."""
        return GBPS[self.system] if self.gbps is None else self.gbps
