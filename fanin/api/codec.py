"""``fanin.compress`` and ``fanin.decompress``: arrays through the gradient codecs."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.api.arguments import check_integers, path_of
from fanin.api.shown import DisplayedResult
from fanin.base.errors import InputError
from fanin.base.scratch import write_file
from fanin.codec.facts import CONFIGS, ENUMERATIONS, Bfp, Codec, CodecConfig, Half, Inceptionn, Mx, parse_member
from fanin.codec.formats import MAX_ROUNDING_SEED
from fanin.codec.golden.codecs import encode, roundtrip
from fanin.codec.golden.file import HEADER_BYTES, Header, decode_pieces
from fanin.codec.run.measure import Meter, Row
from fanin.codec.run.values import as_float32, errors_naming, open_input
from fanin.report.html import Rows

Float32 = npt.NDArray[np.float32]
_COSTS_OF_NONFINITE: dict[type[CodecConfig], str] = {
    Bfp: "0 unless they are near float32's largest",
    Mx: "NaN, or 0 beside infinities unless they are near float32's largest",
}


@dataclass(frozen=True, repr=False)
class Compressed(DisplayedResult):
    """Result of a codec: the stream, and the values that arrive."""

    config: CodecConfig
    values: Float32  #: decoded values, in the array's shape
    stream: bytes  #: encoded values, without a header
    row: Row  #: measurements, as ``fanin codec stats`` shows them

    @property
    def ratio(self) -> float:
        """Bytes of float32 divided by bytes of the stream."""
        return self.row.ratio

    @property
    def max_error(self) -> float | None:
        """Largest error of a finite value; None without finite values.

        The error is infinite if a finite value arrives as infinity or NaN.
        """
        return self.row.max_error

    @property
    def mean_error(self) -> float | None:
        """Mean error of finite values, as ``max_error``; None without finite values."""
        return self.row.mean_error

    @property
    def title(self) -> str:
        """Codec and number of values in one line."""
        return f"{self.values.size:,} values ({self.config})"

    @property
    def facts(self) -> Rows:
        """Size and errors."""
        errors = [
            (name, "no finite value" if error is None else f"{error:.3g}")
            for name, error in (("largest error", self.max_error), ("mean error", self.mean_error))
        ]
        forms = [(f"in {size} bits", f"{share:.1%}") for size, share in (self.row.shares or {}).items()]
        size = f"{len(self.stream):,} bytes, {self.row.bits:.2f} bits a value, {self.ratio:.2f}×"
        return [("stream", size), *forms, *errors]

    def write(self, path: str | Path) -> None:
        """Write a file as ``fanin codec encode`` does. Raises InputError if it cannot be written."""
        write_file(Path(path), Header(self.config, self.values.size).pack() + self.stream)


def compress(
    values: npt.ArrayLike, codec: str | CodecConfig, *, seed: int = 1, **parameters: Any
) -> Compressed:
    """Compress ``values``, float32 or rounded to it, with a codec.

    ``codec`` is a configuration of :mod:`fanin.codec.facts`, or the name of a codec with its ``parameters``:
    "inceptionn", "bfp", "mx", "bf16" or "fp16". ``seed``, 1 to 2^32 - 1, starts the random bits of stochastic
    rounding. Raises InputError for invalid parameters, and for values outside the range of float32. With BFP
    and MX a warning counts values that are NaN or infinite, which cost the finite values of their block.

    Source: INCEPTIONN, section 4; AI Smart NIC, section 3; OCP MX v1.0; docs/systems/codec.md.
    """
    check_integers(seed=seed)
    if not 1 <= seed <= MAX_ROUNDING_SEED:
        raise InputError(f"seed must be 1 to {MAX_ROUNDING_SEED:,}, not {seed}")
    config = _configuration(codec, parameters)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"values must be an array: {error}") from error
    if array.dtype.kind not in "fiu":
        raise InputError(f"values must be real numbers, not {array.dtype}")
    if not array.size:
        raise InputError("values must not be empty")
    flat = as_float32(array.reshape(-1).astype(np.float64) if array.dtype.kind != "f" else array.reshape(-1))
    nonfinite = int(np.count_nonzero(~np.isfinite(flat)))
    if nonfinite and (cost := _COSTS_OF_NONFINITE.get(type(config))):
        reason = f"NaN or infinite: finite values of their blocks become {cost}"
        warnings.warn(f"fanin.compress: {nonfinite:,} of {flat.size:,} values are {reason}", stacklevel=2)
    meter = Meter(config, seed)
    meter.add(flat)
    received = roundtrip(flat, config, seed).reshape(array.shape)
    return Compressed(config, received, encode(flat, config, seed), meter.row())


def decompress(path: str | Path) -> Float32:
    """Return the values, flat, in a file of ``Compressed.write`` or ``fanin codec encode``. Raises
    InputError.
    """
    path = path_of("path", path)
    with open_input(path) as (file, size), errors_naming(path):
        header = Header.unpack(file.read(HEADER_BYTES))
        header.check_size(size - HEADER_BYTES)
        return np.concatenate(list(decode_pieces(file, header)))


def _configuration(codec: str | CodecConfig, parameters: dict[str, Any]) -> CodecConfig:
    if isinstance(codec, Inceptionn | Bfp | Mx | Half):
        if parameters:
            raise InputError(
                f"{next(iter(parameters))} is set in {codec} already; give a codec's name and its parameters"
            )
        return codec
    if codec not in list(CONFIGS):
        raise InputError(f"codec must be one of {', '.join(CONFIGS)}, not {codec!r}")
    kind = CONFIGS[Codec(codec)]
    unknown = [name for name in parameters if name not in asdict(kind())]
    if unknown:
        raise InputError(
            f"{unknown[0]} is not a parameter of {codec}; its parameters are {', '.join(asdict(kind()))}"
        )
    check_integers(**{name: value for name, value in parameters.items() if name not in ENUMERATIONS})
    try:
        return kind(**{name: _parameter(name, value) for name, value in parameters.items()})
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def _parameter(name: str, value: Any) -> Any:
    """Return a parameter's value; of an enumeration, also by its name. Raises ValueError for another value."""
    is_member = name not in ENUMERATIONS or isinstance(value, ENUMERATIONS[name])
    return value if is_member else parse_member(name, value)
