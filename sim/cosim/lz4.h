// Replacement for the functions of liblz4 that Verilator's FST writer calls. Distributions have liblz4's header in a
// separate package, which may be missing; here Python's lz4 compresses.
#pragma once
#include "wave_compress.h"

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }
inline int LZ4_compress_default(const char *source, char *target, int size, int capacity) {
  return static_cast<int>(fanin_compress(kLz4, source, size, target, capacity));
}
