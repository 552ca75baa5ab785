// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_engine_moe.c. The copy engine, and no thread, copies the
 * rows of a dispatch that was started. It also copies those of combine's
 * gradient, if nothing is computed from them during the copy. The rows have the
 * same bits as if the caller's thread had copied them.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { EXPERTS = 7, TOPK = 3 };

/* One exchange with one plan. */
struct layer {
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows info;
    size_t tokens, row; /* number of tokens; bytes of a row */
    int32_t *idx;
    float *weight;
    unsigned char *x; /* the tokens, in separate pages */
};

static uint32_t mixed(uint32_t z)
{
    z = (z ^ z >> 16) * 0x85ebca6bu;
    z = (z ^ z >> 13) * 0xc2b2ae35u;
    return z ^ z >> 16;
}

static size_t x_bytes(const struct layer *l)
{
    return l->tokens * l->row + 1;
}

static int open_layer(const struct rank *self, size_t tokens, size_t hidden,
                      enum shunt_moe_weights weights, enum shunt_moe_wire wire,
                      struct layer *l)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;

    /* Ranks have different numbers of tokens; rank 0 has none. */
    *l = (struct layer){.tokens = tokens * (size_t)self->rank / 2,
                        .row = hidden * sizeof(float)};
    config.hidden = hidden;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = tokens * (size_t)self->size / 2 + 1;
    config.weights = weights;
    config.wire = wire;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &config, &l->moe));
    l->idx = malloc((l->tokens * TOPK + 1) * sizeof(*l->idx));
    l->weight = malloc((l->tokens * TOPK + 1) * sizeof(*l->weight));
    l->x = mmap(NULL, x_bytes(l), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(l->x != MAP_FAILED, "no memory");
    for (size_t i = 0; i < l->tokens * TOPK; i++) {
        const uint32_t z = mixed((uint32_t)i * 64 + (uint32_t)self->rank);

        l->idx[i] = z % 11 ? (int32_t)(z % EXPERTS) : -1;
        l->weight[i] = (float)(z % 17) / 8;
    }
    for (size_t i = 0; i < l->tokens * hidden; i++)
        ((float *)(void *)l->x)[i] =
            (float)(mixed((uint32_t)i + 77u * (uint32_t)self->rank) % 4096) /
            16;
    CHECK_OK(self->comm, shunt_moe_plan_create(l->moe, l->idx, l->weight,
                                               l->tokens, &l->plan));
    shunt_moe_plan_rows(l->plan, &l->info, sizeof(l->info));
    return 0;
}

static void close_layer(struct layer *l)
{
    shunt_moe_plan_destroy(l->plan);
    shunt_moe_destroy(l->moe);
    free(l->idx);
    free(l->weight);
    munmap(l->x, x_bytes(l));
}

static int engine_bytes(const struct rank *self, uint64_t *bytes)
{
    struct shunt_comm_stats stats;

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    *bytes = stats.bytes_engine;
    return 0;
}

/* Returns the bytes of all rows that this rank sends, including those to
 * itself. */
static uint64_t sent(const struct layer *l)
{
    return (uint64_t)l->info.kept * l->row;
}

/* Dispatch by the caller's thread, and by the engine, which must copy
 * `expected` bytes. */
static int dispatch_both(const struct rank *self, const struct layer *l,
                         uint64_t expected)
{
    const size_t bytes = l->info.total * l->row;
    unsigned char *rows = shunt_moe_buffer(l->plan, SHUNT_MOE_ROWS);
    unsigned char *reference = malloc(bytes + 1);
    struct shunt_request *request;
    uint64_t before, between, after;

    if (engine_bytes(self, &before))
        return 1;
    CHECK_OK(self->comm,
             shunt_moe_dispatch(l->plan, l->x, rows, l->info.total));
    if (engine_bytes(self, &between))
        return 1;
    CHECK(between == before, "a blocking call used the engine");
    if (bytes) {
        memcpy(reference, rows, bytes);
        memset(rows, 0xa5, bytes);
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(self->comm, shunt_moe_dispatch_start(l->plan, l->x, rows,
                                                  l->info.total, &request));
    CHECK_OK(self->comm, shunt_wait(&request));
    if (engine_bytes(self, &after))
        return 1;
    CHECK(!bytes || !memcmp(rows, reference, bytes), "other bits");
    CHECK(after - between == expected, "the engine moved %llu B, not %llu",
          (unsigned long long)(after - between), (unsigned long long)expected);
    free(reference);
    return 0;
}

static int backward_both(const struct rank *self, const struct layer *l,
                         float *dweight, uint64_t expected)
{
    const size_t bytes = l->info.total * l->row;
    const size_t products = l->tokens * TOPK * sizeof(float);
    unsigned char *out = shunt_moe_buffer(l->plan, SHUNT_MOE_OUT);
    unsigned char *dout = shunt_moe_buffer(l->plan, SHUNT_MOE_DOUT);
    unsigned char *reference = malloc(bytes + 1);
    float *first = malloc(products + 1);
    struct shunt_request *request;
    uint64_t before, after;

    for (size_t i = 0; i < bytes / sizeof(float); i++)
        ((float *)(void *)out)[i] = (float)(i % 61);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(self->comm, shunt_moe_combine_backward(l->plan, l->x, out, dout,
                                                    l->info.total, dweight));
    if (bytes)
        memcpy(reference, dout, bytes);
    if (dweight)
        memcpy(first, dweight, products);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (engine_bytes(self, &before))
        return 1;
    CHECK_OK(self->comm, shunt_moe_combine_backward_start(l->plan, l->x, out,
                                                          dout, l->info.total,
                                                          dweight, &request));
    CHECK_OK(self->comm, shunt_wait(&request));
    if (engine_bytes(self, &after))
        return 1;
    CHECK(!bytes || !memcmp(dout, reference, bytes), "other bits of dout");
    CHECK(!dweight || !memcmp(first, dweight, products), "other products");
    CHECK(after - before == expected, "the engine moved %llu B, not %llu",
          (unsigned long long)(after - before), (unsigned long long)expected);
    free(reference);
    free(first);
    return 0;
}

/* argv[0] is "none" if the engine must copy nothing. */
static bool expects_none(const struct rank *self)
{
    return self->argc && !strcmp(self->argv[0], "none");
}

/* Rows of many sizes. The last shape is copied in several parts. */
static int rows(const struct rank *self)
{
    static const struct {
        size_t tokens, hidden;
    } shapes[] = {{0, 3}, {1, 1}, {50, 5}, {400, 64}, {1000, 1030}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct layer l;

        if (open_layer(self, shapes[i].tokens, shapes[i].hidden,
                       SHUNT_MOE_PLAIN_SUM, SHUNT_MOE_WIRE_PAYLOAD, &l))
            return 1;
        for (int round = 0; round < 2; round++)
            if (dispatch_both(self, &l, expects_none(self) ? 0 : sent(&l)) ||
                backward_both(self, &l, NULL,
                              expects_none(self) ? 0 : sent(&l)))
                return 1;
        close_layer(&l);
    }
    return 0;
}

/* Rows from which something is computed during the copy are copied by the
 * caller's thread. */
static int not_copies(const struct rank *self)
{
    float *dweight = malloc(400 * TOPK * sizeof(*dweight));
    struct layer l;

    if (open_layer(self, 200, 256, SHUNT_MOE_APPLY_WEIGHTS, SHUNT_MOE_WIRE_FP8,
                   &l) ||
        dispatch_both(self, &l, 0) || backward_both(self, &l, NULL, 0) ||
        backward_both(self, &l, dweight, 0))
        return 1;
    close_layer(&l);
    if (open_layer(self, 200, 256, SHUNT_MOE_PLAIN_SUM, SHUNT_MOE_WIRE_PAYLOAD,
                   &l) ||
        backward_both(self, &l, dweight, 0))
        return 1;
    close_layer(&l);
    free(dweight);
    return 0;
}

/* The caller waits at once, and so makes the copies that the engine has not
 * begun. */
static int lends(const struct rank *self)
{
    unsigned char *buffer, *reference;
    struct shunt_request *request;
    struct layer l;
    size_t bytes;
    uint64_t moved;

    if (open_layer(self, 2000, 1030, SHUNT_MOE_PLAIN_SUM,
                   SHUNT_MOE_WIRE_PAYLOAD, &l))
        return 1;
    bytes = l.info.total * l.row;
    buffer = shunt_moe_buffer(l.plan, SHUNT_MOE_ROWS);
    reference = malloc(bytes + 1);
    CHECK_OK(self->comm, shunt_moe_dispatch(l.plan, l.x, buffer, l.info.total));
    memcpy(reference, buffer, bytes);
    for (int round = 0; round < 20; round++) {
        memset(buffer, round, bytes);
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_OK(self->comm, shunt_moe_dispatch_start(l.plan, l.x, buffer,
                                                      l.info.total, &request));
        CHECK_OK(self->comm, shunt_wait(&request));
        CHECK(!memcmp(buffer, reference, bytes), "other bits in round %d",
              round);
    }
    if (engine_bytes(self, &moved))
        return 1;
    CHECK(moved <= 20 * sent(&l), "the engine moved %llu B",
          (unsigned long long)moved);
    free(reference);
    close_layer(&l);
    return 0;
}

/* The engine fails after argv[0] copies. All rows must be right, and the
 * engine's counter must not exceed the bytes that it copied. */
static int failing(const struct rank *self)
{
    struct layer l;
    uint64_t bytes;

    if (open_layer(self, 300, 100, SHUNT_MOE_PLAIN_SUM, SHUNT_MOE_WIRE_PAYLOAD,
                   &l))
        return 1;
    for (int round = 0; round < 3; round++) {
        unsigned char *buffer = shunt_moe_buffer(l.plan, SHUNT_MOE_ROWS);
        const size_t all = l.info.total * l.row;
        unsigned char *reference = malloc(all + 1);
        struct shunt_request *request;

        CHECK_OK(self->comm,
                 shunt_moe_dispatch(l.plan, l.x, buffer, l.info.total));
        if (all) {
            memcpy(reference, buffer, all);
            memset(buffer, 0xa5, all);
        }
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_OK(self->comm, shunt_moe_dispatch_start(l.plan, l.x, buffer,
                                                      l.info.total, &request));
        CHECK_OK(self->comm, shunt_wait(&request));
        CHECK(!all || !memcmp(buffer, reference, all), "other bits");
        free(reference);
    }
    if (engine_bytes(self, &bytes))
        return 1;
    CHECK(bytes % l.row == 0 &&
              (bytes == 0) == (!atoi(self->argv[0]) || !l.tokens) &&
              (!bytes || bytes < 3 * sent(&l)),
          "the engine moved %llu B", (unsigned long long)bytes);
    close_layer(&l);
    return 0;
}

/* Make calls until rank argv[0] is killed or, with argv[1], aborts the
 * communicator. The error must name that rank. Then unmap the memory of the
 * tokens at once. */
static int killed(const struct rank *self)
{
    const bool aborts = self->argc > 1 && self->rank == atoi(self->argv[0]);
    enum shunt_status st = SHUNT_OK;
    char name[32];
    struct layer l;

    snprintf(name, sizeof(name), "rank %d", atoi(self->argv[0]));
    if (open_layer(self, 400, 1030, SHUNT_MOE_PLAIN_SUM, SHUNT_MOE_WIRE_PAYLOAD,
                   &l))
        return 1;
    for (int round = 0; !st; round++) {
        struct shunt_request *request;

        st = shunt_moe_dispatch_start(l.plan, l.x,
                                      shunt_moe_buffer(l.plan, SHUNT_MOE_ROWS),
                                      l.info.total, &request);
        if (round == 5 && aborts)
            shunt_comm_abort(self->comm);
        if (!st)
            st = shunt_wait(&request);
        if (round == 5)
            rank_say("in the loop");
    }
    munmap(l.x, x_bytes(&l));
    CHECK((st == SHUNT_ERR_PEER || st == SHUNT_ERR_ABORTED) &&
              (aborts || strstr(shunt_last_error(self->comm), name)),
          "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
    free(l.idx);
    free(l.weight);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "rows", .run = rows},
    {.name = "not_copies", .run = not_copies},
    {.name = "lends", .run = lends, .no_threads = true},
    {.name = "failing", .run = failing, .no_threads = true},
    {.name = "killed", .run = killed, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    setenv("SHUNT_ENGINE", "dma", 0);
    setenv("SHUNT_DMA", "on", 0);
    setenv("SHUNT_ENGINE_MIN", "1", 0);
    return rank_main(argc, argv, cases);
}
