"""INCEPTIONN: the blocks of algorithms 2 and 3, the burst compressor and decompressor."""
