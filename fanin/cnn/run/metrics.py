"""Contents of ``run.json``, the JSON description of a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from fanin import __version__
from fanin.cnn.run.build import build_json
from fanin.cnn.run.folder import Metrics, training_json
from fanin.cnn.run.loop import Loop
from fanin.cnn.run.machine import RTL
from fanin.cnn.run.measures import Epoch
from fanin.cnn.run.setup import Setup
from fanin.runs.output import finite
from fanin.sim.learning.workloads import source_of

if TYPE_CHECKING:
    from fanin.cnn.run.rtl import Rtl


def metrics_of(setup: Setup, loop: Loop, checkpoints: list[str], error: str | None) -> Metrics:
    """Return the contents of run.json. Keys: docs/reference/json.md; of ``hardware``: ``hardware.py``.

    ``checkpoints``: file names of all checkpoints.
    ``error``: cause of an unfinished run; None for a finished one.
    """
    primary = next(iter(loop.machines))
    epochs = [*setup.earlier.epochs, *map(_epoch, loop.epochs)]
    last: Metrics = epochs[-1][primary] if epochs else {}
    metrics = {
        "fanin": __version__,
        "error": error,
        "accuracy": last.get("accuracy"),
        "loss": last.get("loss"),
        "bit_exact": error is None and loop.compared_frames == loop.frames if primary == RTL else None,
        "on": primary,
        "frames": loop.frames,
        "frames_compared": loop.compared_frames,
        "checkpoints": checkpoints,
        "epochs": epochs,
        "hardware": _hardware(setup, loop) or setup.earlier.hardware,
        "connections": _connections(setup, loop),
        "conditions": setup.conditions.as_json(),
        "data": {
            "name": _absolute(setup.data.name),
            "sha256": setup.data.digest,
            "train": len(setup.data.train),
            "test": len(setup.data.test),
        },
        "training": training_json(setup.training),
        "build": build_json(setup.build),
        "builds": [{"folder": used_build.folder, "from": used_build.since} for used_build in setup.builds],
    }
    return finite(metrics)


def _epoch(epoch: Epoch) -> Metrics:
    measured = {name: asdict(measures) for name, measures in epoch.measures.items()}
    return {"epoch": epoch.number, "lr": epoch.rate, **measured}


def _hardware(setup: Setup, loop: Loop) -> Metrics | None:
    """Return ``hardware`` of run.json; None without RTL."""
    machine = loop.machines.get(RTL)
    if machine is None:
        return None
    from fanin.cnn.run.hardware import hardware_of  # Amaranth is loaded by now

    return hardware_of(setup.build.planned, cast("Rtl", machine))


def _connections(setup: Setup, loop: Loop) -> list[Metrics]:
    """Return ``connections`` of run.json; empty without RTL."""
    machine = loop.machines.get(RTL)
    if machine is None:
        return []
    from fanin.cnn.run.hardware import connections_of

    return connections_of(setup.build.planned.placement, cast("Rtl", machine))


def _absolute(data: str) -> str:
    """Return DATA with a path made absolute, so that ``fanin cluster check`` finds it from any folder."""
    source = source_of(data)
    return data if source is None else str(source.absolute())
