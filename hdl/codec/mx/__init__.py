"""OCP Microscaling formats (MX v1.0): compressor and decompressor."""

from fanin.hdl.codec.mx.compressor import MxCompressor
from fanin.hdl.codec.mx.decompressor import MxDecompressor

__all__ = ["MxCompressor", "MxDecompressor"]
