"""External data of an ONNX model: weights in other files, which the model's tensors name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from fanin.base.archive import MAX_UNPACKED_BYTES
from fanin.planner.model.onnx_load import load_proto


def load_external_data(path: Path, proto: ModelProto) -> None:
    """Read the external data of a model into its tensors. ``path``: file of the model.

    Raises OSError if a file cannot be read. Raises ValueError for a file outside the model's folder, or if the
    tensors name more than ``MAX_UNPACKED_BYTES`` in all and more than their files have. Several tensors may
    name the same bytes.
    """
    tensors = list(_external(proto))
    sizes: dict[Path, int] = {}
    total = 0
    for tensor in tensors:
        fields = _fields(tensor)
        file = _file(path, tensor)
        if file is None:
            location = fields.get("location", "")
            raise ValueError(f"{tensor.name}: its data are in no file of the model's folder: {location!r}")
        size = sizes.setdefault(file.resolve(), file.stat().st_size)  # a file has many spellings
        length = int(fields.get("length", 0))
        total += length if length > 0 else size  # 0 and less: older onnx reads the whole file
    if total > max(MAX_UNPACKED_BYTES, sum(sizes.values())):
        raise ValueError(f"its tensors name {total:,} bytes of external data, more than their files have")
    for tensor in tensors:
        load_external_data_for_tensor(tensor, str(path.parent))


def external_files(path: Path) -> list[Path]:
    """Return the files with a model's external data; none for a file that is no model."""
    try:
        proto = load_proto(path)
    except Exception:  # protobuf has many; the planner's reader says which
        return []
    paths = (_file(path, tensor) for tensor in _external(proto))
    return sorted({file for file in paths if file is not None})


def _fields(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _file(path: Path, tensor: TensorProto) -> Path | None:
    """Return the file that a tensor names, if it is a regular file in the model's folder; else None."""
    file = path.parent / _fields(tensor).get("location", "")
    try:
        inside = file.resolve().is_relative_to(path.parent.resolve())
        return file if inside and file.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        return None


def _external(message: Any) -> Iterator[TensorProto]:
    """Yield the tensors with external data in a message, including attributes and inner graphs."""
    if isinstance(message, TensorProto):
        if uses_external_data(message):
            yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from _external(inner)
