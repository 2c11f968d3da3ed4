// Replacement for the functions of zlib that Verilator's FST writer calls; see lz4.h.
#pragma once
#include "wave_compress.h"

typedef unsigned char Bytef;
typedef unsigned long uLong, uLongf;
constexpr int Z_OK = 0, Z_BUF_ERROR = -5;

inline uLong compressBound(uLong size) { return size + (size >> 12) + (size >> 14) + (size >> 25) + 13; }
inline int compress2(Bytef *target, uLongf *length, const Bytef *source, uLong size, int) {
  *length = fanin_compress(kZlib, source, size, target, *length);
  return *length ? Z_OK : Z_BUF_ERROR;
}
