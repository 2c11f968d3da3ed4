"""``fanin codec encode`` and ``decode``: raw values to a compressed file, and back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import InputError
from fanin.base.scratch import output_file
from fanin.cli.codec.options import add_codec
from fanin.codec.facts import CodecConfig
from fanin.codec.formats import MAX_ROUNDING_SEED
from fanin.codec.run.options import configuration, parameters_of
from fanin.runs.output import add_json, check_writable, print_json

if TYPE_CHECKING:  # --help must not wait for NumPy to load
    import numpy as np


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare both parts and their options."""
    encode = parts.add_parser(
        "encode",
        help="compress a file of values",
        description="Compress a file of values (raw binary32, or .npy). The result begins with a header of 16 "
        "bytes that says how (docs/systems/codec.md).",
    )
    add_codec(encode, required=True)
    encode.add_argument("--seed", type=int, default=1, metavar="S", help="seed of stochastic rounding")
    encode.set_defaults(run=run_encode)
    decode = parts.add_parser(
        "decode",
        help="decompress a file of values",
        description="Write the values of a compressed file as raw binary32. Its header says which codec; "
        "options that are given must agree with it.",
    )
    add_codec(decode, required=False)
    decode.set_defaults(run=run_decode)
    for part in (encode, decode):
        part.add_argument("input", type=Path, metavar="IN")
        part.add_argument("output", type=Path, metavar="OUT")
        add_json(part)


def run_encode(args: argparse.Namespace) -> int:
    """Compress IN to OUT, without holding all values in memory."""
    from fanin.codec.golden.codecs import encode
    from fanin.codec.golden.file import Header
    from fanin.codec.golden.rounding import advance
    from fanin.codec.run.values import open_values

    config = configuration(args.codec, args)
    if not 1 <= args.seed <= MAX_ROUNDING_SEED:
        raise InputError(f"--seed {args.seed}: must be 1 to {MAX_ROUNDING_SEED:,}")
    check_writable(args.output)
    with open_values(args.input) as (parts, count), output_file(args.output) as file:
        file.write(Header(config, count).pack())
        seed = args.seed
        for part in parts:
            file.write(encode(part, config, seed))
            seed = advance(seed, len(part))
        size = file.tell()
    ratio = 4 * count / size
    if args.json:
        facts = {"output": str(args.output), "codec": str(config), "values": count}
        print_json(facts | {"bytes": size, "ratio": ratio})
    else:
        print(f"{args.output}: {count:,} values in {size:,} bytes, {ratio:.2f}× ({config})", file=sys.stderr)
    return 0


def run_decode(args: argparse.Namespace) -> int:
    """Decompress IN to OUT, without holding all values in memory."""
    from fanin.codec.golden.file import HEADER_BYTES, Header, decode_pieces
    from fanin.codec.run.values import bar, errors_naming, open_input

    parameters = parameters_of(args.codec, args)
    check_writable(args.output)
    with open_input(args.input) as (file, size):
        with errors_naming(args.input):
            header = Header.unpack(file.read(HEADER_BYTES))
            _check_agreement(args.codec, parameters, header.config)
            header.check_size(size - HEADER_BYTES)

        def decoded_parts() -> Iterator[np.ndarray]:
            with errors_naming(args.input):
                yield from decode_pieces(file, header)

        with bar(header.count) as progress, output_file(args.output) as output:
            for values in decoded_parts():
                output.write(values.astype("<f4").tobytes())
                progress.update(len(values))
    if args.json:
        print_json({"output": str(args.output), "codec": str(header.config), "values": header.count})
    else:
        print(f"{args.output}: {header.count:,} values ({header.config})", file=sys.stderr)
    return 0


def _check_agreement(codec: str | None, parameters: Mapping[str, object], config: CodecConfig) -> None:
    """Raise InputError for a codec or a parameter that is not the file's."""
    different = [name for name, value in parameters.items() if getattr(config, name, None) != value]
    if codec not in (None, config.kind):
        different.insert(0, "codec")
    if different:
        raise InputError(f"is {config}; --{different[0]} says otherwise")
