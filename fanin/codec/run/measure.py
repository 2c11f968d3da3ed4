"""Measurements of codecs on values: a row per codec; INCEPTIONN's are like its table III."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import ENUMERATIONS, FLOAT_BITS, TAG_BYTES, CodecConfig, Inceptionn, Mode, Tag
from fanin.codec.golden import inceptionn
from fanin.codec.golden.codecs import RoundTrips
from fanin.codec.golden.file import FLOAT_BYTES
from fanin.runs.output import table
from fanin.sim.codec.tags import BOUNDS, FORM_BITS, TABLE_III, bits

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Measurements of one codec; fields that do not apply are None.

    Errors are those of finite values, infinite for one that arrives as infinity or NaN.
    """

    codec: str
    mode: str | None = None
    bound: int | None = None  #: b of the error bound 2^-b
    block: int | None = None
    mantissa: int | None = None
    exponent: int | None = None
    offset: int | None = None
    element: str | None = None
    rounding: str | None = None
    shares: dict[int, float] | None = None  #: share of values by the bits of INCEPTIONN's forms
    bits: float  #: bits per value, without the padding of the last group
    bytes: int | None = None  #: bytes of the whole stream
    ratio: float
    max_error: float | None = None
    mean_error: float | None = None


class Meter:
    """Accumulator of a codec's measurements on values that arrive in pieces.

    ``seed``: start of the random bits of stochastic rounding, 1 to 2^32 - 1.
    """

    def __init__(self, config: CodecConfig, seed: int = 1):
        self.config = config
        self._round_trips = RoundTrips(config, seed)
        self._count = self._finite = 0
        self._forms = np.zeros(len(Tag), dtype=np.int64)
        self._largest = self._sum = 0.0

    def add(self, values: Float32) -> None:
        """Add a piece, which is a whole number of blocks unless it is the last."""
        self._count += len(values)
        if isinstance(self.config, Inceptionn):
            tags, words = inceptionn.compress(values, self.config)
            decoded = inceptionn.decompress(tags, words)
            self._forms += np.bincount(tags, minlength=len(Tag))
        else:
            decoded = self._round_trips(values)
        finite = np.isfinite(values)
        errors = np.abs(values[finite].astype(np.float64) - decoded[finite])
        errors[np.isnan(errors)] = np.inf
        self._finite += len(errors)
        self._sum += float(errors.sum())
        self._largest = max(self._largest, float(errors.max(initial=0.0)))

    def row(self) -> Row:
        """Return the measurements so far; requires at least one value."""
        config, (size, _) = self.config, self.config.stream_limits(self._count)  # INCEPTIONN: only tags
        size += sum(TAG_BYTES[tag] * int(self._forms[tag]) for tag in Tag)
        parameters = {name: value for name, value in vars(config).items() if name != "group"}
        row = Row(
            codec=str(config.kind),
            bits=0,
            bytes=size,
            ratio=self._count * FLOAT_BYTES / size,
            max_error=self._largest if self._finite else None,
            mean_error=self._sum / self._finite if self._finite else None,
            **parameters | {name: parameters[name].name.lower() for name in parameters.keys() & ENUMERATIONS},
        )
        if not isinstance(config, Inceptionn):
            return replace(row, bits=FLOAT_BITS / config.ratio)
        shares = _shares_by_bits((self._forms / self._count).tolist())
        return replace(row, shares=shares, bits=bits(self._forms.tolist()))


def _shares_by_bits(shares: Sequence[float]) -> dict[int, float]:
    return dict(zip(FORM_BITS, shares, strict=True))


def paper_rows(bounds: Sequence[int]) -> Iterator[Row]:
    """Yield the rows of the handwritten-digit network in table III for those of ``bounds`` that it has."""
    for bound, percent in zip(BOUNDS, TABLE_III["HDC"], strict=True):
        if bound in bounds:
            shares = _shares_by_bits([share / 100 for share in percent])
            size, mode = bits(percent), Mode.PUBLISHED.name.lower()
            yield Row(
                codec="paper, HDC", mode=mode, bound=bound, shares=shares, bits=size, ratio=FLOAT_BITS / size
            )


def format_rows(rows: Sequence[Row]) -> str:
    """Format the rows as a table."""
    head = ["codec", "mode", "parameters", *(f"{size} bits" for size in FORM_BITS)]
    head += ["bits/value", "ratio", "max error", "mean error", "bytes"]
    return table([head, *map(_cells, rows)], right=range(3, len(head)))


def _cells(row: Row) -> list[str]:
    shares = [f"{share:.1%}" for share in row.shares.values()] if row.shares else [""] * len(FORM_BITS)
    mode = row.mode or row.rounding or ""
    return [
        *(row.codec, mode, _parameters(row), *shares, f"{row.bits:.2f}", f"{row.ratio:.2f}×"),
        *("" if error is None else f"{error:.3g}" for error in (row.max_error, row.mean_error)),
        "" if row.bytes is None else f"{row.bytes:,}",
    ]


def _parameters(row: Row) -> str:
    if row.bound:
        return f"2^-{row.bound}"
    if row.element:
        return f"{row.block} × {row.element}"
    if row.mantissa:
        return f"{row.block} × {row.mantissa}, {row.exponent}" + (f" - {row.offset}" if row.offset else "")
    return ""
