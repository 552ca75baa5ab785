// SPDX-License-Identifier: Apache-2.0
/* Columns of the matrix of counts; see received_counts.h. */
#include "moe/plan/received_counts.h"

#include "collectives/alltoall.h"
#include "moe/layout/counts.h"
#include "moe/layout/growing_array.h"
#include "moe/plan/records.h"
#include "moe/route.h"

_Static_assert(sizeof(struct shunti_column) == 4 * sizeof(uint32_t),
               "an array of columns is one of words");

static size_t local_of(const struct shunt_moe *moe, int rank)
{
    return (size_t)shunti_placement_count(moe->placement, rank);
}

static struct shunti_column *column_at(const struct shunt_moe *moe, int source)
{
    return (struct shunti_column *)(void *)(moe->columns +
                                            (size_t)source *
                                                shunti_column_words(
                                                    local_of(moe, moe->rank)));
}

const struct shunti_column *shunti_column_of(const struct shunt_moe *moe,
                                             int source)
{
    return column_at(moe, source);
}

bool shunti_messages_prepare(struct shunt_moe *moe, size_t out, size_t in)
{
    struct shunti_messages *m = &moe->messages;

    return shunti_grow(&m->bytes, &m->bytes_max, 2 * (size_t)moe->nranks,
                       sizeof(*m->bytes)) &&
           shunti_grow(&m->out, &m->out_max, out, 1) &&
           shunti_grow(&m->in, &m->in_max, in, 1);
}

bool shunti_received_counts_prepare(struct shunt_moe *moe)
{
    const size_t ranks = (size_t)moe->nranks;
    const size_t copies = moe->placement->first[ranks];

    if (!shunti_grow(&moe->columns, &moe->columns_max,
                     ranks * shunti_column_words(local_of(moe, moe->rank)),
                     sizeof(*moe->columns)))
        return false;
    return shunti_records_have_counts(moe) ||
           shunti_messages_prepare(moe,
                                   ranks * sizeof(struct shunti_column) +
                                       copies * sizeof(uint32_t),
                                   0);
}

/* Write the counts of what `source` sends to `rank`, from the record of
 * `source`. */
static void write(const struct shunt_moe *moe, int source,
                  const struct shunti_record_view *record, int rank,
                  struct shunti_column *column)
{
    const struct shunti_placement *p = moe->placement;
    const size_t local = local_of(moe, rank);
    const int32_t *expert = shunti_placement_local(p, rank);

    column->tokens = record->rank[rank];
    column->node_tokens = record->node[moe->node[rank]];
    column->node_rows = record->node_rows[moe->node[rank]];
    column->node_pieces = record->pieces ? record->pieces[moe->node[rank]] : 0;
    for (size_t i = 0; i < local; i++) {
        const bool here = shunti_placement_target(p, source, expert[i]) == rank;

        column->count[i] = here ? record->expert[expert[i]] : 0;
    }
}

/* Receive a column from every source, by an alltoallv. */
static enum shunt_status exchange(struct shunt_moe *moe)
{
    const struct shunti_record_view own = shunti_record(moe, moe->rank);
    const size_t ranks = (size_t)moe->nranks;
    size_t *send = moe->messages.bytes, *recv = send + ranks;
    unsigned char *at = moe->messages.out;

    for (int r = 0; r < moe->nranks; r++) {
        write(moe, moe->rank, &own, r, (struct shunti_column *)(void *)at);
        send[r] = shunti_column_words(local_of(moe, r)) * sizeof(uint32_t);
        at += send[r];
        recv[r] =
            shunti_column_words(local_of(moe, moe->rank)) * sizeof(uint32_t);
    }
    return shunti_alltoallv(moe->comm, SHUNTI_IN_PLAN_CREATE, moe->messages.out,
                            send, NULL, moe->columns, recv, NULL, SHUNT_U8);
}

enum shunt_status shunti_received_counts_gather(struct shunt_moe *moe)
{
    if (!shunti_records_have_counts(moe))
        return exchange(moe);
    for (int s = 0; s < moe->nranks; s++) {
        const struct shunti_record_view record = shunti_record(moe, s);

        write(moe, s, &record, moe->rank, column_at(moe, s));
    }
    return SHUNT_OK;
}

bool shunti_column_is_possible(const struct shunti_column *column, size_t local,
                               size_t tokens, size_t topk, size_t padded,
                               bool by_node, bool pieces)
{
    const size_t kept = shunti_counts_sum(column->count, local);
    const size_t most = tokens * topk;

    if (padded && shunti_counts_exceed(column->count, local, padded))
        return false;
    if (by_node && (column->node_tokens > tokens || column->node_rows > most ||
                    kept > column->node_rows))
        return false;
    if (pieces && (column->node_pieces < column->node_tokens ||
                   column->node_pieces > column->node_rows))
        return false;
    return column->tokens <= tokens && kept <= most;
}

int shunti_received_counts_find_bad(const struct shunt_moe *moe)
{
    const bool by_node = shunti_routes_by_node(&moe->routes);

    for (int s = 0; s < moe->nranks; s++)
        if (!shunti_column_is_possible(
                shunti_column_of(moe, s), local_of(moe, moe->rank),
                shunti_records_tokens(moe, s), (size_t)moe->config.topk,
                shunti_records_padded(moe, s), by_node, moe->routes.pieces))
            return s;
    return -1;
}
