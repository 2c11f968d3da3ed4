// Compression by Python (wave_writer.py), which runs in the simulator's process.
#pragma once
#include <cstddef>

enum Compression : int { kLz4 = 0, kZlib = 1 };

// Compress ``size`` bytes into ``target``; returns the bytes written, or 0 if they exceed ``capacity``.
extern "C" size_t fanin_compress(int method, const void *source, size_t size, void *target, size_t capacity);
