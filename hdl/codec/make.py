"""The hardware of a codec, whichever it is."""

from typing import Any

from fanin.codec import Bfp, Inceptionn
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from fanin.hdl.codec.inceptionn.compressor import InceptionnCompressor
from fanin.hdl.codec.inceptionn.decompressor import InceptionnDecompressor


def make_compressor(config: Inceptionn | Bfp, width: int) -> Any:
    """The codec's compressor; ``width`` is BFP's, in bits: INCEPTIONN's is its group's."""
    if isinstance(config, Bfp):
        return BfpCompressor(width=width, block=config.block, mantissa=config.mantissa)
    return InceptionnCompressor(group=config.group)


def make_decompressor(config: Inceptionn | Bfp, width: int) -> Any:
    """The codec's decompressor; ``width`` likewise."""
    if isinstance(config, Bfp):
        return BfpDecompressor(width=width, block=config.block, mantissa=config.mantissa)
    return InceptionnDecompressor(group=config.group)
