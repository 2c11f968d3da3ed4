// What Verilator's FST writer calls of zlib: see lz4.h.
#pragma once
#include "wave_compress.h"

typedef unsigned char Bytef;
typedef unsigned long uLong, uLongf;
constexpr int Z_OK = 0, Z_BUF_ERROR = -5;

inline uLong compressBound(uLong size) { return size + (size >> 12) + (size >> 14) + (size >> 25) + 13; }
inline int compress2(Bytef *to, uLongf *room, const Bytef *from, uLong size, int) {
  *room = fanin_compress(kZlib, from, size, to, *room);
  return *room ? Z_OK : Z_BUF_ERROR;
}
