/* Streams of INCEPTIONN's codec (algorithms 2 and 3) and of block floating point. */
#include "bits.h"

enum { GROUP = 8, TAG_BYTES = 2, EXPONENT_BITS = 8 };
/* FINEST: with units of 2^-(FRACTION + FINEST), shifts up to FINEST are exact. FARTHEST: no bit is left after it. */
enum { FINEST = 16, FARTHEST = FRACTION + 2 };
enum { TAG_ZERO, TAG_BITS8, TAG_BITS16, TAG_RAW };
static const int SIZES[] = {0, 1, 2, 4}; /* bytes of a value after its tags, by tag */
static const int KEPT[] = {0, 7, 15, 0}; /* fraction bits of a short form, by tag */

fanin_codec fanin_none(void) {
    fanin_codec codec = {FANIN_NONE, 0, 0, 0, 0, 0, 0};
    return codec;
}

fanin_codec fanin_inceptionn(int bound) {
    fanin_codec codec = {FANIN_INCEPTIONN, bound, 1, 0, 0, 0, 0};
    return codec;
}

fanin_codec fanin_bfp(int block, int mantissa) {
    fanin_codec codec = {FANIN_BFP, 0, 0, block, mantissa, 0, 0};
    return codec;
}

static int is_valid(const fanin_codec *c) {
    if (c->kind == FANIN_NONE) return 1;
    if (c->kind == FANIN_INCEPTIONN) return c->bound >= 1 && c->bound <= 15;
    if (c->kind != FANIN_BFP) return fanin_is_valid_minifloat(c);
    return c->block >= 4 && c->block <= 64 && !(c->block & (c->block - 1)) && c->mantissa >= 3 && c->mantissa <= 15;
}

/* count / size, rounded up. */
static size_t divide_up(size_t count, size_t size) { return (count + size - 1) / size; }

static size_t block_bits(const fanin_codec *c) {
    return EXPONENT_BITS + (size_t)c->block * (size_t)(c->mantissa + 1);
}

size_t fanin_max_bytes(const fanin_codec *c, size_t count) {
    if (!is_valid(c)) return 0;
    if (c->kind == FANIN_NONE) return 4 * count;
    if (c->kind == FANIN_INCEPTIONN) return divide_up(count, GROUP) * (TAG_BYTES + 4 * GROUP);
    if (c->kind != FANIN_BFP) return fanin_minifloat_bytes(c, count);
    return divide_up(divide_up(count, (size_t)c->block) * block_bits(c), 8);
}

/* INCEPTIONN */

/* Return the tag of the shortest form that the error bound allows. The magnitude, significand * 2^-(FRACTION + shift),
 * is below 1 for a positive shift. Errors are compared as integers in units of 2^-(FRACTION + FINEST). */
static int tag_of(const fanin_codec *c, int shift, uint64_t significand) {
    if (shift <= 0) return TAG_RAW;
    if (!c->strict) return shift > c->bound ? TAG_ZERO : shift <= c->bound / 2 ? TAG_BITS16 : TAG_BITS8;
    uint64_t limit = 1ull << (FRACTION + FINEST - c->bound);
    uint64_t exact = shift > FINEST ? 0 : significand << (FINEST - shift);
    if (exact <= limit) return TAG_ZERO;
    return (exact & ((1ull << (FRACTION + FINEST - 7)) - 1)) <= limit ? TAG_BITS8 : TAG_BITS16;
}

/* Return the bits of a value in the form of its tag, right-aligned. */
static uint32_t word_of(int tag, uint32_t bits, int shift, uint64_t significand) {
    if (tag == TAG_RAW) return bits;
    if (tag == TAG_ZERO) return 0;
    uint32_t fraction = (uint32_t)(significand >> (shift > FARTHEST ? FARTHEST : shift));
    return bits >> 31 << KEPT[tag] | fraction >> (FRACTION - KEPT[tag]);
}

static size_t encode_inceptionn(const fanin_codec *c, const float *values, size_t count, uint8_t *out) {
    uint8_t *at = out;
    for (size_t begin = 0; begin < count; begin += GROUP) {
        unsigned tags = 0;
        uint8_t *head = at;
        at += TAG_BYTES;
        for (size_t i = 0; i < GROUP && begin + i < count; i++) {
            uint32_t bits = bits_of(values[begin + i]);
            int shift = BIAS - (int)(bits >> FRACTION & 0xff);
            uint64_t significand = 1u << FRACTION | (bits & ((1u << FRACTION) - 1));
            int tag = tag_of(c, shift, significand);
            uint32_t word = word_of(tag, bits, shift, significand);
            tags |= (unsigned)tag << (2 * i);
            for (int byte = 0; byte < SIZES[tag]; byte++) *at++ = (uint8_t)(word >> (8 * byte));
        }
        head[0] = (uint8_t)tags;
        head[1] = (uint8_t)(tags >> 8);
    }
    return (size_t)(at - out);
}

static float value_of_word(int tag, uint32_t word) {
    if (tag == TAG_RAW) return value_of(word);
    uint32_t magnitude = word & ((1u << KEPT[tag]) - 1);
    if (tag == TAG_ZERO || !magnitude) return 0.0f;
    int length = 32 - __builtin_clz(magnitude);
    uint32_t exponent = (uint32_t)(BIAS - (KEPT[tag] + 1 - length));
    uint32_t fraction = magnitude << (FRACTION + 1 - length) & ((1u << FRACTION) - 1);
    return value_of(word >> KEPT[tag] << 31 | exponent << FRACTION | fraction);
}

static int decode_inceptionn(const uint8_t *stream, size_t bytes, float *values, size_t count) {
    size_t at = 0;
    for (size_t begin = 0; begin < count; begin += GROUP) {
        if (bytes - at < TAG_BYTES) return -1;
        unsigned tags = stream[at] | (unsigned)stream[at + 1] << 8;
        at += TAG_BYTES;
        for (size_t i = 0; i < GROUP; i++) {
            int tag = (int)(tags >> (2 * i) & 3);
            uint32_t word = 0;
            if (bytes - at < (size_t)SIZES[tag]) return -1;
            for (int byte = 0; byte < SIZES[tag]; byte++) word |= (uint32_t)stream[at++] << (8 * byte);
            if (begin + i < count) values[begin + i] = value_of_word(tag, word);
        }
    }
    return at == bytes ? 0 : -1;
}

/* Block floating point: per block its exponent, then its values; each byte is filled from its lowest bit. */

/* Return a value's sign and magnitude in a block with the exponent `shared`. */
static uint32_t code_of(const fanin_codec *c, uint32_t bits, int shared) {
    int exponent = (int)(bits >> FRACTION & 0xff);
    uint32_t fraction = bits & ((1u << FRACTION) - 1), infinite = 1u << (c->mantissa - 1), magnitude;
    if (exponent == SPECIAL) {
        magnitude = fraction ? 2 * infinite - 1 : infinite;
    } else {
        int distance = shared - exponent > FARTHEST ? FARTHEST : shared - exponent;
        uint32_t limit = shared == SPECIAL ? infinite - 1 : 2 * infinite - 1;
        magnitude = rounded(exponent ? 1u << FRACTION | fraction : 0, FRACTION + 1 - c->mantissa + distance);
        if (magnitude > limit) magnitude = limit;
    }
    return (magnitude ? bits >> 31 << c->mantissa : 0) | magnitude;
}

static size_t encode_bfp(const fanin_codec *c, const float *values, size_t count, uint8_t *out) {
    size_t at = 0, block = (size_t)c->block;
    for (size_t begin = 0; begin < count; begin += block) {
        int shared = 0;
        for (size_t i = begin; i < begin + block && i < count; i++) {
            int exponent = (int)(bits_of(values[i]) >> FRACTION & 0xff);
            if (exponent > shared) shared = exponent;
        }
        put(out, &at, (uint32_t)shared, EXPONENT_BITS);
        for (size_t i = begin; i < begin + block; i++)
            put(out, &at, i < count ? code_of(c, bits_of(values[i]), shared) : 0, c->mantissa + 1);
    }
    return divide_up(at, 8);
}

static float value_of_code(const fanin_codec *c, uint32_t code, int shared) {
    uint32_t magnitude = code & ((1u << c->mantissa) - 1), sign = code >> c->mantissa;
    if (shared == SPECIAL && magnitude > 1u << (c->mantissa - 1)) return value_of(QUIET_NAN);
    if (!magnitude) return 0.0f;
    int length = 32 - __builtin_clz(magnitude), exponent = shared - c->mantissa + length;
    if (exponent <= 0) return 0.0f;
    uint32_t fraction = magnitude << (FRACTION + 1 - length) & ((1u << FRACTION) - 1);
    return value_of(sign << 31 | (uint32_t)exponent << FRACTION | fraction);
}

static int decode_bfp(const fanin_codec *c, const uint8_t *stream, size_t bytes, float *values, size_t count) {
    if (bytes != fanin_max_bytes(c, count)) return -1;
    size_t at = 0, block = (size_t)c->block;
    for (size_t begin = 0; begin < count; begin += block) {
        int shared = (int)get(stream, &at, EXPONENT_BITS);
        for (size_t i = begin; i < begin + block; i++) {
            uint32_t code = get(stream, &at, c->mantissa + 1);
            if (i < count) values[i] = value_of_code(c, code, shared);
        }
    }
    return 0;
}

size_t fanin_encode(const fanin_codec *c, const float *values, size_t count, uint8_t *out) {
    if (!is_valid(c)) return 0;
    if (c->kind == FANIN_INCEPTIONN) return encode_inceptionn(c, values, count, out);
    if (c->kind == FANIN_BFP) return encode_bfp(c, values, count, out);
    if (c->kind != FANIN_NONE) return fanin_encode_minifloat(c, values, count, out);
    memcpy(out, values, 4 * count);
    return 4 * count;
}

int fanin_decode(const fanin_codec *c, const uint8_t *stream, size_t bytes, float *values, size_t count) {
    if (!is_valid(c)) return -1;
    if (c->kind == FANIN_INCEPTIONN) return decode_inceptionn(stream, bytes, values, count);
    if (c->kind == FANIN_BFP) return decode_bfp(c, stream, bytes, values, count);
    if (c->kind != FANIN_NONE) return fanin_decode_minifloat(c, stream, bytes, values, count);
    if (bytes != 4 * count) return -1;
    memcpy(values, stream, bytes);
    return 0;
}
