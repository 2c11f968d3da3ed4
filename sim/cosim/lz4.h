// What Verilator's FST writer calls of liblz4. Distributions have that header in a package apart, which a user may
// lack; the simulator's process has Python, whose lz4 does the same.
#pragma once
#include "wave_compress.h"

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }
inline int LZ4_compress_default(const char *from, char *to, int size, int room) {
  return static_cast<int>(fanin_compress(kLz4, from, size, to, room));
}
