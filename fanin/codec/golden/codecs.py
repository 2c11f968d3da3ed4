"""Any codec: its stream, and what comes back, by the golden model that its parameters belong to."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Codec, CodecConfig
from fanin.codec.golden import bfp, inceptionn

Float32 = npt.NDArray[np.float32]

#: Each has ``encode``, ``decode``, ``decode_prefix`` and ``roundtrip``.
MODELS: dict[Codec, ModuleType] = {Codec.INCEPTIONN: inceptionn, Codec.BFP: bfp}


def _model(config: CodecConfig) -> Any:
    if config.kind not in MODELS:
        raise ValueError(f"codec {config.kind} has no golden model; there are {', '.join(MODELS)}")
    return MODELS[config.kind]


def encode(values: Float32, config: CodecConfig) -> bytes:
    """The stream of ``values``, without a header."""
    stream: bytes = _model(config).encode(values, config)
    return stream


def decode(stream: bytes, count: int, config: CodecConfig) -> Float32:
    """The ``count`` values of a stream without a header. Raises InputError unless its length is theirs."""
    values: Float32 = _model(config).decode(stream, count, config)
    return values


def decode_prefix(stream: bytes, count: int, config: CodecConfig) -> tuple[Float32, int]:
    """The first ``count`` values, and the bytes that they take. Raises InputError where they are not whole."""
    values, used = _model(config).decode_prefix(stream, count, config)
    return values, used


def roundtrip(values: Float32, config: CodecConfig | None) -> Float32:
    """What the next node receives of ``values``; themselves where there is no codec."""
    if config is None:
        return values
    received: Float32 = _model(config).roundtrip(values, config)
    return received
