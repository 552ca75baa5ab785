// SPDX-License-Identifier: Apache-2.0
/*
 * Wrong calls: calls of ranks that do not match, and bad arguments. All ranks
 * concerned get an error, and the communicator can still be used.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/collectives/cases.h"
#include "tests/collectives/table.h"

/* --- wrong calls -------------------------------------------------------------
 */

int still_usable(const struct rank *self)
{
    int64_t one = self->rank + 1, sum = -1, all[MAX_RANKS];
    int n = self->size;

    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, &one, &sum, 1, SHUNT_I64, SHUNT_SUM));
    CHECK(sum == n * (n + 1) / 2, "sum %lld", (long long)sum);
    CHECK_OK(self->comm, shunt_allgather(self->comm, &one, all, 1, SHUNT_I64));
    for (int i = 0; i < n; i++)
        CHECK(all[i] == i + 1, "block %d is %lld", i, (long long)all[i]);
    CHECK(shunt_comm_async_status(self->comm) == SHUNT_OK, "communicator");
    return 0;
}

enum shunt_status sooner_or_later(const struct rank *self, enum shunt_status st,
                                  char *text, size_t size)
{
    enum shunt_status later;

    snprintf(text, size, "%s", st ? shunt_last_error(self->comm) : "");
    later = shunt_barrier(self->comm);
    if (!later || st)
        return st ? st : later;
    snprintf(text, size, "%s", shunt_last_error(self->comm));
    return later;
}

/* A call in which the arguments of rank 1 differ from those of all other ranks.
 * A field that is 0 leaves rank 1's argument as it is. */
struct differing_call {
    const char *says; /* part of the error text on the other ranks */
    int kind;
    enum shunt_dtype dtype; /* of all ranks; 0: SHUNT_U8 */
    bool in_place;
    bool few_see; /* only ranks 0 and 1 need to get the error */
    /* from here on of rank 1, whose count is count / divisor - less */
    size_t divisor;
    size_t less;
    size_t count;
    enum shunt_dtype odd_dtype;
    enum shunt_op op;
    int root;
    bool barrier; /* rank 1 calls shunt_barrier() instead */
    enum { ANY, SEND, RECV, SEND_COUNTS, RECV_COUNTS, REQUEST } without;
    const size_t *recv_counts;
};

/* Make the call with the arguments `c`, which differ on rank 1 as `o` says. */
static enum shunt_status call_differently(const struct differing_call *o,
                                          struct collective_call c)
{
    if (o->dtype)
        c.dtype = o->dtype;
    if (o->in_place)
        c.send = SHUNT_IN_PLACE;
    if (shunt_comm_rank(c.comm) != 1)
        return collectives[o->kind].call(&c, NULL);
    if (o->without == REQUEST)
        return shunt_barrier_start(c.comm, NULL);
    if (o->barrier)
        return shunt_barrier(c.comm);
    c.count =
        o->count ? o->count : c.count / (o->divisor ? o->divisor : 1) - o->less;
    c.dtype = o->odd_dtype ? o->odd_dtype : c.dtype;
    c.op = o->op ? o->op : c.op;
    c.root = o->root;
    c.send = o->without == SEND ? NULL : c.send;
    c.recv = o->without == RECV ? NULL : c.recv;
    c.send_counts = o->without == SEND_COUNTS ? NULL : c.send_counts;
    c.recv_counts = o->without == RECV_COUNTS ? NULL : c.recv_counts;
    c.recv_counts = o->recv_counts ? o->recv_counts : c.recv_counts;
    return collectives[o->kind].call(&c, NULL);
}

/* True if this rank's call may succeed in spite of the mismatch. In a broadcast
 * on one host, a rank that has the block needs no error. */
static bool need_not_be_told(const struct rank *self,
                             const struct differing_call *o)
{
    return o->kind == BROADCAST && self->rank > 1 &&
           shunt_comm_nodes(self->comm) == 1;
}

static const struct differing_call mismatches[] = {
    {"rank 1", ALLTOALL, .divisor = 2},
    {"rank 1", ALLTOALL, .divisor = 2, .in_place = true},
    {"rank 1", ALLGATHER, .divisor = 3},
    {"rank 1", BROADCAST, .divisor = 3, .few_see = true},
    {"rank 1", REDUCE_SCATTER, .less = 1},
    {"rank 1", ALLREDUCE, .divisor = 9},
    {"rank 1", ALLREDUCE, .less = 1, .in_place = true},
    {"i32", ALLREDUCE, .dtype = SHUNT_F32, .odd_dtype = SHUNT_I32},
    {"min", ALLREDUCE, .op = SHUNT_MIN},
    {"root 1", BROADCAST, .root = 1},
    {"barrier", ALLTOALL, .barrier = true},
    {"barrier", BROADCAST, .barrier = true},
};

enum { BIG = 300000 }; /* bytes: more than a ring holds */

/* True for the argument "mixed": ranks with different counts choose different
 * algorithms of broadcast. Then even a rank that has the block may get an error
 * about the rank that disagrees. */
static bool is_mixed(const struct rank *self)
{
    return self->argc > 0 && !strcmp(self->argv[0], "mixed");
}

/* Make the call of mismatches[row], with blocks of `bytes`. */
static int mismatch_of(const struct rank *self, size_t row, unsigned char *in,
                       unsigned char *out, size_t bytes)
{
    const struct differing_call *o = &mismatches[row];
    const bool odd = self->rank == 1;
    char text[512];
    enum shunt_status st = call_differently(
        o, (struct collective_call){
               .comm = self->comm,
               .send = in,
               .recv = out,
               .count = o->dtype ? bytes / shunt_dtype_size(o->dtype) : bytes,
               .dtype = SHUNT_U8,
               .op = SHUNT_SUM,
           });

    st = sooner_or_later(self, st, text, sizeof(text));
    if (!st && need_not_be_told(self, o))
        return still_usable(self);
    if (odd || self->rank == 0 || !o->few_see) {
        CHECK_STATUS(self->comm, st, SHUNT_ERR_MISMATCH);
        CHECK(strstr(text, odd ? "rank" : o->says), "row %zu: \"%s\"", row,
              text);
    } else if (shunt_comm_nodes(self->comm) == 1 && !is_mixed(self)) {
        CHECK_STATUS(self->comm, st, SHUNT_OK);
    } else if (st) { /* a rank that forwards the block gets the error, too */
        CHECK_STATUS(self->comm, st, SHUNT_ERR_MISMATCH);
        CHECK(strstr(text, o->says), "\"%s\"", text);
    }
    return still_usable(self);
}

static int mismatch(const struct rank *self)
{
    static const size_t counts[] = {16, 5000, 100000, BIG};
    const size_t bytes = (size_t)BIG * (size_t)self->size;
    void *window;

    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, 2 * bytes, &window));
    for (int memory = 0; memory < 2; memory++) {
        unsigned char *in = memory ? window : calloc(2, bytes);

        for (size_t row = 0; row < sizeof(mismatches) / sizeof(*mismatches);
             row++)
            for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++)
                CHECK_RUN(mismatch_of(self, row, in, in + bytes, counts[k]));
        if (!memory)
            free(in);
    }
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    return 0;
}

/* The error texts on both ranks have both byte counts, and nothing behind a
 * block is written. */
static int mismatch_figures(const struct rank *self)
{
    size_t send[MAX_RANKS], recv[MAX_RANKS];
    unsigned char *in = calloc((size_t)self->size, 600);
    unsigned char *out = malloc((size_t)self->size * 600);
    enum shunt_status st;
    const char *text;

    for (int i = 0; i < self->size; i++)
        send[i] = recv[i] = 500;
    if (self->rank == 0)
        send[1] = 600;
    memset(out, POISON, (size_t)self->size * 600);
    st = shunt_alltoallv(self->comm, in, send, NULL, out, recv, NULL, SHUNT_U8);
    text = shunt_last_error(self->comm);
    if (self->rank < 2) {
        CHECK_STATUS(self->comm, st, SHUNT_ERR_MISMATCH);
        CHECK(strstr(text, "600 B") && strstr(text, "500 B") &&
                  strstr(text, self->rank ? "rank 0" : "rank 1"),
              "\"%s\"", text);
    } else {
        CHECK_STATUS(self->comm, st, SHUNT_OK);
    }
    for (int i = 0; i < self->size * 500; i++)
        CHECK(out[i] == 0 || (self->rank == 1 && i < 500), "byte %d", i);
    for (int i = self->size * 500; i < self->size * 600; i++)
        CHECK(out[i] == POISON, "byte %d", i);
    free(in);
    free(out);
    return still_usable(self);
}

/* Bad arguments of rank 1, and the text that its error must have. */
static const size_t own_block_differs[MAX_RANKS] = {4, 5, 4, 4, 4, 4, 4, 4,
                                                    4, 4, 4, 4, 4, 4, 4, 4};

static const struct differing_call bad_arguments[] = {
    {"buffer is NULL", BROADCAST, .without = RECV},
    {"root 77", BROADCAST, .root = 77},
    {"dtype 99", ALLGATHER, .odd_dtype = (enum shunt_dtype)99},
    {"op 9", ALLREDUCE, .op = (enum shunt_op)9},
    {"fp8", ALLREDUCE, .odd_dtype = SHUNT_FP8_E4M3},
    {"send_counts is NULL", ALLTOALLV, .without = SEND_COUNTS},
    {"recv_counts is NULL", ALLGATHERV, .without = RECV_COUNTS},
    {"counts is NULL", REDUCE_SCATTERV, .without = SEND_COUNTS},
    {"send_count is 3", ALLGATHERV, .less = 1},
    {"recv is NULL", ALLTOALL, .without = RECV},
    {"send is NULL", REDUCE_SCATTER, .without = SEND},
    {"own block", ALLTOALLV, .recv_counts = own_block_differs},
    {"count", ALLREDUCE, .dtype = SHUNT_I32, .count = SIZE_MAX / 2},
    {"rank", ALLTOALL, .dtype = SHUNT_I32, .count = SIZE_MAX / 8},
    {"request is NULL", BARRIER, .without = REQUEST},
};

static int refusals(const struct rank *self)
{
    const bool bad = self->rank == 1;
    char in[16 * MAX_RANKS] = {0}, out[16 * MAX_RANKS];
    size_t counts[MAX_RANKS];

    for (int i = 0; i < self->size; i++)
        counts[i] = 4;
    for (size_t k = 0; k < sizeof(bad_arguments) / sizeof(*bad_arguments);
         k++) {
        const struct differing_call *o = &bad_arguments[k];
        char text[512];
        enum shunt_status st =
            call_differently(o, (struct collective_call){.comm = self->comm,
                                                         .send = in,
                                                         .recv = out,
                                                         .count = 4,
                                                         .send_counts = counts,
                                                         .recv_counts = counts,
                                                         .dtype = SHUNT_I8,
                                                         .op = SHUNT_SUM});

        st = sooner_or_later(self, st, text, sizeof(text));
        if (st || !need_not_be_told(self, o)) {
            CHECK_STATUS(self->comm, st,
                         bad ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
            CHECK(strstr(text, bad ? o->says : "rank 1"), "row %zu: \"%s\"", k,
                  text);
        }
        CHECK_RUN(still_usable(self));
    }
    return 0;
}

/* Calls that every rank refuses may end before any rank has received a
 * message. */
static int refused_by_all(const struct rank *self)
{
    for (int round = 0; round < 40; round++) {
        for (int k = 0; k < 5 + round % 24; k++)
            CHECK_STATUS(self->comm,
                         shunt_broadcast(self->comm, NULL, 4, SHUNT_I8, 0),
                         SHUNT_ERR_INVALID);
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    }
    return 0;
}

/* A call without a communicator gets an error that says so. */
static int no_communicator(const struct rank *self)
{
    struct shunt_request *request = (struct shunt_request *)(void *)&request;
    int x = 0;

    (void)self;
    CHECK(shunt_barrier(NULL) == SHUNT_ERR_INVALID, "barrier");
    CHECK(strstr(shunt_last_error(NULL), "barrier: comm is NULL"), "%s",
          shunt_last_error(NULL));
    CHECK(shunt_allreduce_start(NULL, &x, &x, 1, SHUNT_I32, SHUNT_SUM,
                                &request) == SHUNT_ERR_INVALID,
          "allreduce_start");
    CHECK(!request, "a request after an error");
    return 0;
}

const struct rank_case wrong_cases[] = {
    {.name = "mismatch", .run = mismatch, .min_ranks = 2, .timeout_s = 110},
    {.name = "mismatch_figures", .run = mismatch_figures, .min_ranks = 2},
    {.name = "refusals", .run = refusals, .min_ranks = 2},
    {.name = "refused_by_all", .run = refused_by_all, .min_ranks = 2},
    {.name = "no_communicator", .run = no_communicator, .no_comm = true},
    {.name = NULL},
};
