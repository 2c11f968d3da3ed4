"""Streams of a network's layers for one batch, in files, and the task of a worker: the check of one layer."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from fanin import __version__
from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.cnn.facts import Network, Stage
from fanin.cnn.golden.network import GoldenNetwork, Trace, output_gradient
from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.run.machine import Labels, one_hot
from fanin.cnn.training import Job
from fanin.runs.provenance.environment import sources_digest

_OUTPUT, _GRADIENT, _STATE = "output", "gradient", "state/"  # names and prefix of arrays in a stage's file


@dataclass(frozen=True)
class LayerTask:
    """Task of a worker: the check of one layer."""

    stage: Stage
    index: int  #: index of the stage in the network
    streams: str  #: folder of the streams
    result: str  #: path of the result
    eta: float  #: −rate / frames of the batch
    momentum: float
    seed: int  #: seed of the stalls
    arithmetic: str  #: operators of the simulator: "c" or "rtl"
    sources: str  #: SHA-256 of the client's fanin


def record_streams(
    folder: Path, network: Network, states: Sequence[State], images: Frames, labels: Labels, job: Job
) -> None:
    """Train the golden model on one batch. Write each stage's streams and first state to ``folder``."""
    trace = Trace(range(job.frames))
    GoldenNetwork(network, states).train(images, one_hot(network, labels), job, trace)
    for index, state in enumerate(states):
        arrays = {_OUTPUT: trace.outputs.pop(index)}
        gradient = output_gradient(network, trace.gradients, index)
        if gradient is not None:
            arrays[_GRADIENT] = gradient
        arrays |= {_STATE + name: array for name, array in state.items()}
        np.savez(_streams_file(folder, index), **arrays)  # type: ignore[arg-type]  # a keyword of savez is a bool


def _streams_file(folder: Path, index: int) -> Path:
    return folder / f"{index:04}.npz"


def carry_out(task: LayerTask) -> None:
    """Check a layer on a worker, and write the result atomically.

    Raises InputError if the worker has another fanin than the client, no access to the folder, or not all
    tools. Raises ToolFailed if the simulator does not build.
    """
    from fanin.sim.cnn.layer_check import LayerStreams, check_layer, planned_cycles  # Amaranth takes a second

    folder, host = Path(task.streams), socket.gethostname()
    if not folder.is_dir():
        raise InputError(f"worker {host}: {folder}: not found; workers need access to the folder")
    if _sources() != task.sources:
        raise InputError(f"worker {host}: fanin {__version__} is not the client's")
    stage = task.stage
    with np.load(_streams_file(folder, task.index)) as arrays:
        gradient = arrays.get(_GRADIENT)
        state = {name: arrays[_STATE + name] for name in stage.layer.zero_state()}
        outputs = arrays[_OUTPUT]
    features = tuple(_output(folder, source) for source in stage.sources)
    check = check_layer(
        stage,
        LayerStreams(features, outputs, gradient, state),
        eta=task.eta,
        momentum=task.momentum,
        seed=task.seed,
        arith=task.arithmetic,
    )
    layer = {"name": stage.name, "kind": stage.layer.kind, "frames": len(outputs)}
    document = layer | {"planned_cycles": planned_cycles(stage)} | asdict(check) | {"host": host}
    write_file(Path(task.result), json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _output(folder: Path, index: int) -> Frames:
    with np.load(_streams_file(folder, index)) as arrays:
        output: Frames = arrays[_OUTPUT]
        return output


@cache
def _sources() -> str:
    """Return the SHA-256 of fanin's sources at the worker's first task."""
    return sources_digest()
