"""Block floating point (AI Smart NIC, section IV-B): compressor and decompressor."""

from fanin.hdl.codec.bfp.compressor import BfpCompressor
from fanin.hdl.codec.bfp.decompressor import BfpDecompressor

__all__ = ["BfpCompressor", "BfpDecompressor"]
