"""``fanin codec stats``: what the codecs make of a file of values, beside INCEPTIONN's table III."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.cli.codec.options import MODES, add_bfp, add_bound, add_group, parse_bound
from fanin.cli.output import print_json, table
from fanin.codec import FLOAT_BITS, TAG_BITS, TAG_BYTES, Bfp, Inceptionn, Mode, Tag
from fanin.errors import InputError

if TYPE_CHECKING:  # NumPy takes a moment to load, which --help need not pay
    import numpy as np

BOUNDS = (10, 8, 6)
FORM_BITS = tuple(TAG_BITS + 8 * TAG_BYTES[tag] for tag in Tag)  # 2, 10, 18 and 34 bits
# INCEPTIONN, table III: the handwritten-digit network, shares of FORM_BITS in percent.
PAPER_HDC = {10: (92.0, 6.5, 1.5, 0.0), 8: (95.7, 3.4, 0.9, 0.0), 6: (98.1, 1.6, 0.4, 0.0)}


@dataclass(frozen=True)
class Row:
    """What one codec makes of the values. Errors are of the finite ones; ``shares`` are INCEPTIONN's forms."""

    codec: str
    mode: str | None
    bound: int | None
    block: int | None
    mantissa: int | None
    shares: dict[int, float] | None  #: of the values, by bits
    bits: float  #: per value, the last group's filling left out
    bytes: int | None  #: of the whole stream
    ratio: float
    max_error: float | None
    mean_error: float | None


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    stats = parts.add_parser(
        "stats",
        help="compression and errors of a file's values",
        description="Say what each codec makes of a file of raw binary32 values: how many bits they take, and "
        "what it costs, beside the paper's table III.",
    )
    stats.add_argument("file", type=Path, metavar="FILE")
    defaults = " ".join(f"2^-{bound}" for bound in BOUNDS)
    add_bound(stats, help=f"error bound; repeatable (default: {defaults})", repeatable=True)
    stats.add_argument("--mode", choices=(*MODES, "both"), default="both", help="INCEPTIONN's")
    add_group(stats)
    add_bfp(stats)
    stats.add_argument("--json", action="store_true", help="one JSON object on stdout")
    stats.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the file once, and print a row per codec."""
    from fanin.cli.codec.values import open_values

    meters = _meters(args)
    with open_values(args.file) as (pieces, count):
        for piece in pieces:
            for meter in meters:
                meter.add(piece)
    rows = [meter.row() for meter in meters]
    if args.json:
        paper = [asdict(row) for row in paper_rows(tuple(PAPER_HDC))]
        value = {"file": str(args.file), "values": count, "rows": [asdict(row) for row in rows], "paper": paper}
        print_json(value)
        return 0
    print(f"{args.file}: {count:,} values, {count * FLOAT_BITS // 8:,} bytes")
    bounds = sorted(
        {meter.config.bound for meter in meters if isinstance(meter.config, Inceptionn)}, reverse=True
    )
    print(format_rows([*rows, *paper_rows(bounds)]))
    return 0


def _meters(args: argparse.Namespace) -> list[Meter]:
    bounds = dict.fromkeys(map(parse_bound, args.bound)) if args.bound else BOUNDS
    modes = [Mode[args.mode.upper()]] if args.mode != "both" else [Mode.STRICT, Mode.PUBLISHED]
    options = {name: getattr(args, name) for name in ("block", "mantissa") if getattr(args, name) is not None}
    group = {} if args.group is None else {"group": args.group}
    try:
        configs: list[Inceptionn | Bfp] = [
            Inceptionn(bound=bound, mode=mode, **group) for mode in modes for bound in bounds
        ]
        return [Meter(config) for config in (*configs, Bfp(**options))]
    except ValueError as error:
        raise InputError(str(error)) from error


class Meter:
    """Adds up what a codec makes of values that come in pieces."""

    def __init__(self, config: Inceptionn | Bfp):
        self.config = config
        self._count = self._finite = self._bytes = 0
        self._forms = dict.fromkeys(Tag, 0)
        self._largest = self._sum = 0.0

    def add(self, values: np.ndarray) -> None:
        """Take a piece: of any length if it is the last, else of a multiple of 512 values."""
        import numpy as np

        from fanin.sim.golden.codec import bfp, inceptionn

        self._count += len(values)
        if isinstance(self.config, Inceptionn):
            tags, words = inceptionn.compress(values, self.config)
            decoded = inceptionn.decompress(tags, words)
            for tag, number in enumerate(np.bincount(tags, minlength=len(Tag)).tolist()):
                self._forms[Tag(tag)] += number
            self._bytes += -(-len(values) // self.config.group) * self.config.tag_bytes
        else:
            decoded = bfp.roundtrip(values, self.config)
            self._bytes += -(-(-(-len(values) // self.config.block) * self.config.block_bits) // 8)
        finite = np.isfinite(values)
        errors = np.abs(values[finite].astype(np.float64) - decoded[finite])
        self._finite += len(errors)
        self._sum += float(errors.sum())
        self._largest = max(self._largest, float(errors.max(initial=0.0)))

    def row(self) -> Row:
        """What has come out so far; there has been a value."""
        size = self._bytes + sum(TAG_BYTES[tag] * number for tag, number in self._forms.items())
        ratio = self._count * FLOAT_BITS / 8 / size
        mean = self._sum / self._finite if self._finite else None
        largest = self._largest if self._finite else None
        if isinstance(self.config, Bfp):
            block, mantissa = self.config.block, self.config.mantissa
            bits = self.config.block_bits / block
            return Row("bfp", None, None, block, mantissa, None, bits, size, ratio, largest, mean)
        shares = [self._forms[tag] / self._count for tag in Tag]
        mode, bound = self.config.mode.name.lower(), self.config.bound
        by_bits, bits = dict(zip(FORM_BITS, shares, strict=True)), _average(shares)
        return Row("inceptionn", mode, bound, None, None, by_bits, bits, size, ratio, largest, mean)


def _average(shares: Sequence[float]) -> float:
    return sum(bits * share for bits, share in zip(FORM_BITS, shares, strict=True))


def paper_rows(bounds: Sequence[int]) -> Iterator[Row]:
    """Table III's rows of the handwritten-digit network, where it has the bound."""
    for bound in bounds:
        if bound in PAPER_HDC:
            shares = [percent / 100 for percent in PAPER_HDC[bound]]
            by_bits, bits = dict(zip(FORM_BITS, shares, strict=True)), _average(shares)
            ratio = FLOAT_BITS / bits
            yield Row("paper, HDC", "published", bound, None, None, by_bits, bits, None, ratio, None, None)


def format_rows(rows: Sequence[Row]) -> str:
    """The table for people."""
    head = ["codec", "mode", "parameters", *(f"{bits} bits" for bits in FORM_BITS)]
    head += ["bits/value", "ratio", "max error", "mean error", "bytes"]
    right = range(3, len(head))
    return table([head, *map(_cells, rows)], right=right)


def _cells(row: Row) -> list[str]:
    shares = [f"{share:.1%}" for share in row.shares.values()] if row.shares else [""] * len(FORM_BITS)
    parameters = f"2^-{row.bound}" if row.bound else f"{row.block} × {row.mantissa}"
    return [
        *(row.codec, row.mode or "", parameters, *shares, f"{row.bits:.2f}", f"{row.ratio:.2f}×"),
        *("" if error is None else f"{error:.3g}" for error in (row.max_error, row.mean_error)),
        "" if row.bytes is None else f"{row.bytes:,}",
    ]
