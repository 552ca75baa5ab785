// SPDX-License-Identifier: Apache-2.0
/* The number of rows that an exchange sends, computed from its routing
 * (exchange.h). */
#include "tests/moe/exchange.h"

bool by_rails(enum shunt_moe_mode mode)
{
    return mode == SHUNT_MOE_TWO_LEVEL || mode == SHUNT_MOE_ALLGATHER;
}

/* The number of rows that this rank must send, by the definitions. */
struct traffic {
    size_t mapped;  /* rows written into others' memory */
    size_t network; /* rows to other nodes */
    size_t plain;   /* rows to other nodes, if each assignment had its own */
};

/* The number of different nodes, or of ranks on other nodes, that a token of
 * `source` goes to. */
static size_t distinct(const struct world *w, int source, size_t t, bool ranks)
{
    size_t k = (size_t)w->config.topk, n = 0;

    for (size_t j = 0; j < k; j++) {
        int e = w->kept[source][t * k + j], at;
        bool first = e >= 0;

        if (!first)
            continue;
        at = world_target(w, source, e);
        first = w->node[at] != w->node[source];
        for (size_t i = 0; i < j && first; i++) {
            int f = w->kept[source][t * k + i], before;

            if (f < 0)
                continue;
            before = world_target(w, source, f);
            first = ranks ? before != at : w->node[before] != w->node[at];
        }
        n += first;
    }
    return n;
}

static struct traffic traffic_of(const struct run *run)
{
    const struct world *w = run->world;
    const enum shunt_moe_mode mode = run->rows.mode;
    const int rank = run->self->rank;
    size_t k = (size_t)w->config.topk;
    struct traffic want = {0};
    int nodes = shunt_comm_nodes(run->self->comm);

    for (size_t t = 0; t < w->tokens[rank]; t++) {
        for (size_t j = 0; j < k; j++) {
            int e = w->kept[rank][t * k + j];
            int at = e < 0 ? rank : world_target(w, rank, e);

            want.plain += w->node[at] != w->node[rank];
            want.mapped += at != rank && (mode == SHUNT_MOE_DIRECT ||
                                          w->node[at] == w->node[rank]);
        }
        want.network += mode == SHUNT_MOE_ALLGATHER
                            ? (size_t)nodes - 1
                            : distinct(w, rank, t, mode == SHUNT_MOE_FLAT);
    }
    if (mode == SHUNT_MOE_DIRECT)
        want.network = want.plain;
    if (mode == SHUNT_MOE_FLAT)
        want.mapped = 0;
    return want;
}

size_t run_wire_bytes(const struct run *run)
{
    size_t hidden = run->world->config.hidden;

    return run->world->config.wire == SHUNT_MOE_WIRE_FP8 &&
                   run->rows.mode != SHUNT_MOE_DIRECT
               ? hidden + 4 * ((hidden + 127) / 128)
               : run->bytes;
}

int run_check_sent(const struct run *run, const struct shunt_comm_stats *before)
{
    struct traffic want = traffic_of(run);
    struct shunt_comm_stats after;
    const bool flat = run->rows.mode == SHUNT_MOE_FLAT;

    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &after, sizeof(after)));
    CHECK(run->rows.network_rows == want.network,
          "%zu rows to other nodes, not %zu", run->rows.network_rows,
          want.network);
    CHECK(run->rows.network_rows_plain == want.plain,
          "%zu plain rows to other nodes, not %zu",
          run->rows.network_rows_plain, want.plain);
    CHECK(run->rows.network_dispatch_bytes ==
              want.network * run_wire_bytes(run),
          "%zu bytes to other nodes, not %zu", run->rows.network_dispatch_bytes,
          want.network * run_wire_bytes(run));
    if (flat) /* alltoallv sends the rows */
        return 0;
    CHECK(run->rows.bytes_sent ==
              want.mapped * run->bytes +
                  (run->rows.mode == SHUNT_MOE_DIRECT
                       ? 0
                       : want.network * run_wire_bytes(run)),
          "%zu bytes to send", run->rows.bytes_sent);
    CHECK(after.bytes_mapped - before->bytes_mapped == want.mapped * run->bytes,
          "%zu bytes counted, not %zu",
          (size_t)(after.bytes_mapped - before->bytes_mapped),
          want.mapped * run->bytes);
    CHECK(after.bytes_remote - before->bytes_remote ==
              run->rows.network_dispatch_bytes,
          "%zu bytes to other nodes counted, not %zu",
          (size_t)(after.bytes_remote - before->bytes_remote),
          run->rows.network_dispatch_bytes);
    return 0;
}

/*
 * The bytes that `node` sends back to `source`, a rank of another node. Between
 * rail peers they are, for each piece of a token there, the row of the only
 * expert, or one sum. A sum is f32 unless it is rounded. In the mode FLAT every
 * row is sent. In the mode DIRECT rows are read, and nothing is sent.
 */
static size_t bytes_home(const struct run *run, int source, int node)
{
    const struct world *w = run->world;
    const size_t sum = w->config.partials == SHUNT_MOE_PARTIALS_F32
                           ? w->config.hidden * sizeof(float)
                           : run->bytes;
    size_t bytes = 0;

    for (size_t t = 0; t < w->tokens[source]; t++) {
        int rows[64];
        const int pieces = world_pieces(w, source, t, node, rows);

        for (int i = 0; i < pieces; i++)
            if (rows[i] > 1 && by_rails(run->rows.combine_mode))
                bytes += sum;
            else if (run->rows.combine_mode != SHUNT_MOE_DIRECT)
                bytes += (size_t)rows[i] * run->bytes;
    }
    return bytes;
}

size_t run_bytes_home(const struct run *run)
{
    const int *node = run->world->node, rank = run->self->rank;
    size_t bytes = 0;

    for (int n = 0; n < shunt_comm_nodes(run->self->comm); n++)
        bytes += n != node[rank] ? bytes_home(run, rank, n) : 0;
    return bytes;
}

/* Returns the index of a rank on its node, and the number of the node's ranks
 * in *size. */
static int local_index(const struct run *run, int rank, int *size)
{
    const int *node = run->world->node;
    int index = 0;

    *size = 0;
    for (int r = 0; r < run->self->size; r++) {
        index += r < rank && node[r] == node[rank];
        *size += node[r] == node[rank];
    }
    return index;
}

/* With rail peers: the bytes that this rank sends to the sources for which it
 * is the relay. */
static size_t bytes_relayed(const struct run *run)
{
    const int *node = run->world->node, rank = run->self->rank;
    size_t bytes = 0;
    int size, theirs;
    const int ours = local_index(run, rank, &size);

    for (int s = 0; s < run->self->size; s++)
        if (node[s] != node[rank] &&
            local_index(run, s, &theirs) % size == ours)
            bytes += bytes_home(run, s, node[rank]);
    return bytes;
}

int run_check_sent_home(const struct run *run,
                        const struct shunt_comm_stats *before)
{
    struct shunt_comm_stats after;

    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &after, sizeof(after)));
    CHECK(run->rows.network_combine_bytes == run_bytes_home(run),
          "%zu bytes of combine from other nodes, not %zu",
          run->rows.network_combine_bytes, run_bytes_home(run));
    if (by_rails(run->rows.combine_mode))
        CHECK(after.bytes_remote - before->bytes_remote == bytes_relayed(run),
              "%zu bytes to other nodes counted, not %zu",
              (size_t)(after.bytes_remote - before->bytes_remote),
              bytes_relayed(run));
    return 0;
}
