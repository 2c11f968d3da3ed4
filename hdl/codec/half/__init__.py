"""bfloat16 and binary16 as codecs: compressor and decompressor."""

from fanin.hdl.codec.half.compressor import HalfCompressor
from fanin.hdl.codec.half.decompressor import HalfDecompressor

__all__ = ["HalfCompressor", "HalfDecompressor"]
