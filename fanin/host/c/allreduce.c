/* INCEPTIONN's algorithm 1 on MPI, bit for bit like fanin.host.mpi.allreduce.
 *
 * The values are cut into one block per rank. In the reduce-scatter, rank r sends partial sums of block r - step and
 * adds its own values to block r - step - 1, which arrives; in the end it has the total of block r + 1. In the
 * all-gather, the totals travel around the ring. */
#include <mpi.h>

#include "fanin.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 0x28 };

typedef struct {
    const fanin_codec *codec;
    MPI_Comm comm;
    int nodes, rank;
    size_t count, room;       /* number of all values; bytes of each stream buffer */
    uint8_t *sent, *received; /* stream buffers */
    float *partial;           /* decoded values of the received stream */
} ring;

/* Return the index of a block's first value; that of the next block is the block's end. */
static size_t bound_of(const ring *r, int block) { return r->count * (size_t)block / (size_t)r->nodes; }

/* Return a number of a block or rank modulo the number of ranks, also for negative numbers. */
static int block_of(const ring *r, int number) { return (number % r->nodes + r->nodes) % r->nodes; }

/* Send `length` bytes of r->sent to the next rank; receive a stream of *bytes bytes from the previous one. */
static int exchange(ring *r, size_t length, int *bytes) {
    MPI_Request sending;
    MPI_Status status;
    int next = block_of(r, r->rank + 1), previous = block_of(r, r->rank - 1);
    int error = MPI_Isend(r->sent, (int)length, MPI_BYTE, next, TAG, r->comm, &sending);
    if (error) return error;
    error = MPI_Probe(previous, TAG, r->comm, &status);
    if (!error) error = MPI_Get_count(&status, MPI_BYTE, bytes);
    if (!error && (size_t)*bytes > r->room) error = MPI_ERR_TRUNCATE;
    if (!error) error = MPI_Recv(r->received, *bytes, MPI_BYTE, previous, TAG, r->comm, MPI_STATUS_IGNORE);
    if (error) MPI_Cancel(&sending); /* MPI no longer uses the buffer after the wait */
    int ended = MPI_Wait(&sending, MPI_STATUS_IGNORE);
    return error ? error : ended;
}

/* Write the stream of values that this rank sends in a step to r->sent; return its length in bytes. */
static size_t encode(ring *r, const float *values, size_t count, int step) {
    fanin_codec codec = *r->codec;
    codec.seed = fanin_derived_seed(codec.seed, (uint32_t)r->rank, (uint32_t)step);
    return fanin_encode(&codec, values, count, r->sent);
}

/* Compute the total of block rank + 1; `total` holds this rank's values at the start, partial sums afterwards. */
static int reduce_scatter(ring *r, const float *own, float *total) {
    for (int step = 0; step < r->nodes - 1; step++) {
        int sent = block_of(r, r->rank - step), received = block_of(r, sent - 1), bytes;
        size_t first = bound_of(r, sent), at = bound_of(r, received), values = bound_of(r, received + 1) - at;
        size_t length = encode(r, total + first, bound_of(r, sent + 1) - first, step);
        int error = exchange(r, length, &bytes);
        if (error) return error;
        if (fanin_decode(r->codec, r->received, (size_t)bytes, r->partial, values)) return MPI_ERR_TRUNCATE;
        for (size_t i = 0; i < values; i++) total[at + i] = r->partial[i] + own[at + i];
    }
    return MPI_SUCCESS;
}

/* Send the totals around the ring, each as its first rank encoded it, so that all ranks decode the same values. */
static int all_gather(ring *r, float *total) {
    int block = block_of(r, r->rank + 1), bytes;
    size_t at = bound_of(r, block), values = bound_of(r, block + 1) - at;
    size_t length = encode(r, total + at, values, r->nodes - 1);
    if (fanin_decode(r->codec, r->sent, length, total + at, values)) return MPI_ERR_TRUNCATE;
    for (int step = 1; step < r->nodes; step++) {
        int error = exchange(r, length, &bytes);
        if (error) return error;
        block = block_of(r, block - 1);
        at = bound_of(r, block), values = bound_of(r, block + 1) - at;
        if (fanin_decode(r->codec, r->received, (size_t)bytes, total + at, values)) return MPI_ERR_TRUNCATE;
        uint8_t *other = r->sent;
        r->sent = r->received, r->received = other, length = (size_t)bytes;
    }
    return MPI_SUCCESS;
}

/* Compare the ranks' arguments before the first exchange, so that no rank waits for one that has failed.
 * Return MPI_ERR_ARG if they differ, MPI_ERR_NO_MEM if a rank is not `ready`: it lacks memory. */
static int agreed(const fanin_codec *codec, size_t count, int ready, MPI_Comm comm) {
    enum { FACTS = 9 };
    long long own[FACTS] = {ready,         (long long)count, codec->kind,    codec->bound, codec->strict,
                            codec->block, codec->mantissa,  codec->element, codec->seed};
    long long smallest[FACTS], largest[FACTS];
    int error = MPI_Allreduce(own, smallest, FACTS, MPI_LONG_LONG, MPI_MIN, comm);
    if (!error) error = MPI_Allreduce(own, largest, FACTS, MPI_LONG_LONG, MPI_MAX, comm);
    if (error) return error;
    if (memcmp(smallest + 1, largest + 1, sizeof smallest - sizeof *smallest)) return MPI_ERR_ARG;
    return smallest[0] ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

int fanin_allreduce(const fanin_codec *codec, const float *in, float *out, size_t count, MPI_Comm comm) {
    ring r = {codec, MPI_COMM_NULL, 0, 0, count, 0, NULL, NULL, NULL};
    int error = MPI_Comm_dup(comm, &r.comm); /* a communicator of our own, separate from the program's messages */
    if (!error) error = MPI_Comm_size(r.comm, &r.nodes);
    if (!error) error = MPI_Comm_rank(r.comm, &r.rank);
    if (error) return error;
    size_t longest = count / (size_t)r.nodes + 1;
    r.room = fanin_max_bytes(codec, longest);
    float *own = malloc(4 * count + 1);
    r.sent = malloc(r.room + 1), r.received = malloc(r.room + 1), r.partial = malloc(4 * longest);
    error = agreed(codec, count, own && r.sent && r.received && r.partial, r.comm);
    if (!error && (!r.room || r.room > INT_MAX)) error = MPI_ERR_ARG;
    if (!error) {
        memcpy(own, in, 4 * count);
        memmove(out, in, 4 * count);
        if (r.nodes > 1 && count) error = reduce_scatter(&r, own, out);
        if (!error && r.nodes > 1 && count) error = all_gather(&r, out);
    }
    free(own), free(r.sent), free(r.received), free(r.partial);
    MPI_Comm_free(&r.comm);
    return error;
}
