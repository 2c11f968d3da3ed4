"""``fanin.cluster_build`` and ``fanin.cluster``: a plan's hardware, and networks that train on it."""

from __future__ import annotations

from typing import Any

from fanin.api.commands import Folder, PathLike, carried_out
from fanin.cli.output import CLUSTER_BUILD, CLUSTER_RUN


class ClusterBuild(Folder):
    """The hardware of a plan, and the folder of ``fanin cluster build``; ``fanin.cluster`` takes it."""

    mark = CLUSTER_BUILD.mark


class ClusterRun(Folder):
    """A training, and the folder that ``fanin cluster run`` writes."""

    mark = CLUSTER_RUN.mark

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """Of each epoch its learning rate, and loss and accuracy of RTL, golden model and float64."""
        return list(self.values["epochs"])

    @property
    def accuracy(self) -> float:
        """The share of held-out images that the network gets right in the end."""
        return float(self.values["accuracy"])

    @property
    def frames_per_second(self) -> float | None:
        """As measured while frames stream; None where no RTL ran."""
        hardware = self.values["hardware"]
        return hardware["frames_per_second"] if hardware else None

    @property
    def of_planned(self) -> float | None:
        """The measured rate over the plan's; None where no RTL ran."""
        hardware = self.values["hardware"]
        return hardware["of_planned"] if hardware else None


def cluster_build(
    plan: PathLike,
    *,
    output: PathLike | None = None,
    verilog: bool = False,
    arith: str = "c",
    link: str | None = None,
    encap: str | None = None,
) -> ClusterBuild:
    """Build the hardware of a plan, and prove that it cannot stop for want of space.

    Arguments are the options of ``fanin cluster build``. Raises InputError for a build that could stop.
    """
    return carried_out(ClusterBuild, ("cluster", "build"), locals())


def cluster(
    build: PathLike | None = None,
    data: PathLike = "digits",
    *,
    epochs: int = 15,
    batch: int = 32,
    lr: float = 0.1,
    momentum: float = 0.9,
    schedule: str = "cosine",
    seed: int = 0,
    init: PathLike | None = None,
    on: str = "rtl",
    drop: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    corrupt: float = 0.0,
    network_seed: int | None = None,
    cut: str | None = None,
    pcap: bool = False,
    checkpoint: int | None = None,
    wave: PathLike | None = None,
    wave_nodes: str | None = None,
    wave_from: int | None = None,
    wave_cycles: int | None = None,
    wave_depth: int | None = None,
    output: PathLike | None = None,
) -> ClusterRun:
    """Train a CNN on images on the devices of a build, every batch compared with the golden model.

    Arguments are the options of ``fanin cluster run``; without ``build`` digits_cnn is planned on one device.
    Raises CheckFailed where bits differ, or a device was cut off.

    Source: NADA; docs/systems/cluster.md.
    """
    return carried_out(ClusterRun, ("cluster", "run"), locals())
