"""Factory of codec hardware, for any codec."""

from typing import Any

from fanin.codec.facts import Bfp, CodecConfig, Inceptionn
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor


def make_compressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's compressor. ``width`` in bits applies to BFP; INCEPTIONN's width follows its group."""
    match config:
        case Inceptionn():
            return InceptionnCompressor(group=config.group)
        case Bfp():
            return BfpCompressor(width=width, **vars(config))
    raise ValueError(f"codec {config.kind} has no compressor")


def make_decompressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's decompressor. ``width`` in bits applies to BFP; INCEPTIONN's follows its group."""
    match config:
        case Inceptionn():
            return InceptionnDecompressor(group=config.group)
        case Bfp():
            return BfpDecompressor(width=width, **vars(config))
    raise ValueError(f"codec {config.kind} has no decompressor")
