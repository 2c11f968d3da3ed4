"""``fanin codec verify``: NumPy against a scalar reading of the codecs, or RTL against NumPy."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from fanin.base.errors import CheckFailed, InputError
from fanin.cli.cache import add_no_cache
from fanin.cli.codec.options import add_codec
from fanin.codec.facts import CodecConfig
from fanin.codec.run.options import configuration
from fanin.runs.output import add_json, print_json

if TYPE_CHECKING:  # --help must not wait for NumPy to load
    import numpy as np

VALUES, RTL_VALUES = 100_000, 1_000_000
MAX_VALUES = 10_000_000  # more than 1 GB of Python's numbers


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    verify = parts.add_parser(
        "verify",
        help="compare NumPy with a scalar reading, or RTL with NumPy",
        description="Compare a codec's NumPy, bit for bit, with a plain scalar reading of its description; "
        "with --rtl its compressor and decompressor in Verilator with NumPy. The values are all exponents, "
        "special values, places at which choices change, random bits and gradients. Exit status 1 when a "
        "value differs.",
    )
    add_codec(verify, required=True)
    verify.add_argument("--rtl", action="store_true", help="compare the RTL with NumPy, both ways")
    verify.add_argument(
        "--values",
        type=int,
        metavar="N",
        help=f"number of values (default: {VALUES:,}, {RTL_VALUES:,} with --rtl)",
    )
    verify.add_argument("--seed", type=int, default=1, metavar="S", help="seed of values, frames and stalls")
    verify.add_argument(
        "--stalls", type=float, default=0.0, metavar="P", help="with --rtl, share of cycles that streams wait"
    )
    add_no_cache(verify, "with --rtl, ")
    add_json(verify)
    verify.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare. Raises CheckFailed if a value differs."""
    config = configuration(args.codec, args)
    count = (RTL_VALUES if args.rtl else VALUES) if args.values is None else args.values
    if not 1 <= count <= MAX_VALUES:
        raise InputError(f"--values {count}: must be 1 to {MAX_VALUES:,}")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: must be at least 0")
    if not 0 <= args.stalls < 1:
        raise InputError(f"--stalls {args.stalls:g}: must be at least 0 and less than 1")
    from fanin.codec.golden.samples import samples

    values = samples(count, args.seed)
    lines = _rtl(config, values, args) if args.rtl else [_scalar(config, values)]
    if args.json:
        print_json({"codec": str(config), "seed": args.seed, "checks": lines})
    else:
        print(f"{config}, seed {args.seed}")
        for line in lines:
            cycles = f", {line['cycles_per_group']:.4f} cycles per group" if args.rtl else ""
            rate = f"{line['values'] / line['seconds']:,.0f} values/s"
            print(f"  {line['check']}: {line['values']:,} values, {line['mismatches']} differ{cycles}, {rate}")
    for line in lines:
        if line["mismatches"]:
            raise CheckFailed(
                f"{line['check']}: {line['mismatches']} of {line['values']} differ: {line['first']}"
            )
    return 0


def _rtl(config: CodecConfig, values: np.ndarray, args: argparse.Namespace) -> list[dict[str, Any]]:
    from fanin.sim.codec.cosim import CodecRtl

    stalls = (args.stalls, args.stalls)
    return [
        {
            "check": f"RTL against NumPy, {comparison.direction}",
            "values": comparison.values,
            "mismatches": comparison.mismatches,
            "first": comparison.first,
            "seconds": comparison.run.seconds,
            "cycles": comparison.run.cycles,
            "cycles_per_group": comparison.cycles_per_group,
        }
        for comparison in CodecRtl(config).check(config, values, seed=args.seed, stalls=stalls)
    ]


def _scalar(config: CodecConfig, values: np.ndarray) -> dict[str, Any]:
    """Compare stream and decoded values with the scalar reading's."""
    import numpy as np

    from fanin.codec.golden import scalar
    from fanin.codec.golden.codecs import decode, encode

    start = time.perf_counter()
    bits = values.view(np.uint32).tolist()
    decoded = decode(encode(values, config), len(values), config).view(np.uint32).tolist()
    stream, expected = scalar.encode(bits, config), scalar.roundtrip(bits, config)
    different = [index for index, (a, b) in enumerate(zip(decoded, expected, strict=True)) if a != b]
    first = ""
    if different:
        index = different[0]
        first = f"0x{bits[index]:08x} becomes 0x{decoded[index]:08x}, not 0x{expected[index]:08x}"
    elif stream != encode(values, config):
        different, first = [0], "the streams"
    return {
        "check": "NumPy against the scalar reading",
        "values": len(values),
        "mismatches": len(different),
        "first": first,
        "seconds": time.perf_counter() - start,
    }
