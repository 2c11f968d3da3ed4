"""``fanin.cluster_build`` and ``fanin.cluster``: a plan's hardware, and training on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fanin.api.folder import Folder, PathLike, install_advice, run_in_folder
from fanin.api.signature import with_options
from fanin.cnn.run.options import BuildOptions, ClusterOptions
from fanin.runs.output import CLUSTER_BUILD, CLUSTER_RUN

if TYPE_CHECKING:  # an annotation alone must not load the training's modules
    from fanin.cnn.run.checkpoint import Checkpoint


class ClusterBuild(Folder):
    """Folder that ``fanin cluster build`` writes: a plan's hardware, which ``fanin.cluster`` trains on."""

    mark = CLUSTER_BUILD.mark


class ClusterRun(Folder):
    """Folder that ``fanin cluster run`` writes: a training, its results and its report."""

    mark = CLUSTER_RUN.mark
    result: Checkpoint | None = None  #: last state, arrays by layer; None for a folder that was only opened

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """One dictionary per epoch.

        - ``epoch``: number of the epoch, from 1.
        - ``lr``: learning rate of the epoch.
        - ``rtl``, ``golden``, ``float64``: measures of the machines that ran: a dictionary with ``loss`` and
          ``accuracy``.
        """
        return list(self.values["epochs"])

    @property
    def accuracy(self) -> float:
        """Final share of held-out images that the network classifies correctly."""
        return float(self.values["accuracy"])

    @property
    def frames_per_second(self) -> float | None:
        """Measured rate while frames stream, in simulated time.

        None without RTL, or if the timed batch has one frame.
        """
        hardware = self.values["hardware"]
        return hardware["frames_per_second"] if hardware else None

    @property
    def of_planned(self) -> float | None:
        """Ratio of ``frames_per_second`` to the throughput that the plan predicted; 1.0 is as planned.

        None without ``frames_per_second``.
        """
        hardware = self.values["hardware"]
        return hardware["of_planned"] if hardware else None


@with_options(BuildOptions)
def cluster_build(plan: PathLike, **options: Any) -> ClusterBuild:
    """Build the hardware of a plan, and prove that it cannot deadlock for lack of buffer space.

    - ``plan``: folder that ``fanin plan`` or ``fanin.plan`` has written, as a path or as the object.
    - ``options``: those of ``fanin cluster build``. Without ``output`` the build's folder is a temporary one.

    Raises InputError for a build that could deadlock.

    Source: NADA; docs/systems/nada.md.
    """
    with install_advice():
        from fanin.cnn.run.build import execute

    arguments = {"plan": plan, **options}
    return run_in_folder(ClusterBuild, ("cluster", "build"), BuildOptions, arguments, execute)


@with_options(ClusterOptions)
def cluster(build: PathLike | None = None, data: PathLike = "digits", **options: Any) -> ClusterRun:
    """Train a CNN on images on the devices of a build; every batch is compared with the golden model.

    - ``build``: folder of ``fanin cluster build`` or ``fanin.cluster_build``, as a path or as the object. None:
      the network digits_cnn is planned on one device and built.
    - ``data``: name of a data set or path of images, as for ``fanin cluster run``.
    - ``options``: those of ``fanin cluster run``. Without ``output`` the run's folder is a temporary one.

    Raises InputError for bad arguments, and CheckFailed if bits differ or a device was cut off.

    Source: NADA; docs/systems/nada.md.
    """
    with install_advice():
        from fanin.cnn.run.execute import execute

    arguments = {"build": build, "data": data, **options}
    return run_in_folder(ClusterRun, ("cluster", "run"), ClusterOptions, arguments, execute)
