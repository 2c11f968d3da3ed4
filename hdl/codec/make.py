"""Factory of codec hardware, for any codec."""

from typing import Any

from fanin.base.errors import InputError
from fanin.codec.facts import Bfp, CodecConfig, Inceptionn
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor


def check_rtl(config: CodecConfig | None) -> None:
    """Raise InputError that names the codec unless it has RTL, or is None."""
    if not isinstance(config, Inceptionn | Bfp | None):
        raise InputError(f"codec {config.kind} has no RTL: no compressor and no decompressor")


def make_compressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's compressor. ``width`` in bits applies to BFP; INCEPTIONN's width follows its group.

    Raises InputError for a codec without RTL.
    """
    match config:
        case Inceptionn():
            return InceptionnCompressor(group=config.group)
        case Bfp():
            return BfpCompressor(width=width, **vars(config))
    raise InputError(f"codec {config.kind} has no compressor in RTL")


def make_decompressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's decompressor. ``width`` in bits applies to BFP; INCEPTIONN's follows its group.

    Raises InputError for a codec without RTL.
    """
    match config:
        case Inceptionn():
            return InceptionnDecompressor(group=config.group)
        case Bfp():
            return BfpDecompressor(width=width, **vars(config))
    raise InputError(f"codec {config.kind} has no decompressor in RTL")
