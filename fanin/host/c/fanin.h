/* The codecs and the ring's all-reduce of fanin, for C and C++ (docs/systems/inceptionn-mpi.md).
 *
 * Streams and sums are bit for bit those of the Python package (fanin.codec.golden) and, of a codec's stream, those of
 * the emitted hardware. `make host` builds libfanin.a; fanin_allreduce needs MPI, the rest nothing.
 */
#ifndef FANIN_H
#define FANIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FANIN_NONE, FANIN_INCEPTIONN, FANIN_BFP } fanin_kind;

/* How values become a stream. Make it by one of the functions below. */
typedef struct {
    fanin_kind kind;
    int bound;    /* INCEPTIONN: errors are at most 2^-bound, 1 to 15 */
    int strict;   /* 0: algorithm 2 to the letter, which does not keep every bound */
    int block;    /* BFP: values that share an exponent: 4, 8, 16, 32 or 64 */
    int mantissa; /* BFP: bits of a magnitude, 3 to 15 */
} fanin_codec;

fanin_codec fanin_none(void);              /* float32 as it is, in the machine's byte order */
fanin_codec fanin_inceptionn(int bound);   /* strict, groups of 8: what the NIC has */
fanin_codec fanin_bfp(int block, int mantissa);

/* Most bytes that so many values take; 0 for a codec that there is not, and for no values. */
size_t fanin_max_bytes(const fanin_codec *codec, size_t count);

/* Write the stream of `count` values to `out`, which has room for fanin_max_bytes; the stream's length. */
size_t fanin_encode(const fanin_codec *codec, const float *values, size_t count, uint8_t *out);

/* Read `count` values from a stream of exactly `bytes`. 0; -1 where its length is not theirs. */
int fanin_decode(const fanin_codec *codec, const uint8_t *stream, size_t bytes, float *values, size_t count);

/* Let INCEPTIONN NICs on the way compress what an IPv4 socket sends from now on (ToS 0x28): float32, little-endian, at
 * multiples of 4 bytes from a TCP connection's first byte. `mss`: bytes of a segment, a multiple of 4, before the socket
 * connects or listens; 0: the kernel's, which is right where the path's MTU is a multiple of 4. 0; -1 with errno. */
int fanin_compressed(int socket, int mss);

#ifdef MPI_VERSION /* include mpi.h first */
/* The sum of all ranks' `in`, in `out`, which may be `in`: algorithm 1's ring, compressed on every hop. Every rank
 * calls it with the same codec and count, of at most 2^31 - 1 bytes a block. MPI_SUCCESS, or MPI's error;
 * MPI_ERR_ARG on all ranks where codecs or counts differ; MPI_ERR_NO_MEM on all ranks where one has too
 * little; MPI_ERR_TRUNCATE for a broken stream. */
int fanin_allreduce(const fanin_codec *codec, const float *in, float *out, size_t count, MPI_Comm comm);
#endif

#ifdef __cplusplus
}
#endif
#endif
