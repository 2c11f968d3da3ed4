// Compression by Python (wave_writer.py), which is in the simulator's process anyway.
#pragma once
#include <cstddef>

enum Compression : int { kLz4 = 0, kZlib = 1 };

// Bytes written to ``to``, which has room for ``room``; 0 if they do not fit.
extern "C" size_t fanin_compress(int method, const void *from, size_t size, void *to, size_t room);
