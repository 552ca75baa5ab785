// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between algorithms; see select.h.
 *
 * The choice is the row of the table (algorithms.h) with the least cost among
 * those that are possible in the communicator. But SHUNT_ALGORITHM may name
 * another row (forced.h).
 *
 * The protocol of a block (inline, window, raw read, stream) is the sender's
 * choice alone, and is stated in its control message: src/op/note.h,
 * SHUNT_EAGER and SHUNT_READ_MIN.
 */
#include "collectives/select.h"

#include "collectives/forced.h"
#include "src/base/inline.h"
#include "src/comm.h"

/* Calls of fewer bytes have a remembered choice of their own, so that large
 * calls between them do not displace it. */
#define SMALL ((size_t)4 << 10)

/* True if the row is considered for calls of `bytes`. Narrows *same to sizes
 * for which the answer is the same. */
static bool is_considered(const struct shunt_comm *comm,
                          const struct shunti_row *row,
                          const struct shunti_entry *entry, size_t bytes,
                          struct shunti_sizes *same)
{
    enum shunti_match match =
        entry->len ? shunti_entry_names(entry, row) : SHUNTI_FAMILY;
    struct shunti_sizes suits;

    if (!match || !row->possible->here(comm))
        return false;
    if (match == SHUNTI_EXACTLY || !row->suits)
        return true;
    suits = row->suits(comm);
    shunti_sizes_narrow(same, suits, bytes);
    return shunti_sizes_have(suits, bytes);
}

struct shunti_chosen shunti_choose(const struct shunt_comm *comm, unsigned kind,
                                   size_t bytes)
{
    struct shunti_chosen best = {NULL, SHUNTI_ALL_SIZES, false};
    const struct shunti_entry entry =
        shunti_forced(comm, kind, bytes, &best.same);
    const struct shunti_shape shape = shunti_shape_of(comm);
    const struct shunti_row *row;
    double least = 0;

    for (size_t i = 0; (row = shunti_row_at(i)); i++) {
        double seconds;

        if (row->kind != kind ||
            !is_considered(comm, row, &entry, bytes, &best.same))
            continue;
        seconds = shunti_row_cost(row, &shape, bytes);
        best.by_cost = best.row && comm->nodes > 1;
        if (!best.row || seconds < least) {
            best.row = row;
            least = seconds;
        }
    }
    return best;
}

/* Remember the choice for all sizes for which it is certainly the same. */
SHUNTI_NOINLINE static enum shunti_algorithm
choose_and_remember(struct shunt_comm *comm, unsigned kind, size_t bytes)
{
    struct shunti_choices *choices = &comm->choices[kind];
    struct shunti_choice *choice =
        bytes < SMALL ? &choices->small : &choices->large;
    struct shunti_chosen chosen = shunti_choose(comm, kind, bytes);

    shunti_forced_report(comm);
    if (chosen.by_cost)
        chosen.same = (struct shunti_sizes){bytes, bytes};
    choice->low = chosen.same.low;
    choice->width = chosen.same.high - chosen.same.low;
    choice->width += choice->width != SIZE_MAX;
    choice->algorithm = (uint8_t)chosen.row->algorithm;
    return chosen.row->algorithm;
}

static inline bool is_of(const struct shunti_choice *choice, size_t bytes)
{
    return bytes - choice->low < choice->width;
}

enum shunti_algorithm shunti_select(struct shunt_comm *comm, unsigned kind,
                                    size_t bytes)
{
    const struct shunti_choices *choices = &comm->choices[kind];

    if (is_of(&choices->small, bytes))
        return choices->small.algorithm;
    if (is_of(&choices->large, bytes))
        return choices->large.algorithm;
    return choose_and_remember(comm, kind, bytes);
}
