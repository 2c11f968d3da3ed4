"""Factory of codec hardware, for any codec."""

from typing import Any

from fanin.base.errors import InputError
from fanin.codec.facts import Bfp, CodecConfig, Half, Inceptionn, Mx
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from fanin.hdl.codec.half import HalfCompressor, HalfDecompressor
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor
from fanin.hdl.codec.mx import MxCompressor, MxDecompressor


def make_compressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's compressor for words of ``width`` bits; INCEPTIONN's width follows its group.

    Raises InputError for a codec without RTL.
    """
    match config:
        case Inceptionn():
            return InceptionnCompressor(group=config.group)
        case Bfp():
            return BfpCompressor(width=width, **vars(config))
        case Mx():
            return MxCompressor(width=width, **vars(config))
        case Half():
            return HalfCompressor(width=width, codec=config.kind, rounding=config.rounding)
    raise InputError(f"codec {config.kind} has no compressor in RTL")


def make_decompressor(config: CodecConfig, width: int) -> Any:
    """Return the codec's decompressor for words of ``width`` bits; INCEPTIONN's width follows its group.

    Raises InputError for a codec without RTL.
    """
    match config:
        case Inceptionn():
            return InceptionnDecompressor(group=config.group)
        case Bfp():
            return BfpDecompressor(width=width, **vars(config))
        case Mx():
            return MxDecompressor(width=width, element=config.element, block=config.block)
        case Half():
            return HalfDecompressor(width=width, codec=config.kind)
    raise InputError(f"codec {config.kind} has no decompressor in RTL")
