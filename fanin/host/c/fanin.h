/* fanin's codecs and its ring all-reduce, for C and C++ (docs/systems/inceptionn-mpi.md).
 *
 * Streams and sums have the bits of the Python package (fanin.codec.golden); streams also have those of the emitted
 * hardware. `make host` builds libfanin.a. fanin_allreduce needs MPI; the other functions need no library.
 */
#ifndef FANIN_H
#define FANIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FANIN_NONE, FANIN_INCEPTIONN, FANIN_BFP, FANIN_MX, FANIN_BF16, FANIN_FP16 } fanin_kind;

/* Element formats of MX. */
typedef enum { FANIN_E4M3, FANIN_E5M2, FANIN_E3M2, FANIN_E2M3, FANIN_E2M1, FANIN_INT8 } fanin_element;

/* A codec with its parameters. Use one of the functions below to make it. */
typedef struct {
    fanin_kind kind;
    int bound;             /* INCEPTIONN: errors are at most 2^-bound, 1 to 15 */
    int strict;            /* 0: algorithm 2 to the letter, which may exceed the bound */
    int block;             /* values that share an exponent. BFP: 4, 8, 16, 32 or 64. MX: 16, 32 or 64 */
    int mantissa;          /* BFP: bits of a magnitude, 3 to 15 */
    fanin_element element; /* MX: format of a value */
    uint32_t seed;         /* MX, bfloat16, binary16: seed of stochastic rounding; 0: round to nearest even */
} fanin_codec;

fanin_codec fanin_none(void);              /* unchanged float32 in the machine's byte order */
fanin_codec fanin_inceptionn(int bound);   /* strict, groups of 8, as in the NIC */
fanin_codec fanin_bfp(int block, int mantissa);
fanin_codec fanin_mx(fanin_element element, int block); /* seed 0 */
fanin_codec fanin_bf16(void);                           /* seed 0 */
fanin_codec fanin_fp16(void);                           /* seed 0 */

/* Return the seed of a rank's step in fanin_allreduce with a codec of this seed; 0 for 0. */
uint32_t fanin_derived_seed(uint32_t seed, uint32_t rank, uint32_t step);

/* Return the maximum length in bytes of a stream of `count` values; 0 for an invalid codec, and for no values. */
size_t fanin_max_bytes(const fanin_codec *codec, size_t count);

/* Write the stream of `count` values to `out`, a buffer of fanin_max_bytes bytes. Return the stream's length in bytes;
 * 0 for an invalid codec. */
size_t fanin_encode(const fanin_codec *codec, const float *values, size_t count, uint8_t *out);

/* Decode `count` values from a stream of `bytes` bytes. Return 0; -1 for an invalid codec or another length. */
int fanin_decode(const fanin_codec *codec, const uint8_t *stream, size_t bytes, float *values, size_t count);

/* Request that INCEPTIONN NICs on the path compress all data that an IPv4 socket sends from now on (ToS 0x28). The data
 * must be float32, little-endian, at multiples of 4 bytes from a TCP connection's first byte.
 * `mss`: bytes per segment, a multiple of 4, set before the socket connects or listens; 0: the kernel's, which suffices
 * if the path's MTU is a multiple of 4. Return 0; -1 with errno if `mss` is invalid or the kernel refuses. */
int fanin_compressed(int socket, int mss);

#ifdef MPI_VERSION /* include mpi.h first */
/* Write the sum of all ranks' `in` to `out`, which may be `in`, by algorithm 1's ring with the codec on every hop. All
 * ranks call the function with the same codec and count; a block, count / ranks values, has at most 2^31 - 1 bytes.
 * Return MPI_SUCCESS; MPI_ERR_ARG on all ranks if codecs or counts differ; MPI_ERR_NO_MEM on all ranks if one lacks
 * memory; MPI_ERR_TRUNCATE for a broken stream; or an error of MPI. */
int fanin_allreduce(const fanin_codec *codec, const float *in, float *out, size_t count, MPI_Comm comm);
#endif

#ifdef __cplusplus
}
#endif
#endif
