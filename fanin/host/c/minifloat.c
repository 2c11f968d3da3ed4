/* Streams of OCP's MX formats, bfloat16 and binary16; the random bits of stochastic rounding. */
#include "bits.h"

enum { LARGEST_SCALE = 255, NO_RANDOM = -1, WINDOW = 32, WARM_UP = 1024 };
/* Shifts by more lose all bits, with the eight random ones and the carry below them, too. */
enum { RANDOM_BITS = 8, FARTHEST = FRACTION + 1 + RANDOM_BITS + 2 };

/* Format of a sign, an exponent and a fraction. `largest`: magnitude of the largest finite number; larger ones are NaN,
 * and `infinity`, if not 0, is infinity. `emax`: exponent of the largest power of two. */
typedef struct {
    int bits, fraction, bias, emax;
    uint32_t largest, infinity;
} format;

static const format ELEMENTS[] = {
    [FANIN_E4M3] = {8, 3, 7, 8, 126, 0}, [FANIN_E5M2] = {8, 2, 15, 15, 123, 124}, [FANIN_E3M2] = {6, 2, 3, 4, 31, 0},
    [FANIN_E2M3] = {6, 3, 1, 2, 31, 0},  [FANIN_E2M1] = {4, 1, 1, 2, 7, 0},       [FANIN_INT8] = {8, 7, 0, 0, 127, 0},
};
static const format BFLOAT16 = {16, 7, 127, 127, 0x7f7f, 0x7f80};
static const format BINARY16 = {16, 10, 15, 15, 0x7bff, 0x7c00};

fanin_codec fanin_mx(fanin_element element, int block) {
    fanin_codec codec = {FANIN_MX, 0, 0, block, 0, element, 0};
    return codec;
}

fanin_codec fanin_bf16(void) {
    fanin_codec codec = {FANIN_BF16, 0, 0, 0, 0, 0, 0};
    return codec;
}

fanin_codec fanin_fp16(void) {
    fanin_codec codec = {FANIN_FP16, 0, 0, 0, 0, 0, 0};
    return codec;
}

static const format *half_of(const fanin_codec *c) { return c->kind == FANIN_BF16 ? &BFLOAT16 : &BINARY16; }

int fanin_is_valid_minifloat(const fanin_codec *c) {
    if (c->kind == FANIN_BF16 || c->kind == FANIN_FP16) return 1;
    int is_block = c->block == 16 || c->block == 32 || c->block == 64;
    return c->kind == FANIN_MX && is_block && c->element >= FANIN_E4M3 && c->element <= FANIN_INT8;
}

size_t fanin_minifloat_bytes(const fanin_codec *c, size_t count) {
    if (c->kind != FANIN_MX) return 2 * count;
    size_t block = (size_t)c->block, bits = (size_t)ELEMENTS[c->element].bits;
    return (count + block - 1) / block * (1 + block * bits / 8);
}

/* Random bytes, one for each value. `window` has the next 32; byte n + 32 is the XOR of bytes n, n + 1, n + 2 and
 * n + 22, as bit n + 32 is that of bits n, n + 1, n + 2 and n + 22. */
typedef struct {
    uint8_t window[WINDOW];
    unsigned next;
} random_bytes;

static uint32_t stepped(uint32_t state) {
    return state >> 1 | (state ^ state >> 1 ^ state >> 2 ^ state >> 22) << 31;
}

static random_bytes start_random(uint32_t seed) {
    random_bytes random = {{0}, 0};
    uint32_t state = seed;
    for (int n = 0; n < WARM_UP; n++) state = stepped(state);
    for (int bit = 0; bit < 8 * WINDOW; bit++, state = stepped(state))
        random.window[bit / 8] |= (uint8_t)((state & 1) << bit % 8);
    return random;
}

static uint8_t at(const random_bytes *random, unsigned ahead) { return random->window[(random->next + ahead) % WINDOW]; }

/* Return the random byte of the next value; NO_RANDOM if the codec rounds to nearest. */
static int next_random(const fanin_codec *c, random_bytes *random) {
    if (!c->seed) return NO_RANDOM;
    uint8_t byte = at(random, 0);
    random->window[random->next % WINDOW] = (uint8_t)(byte ^ at(random, 1) ^ at(random, 2) ^ at(random, 22));
    random->next++;
    return byte;
}

/* Return the magnitude of a finite value / 2^scale; above f->largest it does not fit. */
static uint32_t magnitude_of(const format *f, uint32_t bits, int scale, int random) {
    int exponent = (int)(bits >> FRACTION & 0xff);
    uint32_t significand = (bits & ((1u << FRACTION) - 1)) | (exponent ? 1u << FRACTION : 0);
    int power = (exponent ? exponent : 1) - BIAS - scale, least = 1 - f->bias, step = power > least ? power : least;
    int shift = FRACTION - f->fraction + step - power;
    uint32_t base = (uint32_t)(step - least) << f->fraction;
    if (shift > FARTHEST) shift = FARTHEST;
    if (random == NO_RANDOM) return base + rounded(significand, shift);
    uint64_t extended = ((uint64_t)significand << (RANDOM_BITS + 1)) >> shift;
    uint32_t cut_off = (uint32_t)extended & ((2u << RANDOM_BITS) - 1);
    uint32_t carry = ((cut_off >> 1) + (cut_off & 1) + (uint32_t)random) >> RANDOM_BITS;
    return base + (uint32_t)(extended >> (RANDOM_BITS + 1)) + carry;
}

/* Return the value of a magnitude * 2^scale, +0 if it is below binary32's normal numbers and `flush` is set. */
static float number_of(const format *f, uint32_t magnitude, uint32_t sign, int scale, int flush) {
    if (magnitude > f->largest) return value_of(magnitude == f->infinity ? sign << 31 | 0x7f800000 : QUIET_NAN);
    uint32_t field = magnitude >> f->fraction, significand = magnitude & ((1u << f->fraction) - 1);
    int power = (field ? (int)field : 1) - f->bias - f->fraction + scale;
    if (field) significand |= 1u << f->fraction;
    if (!significand) return value_of(sign << 31);
    int leading = 31 - __builtin_clz(significand), exponent = power + leading + BIAS;
    if (exponent >= SPECIAL) return value_of(sign << 31 | 0x7f800000);
    if (exponent > 0) {
        uint32_t fraction = significand << (FRACTION - leading) & ((1u << FRACTION) - 1);
        return value_of(sign << 31 | (uint32_t)exponent << FRACTION | fraction);
    }
    return value_of(sign << 31 | (flush ? 0 : significand << (power + BIAS + FRACTION - 1)));
}

/* Return the scale of a block in E8M0; 255 if its values become NaN. */
static int scale_of(const format *f, const float *values, size_t count) {
    int largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(values[i]) & 0x7fffffff;
        if (bits > 0x7f800000) return LARGEST_SCALE;
        if ((int)(bits >> FRACTION) > largest) largest = (int)(bits >> FRACTION);
    }
    return largest > f->emax ? largest - f->emax : 0;
}

static uint32_t element_of(const fanin_codec *c, uint32_t bits, int scale, int random) {
    const format *f = &ELEMENTS[c->element];
    int exponent = (int)(bits >> FRACTION & 0xff);
    uint32_t magnitude = f->largest, sign = bits >> 31;
    if (!exponent) magnitude = 0; /* subnormals are flushed */
    else if (exponent != SPECIAL) magnitude = magnitude_of(f, bits, scale - BIAS, random);
    if (magnitude > f->largest) magnitude = f->largest;
    if (c->element == FANIN_INT8) return sign ? -magnitude & 0xff : magnitude;
    return sign << (f->bits - 1) | magnitude;
}

static size_t encode_mx(const fanin_codec *c, const float *values, size_t count, uint8_t *out) {
    const format *f = &ELEMENTS[c->element];
    size_t position = 0, block = (size_t)c->block;
    random_bytes random = start_random(c->seed);
    for (size_t begin = 0; begin < count; begin += block) {
        size_t present = count - begin < block ? count - begin : block;
        int scale = scale_of(f, values + begin, present);
        put(out, &position, (uint32_t)scale, 8);
        for (size_t i = 0; i < block; i++) {
            int byte = next_random(c, &random);
            int is_zero = i >= present || scale == LARGEST_SCALE;
            put(out, &position, is_zero ? 0 : element_of(c, bits_of(values[begin + i]), scale, byte), f->bits);
        }
    }
    return position / 8;
}

static float value_of_element(const fanin_codec *c, uint32_t code, int scale) {
    const format *f = &ELEMENTS[c->element];
    uint32_t sign = code >> (f->bits - 1), magnitude = code & ((1u << (f->bits - 1)) - 1);
    if (scale == LARGEST_SCALE) return value_of(QUIET_NAN);
    if (c->element != FANIN_INT8) return number_of(f, magnitude, sign, scale - BIAS, 1);
    if (code == 0x80) return number_of(f, 64, sign, scale - BIAS + 1, 1); /* -2: its magnitude has one bit more */
    return number_of(f, sign ? 0x100 - code : code, sign, scale - BIAS, 1);
}

static void decode_mx(const fanin_codec *c, const uint8_t *stream, float *values, size_t count) {
    size_t position = 0, block = (size_t)c->block;
    for (size_t begin = 0; begin < count; begin += block) {
        int scale = (int)get(stream, &position, 8);
        for (size_t i = begin; i < begin + block; i++) {
            uint32_t code = get(stream, &position, ELEMENTS[c->element].bits);
            if (i < count) values[i] = value_of_element(c, code, scale);
        }
    }
}

static uint32_t half_code(const format *f, uint32_t bits, int random) {
    uint32_t sign = bits >> 31 << 15, absolute = bits & 0x7fffffff;
    if (absolute > 0x7f800000) return f->infinity | 1u << (f->fraction - 1);
    if (absolute == 0x7f800000) return sign | f->infinity;
    uint32_t magnitude = magnitude_of(f, bits, 0, random);
    return sign | (magnitude > f->infinity ? f->infinity : magnitude);
}

size_t fanin_encode_minifloat(const fanin_codec *c, const float *values, size_t count, uint8_t *out) {
    if (c->kind == FANIN_MX) return encode_mx(c, values, count, out);
    random_bytes random = start_random(c->seed);
    for (size_t i = 0; i < count; i++) {
        uint32_t code = half_code(half_of(c), bits_of(values[i]), next_random(c, &random));
        out[2 * i] = (uint8_t)code;
        out[2 * i + 1] = (uint8_t)(code >> 8);
    }
    return 2 * count;
}

int fanin_decode_minifloat(const fanin_codec *c, const uint8_t *stream, size_t bytes, float *values, size_t count) {
    if (bytes != fanin_minifloat_bytes(c, count)) return -1;
    if (c->kind == FANIN_MX) {
        decode_mx(c, stream, values, count);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t code = stream[2 * i] | (uint32_t)stream[2 * i + 1] << 8;
        values[i] = number_of(half_of(c), code & 0x7fff, code >> 15, 0, 0);
    }
    return 0;
}

/* The bijective hash of MurmurHash3. */
static uint32_t mixed(uint32_t number) {
    number = (number ^ number >> 16) * 0x85ebca6bu;
    number = (number ^ number >> 13) * 0xc2b2ae35u;
    return number ^ number >> 16;
}

uint32_t fanin_derived_seed(uint32_t seed, uint32_t rank, uint32_t step) {
    if (!seed) return 0;
    uint32_t number = mixed(mixed(mixed(seed) + (rank + 1) * 0x9e3779b9u) + (step + 1) * 0x9e3779b9u);
    return number ? number : 1;
}
