"""Functions of every codec, dispatched to its golden model by the type of its parameters."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Codec, CodecConfig
from fanin.codec.golden import bfp, inceptionn

Float32 = npt.NDArray[np.float32]

#: Golden models; each has ``encode``, ``decode``, ``decode_prefix`` and ``roundtrip``.
MODELS: dict[Codec, ModuleType] = {Codec.INCEPTIONN: inceptionn, Codec.BFP: bfp}


def _model(config: CodecConfig) -> Any:
    if config.kind not in MODELS:
        raise ValueError(f"codec {config.kind} has no golden model; there are {', '.join(MODELS)}")
    return MODELS[config.kind]


def encode(values: Float32, config: CodecConfig) -> bytes:
    """Return the stream of ``values``, without a header."""
    stream: bytes = _model(config).encode(values, config)
    return stream


def decode(stream: bytes, count: int, config: CodecConfig) -> Float32:
    """Decode a stream of ``count`` values without a header. Raises InputError unless its length matches."""
    values: Float32 = _model(config).decode(stream, count, config)
    return values


def decode_prefix(stream: bytes, count: int, config: CodecConfig) -> tuple[Float32, int]:
    """Decode the first ``count`` values; return them and their bytes. Raises InputError for a short stream."""
    values, consumed = _model(config).decode_prefix(stream, count, config)
    return values, consumed


def roundtrip(values: Float32, config: CodecConfig | None) -> Float32:
    """Return ``values`` as the next node receives them; unchanged without a codec."""
    if config is None:
        return values
    received: Float32 = _model(config).roundtrip(values, config)
    return received
