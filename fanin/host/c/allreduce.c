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
    size_t count, room;  /* room: of the longest stream */
    uint8_t *sent, *got;
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
    if (error) return error;
    error = MPI_Probe(before, TAG, r->comm, &status);
    if (!error) error = MPI_Get_count(&status, MPI_BYTE, received);
    if (!error && (size_t)*received > r->room) error = MPI_ERR_TRUNCATE;
    if (!error) error = MPI_Recv(r->got, *received, MPI_BYTE, before, TAG, r->comm, MPI_STATUS_IGNORE);
    if (error) MPI_Cancel(&sending); /* the buffer is let go of */
    int ended = MPI_Wait(&sending, MPI_STATUS_IGNORE);
    return error ? error : ended;
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

/* Whether all ranks ask for the same, and have the memory for it: nobody waits for one that does not. */
static int agreed(const fanin_codec *codec, size_t count, int ready, MPI_Comm comm) {
    long long own[] = {ready, (long long)count, codec->kind, codec->bound, codec->strict, codec->block, codec->mantissa};
    long long least[7], most[7];
    int error = MPI_Allreduce(own, least, 7, MPI_LONG_LONG, MPI_MIN, comm);
    if (!error) error = MPI_Allreduce(own, most, 7, MPI_LONG_LONG, MPI_MAX, comm);
    if (error) return error;
    if (memcmp(least + 1, most + 1, sizeof least - sizeof *least)) return MPI_ERR_ARG;
    return least[0] ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

int fanin_allreduce(const fanin_codec *codec, const float *in, float *out, size_t count, MPI_Comm comm) {
    ring r = {codec, MPI_COMM_NULL, 0, 0, count, 0, NULL, NULL, NULL};
    int error = MPI_Comm_dup(comm, &r.comm); /* our own: no message of the program's is taken for ours */
    if (!error) error = MPI_Comm_size(r.comm, &r.nodes);
    if (!error) error = MPI_Comm_rank(r.comm, &r.rank);
    if (error) return error;
    size_t longest = count / (size_t)r.nodes + 1;
    r.room = fanin_max_bytes(codec, longest);
    float *own = malloc(4 * count + 1);
    r.sent = malloc(r.room + 1), r.got = malloc(r.room + 1), r.partial = malloc(4 * longest);
    error = agreed(codec, count, own && r.sent && r.got && r.partial, r.comm);
    if (!error && (!r.room || r.room > INT_MAX)) error = MPI_ERR_ARG;
    if (!error) {
        memcpy(own, in, 4 * count);
        memmove(out, in, 4 * count);
        if (r.nodes > 1 && count) error = reduce_scatter(&r, own, out);
        if (!error && r.nodes > 1 && count) error = all_gather(&r, out);
    }
    free(own), free(r.sent), free(r.got), free(r.partial);
    MPI_Comm_free(&r.comm);
    return error;
}
