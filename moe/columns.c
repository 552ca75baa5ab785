// SPDX-License-Identifier: Apache-2.0
/* Columns of the matrix of counts; see columns.h. */
#include "moe/columns.h"

#include "moe/grow.h"
#include "moe/records.h"

_Static_assert(sizeof(struct shunti_column) == 3 * sizeof(uint32_t),
               "an array of columns is one of words");

static size_t local_of(const struct shunt_moe *moe, int rank)
{
    return (size_t)shunti_placement_count(&moe->placement, rank);
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

bool shunti_columns_prepare(struct shunt_moe *moe)
{
    return shunti_grow(&moe->columns, &moe->columns_max,
                       (size_t)moe->nranks *
                           shunti_column_words(local_of(moe, moe->rank)),
                       sizeof(*moe->columns));
}

/* What a record says for `rank`. */
static void write(const struct shunt_moe *moe,
                  const struct shunti_record_view *record, int rank,
                  struct shunti_column *column)
{
    const size_t local = local_of(moe, rank);
    const int32_t *expert = shunti_placement_local(&moe->placement, rank);

    column->tokens = record->rank[rank];
    column->node_tokens = record->node[moe->node[rank]];
    column->node_rows = record->node_rows[moe->node[rank]];
    for (size_t i = 0; i < local; i++)
        column->count[i] = record->expert[expert[i]];
}

void shunti_columns_read(struct shunt_moe *moe)
{
    for (int s = 0; s < moe->nranks; s++) {
        const struct shunti_record_view record = shunti_record(moe, s);

        write(moe, &record, moe->rank, column_at(moe, s));
    }
}
