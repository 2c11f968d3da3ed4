/* Parts that the codecs share: binary32 as bits, streams of bits, rounding. Internal to the library. */
#ifndef FANIN_BITS_H
#define FANIN_BITS_H

#include "fanin.h"

#include <string.h>

enum { FRACTION = 23, BIAS = 127, SPECIAL = 255 };
static const uint32_t QUIET_NAN = 0x7fc00000;

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float value_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Write `width` bits of a number at bit *at of a stream; each byte is filled from its lowest bit. */
static inline void put(uint8_t *out, size_t *at, uint32_t number, int width) {
    for (int bit = 0; bit < width; bit++, (*at)++) {
        if (*at % 8 == 0) out[*at / 8] = 0;
        out[*at / 8] |= (uint8_t)((number >> bit & 1) << (*at % 8));
    }
}

static inline uint32_t get(const uint8_t *stream, size_t *at, int width) {
    uint32_t number = 0;
    for (int bit = 0; bit < width; bit++, (*at)++) number |= (uint32_t)(stream[*at / 8] >> (*at % 8) & 1) << bit;
    return number;
}

/* Return significand / 2^shift, rounded to the nearest integer, ties to even; shift is 1 to 62. */
static inline uint32_t rounded(uint32_t significand, int shift) {
    uint64_t down = (uint64_t)significand >> shift;
    uint64_t remainder = significand - (down << shift), half = 1ull << (shift - 1);
    return (uint32_t)(down + (remainder > half || (remainder == half && (down & 1))));
}

/* Streams of MX, bfloat16 and binary16 (minifloat.c). The codec is valid. */
int fanin_is_valid_minifloat(const fanin_codec *codec);
size_t fanin_minifloat_bytes(const fanin_codec *codec, size_t count);
size_t fanin_encode_minifloat(const fanin_codec *codec, const float *values, size_t count, uint8_t *out);
int fanin_decode_minifloat(const fanin_codec *codec, const uint8_t *stream, size_t bytes, float *values, size_t count);

#endif
