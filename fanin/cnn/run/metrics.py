"""JSON description of a run, run.json."""

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
    """Return run.json. docs/reference/json.md lists its keys, ``hardware.py`` those of ``hardware``."""
    first = next(iter(loop.machines))
    epochs = [*setup.earlier.epochs, *map(_epoch, loop.epochs)]
    last: Metrics = epochs[-1][first] if epochs else {}
    found = {
        "fanin": __version__,
        "error": error,
        "accuracy": last.get("accuracy"),
        "loss": last.get("loss"),
        "bit_exact": error is None and loop.exact == loop.frames if first == RTL else None,
        "on": first,
        "frames": loop.frames,
        "frames_compared": loop.exact,
        "checkpoints": checkpoints,
        "epochs": epochs,
        "hardware": _hardware(setup, loop) or setup.earlier.hardware,
        "connections": _connections(setup, loop),
        "conditions": setup.conditions.as_json(),
        "data": {
            "name": _lasting(setup.data.name),
            "sha256": setup.data.digest,
            "train": len(setup.data.train),
            "test": len(setup.data.test),
        },
        "training": training_json(setup.training),
        "build": build_json(setup.build),
        "builds": [{"folder": used.folder, "from": used.since} for used in setup.builds],
    }
    return finite(found)


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


def _lasting(data: str) -> str:
    """Return DATA with a path made absolute, so that ``fanin cluster check`` finds it from any folder."""
    source = source_of(data)
    return data if source is None else str(source.absolute())
