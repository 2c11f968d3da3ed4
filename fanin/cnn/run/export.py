"""The command ``fanin cluster export``: write a run's last checkpoint for ONNX, NumPy or PyTorch."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.cnn.facts import Network
from fanin.cnn.layers.arithmetic import State
from fanin.cnn.run.checkpoint import flatten_states
from fanin.cnn.run.folder import open_run
from fanin.cnn.run.initial import LEARNED
from fanin.cnn.run.onnx_file import onnx_model
from fanin.runs.output import check_writable, print_json


def execute(folder: Path, output: Path, *, as_json: bool) -> int:
    """Write the last checkpoint of a run to ``output`` in the format of its suffix. Raises InputError."""
    check_writable(output)
    run = open_run(folder)
    last = run.states[-1]
    states = run.state(last).states
    write_file(output, _ENCODERS[output.suffix](run.network, states))
    if as_json:
        print_json({"output": str(output), "model": run.network.name, "state": str(folder / last)})
    else:
        print(f"{output}: {run.network.name} of {folder / last}")
    return 0


def _onnx(network: Network, states: tuple[State, ...]) -> bytes:
    return onnx_model(network, states).SerializeToString()


def _npz(network: Network, states: tuple[State, ...]) -> bytes:
    """Return an archive of arrays LAYER/NAME, as ``fanin cluster init --from`` reads them."""
    arrays = {
        name: values
        for name, values in flatten_states(network, states).items()
        if name.rpartition("/")[2] in LEARNED
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _pt(network: Network, states: tuple[State, ...]) -> bytes:
    """Return a PyTorch file of arrays LAYER.NAME, with PyTorch's names (weight, running_mean, …) and axes."""
    try:
        import torch
    except ImportError:
        raise InputError(".pt needs PyTorch: pip install 'fanin[torch]'") from None
    arrays: dict[str, np.ndarray] = {}
    for stage, state in zip(network.stages, states, strict=True):
        stage_arrays = stage.layer.torch_arrays(state)
        arrays |= {f"{stage.name}.{name}": values for name, values in stage_arrays.items()}
    file = io.BytesIO()
    torch.save({name: torch.from_numpy(values.copy()) for name, values in arrays.items()}, file)
    return file.getvalue()


_ENCODERS = {".onnx": _onnx, ".npz": _npz, ".pt": _pt}
