/* INCEPTIONN's algorithm 1 on MPI: what fanin.host.mpi.allreduce does, bit for bit. */
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
    size_t count;
    uint8_t *sent, *got; /* each has room for the longest stream */
    float *partial;      /* what a stream holds */
} ring;

static size_t bound_of(const ring *r, int block) { return r->count * (size_t)block / (size_t)r->nodes; }

static int block_of(const ring *r, int number) { return (number % r->nodes + r->nodes) % r->nodes; }

/* To the next rank and from the one before. */
static int exchange(ring *r, size_t length, int *received) {
    MPI_Request sending;
    MPI_Status status;
    int next = (r->rank + 1) % r->nodes, before = block_of(r, r->rank - 1);
    int error = MPI_Isend(r->sent, (int)length, MPI_BYTE, next, TAG, r->comm, &sending);
    if (!error) error = MPI_Probe(before, TAG, r->comm, &status);
    if (!error) error = MPI_Get_count(&status, MPI_BYTE, received);
    if (!error) error = MPI_Recv(r->got, *received, MPI_BYTE, before, TAG, r->comm, MPI_STATUS_IGNORE);
    return error ? error : MPI_Wait(&sending, MPI_STATUS_IGNORE);
}

static int reduce_scatter(ring *r, const float *own, float *total) {
    for (int step = 0; step < r->nodes - 1; step++) {
        int sent = block_of(r, r->rank - step), got = block_of(r, sent - 1), received;
        size_t first = bound_of(r, sent), at = bound_of(r, got), values = bound_of(r, got + 1) - at;
        size_t length = fanin_encode(r->codec, total + first, bound_of(r, sent + 1) - first, r->sent);
        int error = exchange(r, length, &received);
        if (error) return error;
        if (fanin_decode(r->codec, r->got, (size_t)received, r->partial, values)) return MPI_ERR_TRUNCATE;
        for (size_t i = 0; i < values; i++) total[at + i] = r->partial[i] + own[at + i];
    }
    return MPI_SUCCESS;
}

/* Each total goes round as it was encoded, so that all ranks have the same. */
static int all_gather(ring *r, float *total) {
    int block = block_of(r, r->rank + 1), received;
    size_t at = bound_of(r, block), values = bound_of(r, block + 1) - at;
    size_t length = fanin_encode(r->codec, total + at, values, r->sent);
    if (fanin_decode(r->codec, r->sent, length, total + at, values)) return MPI_ERR_TRUNCATE;
    for (int step = 1; step < r->nodes; step++) {
        int error = exchange(r, length, &received);
        if (error) return error;
        block = block_of(r, block - 1);
        at = bound_of(r, block), values = bound_of(r, block + 1) - at;
        if (fanin_decode(r->codec, r->got, (size_t)received, total + at, values)) return MPI_ERR_TRUNCATE;
        uint8_t *other = r->sent;
        r->sent = r->got, r->got = other, length = (size_t)received;
    }
    return MPI_SUCCESS;
}

/* Whether all ranks ask for the same. */
static int agreed(const fanin_codec *codec, size_t count, MPI_Comm comm) {
    long long own[] = {(long long)count, codec->kind, codec->bound, codec->strict, codec->block, codec->mantissa};
    long long least[6], most[6];
    int error = MPI_Allreduce(own, least, 6, MPI_LONG_LONG, MPI_MIN, comm);
    if (!error) error = MPI_Allreduce(own, most, 6, MPI_LONG_LONG, MPI_MAX, comm);
    if (error) return error;
    return memcmp(least, most, sizeof least) ? MPI_ERR_ARG : MPI_SUCCESS;
}

int fanin_allreduce(const fanin_codec *codec, const float *in, float *out, size_t count, MPI_Comm comm) {
    ring r = {codec, comm, 0, 0, count, NULL, NULL, NULL};
    int error = agreed(codec, count, comm);
    if (!error) error = MPI_Comm_size(comm, &r.nodes);
    if (!error) error = MPI_Comm_rank(comm, &r.rank);
    if (error) return error;
    size_t longest = count / (size_t)r.nodes + 1, room = fanin_max_bytes(codec, longest);
    if (!room || room > INT_MAX) return MPI_ERR_ARG;
    float *own = malloc(4 * count + 1);
    r.sent = malloc(room), r.got = malloc(room), r.partial = malloc(4 * longest);
    if (!own || !r.sent || !r.got || !r.partial) error = MPI_ERR_NO_MEM;
    if (!error) {
        memcpy(own, in, 4 * count);
        memmove(out, in, 4 * count);
        if (r.nodes > 1 && count) error = reduce_scatter(&r, own, out);
        if (!error && r.nodes > 1 && count) error = all_gather(&r, out);
    }
    free(own), free(r.sent), free(r.got), free(r.partial);
    return error;
}
