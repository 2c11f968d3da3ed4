"""Functions of every codec, dispatched to its golden model by the type of its parameters."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Codec, CodecConfig, is_stochastic
from fanin.codec.golden import bfp, half, inceptionn, mx
from fanin.codec.golden.rounding import advance

Float32 = npt.NDArray[np.float32]

#: Golden models; each has ``encode``, ``decode``, ``decode_prefix`` and ``roundtrip``.
MODELS: dict[Codec, ModuleType] = {
    Codec.INCEPTIONN: inceptionn,
    Codec.BFP: bfp,
    Codec.MX: mx,
    Codec.BF16: half,
    Codec.FP16: half,
}


def _model(config: CodecConfig) -> Any:
    if config.kind not in MODELS:
        raise ValueError(f"codec {config.kind} has no golden model; there are {', '.join(MODELS)}")
    return MODELS[config.kind]


class RoundTrips:
    """Round trips of one sender, as ``roundtrip``, whose random bits continue from call to call.

    - ``config``: codec of the values; None passes them unchanged.
    - ``seed``: start of the random bits of stochastic rounding, 1 to 2^32 - 1.
    """

    def __init__(self, config: CodecConfig | None, seed: int = 1):
        self._config, self._seed = config, seed

    def __call__(self, values: Float32) -> Float32:
        """Return ``values`` as the next node receives them."""
        received = roundtrip(values, self._config, self._seed)
        if self._config is not None and is_stochastic(self._config):
            self._seed = advance(self._seed, np.size(values))
        return received


def _seed(config: CodecConfig, seed: int) -> dict[str, int]:
    return {"seed": seed} if is_stochastic(config) else {}


def encode(values: Float32, config: CodecConfig, seed: int = 1) -> bytes:
    """Return the stream of ``values``, without a header.

    ``seed``: start of the random bits of stochastic rounding, 1 to 2^32 - 1; other codecs ignore it.
    """
    stream: bytes = _model(config).encode(values, config, **_seed(config, seed))
    return stream


def decode(stream: bytes, count: int, config: CodecConfig) -> Float32:
    """Decode a stream of ``count`` values without a header. Raises InputError unless its length matches."""
    values: Float32 = _model(config).decode(stream, count, config)
    return values


def decode_prefix(stream: bytes, count: int, config: CodecConfig) -> tuple[Float32, int]:
    """Decode the first ``count`` values; return them and their bytes. Raises InputError for a short stream."""
    values, consumed = _model(config).decode_prefix(stream, count, config)
    return values, consumed


def roundtrip(values: Float32, config: CodecConfig | None, seed: int = 1) -> Float32:
    """Return ``values`` as the next node receives them; unchanged without a codec.

    ``seed`` as for ``encode``.
    """
    if config is None:
        return values
    received: Float32 = _model(config).roundtrip(values, config, **_seed(config, seed))
    return received
